"""AIPerf and guidellm with the simulator and a real engine, through the proxy: their figures of each call compared
with ours. They timestamp chunks in their own processes on the agent's side, with other clocks and tokenizers."""

import json
import os
import statistics
import subprocess
import time

import pytest

from conftest import ANY_PORT, PROJECT
from processes import running

pytestmark = pytest.mark.part("bench-tools")

TOOLS = PROJECT / ".cache/real/bench-tools"
CALLS, STREAMS = 20, 3
# Maximum seconds that a loaded machine may add between the proxy's reading of a chunk and the tool's. The median of the
# calls may have a tenth of it.
WORST = 0.5


@pytest.fixture(scope="module")
def paced(gauge, tokengauge, logs):
    """A proxy in front of a slow simulator, so that a chunk is a token."""
    command = [tokengauge, "demo", "backend", "--listen", ANY_PORT, "--behave", "ttft=80ms,gap=8ms~3ms,tokens=60..120,usage=on"]
    with running(command, logs / "paced-simulator.log") as process:
        simulator = "http://" + process.wait_for_line(r"listening on (\S+)")
        yield gauge("bench-tools", simulator)


def run(command, folder):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1", "TIKTOKEN_CACHE_DIR": str(TOOLS / "tiktoken")}
    # AIPerf fails the run if one of its parts sends no heartbeat for 15 s, which is too early on a busy machine.
    environment["AIPERF_SERVICE_HEARTBEAT_MISSED_THRESHOLD"] = "40"
    command = [str(part) for part in command]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def aiperf(gauge, folder, model, *more, count=CALLS):
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"text": f"Tell me of river number {number}."}) + "\n" for number in range(count)))
    command = [TOOLS / "bin/aiperf", "profile", "-m", model, "--url", gauge.url, "--endpoint-type", "chat", "--streaming"]
    command += ["--input-file", prompts, "--custom-dataset-type", "single_turn", "--request-count", count, "--concurrency", STREAMS]
    command += ["--artifact-dir", folder / "aiperf", "--export-level", "records", "--session-header", "x-tokengauge-session"]
    # There are no server metrics and no GPU here, and a collector that starts late fails the run.
    command += ["--no-server-metrics", "--no-gpu-telemetry"]
    run([*command, "--ui", "none", "--tokenizer", "builtin", *more], folder)
    lines = (folder / "aiperf/profile_export.jsonl").read_text().splitlines()
    calls = [json.loads(line) for line in lines]
    value = lambda call: {name: metric["value"] for name, metric in call["metrics"].items()}  # noqa: E731
    return {call["metadata"]["x_correlation_id"]: value(call) for call in calls}


def records(gauge, key, names):
    """Returns our records of the calls with these names. The last one may arrive a moment later."""
    deadline = time.monotonic() + 60
    while True:
        found = {record[key]: record for record in gauge.logged() if record[key] in names}
        if found.keys() == set(names) or time.monotonic() > deadline:
            assert found.keys() == set(names), f"{len(found)} records of {len(names)} calls"
            return found
        time.sleep(0.05)


def near(pairs, worst, median):
    """Asserts that their values and ours agree: within `worst` for all, and within `median` for the median, as
    shares."""
    offs = [abs(theirs / ours - 1) for theirs, ours in pairs]
    assert max(offs) < worst and statistics.median(offs) < median, sorted(offs)[-5:]


def test_aiperf_sees_the_same_tokens_and_times(paced, tmp_path):
    calls = aiperf(paced, tmp_path, "sim-model")
    assert len(calls) == CALLS
    found = records(paced, "session", calls.keys())
    speeds, waits = [], []
    for name, theirs in calls.items():
        ours = found[name]
        assert ours["outcome"] == "complete"
        # Python's tiktoken with the same vocabulary.
        assert ours["tokens"]["normalised"]["output"] == theirs["output_sequence_length"], name
        assert ours["tokens"]["reported"]["output"] == theirs["usage_completion_tokens"], name
        first, whole = theirs["time_to_first_token"] / 1000, theirs["request_latency"] / 1000
        # AIPerf's clock starts before it connects and stops after ours, so our times lie within.
        assert ours["seconds"]["ttft"] <= first + 0.001 and ours["seconds"]["duration"] <= whole + 0.001, name
        assert first - ours["seconds"]["ttft"] < WORST, name
        waits.append(first - ours["seconds"]["ttft"])
        speeds.append((theirs["output_token_throughput_per_user"], ours["tps"]["output"]))
    assert statistics.median(waits) < WORST / 10
    near(speeds, worst=0.05, median=0.005)


