"""Commands give the same answers from a store and from a ledger with the same calls: random traffic of many
dialects, names and endings, a real ClickHouse, and random options of every command that reads either."""

import concurrent.futures
import datetime
import http.client
import json
import math
import os
import random
import re
import subprocess
import urllib.request

import pytest

from clickhouse import ClickHouse
from processes import running
from test_ledger import Proxy

pytestmark = pytest.mark.part("stores")

CALLS = 400
QUESTIONS = 40
SEED = int(os.environ.get("TOKENGAUGE_SEED", "1"))
WORDS = ["model", "workload", "upstream", "agent", "user", "route", "experiment", "variant", "prompt-length", "output-length", "tool"]
# Names come from requests, so they can have anything that a header or a body can contain.
MODELS = ["m", "gpt-4o", "modèle/ü", "名前", "it's \"quoted\"", "tab\there", "back\\slash", "=1+1", "NULL", "\\N", "x" * 200, ""]
AGENTS = ["coder", "re viewer", "=cmd", "a'b\"c", "a\\b", "NULL", "true", "1e3"]
TOOLS = ["", "fetch", "mcp__git.status-1", "sh -c 'rm'", "a+b", "suche/ü", "t" * 100]
ENDINGS = ["", "", "", "", "status=429", "status=500", "reset=@3", "close=@2", "error=@4", "finish=length", "tool=12", "tool=9x2", "reasoning=9", "usage=off", "stall=60ms@3", "gzip"]
PATHS = {
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/messages": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 64},
    "/v1/responses": lambda text: {"input": text},
    "/v1/completions": lambda text: {"prompt": text},
    "/v1/embeddings": lambda text: {"input": text},
}


@pytest.fixture(scope="module")
def stores(tokengauge, simulator, tmp_path_factory):
    """A ledger and a store with the same random calls, and the configuration."""
    folder = tmp_path_factory.mktemp("readers")
    with ClickHouse(folder / "clickhouse", folder / "clickhouse.log").started() as clickhouse:
        config = configuration(folder, simulator, clickhouse)
        answer(tokengauge, "export", "sink", "ddl", "--apply", "--config", config)
        with running([tokengauge, "run", "--config", config], folder / "proxy.log", expected_exit=0) as process:
            proxy = Proxy(process)
            traffic(proxy)
            proxy.wait('tokengauge_sink_records_total{sink="clickhouse"}', CALLS)
        store = f"clickhouse://127.0.0.1:{clickhouse.port}/default?table=tokengauge_calls"
        yield folder, config, folder / "state/ledger.sqlite", store


def configuration(folder, simulator, clickhouse):
    file = folder / "proxy.toml"
    routes = "".join(
        f'[[upstream]]\nname = "{name}"\nurl = "{simulator}"\n[[route]]\npath = "/{name}"\nstrip = true\nupstream = "{name}"\n'
        f'workload = "{workload}"\n'
        for name, workload in (("old", "chat"), ("new", "voice"))
    )
    file.write_text(
        f"""
listen = "127.0.0.1:0"
state_dir = "{folder}/state"
[admin]
listen = "127.0.0.1:0"
{routes}
[[price]]
model = "gpt-*"
input = 3
cached_input = 0.3
output = 11
[[slo]]
name = "fast"
output_tps.at_least = 300
objective = 0.9
[[slo]]
name = "there"
availability = true
objective = 0.95
[[slo]]
name = "waits"
ttft.at_most = "20ms"
objective = 0.9
select = {{ workload = "chat" }}
[[gate]]
name = "rollout"
candidate.upstream = "new"
baseline.upstream = "old"
min_sessions = 10
settled_after = "1s"
[[sink]]
kind = "clickhouse"
url = "{clickhouse.url}"
batch_rows = 64
batch_wait = "100ms"
"""
    )
    return file


def traffic(proxy):
    dice = random.Random(SEED)
    calls = [a_call(dice, number) for number in range(CALLS)]
    with concurrent.futures.ThreadPoolExecutor(6) as agents:
        list(agents.map(lambda call: ask(proxy, *call), calls))


