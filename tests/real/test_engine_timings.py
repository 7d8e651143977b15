"""The proxy's figures compared with the engine's own.

`TOKENGAUGE_CALLS=200 .cache/real/venv/bin/python -m pytest -s tests/real/test_engine_timings.py` prints the
differences over 200 calls as a table.
"""

import json
import os
import statistics
import urllib.request

import pytest

pytestmark = pytest.mark.part("alone")

CALLS = int(os.environ.get("TOKENGAUGE_CALLS", 60))
LENGTHS = [16, 40, 64]
QUESTION = "Tell me of rivers, of the towns beside them and of what the boats carried. "


def streamed(url, number):
    """Makes one streamed chat and returns the engine's own timings from its last chunk."""
    body = {
        "model": "tiny",
        "stream": True,
        "max_tokens": LENGTHS[number % len(LENGTHS)],
        "messages": [{"role": "user", "content": QUESTION * (1 + number % 7)}],
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        events = [line[6:] for line in response.read().decode().splitlines() if line.startswith("data: {")]
    return next(filter(None, (json.loads(event).get("timings") for event in reversed(events))))


@pytest.fixture(scope="module")
def pairs(engine_gauge):
    """Returns the engine's timings and the proxy's record of each call, one after the other."""
    made = []
    for number in range(CALLS):
        with engine_gauge.next_record() as records:
            timings = streamed(engine_gauge.url, number)
        made.append((timings, records[0]))
    return made


def test_tokens_are_those_that_the_engine_says_it_made(pairs):
    for timings, record in pairs:
        assert record["tokens"]["reported"]["output"] == timings["predicted_n"]
        assert record["engine"]["output_tokens"] == timings["predicted_n"]
        assert record["engine"]["prompt_tokens"] == timings["prompt_n"]


def test_no_first_token_comes_before_its_prompt_is_read(pairs):
    for timings, record in pairs:
        prompt = timings["prompt_ms"] / 1000
        assert prompt <= record["seconds"]["ttft"]
        # The engine's clock starts when it takes up the request, and the engine is idle.
        assert record["seconds"]["ttft"] < prompt + 5


def test_a_call_takes_at_least_the_engines_time(pairs):
    for timings, record in pairs:
        assert record["seconds"]["duration"] >= (timings["prompt_ms"] + timings["predicted_ms"]) / 1000 - 0.001


def quantiles(values):
    ordered = sorted(values)
    return [ordered[round(share * (len(ordered) - 1))] for share in (0, 0.5, 0.9, 0.99)]


def test_the_differences_can_be_looked_at(pairs):
    decoded = [(timings, record) for timings, record in pairs if record["tps"]["output"]]
    # We count o200k tokens and the engine its own, so the ratio of the counts is removed.
    own = [
        record["tps"]["output"] * record["tokens"]["reported"]["output"] / record["tokens"]["normalised"]["output"]
        for _, record in decoded
    ]
    rows = {
        "TTFT − prompt_ms, ms": [1000 * record["seconds"]["ttft"] - timings["prompt_ms"] for timings, record in pairs],
        "duration − prompt_ms − predicted_ms, ms": [
            1000 * record["seconds"]["duration"] - timings["prompt_ms"] - timings["predicted_ms"] for timings, record in pairs
        ],
        "decode speed ÷ the engine's": [
            speed / timings["predicted_per_second"] for speed, (timings, _) in zip(own, decoded)
        ],
        "tokens − predicted_n": [record["tokens"]["reported"]["output"] - timings["predicted_n"] for timings, record in pairs],
    }
    print(f"\n{'of ' + str(len(pairs)) + ' calls':42}{'min':>9}{'p50':>9}{'p90':>9}{'p99':>9}")
    for name, values in rows.items():
        print(f"{name:42}" + "".join(f"{value:9.3f}" for value in quantiles(values)))
    assert len(decoded) > CALLS / 3
    assert 0.5 < statistics.median(rows["decode speed ÷ the engine's"]) < 2
