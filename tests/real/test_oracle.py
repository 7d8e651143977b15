"""Every surface compared with an independent truth: a Python backend with its own clock, a JavaScript tokenizer, and
arithmetic of this file by docs/measurement.md."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import http.client
import itertools
import json
import math
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pytest

from conftest import HERE, PROJECT
from gauge import Gauge
from processes import running
from test_terminal import Terminal
from tokens import counts

pytestmark = pytest.mark.part("alone")

PAGE = PROJECT / ".cache/real/page"
MIN_TOKENS, MIN_CHUNKS = 32, 4
SKETCH = 0.01  # allowed relative distance of a quantile from the value at its rank (docs/ledger.md)
STALL, SLOW = 0.25, 0.4  # seconds: the configured threshold, the gap of cases with a stall
# No case comes near the limits of the objectives: first tokens arrive within 60 ms or after 300 ms, chunks after 6 or
# 40 ms.
CONFIG = """
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[ledger]
path = "{ledger}"
[measure]
warm_up_calls = 0
warm_up_for = "0s"
stall_threshold = "250ms"
[[upstream]]
name = "oracle"
url = "{backend}"
[[route]]
upstream = "oracle"
workload = "cases"
[[price]]
model = "*"
upstream = "oracle"
input = 1.0
output = 4.0
[[slo]]
name = "first"
objective = 0.5
ttft.at_most = "190ms"
select.workload = "cases"
[[slo]]
name = "up"
objective = 0.5
availability = true
select.workload = "cases"
"""
CHANNELS = {
    "openai_chat": ("a", "ra", "at", "rat", "t"),
    "openai_completions": ("a",),
    "openai_responses": ("a", "ra", "at"),
    "anthropic": ("a", "ra", "at", "rat"),
    "gemini": ("a", "ra"),
    "ollama": ("a", "ra"),
    "cohere_v2": ("a",),
}
NAMES = {"a": "answer", "r": "reasoning", "t": "tool_call"}
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_completions": "/v1/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/{model}:{verb}",
    "ollama": "/api/chat",
    "cohere_v2": "/v2/chat",
}
WORDS = (
    "the river carries boats with grain and timber past the towns on its way to the sea in winter nothing moves",
    "Donaudampfschifffahrt über größere Brücken, ähnlich schön; Straße für Straße — täglich neu: 3,14 km!",
    "河流 运送 着 粮食 和 木材 的 船只 经过 城镇 冬天 一切 都 静止 了 。 东京 都 千代田 区",
    "नदी नावों को ले जाती है और सर्दियों में कुछ भी नहीं चलता",
    "แม่น้ำ พา เรือ ไป ทะเล ใน ฤดู หนาว ไม่มี อะไร เคลื่อนไหว",
    "def f(x): return x**2 + 1  # 👩‍👩‍👧 🇩🇪 \t\\n <|endoftext|> {\"k\": [1, 2]} café naïve",
)


def text_of(dice, words, channel):
    if channel == "tool_call":
        return json.dumps({"query": " ".join(dice.choice(words.split()) for _ in range(30))}, ensure_ascii=False)
    return " ".join(dice.choice(words.split()) for _ in range(dice.randint(30, 50)))


def cut(dice, text, mean):
    """Splits the text into pieces without regard to tokens or graphemes."""
    pieces, at = [], 0
    while at < len(text):
        size = dice.randint(1, 2 * mean)
        pieces.append(text[at : at + size])
        at += size
    return pieces


def case(dice, dialect, channels, **how):
    words = how.pop("words", None) or dice.choice(WORDS)
    gap = dice.choice([0.006, 0.012, 0.040 if len(channels) == 1 else 0.015])
    pieces = []
    for channel in (NAMES[letter] for letter in channels):
        text = text_of(dice, words, channel)
        pieces += [[channel, piece, gap * dice.uniform(0.5, 1.5)] for piece in cut(dice, text, dice.choice([3, 6]))]
    pieces[0][2] = dice.choice([0.01, 0.04, 0.3, 0.45])
    if dice.random() < 0.15:
        pieces[len(pieces) // 2][2] = SLOW
    made = {"dialect": dialect, "stream": True, "pieces": pieces, "end": "complete", "ascii": dice.random() < 0.5}
    return made | {"tail": dice.choice([0, 0, 0.2]), "model": f"model-{dialect.replace('_', '-')}", "channels": channels} | how


def make_cases():
    dice = random.Random(20261123)
    cases = []
    for dialect, all_channels in CHANNELS.items():
        for channels in all_channels:
            cases += [case(dice, dialect, channels) for _ in range(5)]
            cases += [case(dice, dialect, channels, stream=False) for _ in range(2)]
        for end in ("cut", "unterminated", "error", "cancelled"):
            cases.append(case(dice, dialect, all_channels[-1], end=end))
        cases += [case(dice, dialect, "a", end="refused", status=status) for status in (429, 500)]
    few = case(dice, "openai_chat", "a")
    cases.append(few | {"pieces": [["answer", word, 0.02] for word in "a few words only , no more".split(" ")]})
    long = [["answer", "one two three four five six seven eight nine ten eleven twelve " * 2, 0.05]] * 3
    cases.append(case(dice, "anthropic", "a") | {"pieces": long})
    for number, made in enumerate(cases):
        made["id"] = f"case-{number:03}-{made['dialect']}-{made['channels']}-{made['end']}"
    texts = [text for made in cases for text in itertools.chain(texts_of(made).values(), [made["pieces"][0][1]])]
    counted = iter(counts(texts))
    for made in cases:
        made["tokens"] = {channel: next(counted) for channel in texts_of(made)}
        made["first_tokens"] = next(counted)
        output = sum(made["tokens"].values())
        made["usage"] = {"input": dice.randint(5, 9000), "output": output + dice.randint(0, 3)}
        made["usage"]["reasoning"] = made["tokens"].get("reasoning", 0)
    return cases


def texts_of(made):
    texts = collections.defaultdict(str)
    for channel, text, _ in made["pieces"]:
        texts[channel] += text
    if made["dialect"] == "anthropic" and not made["stream"] and "tool_call" in texts:
        # A whole answer has the arguments as JSON instead of a string, so escapes and spaces do not count.
        texts["tool_call"] = json.dumps(json.loads(texts["tool_call"]), ensure_ascii=False, separators=(",", ":"))
    return texts


@dataclasses.dataclass
class ClientTimings:
    """The agent's times: begin, each read with the body bytes so far, end."""

    began: float
    reads: list = dataclasses.field(default_factory=list)
    ended: float = 0.0

    def has(self, offset):
        """Returns when the first `offset` bytes of the body had arrived, or None."""
        return next((at for at, size in self.reads if size >= offset), None)