def a_call(dice, number):
    path = dice.choice(list(PATHS))
    body = PATHS[path](" ".join("word" for _ in range(dice.choice([1, 30, 700]))))
    body |= {"model": dice.choice(MODELS), "stream": dice.random() < 0.7}
    if dice.random() < 0.3:
        body["user"] = f"ada-{dice.randrange(3)}@example.org"
    if name := dice.choice(TOOLS):
        body["tools"] = [{"type": "function", "name": name, "function": {"name": name}}]
    upstream = dice.choice(["old", "new"])
    headers = {
        "content-type": "application/json",
        "x-sim": f"ttft={dice.randrange(1, 40)}ms,gap={dice.randrange(0, 5)}ms,tokens={dice.randrange(1, 30)},{dice.choice(ENDINGS)}",
        "x-tokengauge-session": f"{upstream} 'session' {dice.randrange(40)}",
    }
    if dice.random() < 0.8:
        headers["x-tokengauge-agent"] = dice.choice(AGENTS)
    if dice.random() < 0.6:
        headers["x-tokengauge-experiment"] = f"words/{dice.choice('ab')}"
    return upstream, path, body, headers


def ask(proxy, upstream, path, body, headers):
    request = urllib.request.Request(f"{proxy.url}/{upstream}{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()
    except (OSError, http.client.HTTPException) as error:
        # The simulator was told to break this call.
        assert "Connection refused" not in str(error)


def answer(tokengauge, *arguments, codes=(0,)):
    done = subprocess.run([str(part) for part in (tokengauge, *arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode in codes, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode, done.stdout or done.stderr


def figures(text):
    """Returns JSON without query times and without alerts of a busy machine, because a store has only calls."""
    text = re.sub(r"[\d.]+ sessions a minute", "some sessions a minute", text)
    text = re.sub(r'"(made_at|evaluated_at|since|until|at)": ?"[^"]*"', '"time": null', text)
    told = json.loads(re.sub(r'"waited_seconds": ?[\d.]+', '"time": null', text))
    told.pop("marks", None)
    # A gate's forecast depends on the time of the question.
    told.pop("forecast", None)
    return told


def assert_alike(ours, theirs, where=""):
    """Asserts equal members and values. A store returns calls in another order, so the last digits of sums differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key in ours:
            assert_alike(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for place, pair in enumerate(zip(ours, theirs)):
            assert_alike(*pair, f"{where}[{place}]")
    elif isinstance(ours, float) and isinstance(theirs, float):
        assert math.isclose(ours, theirs, rel_tol=1e-8, abs_tol=1e-12), f"{where}: {ours} and {theirs}"
    else:
        assert ours == theirs, where


def instant(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")[:-4] + "Z"


def test_the_traffic_is_as_mixed_as_it_is_meant_to_be(tokengauge, stores):
    _, config, ledger, _ = stores
    lines = answer(tokengauge, "export", "--format", "jsonl", "--since", "1h", "--ledger", ledger, "--config", config)[1]
    calls = [json.loads(line) for line in lines.splitlines()]
    assert len(calls) == CALLS
    assert {call["outcome"] for call in calls} >= {"complete", "http_error", "upstream_reset", "error_event"}, {call["outcome"] for call in calls}
    assert {call["dialect"] for call in calls} >= {"openai_chat", "anthropic", "openai_responses"}
    for member in ("user", "experiment", "cost_usd", "session"):
        assert {call.get(member) is None for call in calls} >= ({False} if member == "session" else {True, False}), member


@pytest.mark.parametrize("form", ["jsonl", "csv", "mooncake"])
def test_exports_are_the_same(tokengauge, stores, form):
    _, config, ledger, store = stores
    question = ["export", "--format", form, "--since", "1h", "--config", config]
    ours = answer(tokengauge, *question, "--ledger", ledger)[1]
    theirs = answer(tokengauge, *question, "--store", store)[1]
    # Only a store knows which pod measured a call.
    theirs = re.sub(r',"pod":\{[^}]*\}', "", theirs)
    # Two calls of the same millisecond have no order in a store.
    records = [sorted(text.splitlines()) for text in (ours, theirs)]
    if form == "mooncake":
        # Times since the previous call of a session depend on that order.
        records = [sorted(re.sub(r',"delay":\d+', "", line) for line in lines) for lines in records]
    assert records[0] == records[1]
    assert len(records[0]) >= CALLS / 2


def random_question(dice, begun, calls):
    """Returns a command with options, and its possible exit codes."""
    window = []
    if dice.random() < 0.5:
        window = ["--since", instant(begun + dice.random() * 4)]
    kind = dice.choice(["report", "report", "report", "session", "gate", "experiment"])
    if kind == "report":
        by = ",".join(dice.sample(WORDS, dice.randrange(1, 4)))
        return ["report", "--by", by, "--format", "json", *window], (0, 1)
    if kind == "session":
        return ["report", "session", dice.choice(calls)["session"], "--format", dice.choice(["json", "perfetto", "otlp"])], (0,)
    if kind == "gate":
        return ["gate", "rollout", "--format", "json"], (0, 1, 3)
    unit, least = dice.choice(["session", "agent", "user"]), dice.choice(["10", "20", "1000"])
    return ["experiment", "words", "--unit", unit, "--min-units", least, "--ttft-above", "20ms", "--format", "json"], (0,)


def test_random_questions_have_the_same_answers(tokengauge, stores):
    _, config, ledger, store = stores
    lines = answer(tokengauge, "export", "--format", "jsonl", "--since", "1h", "--ledger", ledger, "--config", config)[1]
    calls = [json.loads(line) for line in lines.splitlines()]
    begun = min(datetime.datetime.fromisoformat(call["started_at"].replace("Z", "+00:00")).timestamp() for call in calls)
    dice = random.Random(SEED)
    compared = 0
    for _ in range(QUESTIONS):
        question, codes = random_question(dice, begun, calls)
        if "--by" not in question:
            question += ["--config", config]
        ours = answer(tokengauge, *question, "--ledger", ledger, codes=codes)
        theirs = answer(tokengauge, *question, "--store", store, codes=codes)
        assert ours[0] == theirs[0], question
        assert ours[1].startswith("{") == theirs[1].startswith("{"), question
        if ours[1].startswith("{"):
            assert_alike(figures(ours[1]), figures(theirs[1]), str(question))
            compared += 1
    assert compared >= QUESTIONS / 2, "most questions have an answer"


def test_objectives_are_judged_the_same(tokengauge, stores):
    folder, config, ledger, store = stores
    log = folder / "calls.jsonl"
    log.write_text(answer(tokengauge, "export", "--format", "jsonl", "--since", "1h", "--ledger", ledger, "--config", config)[1])
    for more in ([], ["--last", "2s"], ["--strict"]):
        ours = answer(tokengauge, "slo", "test", log, "--config", config, *more, codes=(0, 1))
        theirs = answer(tokengauge, "slo", "test", "--store", store, "--config", config, *more, codes=(0, 1))
        assert ours == theirs
        assert "fast" in ours[1] and "waits" in ours[1]
    assert answer(tokengauge, "slo", "suggest", log) == answer(tokengauge, "slo", "suggest", "--store", store)


def test_a_benchmark_asks_the_calls_of_a_store_again(tokengauge, stores, simulator):
    _, _, _, store = stores
    command = ["bench", simulator, "--store", store, "--concurrency", "2", "--trials", "1", "--format", "json"]
    command += ["--warmup-duration", "500ms", "--burn-in-duration", "0s", "--benchmark-duration", "3s"]
    command += ["--sample-interval", "100ms", "--steady-within", "100", "--max-client-lag", "10s"]
    command += ["-H", "x-sim: ttft=5ms,gap=1ms,tokens=20"]
    results = json.loads(answer(tokengauge, *command, codes=(0, 1))[1])
    assert re.fullmatch(r"\d{2,} prompts of a file or trace", results["settings"]["workload"]), results["settings"]["workload"]
    assert results["levels"][0]["trials"][0]["calls"] > 20
    code, _ = answer(tokengauge, "bench", simulator, "--store", store, "--since", "2020-01-01T00:00:00Z", "--isl", "5", codes=(2,))
    assert code == 2


def test_data_missing_in_a_store_is_reported(tokengauge, stores):
    _, config, _, store = stores
    for question in (["report", "session", "nobody"], ["experiment", "nothing"]):
        command = [str(part) for part in (tokengauge, *question, "--config", config, "--store", store)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert question[-1] in done.stderr and "ledger.sqlite" not in done.stderr, done.stderr
