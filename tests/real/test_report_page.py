"""The pages of `tokengauge report --format html` and `tokengauge bench -o FILE.html` in Debian's Chromium: tables
sort, no column is cut on a screen of 1,100 pixels or on paper, and phones can show them."""

import concurrent.futures
import json
import shutil
import subprocess

import pytest

import traffic
from conftest import PROJECT
from test_page import with_headers

PAGE = PROJECT / ".cache/real/page"
SHOTS = PROJECT / "target/report-page"
LOOKS = ["sorting", "withoutScript", "paper", "screens"]
MODELS = {"gpt-4.1": 9, "gpt-4.1-mini": 14, "gpt-5": 21, "a-model-whose-name-is-long-as-that-of-some-fine-tuned-ones-is": 5}


def calls(base):
    """Makes this number of calls of each model in sessions. One model has no speed, because its answers are short."""
    made = []
    for model, count in MODELS.items():
        tokens = 8 if model == "gpt-4.1" else 60
        for number in range(count):
            pace = f"ttft={20 + 7 * (number % 5)}ms,gap={2 + number % 3}ms,tokens={tokens},usage=on"
            call = traffic.chat("openai", model, behave=pace)
            call.path = "/v1/chat/completions"
            made.append(with_headers(call, session=f"{model}-{number % 7}", agent="team/1"))
    with concurrent.futures.ThreadPoolExecutor(6) as agents:
        list(agents.map(lambda call: call.make(base), made))


@pytest.fixture(scope="module")
def results(logs, gauge, simulator, tokengauge):
    assert shutil.which("chromium"), "there is no chromium: tests/real/install"
    shutil.rmtree(SHOTS, ignore_errors=True)
    SHOTS.mkdir(parents=True)
    proxy = gauge("report-page", simulator)
    calls(proxy.url)
    pages = {name: logs / f"{name}.html" for name in ["report", "bench"]}
    admin = proxy.admin.removeprefix("http://")
    report = [tokengauge, "report", "--admin", admin, "--with-warm-up", "--format", "html", "-o", pages["report"]]
    subprocess.run(report, check=True, timeout=60)
    bench = [tokengauge, "bench", proxy.url, "-m", "sim-model", "--isl", "16", "--concurrency", "1,2", "--trials", "1", "-o", pages["bench"]]
    bench += ["--warmup-duration", "500ms", "--burn-in-duration", "0s", "--benchmark-duration", "5s", "--sample-interval", "100ms"]
    bench += ["--steady-within", "60", "--max-client-lag", "1s"]
    # A load without figures is also in the table.
    subprocess.run(bench, timeout=120)
    settings = logs / "report-page.json"
    settings.write_text(json.dumps({name: str(page) for name, page in pages.items()} | {"shots": str(SHOTS)}))
    results_file = logs / "report-page-results.json"
    subprocess.run(["node", PAGE / "report.mjs", settings, results_file], check=True, timeout=120)
    return json.loads(results_file.read_text())


@pytest.mark.parametrize("look", LOOKS)
def test_page(results, look):
    assert results[look] is None, results[look]


def test_every_look_is_a_test(results):
    assert sorted(results) == sorted(LOOKS)