def ask(url, made):
    path = PATHS[made["dialect"]].format(model=made["model"], verb="streamGenerateContent?alt=sse" if made["stream"] else "generateContent")
    messages = [{"role": "user", "content": "Tell me of rivers."}]
    body = {"model": made["model"], "stream": made["stream"], "max_tokens": 4096}
    body |= {
        "openai_completions": {"prompt": "Tell me of rivers."},
        "openai_responses": {"input": "Tell me of rivers."},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "Tell me of rivers."}]}]},
    }.get(made["dialect"], {"messages": messages})
    if made["dialect"] == "gemini":
        del body["model"], body["stream"], body["max_tokens"]
    headers = {"content-type": "application/json", "x-case": made["id"], "x-tokengauge-session": made["id"]}
    seen = ClientTimings(time.monotonic())
    enough = len(made["pieces"]) // 2
    with contextlib.closing(http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=30)) as connection:
        connection.request("POST", path, json.dumps(body), headers)
        with contextlib.suppress(http.client.HTTPException, ConnectionError):
            response = connection.getresponse()
            size = 0
            while piece := response.read1(65536):
                size += len(piece)
                seen.reads.append((time.monotonic(), size))
                if made["end"] == "cancelled" and len(seen.reads) > enough:
                    break
    seen.ended = time.monotonic()
    return seen


@dataclasses.dataclass
class OracleRun:
    gauge: Gauge
    ledger: object
    cases: dict
    truth: dict
    seen: dict
    records: dict
    began: float
    wall: float

    def of(self, *ends, stream=None):
        return [made for made in self.cases.values() if made["end"] in ends and stream in (None, made["stream"])]


