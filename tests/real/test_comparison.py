"""One stream with a known truth, and the speed that each benchmark tool shows for it. The table "Compared with other tools" of
docs/measurement.md has the same numbers.

AIPerf and guidellm run through the proxy. The others are too large for a test, or retired: their formulas, copied
from their sources, are applied to the times at which a client received the chunks of this stream."""

import json
import re
import statistics
import sys
import time
import urllib.request

import pytest

import paced_backend
from conftest import HERE, PROJECT
from processes import running
from test_bench_tools import TOOLS, aiperf, records, run

pytestmark = pytest.mark.part("bench-tools")

CALLS = 3
PLAN = paced_backend.BENCH
WORDS, REPORTED = PLAN["chunks"] * PLAN["words"], PLAN["chunks"] * PLAN["reported"]
DECODE = (PLAN["chunks"] - 1) * PLAN["every"]
# Relative tolerance for clocks of a loaded machine, and for figures in the document.
CLOCKS, WRITTEN = 0.05, 0.005
# The smallest difference between two rows of the table is 2.5 %.
NUMBERS = {
    "tokengauge, `tps.output`": (WORDS - PLAN["words"]) / DECODE,
    "tokengauge, `tps.reported`": (WORDS - PLAN["words"]) / DECODE * REPORTED / WORDS,
    "AIPerf": (WORDS - 1) / DECODE,
    "AIPerf `--use-server-token-count`": (REPORTED - 1) / DECODE,
    "AIPerf `--use-server-token-count --per-chunk-usage`": (REPORTED - PLAN["reported"]) / DECODE,
    "guidellm": (REPORTED - 1) / DECODE,
    "`vllm bench serve`": (REPORTED - 1) / (PLAN["first"] - PLAN["role"] + DECODE + PLAN["tail"]),
    "genai-perf": (WORDS - 1) / DECODE,
    "inference-perf": (WORDS - 1) / DECODE,
}


@pytest.fixture(scope="module")
def one_stream(gauge, logs):
    """A proxy in front of the backend with the one stream."""
    with running([sys.executable, HERE / "paced_backend.py"], logs / "comparison-backend.log") as process:
        yield gauge("comparison", process.wait_for_line(r"listening on (\S+)"))


def shown(name, speeds):
    assert statistics.median(speeds) == pytest.approx(NUMBERS[name], rel=CLOCKS), f"{name}: {speeds}"


def ours(gauge, key, names):
    found = records(gauge, key, names).values()
    shown("tokengauge, `tps.output`", [record["tps"]["output"] for record in found])
    shown("tokengauge, `tps.reported`", [record["tps"]["reported"] for record in found])
    assert {record["tokens"]["normalised"]["output"] for record in found} == {WORDS}
    assert {record["tokens"]["reported"]["output"] for record in found} == {REPORTED}


@pytest.mark.parametrize("flags", ["", " `--use-server-token-count`", " `--use-server-token-count --per-chunk-usage`"])
def test_aiperf(one_stream, tmp_path, flags):
    calls = aiperf(one_stream, tmp_path, "paced", *flags.strip(" `").split(), count=CALLS)
    shown("AIPerf" + flags, [call["output_token_throughput_per_user"] for call in calls.values()])
    ours(one_stream, "session", calls.keys())


def test_guidellm(one_stream, tmp_path):
    prompts = tmp_path / "prompts.csv"
    prompts.write_text("prompt\n" + "".join(f"Tell me of the town number {number}.\n" for number in range(2 * CALLS)))
    command = [TOOLS / "bin/guidellm", "run", "--profile", "kind=synchronous", "--disable-console"]
    command += ["--backend", f"kind=openai_http,target={one_stream.url},model=paced,validate_backend=false"]
    command += ["--constraint", f"kind=max_requests,count={CALLS}", "--data", f"kind=csv_file,path={prompts}"]
    run([*command, "--output", f"kind=json,path={tmp_path / 'report.json'}"], tmp_path)
    requests = json.loads((tmp_path / "report.json").read_text())["benchmarks"][0]["requests"]
    calls = requests["successful"]
    # guidellm stops at the count, and may omit a call that is just ending.
    assert len(calls) >= CALLS - 1 and not requests["errored"], requests
    shown("guidellm", [1000 / call["inter_token_latency_ms"] for call in calls])


@pytest.fixture(scope="module")
def events(one_stream):
    """Returns the events of one stream as a client sees them: the time, and the event."""
    began = time.perf_counter()
    body = json.dumps({"model": "paced", "stream": True, "messages": [{"role": "user", "content": "Tell me of rivers."}]})
    request = urllib.request.Request(one_stream.url + "/v1/chat/completions", body.encode(), {"content-type": "application/json"})
    seen = []
    with urllib.request.urlopen(request, timeout=30) as response:
        for line in response:
            if line.startswith(b"data: {"):
                seen.append((time.perf_counter() - began, json.loads(line[len("data: ") :])))
    return seen


def with_text(events):
    return [at for at, event in events if event["choices"] and event["choices"][0]["delta"].get("content")]


def test_vllm_bench_serve(events):
    # vllm/benchmarks/lib/endpoint_request_func.py: time to first token and latency are of the first and the last event with
    # choices, be it the role or the finish reason; vllm/benchmarks/serve.py, calculate_metrics: (latency - ttft) / (n - 1).
    choices = [at for at, event in events if event["choices"]]
    tokens = next(event["usage"]["completion_tokens"] for _, event in events if not event["choices"])
    shown("`vllm bench serve`", [(tokens - 1) / (choices[-1] - choices[0])])


def test_genai_perf(events):
    # genai_perf/profile_data_parser/llm_profile_data_parser.py: events without text are dropped, and the whole
    # text is tokenized at the client: (latency - ttft) / (n - 1).
    text = with_text(events)
    shown("genai-perf", [(WORDS - 1) / (text[-1] - text[0])])


def test_inference_perf(events):
    # inference_perf/reportgen/base.py, compute_request_latency_metrics: the last event with text less the first one, over
    # n - 1 tokens that the client's tokenizer counts (`use_server_output_tokens` takes the server's).
    text = with_text(events)
    shown("inference-perf", [(WORDS - 1) / (text[-1] - text[0])])


def test_the_document_has_these_numbers():
    document = (PROJECT / "docs/measurement.md").read_text()
    section = document.split("## Compared with other tools")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) \|", section, re.MULTILINE)
    assert {name for name, _ in rows} == NUMBERS.keys()
    for name, number in rows:
        assert float(number) == pytest.approx(NUMBERS[name], rel=WRITTEN), name
