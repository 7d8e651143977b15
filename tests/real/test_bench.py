"""`tokengauge bench` compared with AIPerf and guidellm: the same backend through the same proxy, the same closed
loop, and figures with equal definitions. The tools timestamp chunks in their own processes, with other clocks and
tokenizers."""

import json
import statistics
import subprocess

import pytest

from conftest import ANY_PORT
from processes import running
from test_bench_tools import aiperf, guidellm

pytestmark = pytest.mark.part("bench-tools")

STREAMS = 3
# Figures with equal definitions agree within this share.
SHARE = 0.02
# Seconds that a Python client may add to the first token.
OF_PYTHON = 0.01


@pytest.fixture(scope="module")
def paced(gauge, tokengauge, logs):
    """A proxy in front of a simulator with answers of one length, so that a mean over calls equals a mean over time."""
    command = [tokengauge, "demo", "backend", "--listen", ANY_PORT, "--behave", "ttft=200ms,gap=10ms~3ms,tokens=64,usage=on"]
    with running(command, logs / "bench-simulator.log") as process:
        simulator = "http://" + process.wait_for_line(r"listening on (\S+)")
        yield gauge("bench", simulator)


@pytest.fixture(scope="module")
def ours(paced, tokengauge):
    command = [tokengauge, "bench", paced.url, "-m", "sim-model", "--isl", "16", "--concurrency", STREAMS, "--trials", "1"]
    command += ["--warmup-duration", "2s", "--burn-in-duration", "0s", "--benchmark-duration", "10s", "--sample-interval", "200ms"]
    # Other processes also use this machine.
    command += ["--steady-within", "25", "--max-client-lag", "100ms", "--format", "json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return {name: figure["value"] for name, figure in json.loads(done.stdout)["levels"][0]["figures"].items()}


def test_aiperf_has_the_same_figures(paced, ours, tmp_path):
    calls = aiperf(paced, tmp_path, "sim-model").values()
    mean = lambda name: statistics.mean(call[name] for call in calls)  # noqa: E731
    # Each chunk is a token, so leaving out one token equals leaving out the first chunk.
    assert ours["tps_mean"] == pytest.approx(1000 / mean("inter_token_latency"), rel=SHARE)
    assert ours["itl_mean"] == pytest.approx(mean("inter_token_latency") / 1000, rel=SHARE)
    assert ours["ttft_p50"] == pytest.approx(statistics.median(call["time_to_first_token"] for call in calls) / 1000, rel=SHARE, abs=OF_PYTHON)
    assert ours["latency_p50"] == pytest.approx(statistics.median(call["request_latency"] for call in calls) / 1000, rel=SHARE)
    assert ours["output_tokens"] == mean("output_sequence_length")


def test_guidellm_has_the_same_figures(paced, ours, tmp_path):
    calls = guidellm(paced, tmp_path, "sim-model").values()
    mean = lambda name: statistics.mean(call[name] for call in calls)  # noqa: E731
    assert ours["itl_mean"] == pytest.approx(mean("inter_token_latency_ms") / 1000, rel=SHARE)
    waits = statistics.median(call["time_to_first_token_ms"] for call in calls) / 1000
    assert ours["ttft_p50"] == pytest.approx(waits, rel=SHARE, abs=OF_PYTHON)
    assert ours["output_tokens"] == mean("output_tokens")