@pytest.fixture(scope="module")
def played(tokengauge, tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle")
    cases = make_cases()
    assert len(cases) >= 150
    (folder / "cases.json").write_text(json.dumps(cases))
    backend_command = [sys.executable, HERE / "oracle_backend.py", folder / "cases.json"]
    with running(backend_command, folder / "backend.log") as backend, contextlib.ExitStack() as stack:
        url = "http://" + backend.wait_for_line(r"listening on (\S+)")
        config, log, ledger = folder / "proxy.toml", folder / "calls.jsonl", folder / "ledger.sqlite"
        config.write_text(CONFIG.format(ledger=ledger, backend=url))
        command = [tokengauge, "run", "--config", config, "--call-log", log]
        proxy = stack.enter_context(running(command, folder / "proxy.log", expected_exit=0))
        traffic = proxy.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
        gauge = Gauge(f"http://{traffic}", f"http://{proxy.wait_for_line(r'admin on (127.0.0.1:[0-9]+)')}", log)
        began, wall = time.monotonic(), time.time()
        with concurrent.futures.ThreadPoolExecutor(16) as agents:
            seen = list(agents.map(lambda made: ask(gauge.url, made), cases))
        proxy.wait_for(lambda: len(gauge.logged()) >= len(cases), "records of all calls")
        proxy.wait_for(lambda: gauge.metric("tokengauge_ledger_records_total") >= len(cases), "the ledger to have them")
        with urllib.request.urlopen(f"{url}/truth", timeout=10) as response:
            truth = json.load(response)
        records = {record["session"]: record for record in gauge.logged()}
        assert len(gauge.logged()) == len(records) == len(cases), "one record of each call"
        ids = [made["id"] for made in cases]
        yield OracleRun(gauge, ledger, dict(zip(ids, cases)), truth, dict(zip(ids, seen)), records, began, wall)


OUTCOMES = {
    "complete": "complete", "cut": "upstream_reset", "unterminated": "upstream_reset", "error": "error_event",
    "cancelled": "client_cancelled", "refused": "http_error",
}  # fmt: skip


def test_every_call_ended_as_the_backend_says(played):
    for name, made in played.cases.items():
        record = played.records[name]
        assert record["outcome"] == OUTCOMES[made["end"]], name
        assert record["dialect"] == made["dialect"], name
        assert record["status"] == made.get("status", 200), name
        if made["end"] == "complete":
            # Cohere's answers name no model, and Gemini's requests name it in their path.
            assert record["model"] == (None if made["dialect"] == "cohere_v2" else made["model"]), name
            assert record["model_requested"] == made["model"] and record["streamed"] == made["stream"], name


def bounds_of_output(played, made):
    """Returns the token counts of each channel that the agent had and that the backend sent."""
    texts, got = collections.defaultdict(str), collections.defaultdict(str)
    for channel, text, _, offset in played.truth[made["id"]]["chunks"]:
        texts[channel] += text
        if played.seen[made["id"]].has(offset):
            got[channel] += text
    return got, texts


def test_every_token_is_counted_as_another_tokenizer_counts_it(played):
    for made in played.of("complete", "unterminated", "error"):
        normalised = played.records[made["id"]]["tokens"]["normalised"]
        expected = {channel: made["tokens"].get(channel, 0) for channel in NAMES.values()}
        found = {channel: normalised[channel] for channel in NAMES.values()}
        assert found == expected, made["id"]
        assert normalised["output"] == sum(expected.values()), made["id"]
    broken = played.of("cut", "cancelled")
    bounds = [bounds_of_output(played, made) for made in broken]
    flat = iter(counts([texts[channel] for pair in bounds for texts in pair for channel in NAMES.values()]))
    for made in broken:
        low, high = ([next(flat) for _ in NAMES] for _ in range(2))
        found = played.records[made["id"]]["tokens"]["normalised"]["output"]
        # A prefix may have a token or two more than the text that it becomes.
        assert sum(low) - 2 <= found <= sum(high) + 2, made["id"]


def test_reported_tokens_match_the_provider(played):
    for made in played.of("complete"):
        reported = played.records[made["id"]]["tokens"]["reported"]
        assert (reported["input"], reported["output"]) == (made["usage"]["input"], made["usage"]["output"]), made["id"]
        if made["dialect"] in ("openai_chat", "openai_responses", "openai_completions", "gemini"):
            assert reported["reasoning"] == made["usage"]["reasoning"], made["id"]


def test_every_duration_lies_between_what_both_ends_saw(played):
    """The proxy reads a chunk after the backend sent it and before the agent has it, so no tolerance for slow
    machines is needed."""
    slack = 0.002
    offs = []
    for made in played.of("complete", stream=True):
        name = made["id"]
        truth, seen, seconds = played.truth[name], played.seen[name], played.records[name]["seconds"]
        chunks = [(channel, sent, seen.has(offset)) for channel, _, sent, offset in truth["chunks"]]
        sent, got = chunks[0][1:]
        assert sent - truth["asked"] - slack <= seconds["ttft"] <= got - seen.began + slack, name
        offs.append(seconds["ttft"] - (sent - truth["asked"]))
        answers = next((chunk for chunk in chunks if chunk[0] != "reasoning"), None)
        assert answers, name
        low, high = answers[1] - truth["asked"] - slack, answers[2] - seen.began + slack
        assert low <= seconds["first_answer"] <= high, name
        last, last_got = chunks[-1][1:]
        assert last - truth["asked"] - slack <= seconds["last_token"] <= last_got - seen.began + slack, name
        pairs = list(itertools.pairwise(chunks))
        low = max(after[1] - before[2] for before, after in pairs)
        high = max(after[2] - before[1] for before, after in pairs)
        assert low - slack <= seconds["longest_gap"] <= high + slack, name
        assert truth["ended"] - truth["asked"] - slack <= seconds["duration"] <= seen.ended - seen.began + 10 * slack, name
        surely = sum(after[1] - before[2] > STALL for before, after in pairs)
        perhaps = sum(after[2] - before[1] > STALL for before, after in pairs)
        assert surely <= played.records[name]["stalls"] <= perhaps, name
    assert statistics.median(offs) < 0.02


def speed_of(played, made):
    """Returns the true speed after the first chunk, and its lowest and highest possible value at the proxy."""
    truth, seen = played.truth[made["id"]], played.seen[made["id"]]
    first, last = truth["chunks"][0], truth["chunks"][-1]
    tokens = sum(made["tokens"].values()) - made["first_tokens"]
    longest, shortest = seen.has(last[3]) - first[2], last[2] - seen.has(first[3])
    # If the agent had the first chunk only after the backend had sent the last, the speed has no upper bound.
    greatest = (tokens + 2) / shortest if shortest > 0 else math.inf
    # The end of the first chunk and the beginning of the second may become one token.
    return tokens / (last[2] - first[2]), (tokens - 2) / longest, greatest


def measurable(made):
    tokens = sum(made["tokens"].values()) - made["first_tokens"]
    return tokens >= MIN_TOKENS and len(made["pieces"]) >= MIN_CHUNKS


def test_speeds_are_the_backends(played):
    errors = []
    for made in played.of("complete", stream=True):
        tps = played.records[made["id"]]["tps"]
        if not measurable(made):
            expected = "too_few_tokens" if len(made["pieces"]) > MIN_CHUNKS else "too_few_frames"
            assert (tps["output"], tps["unavailable"]) == (None, expected), made["id"]
            continue
        speed, least, greatest = speed_of(played, made)
        assert tps["unavailable"] is None, made["id"]
        assert least <= tps["output"] <= greatest, made["id"]
        errors.append(abs(tps["output"] / speed - 1))
        duration = played.records[made["id"]]["seconds"]["duration"]
        assert tps["total"] == pytest.approx(sum(made["tokens"].values()) / duration, rel=1e-3), made["id"]
    assert len(errors) >= 80 and statistics.median(errors) < 0.01, sorted(errors)[-5:]
    for made in played.of("complete", stream=False):
        tps = played.records[made["id"]]["tps"]
        assert (tps["output"], tps["unavailable"]) == (None, "not_streamed"), made["id"]
        assert played.records[made["id"]]["seconds"]["ttft"] is None, made["id"]


def test_costs_match_the_tokens(played):
    for made in played.of("complete"):
        record = played.records[made["id"]]
        expected = (made["usage"]["input"] + 4 * made["usage"]["output"]) / 1e6
        assert record["cost_usd"] == pytest.approx(expected, rel=1e-6), made["id"]
        assert record["tokens"]["source"] == "reported", made["id"]
    for made in played.of("unterminated", "error"):
        record = played.records[made["id"]]
        assert record["cost_usd"] >= 4 * sum(made["tokens"].values()) / 1e6 - 1e-9, (made["id"], record["tokens"])
        assert record["tokens"]["source"] == "estimated", made["id"]
    assert all(not played.records[made["id"]]["cost_usd"] for made in played.of("refused"))


def test_the_api_and_the_ledger_match_the_log(played):
    of_api = {record["session"]: record for record in played.gauge.calls()}
    assert of_api.keys() == played.records.keys()
    for name, record in played.records.items():
        different = {field: (of_api[name].get(field), record[field]) for field in record if not same(of_api[name].get(field), record[field])}
        assert not different and of_api[name].keys() == record.keys(), name
    rows = sqlite3.connect(f"file:{played.ledger}?mode=ro", uri=True)
    rows.row_factory = sqlite3.Row
    columns = {
        "normalised_output_tokens": lambda record: record["tokens"]["normalised"]["output"],
        "reported_output_tokens": lambda record: record["tokens"]["reported"]["output"],
        "reported_input_tokens": lambda record: record["tokens"]["reported"]["input"],
        "outcome": lambda record: record["outcome"],
        "stalls": lambda record: record["stalls"],
        "frames": lambda record: record["frames"],
    }
    with contextlib.closing(rows):
        found = {row["session"]: row for row in rows.execute("SELECT * FROM calls_readable")}
    for name, record in played.records.items():
        for column, of in columns.items():
            assert found[name][column] == of(record), (name, column)
        speed = record["tps"]["output"]
        kept = found[name]["output_tokens_per_second"]
        assert kept == (speed and pytest.approx(speed, abs=1e-3)), name


def same(one, other):
    """Returns whether two records are equal at the ledger's precision: a thousandth of a token per second, a
    microsecond."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == (pytest.approx(other, abs=1.1e-3) if isinstance(other, float) else other)


def test_sums_of_metrics_match_the_truth(played):
    metric = played.gauge.metric
    outcomes = collections.Counter(OUTCOMES[made["end"]] for made in played.cases.values())
    text = played.gauge.scrape("/metrics")
    for outcome, calls in outcomes.items():
        found = re.findall(rf'^tokengauge_requests_total{{.*outcome="{outcome}".*}} (\S+)', text, re.MULTILINE)
        assert sum(map(float, found)) == calls, outcome
    complete = played.of("complete")
    streams = [made for made in played.cases.values() if played.records[made["id"]]["seconds"]["ttft"] is not None]
    assert metric("tokengauge_time_to_first_token_seconds_count") == len(streams)
    ttft = sum(played.records[made["id"]]["seconds"]["ttft"] for made in streams)
    assert metric("tokengauge_time_to_first_token_seconds_sum") == pytest.approx(ttft, rel=1e-3)
    for channel in NAMES.values():
        found = re.findall(rf'^tokengauge_tokens_total{{.*channel="{channel}",source="counted".*}} (\S+)', text, re.MULTILINE)
        counted = [record["tokens"]["normalised"][channel] or 0 for record in played.records.values()]
        assert sum(map(float, found)) == sum(counted), channel
    assert sum(sum(made["tokens"].values()) for made in complete) > 5000
    measured = [made for made in complete if made["stream"] and measurable(made)]
    broken = [made for made in played.of("cut", "unterminated", "error", "cancelled")
              if played.records[made["id"]]["tps"]["output"] is not None]  # fmt: skip
    tokens = sum(sum(made["tokens"].values()) - made["first_tokens"] for made in measured)
    low, high = tokens - 2 * len(measured), tokens + 2 * len(measured) + sum(sum(made["tokens"].values()) for made in broken)
    assert low <= metric("tokengauge_decode_tokens_total") <= high
    assert metric("tokengauge_stalls_total") == sum(record["stalls"] for record in played.records.values())


def decode(record):
    """Returns the tokens after the first chunk and their seconds, from the record only."""
    seconds = record["seconds"]["last_token"] - record["seconds"]["ttft"]
    return record["tps"]["output"] * seconds, seconds


def test_reports_have_the_fleets_mean_and_counts(played, tokengauge):
    expected = collections.defaultdict(list)
    for name, made in played.cases.items():
        expected[played.records[name]["model"] or played.records[name]["model_requested"]].append(played.records[name])
    for source in (["--ledger", played.ledger], ["--call-log", played.gauge.call_log], ["--admin", played.gauge.admin]):
        command = [str(part) for part in (tokengauge, "report", "--by", "model", "--format", "json", *source)]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
        groups = {group["name"]: group for group in report["groups"]}
        assert groups.keys() == expected.keys(), source
        for model, records in expected.items():
            group = groups[model]
            assert group["calls"] == len(records), (source, model)
            good = ("complete", "client_cancelled")
            assert group["errors"] == sum(record["outcome"] not in good for record in records), (source, model)
            spans = [decode(record) for record in records if record["tps"]["output"]]
            mean = sum(tokens for tokens, _ in spans) / sum(seconds for _, seconds in spans)
            assert group["tps"]["mean"] == pytest.approx(mean, rel=0.005), (source, model)
            cost = sum(record["cost_usd"] or 0 for record in records)
            assert group["cost_usd"] == pytest.approx(cost, rel=1e-4), (source, model)
            for quantile, share in (("p50", 0.5), ("p10", 0.1)):
                speeds = sorted(record["tps"]["output"] for record in records if record["tps"]["output"])
                rank = share * (len(speeds) - 1)
                low, high = speeds[int(rank)], speeds[min(int(rank) + 1, len(speeds) - 1)]
                assert 0.98 * low <= group["tps"][quantile] <= 1.02 * high, (source, model, quantile)


def test_objectives_have_the_events_of_the_truth(played):
    slos = {slo["name"]: slo for slo in json.loads(played.gauge.scrape("/api/v1/slos"))["slos"]}
    late = lambda made: played.truth[made["id"]]["chunks"][0][2] - played.truth[made["id"]]["asked"] > 0.25  # noqa: E731
    streams = played.of("complete", stream=True)
    # Other ends are bad or excluded. Good calls had their first token in time.
    assert slos["first"]["good"] >= sum(not late(made) for made in streams)
    assert slos["first"]["events"]["bad"]["missed"] + slos["first"]["events"]["bad"]["deadline"] >= sum(map(late, streams))
    up = slos["up"]
    # 429 means that the upstream lacked capacity.
    bad = len(played.of("cut", "unterminated", "error", "refused"))
    assert up["good"] == len(played.of("complete"))
    assert up["bad"] == bad
    excluded = up["events"]["excluded"]
    assert excluded["client_cancelled"] == len(played.of("cancelled"))


def test_sessions_have_the_sums_of_their_calls(played):
    sessions = {}
    for page in range(2):
        cursor = f"&cursor={answer['next_cursor']}" if page else ""
        answer = json.loads(played.gauge.scrape(f"/api/v1/sessions?limit=1000{cursor}"))
        sessions |= {session["id"]: session for session in answer["sessions"]}
        if not answer["next_cursor"]:
            break
    assert sessions.keys() == played.cases.keys()
    for made in played.of("complete"):
        session = sessions[made["id"]]
        assert session["calls"] == 1 and session["errors"] == 0, made["id"]
        assert session["tokens"]["output"] == made["usage"]["output"], made["id"]
        assert session["cost_usd"] == pytest.approx(played.records[made["id"]]["cost_usd"], rel=1e-6), made["id"]


def figure(text):
    """Returns the value of a cell in seconds, dollars, tokens or tokens a second, and the rounding of its last
    digit."""
    found = re.fullmatch(r"\$?([\d,]+(?:\.(\d+))?)( ?ms| ?s)?", text)
    assert found, text
    scale = 1e-3 if (found[3] or "").endswith("ms") else 1
    return scale * float(found[1].replace(",", "")), 0.51 * scale * 10 ** -len(found[2] or "")


def shown_between(text, low, high, name, near=0.0):
    """`near`: allowed relative distance of a quantile from its sample."""
    value, rounding = figure(text)
    low, high = low * (1 - near), high * (1 + near)
    assert low - rounding <= value <= high + rounding, (name, text, low, high)


def ttft_of(played, name):
    """Returns the lowest and the highest time to first token that the proxy can have seen."""
    truth, seen = played.truth[name], played.seen[name]
    _, _, sent, offset = truth["chunks"][0]
    return sent - truth["asked"] - 0.002, seen.has(offset) - seen.began + 0.002


def check_shown(played, rows, tps, ttft, cost, near=0.0):
    """Compares speed, first token and price of each complete stream on a surface with the backend and its prices."""
    speeds = 0
    for made in played.of("complete", stream=True):
        name = made["id"]
        if name not in rows:
            continue
        if measurable(made):
            _, least, greatest = speed_of(played, made)
            shown_between(rows[name][tps], least, greatest, name)
            speeds += 1
        else:
            assert not re.search(r"\d", rows[name][tps]), (name, rows[name])
        shown_between(rows[name][ttft], *ttft_of(played, name), name, near)
        price = (made["usage"]["input"] + 4 * made["usage"]["output"]) / 1e6
        shown_between(rows[name][cost], price, price, name)
    return speeds


def test_the_page_shows_the_truth_of_every_call(played):
    command = ["node", PAGE / "oracle.mjs", played.gauge.admin]
    page = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert not page["wrong"] and not page["more"]
    sessions = {row["Session"]: row for row in page["sessions"]}
    assert sessions.keys() == played.cases.keys()
    assert check_shown(played, sessions, "TPS", "TTFT p50", "Cost", SKETCH) >= 80
    for made in played.of("complete"):
        assert sessions[made["id"]]["Tokens"] == f"{made['usage']['input']:,} → {made['usage']['output']:,}", made["id"]
    for name, row in sessions.items():
        failed = played.cases[name]["end"] in ("cut", "unterminated", "error", "refused")
        assert (row["Calls"], row["Failed"]) == ("1", "1" if failed else "0"), name
    calls = {row["Session"]: row for row in page["calls"]}
    assert len(calls) == 30
    assert check_shown(played, calls, "TPS", "TTFT", "Cost") > 0
    for made in played.of("complete"):
        if made["id"] in calls:
            assert calls[made["id"]]["Output"] == f"{made['usage']['output']:,}", made["id"]
            assert calls[made["id"]]["Outcome"] == "complete", made["id"]


def table(top, prefix, rows, heads):
    """Returns the figures under `heads` of each line that begins with `prefix`, once all have been drawn."""
    figures, before = {}, None
    deadline = time.monotonic() + 20
    # Other columns, such as the age of a call, may change every second.
    while len(figures) != rows or figures != before:
        assert time.monotonic() < deadline, (len(figures), rows, top.screen())
        before = figures
        for _ in range(4):
            top.read(0.1)
        figures = drawn(top.screen().split("\n"), prefix, heads)
    return figures


def drawn(screen, prefix, heads):
    head = [line for line in screen if all(name in line for name in heads)]
    if len(head) != 1:
        return {}
    # Figures end where their head ends, and the sort arrow is part of the head.
    ends = {name: re.search(rf"(?<!\S){name}[↓↑]?", head[0]).end() for name in heads}
    lines = [line for line in screen if line.startswith(prefix)]
    return {line.split()[0]: {name: line[: ends[name]].rpartition("  ")[2].strip() for name in heads} for line in lines}


def test_top_shows_the_truth_of_every_call(played, tokengauge):
    admin = played.gauge.admin.removeprefix("http://")
    top = Terminal([tokengauge, "top", "--admin", admin, "--every", "1s"], rows=len(played.cases) + 20, columns=220)
    calls = collections.Counter(made["model"] for made in played.cases.values())
    failed = collections.Counter(made["model"] for made in played.of("cut", "unterminated", "error", "refused"))
    top.press("2")
    for model, row in table(top, "model-", len(calls), ["CALLS", "ERRORS"]).items():
        assert row == {"CALLS": str(calls[model]), "ERRORS": str(failed[model])}, model
    top.press("4")
    sessions = table(top, "case-", len(played.cases), ["TPS", "TTFT P50", "COST"])
    assert sessions.keys() == played.cases.keys()
    assert check_shown(played, sessions, "TPS", "TTFT P50", "COST", SKETCH) >= 80
    top.press("q")
    assert top.end() == 0