def guidellm(gauge, folder, model):
    prompts = folder / "prompts.csv"
    rows = (f"Tell me of the town number {number}.,64\n" for number in range(2 * CALLS))
    prompts.write_text("prompt,output_tokens_count\n" + "".join(rows))
    command = [TOOLS / "bin/guidellm", "run", "--profile", f"kind=concurrent,streams={STREAMS}", "--disable-console"]
    command += ["--backend", f"kind=openai_http,target={gauge.url},model={model},validate_backend=false"]
    command += ["--constraint", f"kind=max_requests,count={CALLS}", "--data", f"kind=csv_file,path={prompts}"]
    run([*command, "--output", f"kind=json,path={folder / 'report.json'}"], folder)
    report = json.loads((folder / "report.json").read_text())
    requests = report["benchmarks"][0]["requests"]
    assert not requests["errored"] and not requests["incomplete"], requests
    calls = {call["response_id"]: call for call in requests["successful"]}
    assert len(calls) == len(requests["successful"]), "each response has its own id"
    # On a busy machine guidellm may end before it has read the last result: it tells itself to stop (`shutdown_event`
    # in its worker_group.py), and queues the last result only afterwards.
    assert len(calls) in (CALLS - 1, CALLS)
    return calls


def test_guidellm_sees_the_same_tokens_and_times(paced, tmp_path):
    calls = guidellm(paced, tmp_path, "sim-model")
    found = records(paced, "response_id", calls.keys())
    speeds, waits = [], []
    for name, theirs in calls.items():
        ours = found[name]
        assert ours["tokens"]["reported"]["output"] == theirs["output_tokens"], name
        # The simulator uses o200k_base tokens.
        assert ours["tokens"]["normalised"]["output"] == theirs["output_tokens"], name
        waits.append(theirs["time_to_first_token_ms"] / 1000 - ours["seconds"]["ttft"])
        assert -0.001 <= waits[-1] < WORST, name
        speeds.append((1000 / theirs["inter_token_latency_ms"], ours["tps"]["output"]))
    assert statistics.median(waits) < WORST / 10
    near(speeds, worst=0.05, median=0.005)


def test_aiperf_sees_the_same_of_a_real_engine(engine_gauge, tmp_path):
    calls = aiperf(engine_gauge, tmp_path, "tiny", "--extra-inputs", "max_tokens:64")
    found = records(engine_gauge, "session", calls.keys())
    speeds = []
    for name, theirs in calls.items():
        ours = found[name]
        # Clients that decode text cut within a character piece by piece count it differently.
        assert ours["tokens"]["normalised"]["output"] == pytest.approx(theirs["output_sequence_length"], abs=4, rel=0.05), name
        assert ours["tokens"]["reported"]["output"] == theirs["usage_completion_tokens"], name
        assert ours["seconds"]["ttft"] <= theirs["time_to_first_token"] / 1000 + 0.001, name
        # Its tokens differ from ours there, and so do speeds. The time between the first and the last does not.
        if ours["tps"]["output"]:
            decode = ours["seconds"]["last_token"] - ours["seconds"]["ttft"]
            speeds.append((theirs["decode_duration"] / 1000, decode))
    assert len(speeds) > CALLS / 2
    near(speeds, worst=0.5, median=0.05)


def test_guidellm_sees_the_same_of_a_real_engine(engine_gauge, tmp_path):
    calls = guidellm(engine_gauge, tmp_path, "tiny")
    found = records(engine_gauge, "response_id", calls.keys())
    decodes = []
    for name, theirs in calls.items():
        ours = found[name]
        assert ours["tokens"]["reported"]["output"] == theirs["output_tokens"], name
        assert ours["seconds"]["ttft"] <= theirs["time_to_first_token_ms"] / 1000 + 0.001, name
        # It uses the engine's tokens, and we use ours. The time between the first and the last is equal.
        if ours["tps"]["output"]:
            decode = ours["seconds"]["last_token"] - ours["seconds"]["ttft"]
            decodes.append((theirs["inter_token_latency_ms"] / 1000 * (theirs["output_tokens"] - 1), decode))
    assert len(decodes) > CALLS / 2
    near(decodes, worst=0.5, median=0.05)
