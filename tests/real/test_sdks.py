"""The vendors' SDKs: with the proxy, their results equal those without it, and records are correct."""

import dataclasses
import functools
import operator

import pytest

import clients
import tokens

# Values that a backend creates for every call.
VOLATILE = {"id", "item_id", "created", "created_at", "completed_at", "timings", "latencyMs"}
VOLATILE |= {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}

every_client = pytest.mark.parametrize("name", clients.ALL_CLIENTS)
every_mode = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


@dataclasses.dataclass
class Pair:
    """One call without the proxy, the same call through it, and its record."""

    direct: clients.SdkResult
    through: clients.SdkResult
    record: dict


@pytest.fixture(scope="module")
def pair(request):
    """Makes each pair of calls once for all tests."""

    @functools.cache
    def make(name, streamed):
        backend = "engine" if name in clients.ENGINE_CLIENTS else "simulator"
        gauge = request.getfixturevalue(f"{backend}_gauge")
        call = clients.ALL_CLIENTS[name]
        direct = call(request.getfixturevalue(backend), streamed)
        with gauge.next_record() as records:
            through = call(gauge.url, streamed)
        return Pair(direct, through, records[0])

    return make


def settled(value):
    """Returns the value without parts that differ between any two calls."""
    if isinstance(value, dict):
        return {key: settled(inner) for key, inner in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [settled(inner) for inner in value]
    return value


def timings(value):
    """Returns the engine's own measurement, wherever the SDK keeps it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = value.get("timings") if isinstance(value, dict) else None
    return found or next(filter(None, map(timings, inner)), None)


@every_mode
@every_client
def test_an_sdk_sees_the_same_with_and_without_the_proxy(pair, name, streamed):
    calls = pair(name, streamed)
    assert len(calls.through.answer) > 100
    assert calls.through.answer == calls.direct.answer
    assert settled(calls.through.objects) == settled(calls.direct.objects)


@every_mode
@every_client
def test_the_record_counts_the_tokens_the_sdk_saw(pair, name, streamed):
    calls = pair(name, streamed)
    normalised, reported = (calls.record["tokens"][kind] for kind in ("normalised", "reported"))
    assert normalised["answer"] == tokens.count(calls.through.answer)
    assert normalised["output"] == normalised["answer"]
    assert reported["output"] == calls.through.reported_output
    assert reported["input"] == calls.through.reported_input
    assert calls.record["tokens"]["source"] == "reported"


@every_mode
@every_client
def test_the_record_has_the_request_and_the_outcome(pair, name, streamed):
    record = pair(name, streamed).record
    assert (record["status"], record["outcome"], record["error_type"]) == (200, "complete", None)
    assert record["streamed"] == streamed
    assert record["model_requested"] == "tiny"
    assert len(record["finish_reasons"]) == 1
    assert record["bytes"]["request"] > len(clients.PROMPT)
    assert record["bytes"]["response"] > 100


@every_client
def test_a_streamed_call_has_times_that_can_be(pair, name):
    record = pair(name, True).record
    seconds, tps = record["seconds"], record["tps"]
    assert 0 < seconds["ttft_upstream"] <= seconds["ttft"] <= seconds["first_answer"] <= seconds["duration"]
    decoding = seconds["duration"] - seconds["ttft"]
    assert decoding / record["frames"] * 0.5 <= seconds["longest_gap"] <= decoding
    assert tps["unavailable"] is None
    assert tps["total"] <= tps["output"]
    # The text after the first chunk took no longer than the rest of the call. On a busy machine the first chunk has many events
    # (one for each of the engine's tokens). Each other chunk has at least one event, and a few have no text.
    tokens = record["tokens"]
    events = max(record["frames"], tokens["reported"]["output"] or 0)
    after_first = tokens["normalised"]["output"] * (record["frames"] - 8) / events
    assert tps["output"] >= after_first / decoding


@every_client
def test_a_call_that_is_not_streamed_has_no_time_to_first_token(pair, name):
    record = pair(name, False).record
    assert record["seconds"]["ttft"] is None
    assert record["tps"]["output"] is None
    assert record["tps"]["unavailable"] == "not_streamed"
    assert record["tps"]["total"] > 0


@every_mode
@pytest.mark.parametrize("name", clients.ENGINE_CLIENTS)
def test_the_engines_own_timings_are_recorded_in_addition_to_ours(pair, name, streamed):
    calls = pair(name, streamed)
    truth, engine = timings(calls.through.objects), calls.record["engine"]
    assert truth or "chat" not in name, "llama.cpp tells its timings at least in chats"
    if not truth:
        assert engine is None
        return
    assert engine["prompt_tokens"] == truth["prompt_n"]
    assert engine["output_tokens"] == truth["predicted_n"] == calls.record["tokens"]["reported"]["output"]
    assert engine["prompt_seconds"] == pytest.approx(truth["prompt_ms"] / 1000)
    assert engine["output_seconds"] == pytest.approx(truth["predicted_ms"] / 1000)
    if streamed:
        # Nothing can arrive before the prompt was processed.
        assert calls.record["seconds"]["ttft"] >= engine["prompt_seconds"]


@every_mode
@every_client
def test_an_unreachable_upstream_is_an_api_error_of_the_sdks_own_kind(unreachable_gauge, name, streamed):
    with unreachable_gauge.next_record() as records:
        with pytest.raises(clients.api_error(name)) as raised:
            clients.ALL_CLIENTS[name](unreachable_gauge.url, streamed)
    assert "502" in f"{raised.value!r} {raised.value} {vars(raised.value)}"
    assert (records[0]["status"], records[0]["outcome"]) == (502, "unreachable")


def test_the_api_shows_the_records_that_were_logged(pair, engine_gauge):
    pair("openai chat", True)
    pair("openai chat", False)
    # Calls that end at nearly the same time may be logged in another order than they began.
    by_id = operator.itemgetter("id")
    assert sorted(engine_gauge.calls(), key=by_id) == sorted(engine_gauge.logged(), key=by_id)
    assert len(engine_gauge.calls(limit=1)) == 1


def test_a_scrape_counts_every_call_and_token(pair, engine_gauge):
    pair("openai chat", True)
    logged = engine_gauge.logged()
    assert engine_gauge.metric("tokengauge_requests_total") == len(logged)
    assert engine_gauge.metric("tokengauge_time_to_first_token_seconds_count") == sum(one["streamed"] is True for one in logged)
