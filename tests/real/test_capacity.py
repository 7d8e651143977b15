"""The capacity curve compared with the simulator's, at steps of load over real sockets: equal and random lengths,
short calls. Agents count tokens by their own clock."""

import asyncio
import contextlib
import json
import time
import urllib.parse
import urllib.request

import pytest

from conftest import ANY_PORT
from gauge import Gauge
from processes import running

pytestmark = pytest.mark.part("alone")

KNEE = 8
STEPS, STEP_SECONDS, EDGE = (1, 2, 4, 8, 12, 16), 8.0, 0.5
KINDS = {
    "equal": "tokens=60",
    "random": "tokens=20..140",
    "short": "tokens=10",
}
BEHAVIOUR = f"ttft=20ms,gap=20ms,knee={KNEE},usage=on,"


async def call(host, port, path, came, spans):
    """Makes one call, and notes when how many tokens arrived, and its begin and end."""
    reader, writer = await asyncio.open_connection(host, port)
    began = last = time.time()
    body = json.dumps({"model": "sim-model", "stream": True, "messages": [{"role": "user", "content": "Go on."}]}).encode()
    writer.write(f"POST {path}/v1/chat/completions HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n".encode())
    writer.write(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    while data := await reader.read(65536):
        tokens = data.count(b'"content":"') - data.count(b'"content":""')
        last = time.time() if tokens else last
        came.append((time.time(), tokens))
    spans.append((began, last))
    writer.close()


async def agent(host, port, path, came, spans, until):
    while time.time() < until:
        await call(host, port, path, came, spans)


async def drive(base, came, spans, steps):
    host, port = urllib.parse.urlsplit(base).netloc.split(":")
    for concurrency in STEPS:
        began = time.time()
        agents = [
            agent(host, int(port), f"/{kind}", came[kind], spans[kind], began + STEP_SECONDS)
            for kind in KINDS
            for _ in range(concurrency)
        ]
        await asyncio.gather(*agents)
        steps.append((concurrency, began + EDGE, began + STEP_SECONDS - EDGE))
        # No second may contain streams of two steps.
        await asyncio.sleep(2)


@pytest.fixture(scope="module")
def curves(logs, tokengauge):
    """Returns for each kind of calls the proxy's curve, and the agents' own tokens per second at each step."""
    with contextlib.ExitStack() as stack:
        config = ['listen = "127.0.0.1:0"', '[admin]\nlisten = "127.0.0.1:0"']
        for kind, lengths in KINDS.items():
            command = [tokengauge, "demo", "backend", "--listen", ANY_PORT, "--behave", BEHAVIOUR + lengths]
            simulator = stack.enter_context(running(command, logs / f"capacity-{kind}.log"))
            url = "http://" + simulator.wait_for_line(r"listening on (\S+)")
            config.append(f'[[upstream]]\nname = "{kind}"\nurl = "{url}"')
            config.append(f'[[route]]\nname = "{kind}"\npath = "/{kind}"\nstrip = true\nupstream = "{kind}"')
        file = logs / "capacity.toml"
        file.write_text("\n".join(config))
        log = logs / "capacity.jsonl"
        proxy = stack.enter_context(running([tokengauge, "run", "--config", file, "--call-log", log], logs / "capacity.log", expected_exit=0))
        traffic = proxy.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
        gauge = Gauge(f"http://{traffic}", "http://" + proxy.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)"), log)
        came, spans, steps = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}, []
        asyncio.run(drive(gauge.url, came, spans, steps))
        time.sleep(12)
        rows = {row["name"]: row for row in json.loads(gauge.scrape("/api/v1/capacity"))["upstreams"]}
        yield rows, {kind: {step: (came[kind], spans[kind], since, until) for step, since, until in steps} for kind in KINDS}


def rate(came, since, until):
    """Returns the tokens per second of a time range."""
    return sum(count for at, count in came if since <= at < until) / (until - since)


def slowest_and_fastest(came, since, until, seconds):
    """Between which tokens per second `seconds` whole seconds of a step lie, whichever of them are taken.

    A point of the curve has the seconds that had its concurrency: on a busy machine, an agent starts its next call
    late, and the fuller seconds of the step are taken."""
    lowest, highest = [], []
    for phase in range(4):
        start = since + phase / 4
        bins = sorted(rate(came, start + second, start + second + 1) for second in range(int(until - start)))
        taken = min(seconds, len(bins))
        lowest.append(sum(bins[:taken]) / taken)
        highest.append(sum(bins[-taken:]) / taken)
    return min(lowest), max(highest)


def at_concurrency(came, spans, concurrency):
    """The tokens per second of all seconds with this average number of calls, by where seconds begin.

    As calls of random lengths end, the seconds after a step have ever fewer of them: those with one and a bit also count
    as seconds with one."""
    first, last = min(began for began, _ in spans), max(ended for _, ended in spans)
    rates = []
    for phase in range(8):
        start, tokens, busy = first - 1 + phase / 8, 0, 0.0
        while start < last:
            calls = sum(max(0.0, min(ended, start + 1) - max(began, start)) for began, ended in spans)
            if calls > 0 and max(round(calls), 1) == concurrency:
                tokens += sum(count for at, count in came if start <= at < start + 1)
                busy += min(calls, 1.0)
            start += 1
        rates += [tokens / busy] if busy else []
    return rates


@pytest.mark.parametrize("kind", KINDS)
def test_the_curve_is_what_the_agents_got(curves, kind):
    rows, truth = curves
    points = {point["concurrency"]: point for point in rows[kind]["points"]}
    # Between calls no stream runs for a moment: sixteen agents with short calls have fifteen streams on average.
    for step, (came, spans, since, until) in truth[kind].items():
        near = [point for concurrency, point in points.items() if abs(concurrency - step) <= step // 8 and point["seconds"] >= 2]
        assert near, (kind, step, sorted(points))
        point = max(near, key=lambda point: point["seconds"])
        seconds = slowest_and_fastest(came, since, until, point["seconds"])
        rates = [*seconds, *at_concurrency(came, spans, point["concurrency"])]
        slowest, fastest = min(rates), max(rates)
        assert slowest * 0.97 <= point["system_tps"] <= fastest * 1.03, (kind, step, slowest, fastest, near)


@pytest.mark.parametrize("kind", KINDS)
def test_the_knee_is_the_simulators_within_a_step(curves, kind):
    rows, _ = curves
    knee = rows[kind]["knee"]
    assert knee, rows[kind]
    assert 4 <= knee["concurrency"] <= 12, rows[kind]
