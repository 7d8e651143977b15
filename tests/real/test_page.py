"""The live page in Debian's Chromium: each scenario of page/scenarios.mjs is a test here."""

import asyncio
import concurrent.futures
import functools
import json
import pathlib
import re
import shutil
import string
import subprocess
import urllib.parse

import pytest

import traffic
import vllm_metrics
from conftest import HERE, PROJECT
from processes import free_port

PAGE = PROJECT / ".cache/real/page"
SHOTS = PROJECT / "target/page"
MANY_SESSIONS, SOME_SESSIONS = 10_000, 400
SECRET = "correct-horse-battery-staple"
# Each group has its own proxies and browser. Its scenarios run in this order on one pytest worker: selection.py.
GROUPS = {
    group: names.split(", ")
    for group, names in re.findall(r"^  (\w+): \{ (.*) \},$", (HERE / "page/scenarios.mjs").read_text(), re.MULTILINE)
}
SCENARIOS = [(group, name) for group, names in GROUPS.items() for name in names]


async def sessions(base, count, connections=8):
    host, port = urllib.parse.urlsplit(base).netloc.split(":")
    names = iter(range(count))

    async def agent():
        reader, writer = await asyncio.open_connection(host, int(port))
        for name in names:
            head = f"POST /gone/v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nx-tokengauge-session: many-{name:05}\r\n"
            writer.write(f"{head}x-tokengauge-agent: crowd/1\r\ncontent-length: 0\r\n\r\n".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
        writer.close()

    await asyncio.gather(*(agent() for _ in range(connections)))


def with_headers(call, **headers):
    before = call.headers
    call.headers = lambda: before() | {f"x-tokengauge-{name.replace('_', '-')}": value for name, value in headers.items()}
    return call


def speaking(base):
    """Makes calls of some models with a speed, and one session with a child between its parent's calls."""
    calls = []
    for number in range(24):
        pace = f"ttft={40 + 20 * (number % 5)}ms,gap={2 + number % 4}ms,tokens=60,usage=on"
        calls.append(traffic.chat("openai", ["gpt-4.1", "gpt-4.1-mini", "gpt-5"][number % 3], behave=pace))
        calls.append(traffic.anthropic("anthropic", "claude-sonnet-4-5", behave=f"{pace},reasoning=20"))
    with concurrent.futures.ThreadPoolExecutor(6) as agents:
        list(agents.map(lambda pair: with_headers(pair[1], session=f"team-{pair[0] % 9}", agent="team/1").make(base), enumerate(calls)))
    for number in range(9):
        call = traffic.chat("openai", "gpt-5", behave="ttft=60ms,gap=3ms,tokens=70,reasoning=20,usage=on")
        names = {"agent": "explorer", "parent_agent": "planner"} if number % 3 == 2 else {"agent": "planner"}
        with_headers(call, session="waterfall", **names).make(base)
        # An agent's pause between its calls.
        asyncio.run(asyncio.sleep(0.15))


@pytest.fixture(scope="module")
def engine_metrics():
    with vllm_metrics.serving() as address:
        yield address


@pytest.fixture(scope="module")
def results(logs, gauge, simulator, engine_metrics):
    """Plays a group once and returns the seconds and the problem or None of each scenario."""
    assert shutil.which("chromium"), "there is no chromium: tests/real/install chromium"
    template = string.Template((HERE / "page/proxy.toml").read_text())
    gone = f"http://127.0.0.1:{free_port()}"

    def configured(name, before="", after=""):
        text = template.substitute(simulator=simulator, gone=gone, engine=engine_metrics, ledger=logs / f"{name}.sqlite")
        (logs / f"{name}.toml").write_text(text.replace(before, after, 1))
        return logs / f"{name}.toml"

    @functools.cache
    def played(group):
        shots = SHOTS / group
        shutil.rmtree(shots, ignore_errors=True)
        shots.mkdir(parents=True)
        full = gauge(f"page-{group}", config=configured(f"page-{group}"))
        count = MANY_SESSIONS if "tenThousandSessions" in GROUPS[group] else SOME_SESSIONS
        asyncio.run(sessions(full.url, count))
        speaking(full.url)
        world = {"full": {"proxy": full.url, "admin": full.admin}, "sessions": count, "shots": str(shots)}
        token = configured(f"page-token-{group}", "[admin]", f'[admin]\ntoken = "{SECRET}"')
        for name, proxy in [
            ("empty", gauge(f"page-empty-{group}", simulator)),
            ("token", gauge(f"page-token-{group}", config=token)),
        ]:
            world[name] = {"proxy": proxy.url, "admin": proxy.admin, "secret": SECRET}
        settings, results_file = logs / f"page-{group}.json", logs / f"page-{group}-results.json"
        settings.write_text(json.dumps(world))
        command = ["node", PAGE / "run.mjs", settings, results_file, *GROUPS[group]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2400)
        if done.returncode:
            return dict.fromkeys(GROUPS[group], {"problem": done.stdout + done.stderr})
        told = json.loads(results_file.read_text())
        print({name: round(one["seconds"], 1) for name, one in told.items()})
        return told

    return played


def test_every_scenario_is_a_test():
    names = subprocess.run(["node", PAGE / "run.mjs", "--list"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert sorted(names.split()) == sorted(name for group in GROUPS.values() for name in group)


@pytest.mark.parametrize("group, scenario", SCENARIOS)
def test_page(results, group, scenario):
    problem = results(group)[scenario]["problem"]
    assert problem is None, problem


@pytest.mark.parametrize("group", ["looks"])
def test_pictures_are_kept(results, group):
    assert results(group)
    kept = {picture.name: picture.stat().st_size for picture in (SHOTS / group).glob("*.png")}
    assert len(kept) >= 20, kept
    assert all(size > 5_000 for size in kept.values()), kept
