"""The output of all streams on every surface, during and after the streams, compared with a Python backend that
records by its own clock what it sent in which second."""

import asyncio
import contextlib
import datetime
import json
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import pytest

from conftest import HERE, PROJECT
from gauge import Gauge
from processes import running
from test_terminal import Terminal

pytestmark = pytest.mark.part("alone")

PAGE = PROJECT / ".cache/real/page"
# Streams of ten tokens a second each that begin over the first seconds, and answers in one piece.
STREAMS, TOKENS, EVERY, CHUNKS = 600, 5, 500, 50
WHOLE, WHOLE_TOKENS, WHOLE_AFTER = 10, 1000, 16_000
PROXIES = ("memory", "ledger")
STEADY = STREAMS * TOKENS * 1000 / EVERY
NEAR = 0.05
CONFIG = """
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
{ledger}
[[upstream]]
name = "paced"
url = "{backend}"
max_connections = 4096
[[route]]
upstream = "paced"
"""


async def call(base, path, delay):
    await asyncio.sleep(delay)
    host, port = urllib.parse.urlsplit(base).netloc.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"model":"paced","stream":true,"messages":[]}'
    writer.write(f"POST {path}/v1/chat/completions HTTP/1.1\r\nhost: paced\r\nconnection: close\r\n".encode())
    writer.write(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    size = 0
    while data := await reader.read(65536):
        size += len(data)
    writer.close()
    return size


async def calls(bases):
    """Makes all calls of all proxies; `bases` maps names to addresses."""
    stream, whole = f"/stream/{TOKENS}/{EVERY}/{CHUNKS}", f"/whole/{WHOLE_TOKENS}/{WHOLE_AFTER}/0"
    all_calls = []
    for name, base in bases.items():
        all_calls += [call(base, f"/{name}{stream}", 3 * number / STREAMS) for number in range(STREAMS)]
        all_calls += [call(base, f"/{name}-whole{whole}", 1) for _ in range(WHOLE)]
    await asyncio.gather(*all_calls)


def look(gauge):
    """Returns the current values on every surface that can be queried."""
    streams = json.loads(gauge.scrape("/api/v1/streams?limit=100"))
    return {
        "api": streams["tokens_per_second"]["now"],
        "of one model": json.loads(gauge.scrape("/api/v1/streams?model=paced"))["tokens_per_second"]["now"],
        "metrics": gauge.metric("tokengauge_output_tokens_per_second_now"),
        "listed": (len(streams["streams"]), streams["total"]),
        "one": [stream["tps"] for stream in streams["streams"]],
    }


@pytest.fixture(scope="module")
def seen(logs, tokengauge):
    """The proxies, their values during the streams, and the backend's truth."""
    with running([sys.executable, HERE / "paced_backend.py"], logs / "paced-backend.log") as process:
        backend = process.wait_for_line(r"listening on (\S+)")
        with contextlib.ExitStack() as stack:
            gauges = {}
            for name in PROXIES:
                config = logs / f"throughput-{name}.toml"
                ledger = f'[ledger]\npath = "{logs / "throughput.sqlite"}"' if name == "ledger" else ""
                config.write_text(CONFIG.format(backend=backend, ledger=ledger))
                log = logs / f"throughput-{name}.jsonl"
                command = [tokengauge, "run", "--config", config, "--call-log", log]
                proxy = stack.enter_context(running(command, logs / f"throughput-{name}.log", expected_exit=0))
                traffic = proxy.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
                admin = proxy.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")
                gauges[name] = Gauge(f"http://{traffic}", f"http://{admin}", log)
            bases = {name: gauge.url for name, gauge in gauges.items()}
            began = time.time()
            thread = threading.Thread(target=lambda: asyncio.run(calls(bases)))
            thread.start()
            page = subprocess.Popen(["node", PAGE / "throughput.mjs", gauges["memory"].admin, "22"], stdout=subprocess.PIPE, text=True)
            admin = gauges["ledger"].admin.removeprefix("http://")
            top = Terminal([tokengauge, "top", "--admin", admin, "--every", "1s"])
            looks, shown = {name: [] for name in PROXIES}, []
            while time.time() < began + 25:
                top.read(0.5)
                for name, gauge in gauges.items():
                    looks[name].append((time.time() - began, look(gauge)))
                rate = re.search(r"\d+ streams  (\d+) tokens/s", top.screen())
                shown.append((time.time() - began, rate and float(rate[1])))
            top.press("q")
            assert top.end() == 0
            tiles = json.loads(page.communicate(timeout=60)[0])
            thread.join()
            time.sleep(5)
            with urllib.request.urlopen(f"{backend}/truth", timeout=10) as response:
                truth = json.loads(response.read())
            yield gauges, looks, {"page": tiles, "top": shown}, truth, began


def steady(looks):
    """Returns the values from the time when all streams had run for longer than a throughput looks back, and none
    had ended."""
    return [what for at, what in looks if 17 < at < 24]


@pytest.mark.parametrize("name", PROXIES)
def test_the_present_is_of_all_streams(seen, name):
    _, looks, _, _, _ = seen
    looks = steady(looks[name])
    assert len(looks) > 3
    for said in looks:
        for surface in ("of one model", "api", "metrics"):
            # The API includes whole answers once they have ended.
            over = WHOLE * WHOLE_TOKENS * 1000 / WHOLE_AFTER if surface != "metrics" else 0
            least, most = STEADY * (1 - NEAR), (STEADY + over) * (1 + NEAR)
            assert least <= said[surface] <= most, (surface, said[surface], STEADY)
        listed, total = said["listed"]
        assert listed == 100 and total >= STREAMS
        speeds = [speed for speed in said["one"] if speed is not None]
        assert len(speeds) > 50 and all(abs(speed / 10 - 1) < 0.1 for speed in speeds), sorted(speeds)


def test_page_and_top_show_the_same(seen):
    _, _, shown, _, _ = seen
    over = WHOLE * WHOLE_TOKENS * 1000 / WHOLE_AFTER
    for said in [rate for at, rate in shown["top"] if 17 < at < 24]:
        assert STEADY * (1 - NEAR) <= said <= (STEADY + over) * (1 + NEAR), shown["top"]
    tiles = [float(re.sub(r"[^\d.]", "", tile)) * (1000 if "k" in tile else 1) for tile in shown["page"][-4:]]
    assert all(STEADY * (1 - NEAR) <= tile <= (STEADY + over) * (1 + NEAR) for tile in tiles), shown["page"]


def series(gauge, step, began, **more):
    since = datetime.datetime.fromtimestamp(began - 5, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    query = urllib.parse.urlencode({"metric": "tps", "step": f"{step}s", "since": since} | more)
    points = json.loads(gauge.scrape(f"/api/v1/timeseries?{query}"))["points"]
    at = lambda point: int(datetime.datetime.fromisoformat(point["at"]).timestamp())  # noqa: E731
    return {at(point): (point["tokens_per_second"] or 0, point["spread_tokens_per_second"] or 0) for point in points}


@pytest.mark.parametrize("name", PROXIES)
def test_every_second_has_the_tokens_that_arrived_in_it(seen, name):
    gauges, _, _, truth, began = seen
    points = series(gauges[name], 1, began)
    streamed = {int(second): tokens for second, tokens in truth[name]["streamed"].items()}
    assert sum(streamed.values()) == STREAMS * TOKENS * CHUNKS
    ours = {second: all_tokens - spread for second, (all_tokens, spread) in points.items()}
    assert sum(ours.values()) == pytest.approx(sum(streamed.values()), abs=0.5)
    # Chunks are timestamped a moment after they were sent, some of them in the next second.
    full = [second for second, tokens in streamed.items() if tokens > 0.99 * STEADY]
    assert len(full) > 15
    off = {second: abs(ours[second] / streamed[second] - 1) for second in full[1:-1]}
    # If the machine pauses at the end of a second, more chunks are.
    assert statistics.median(off.values()) < NEAR and sorted(off.values())[-4] < 2 * NEAR, off
    for second in full[1:-1]:
        until = lambda last, of: sum(tokens for at, tokens in of.items() if at <= last)  # noqa: E731
        assert until(second - 1, streamed) <= until(second, ours) <= until(second, streamed) + 0.5, second
    whole = truth[f"{name}-whole"]["whole"]
    assert sum(spread for _, spread in points.values()) == pytest.approx(WHOLE * WHOLE_TOKENS, abs=0.5)
    first, last = max(int(start) for start, _, _ in whole) + 1, min(int(end) for _, end, _ in whole)
    for second in range(first, last):
        assert points[second][1] == pytest.approx(WHOLE * WHOLE_TOKENS * 1000 / WHOLE_AFTER, rel=NEAR), second


@pytest.mark.parametrize("name", PROXIES)
def test_the_peak_is_of_the_sum_and_longer_steps_say_the_same(seen, name):
    gauges, _, _, truth, began = seen
    rates = json.loads(gauges[name].scrape("/api/v1/streams"))["tokens_per_second"]
    whole = WHOLE * WHOLE_TOKENS * 1000 / WHOLE_AFTER
    assert rates["peak"] == pytest.approx(STEADY + whole, rel=NEAR)
    scraped = gauges[name].metric("tokengauge_output_tokens_per_second_peak")
    assert scraped == pytest.approx(STEADY, rel=NEAR), "what is scraped cannot look back"
    points = series(gauges[name], 60, began - 60)
    assert sum(all_tokens for all_tokens, _ in points.values()) * 60 == pytest.approx(
        STREAMS * TOKENS * CHUNKS + WHOLE * WHOLE_TOKENS, abs=1
    )
    assert sum(all_tokens for all_tokens, _ in series(gauges[name], 60, began - 60, model="else").values()) == 0


@pytest.mark.parametrize("name", PROXIES)
def test_the_capacity_curve_knows_how_many_streams_ran(seen, name):
    gauges, *_ = seen
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        upstreams = json.loads(gauges[name].scrape("/api/v1/capacity"))["upstreams"]
        points = [point for upstream in upstreams for point in upstream["points"] if point["seconds"] >= 10]
        if points:
            break
        time.sleep(1)
    whole = WHOLE * WHOLE_TOKENS * 1000 / WHOLE_AFTER
    [point] = [point for point in points if point["concurrency"] == 576]
    # 610 streams are in the class of 576 to 639, and so are 600 after the others ended.
    assert STEADY * (1 - NEAR) <= point["system_tps"] <= (STEADY + whole) * (1 + NEAR), upstreams
    assert point["request_tps"] == pytest.approx(10, rel=NEAR), upstreams
