"""The API tested by schemathesis against its document, and paged by its cursors."""

import contextlib
import http.client
import json
import os
import subprocess
import threading
import time
import urllib.request

import pytest

import traffic
from conftest import ANY_PORT, HERE, PROJECT
from gauge import Gauge
from processes import running

TOKEN = "sixteen-letters-at-least"
SCHEMATHESIS = PROJECT / ".cache/real/schemathesis/bin/schemathesis"
# A number of examples bounds a run instead of a time, so that a busy machine tries as many.
EXAMPLES = 8  # examples for each operation
SECONDS = 300  # time limit of all examples
CONFIG = """
drain_timeout = "1s"
[admin]
token = "{token}"
[ledger]
enabled = {ledger}
path = "{folder}/api.sqlite"
[[workload]]
name = "chat"
[[upstream]]
name = "simulated"
url = "{simulator}"
[[route]]
name = "sim"
path = "/sim"
upstream = "simulated"
[[slo]]
name = "first-token"
ttft.at_most = "1s"
objective = 0.9
"""


class AuthenticatedGauge(Gauge):
    """A proxy whose admin address requires a token."""

    def scrape(self, path):
        request = urllib.request.Request(self.admin + path, headers={"authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.read().decode()

    def json(self, path):
        return json.loads(self.scrape(path))


def endless(base):
    """Makes a call that lasts as long as the proxy."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        chat(base, "endless", "slow/1", f"tokens=2000,gap={SECONDS}ms")


def chat(base, session, agent, behave="tokens=60,gap=4ms"):
    headers = {
        "content-type": "application/json",
        "x-sim": behave,
        "x-tokengauge-session": session,
        "user-agent": agent,
    }
    call = traffic.chat("sim", "sim-1")
    request = urllib.request.Request(base + call.path, json.dumps(call.body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        response.read()


@pytest.fixture(scope="module", params=["memory", "ledger"])
def proxy(request, gauge, simulator, logs):
    """A proxy with finished calls of several sessions, and one call in flight during all tests."""
    store = request.param
    config = logs / f"api-{store}.toml"
    ledger = str(store == "ledger").lower()
    config.write_text(CONFIG.format(simulator=simulator, token=TOKEN, ledger=ledger, folder=logs))
    plain = gauge(f"api-{store}", config=config)
    guarded = AuthenticatedGauge(plain.url, plain.admin, plain.call_log)
    for number in range(30):
        chat(guarded.url, f"session/{number % 7}", f"agent-{number % 3}/1")
    deadline = time.monotonic() + 20
    while len((page := guarded.json("/api/v1/calls"))["calls"]) < 30:
        assert time.monotonic() < deadline, page
        time.sleep(0.1)
    assert page["store"] == store
    threading.Thread(target=endless, args=(guarded.url,), daemon=True).start()
    return guarded


def test_schemathesis_finds_nothing_against_the_document(proxy, logs):
    assert SCHEMATHESIS.exists(), f"{SCHEMATHESIS} is not there: tests/real/install"
    config = logs / "schemathesis.toml"
    config.write_text(f'[auth.openapi.bearer]\nbearer = "{TOKEN}"\n')
    # The document also requires the token, so it is downloaded here.
    document = logs / "openapi.json"
    document.write_text(proxy.scrape("/api/v1/openapi.json"))
    command = [SCHEMATHESIS, "--config-file", config, "run", document, "--url", proxy.admin, "--checks", "all"]
    # Endless responses are tested where they can be ended.
    command += ["--exclude-path", "/api/v1/events", "--max-examples", str(EXAMPLES)]
    command += ["--request-timeout", "10"]
    command += ["--output-truncate", "false", "--max-failures", "5", "--no-color"]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "api_hooks", "PYTHONPATH": str(HERE)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=logs, timeout=3 * SECONDS)
    (logs / "schemathesis.log").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout[-12000:]
    operations = sum(len(methods) for methods in json.loads(document.read_text())["paths"].values())
    assert f"Selected: {operations - 1}/{operations}" in done.stdout, done.stdout[-3000:]
    assert f"Tested: {operations - 1}" in done.stdout, done.stdout[-3000:]


def test_a_listener_hears_calls_and_does_not_hold_up_the_end(tokengauge, simulator, logs):
    command = [tokengauge, "run", "--upstream", simulator, "--listen", ANY_PORT, "--admin", ANY_PORT]
    with running(command, logs / "listener.log", expected_exit=0) as process:
        base = "http://" + process.wait_for_line(r"\blistening on (\S+)")
        admin = process.wait_for_line(r"\badmin on (\S+)")
        connection = http.client.HTTPConnection(admin, timeout=10)
        connection.request("GET", "/api/v1/events")
        events = connection.getresponse()
        assert events.headers["content-type"] == "text/event-stream"
        traffic.chat("", "heard-1", behave="tokens=20,gap=1ms").make(base)
        lines = iter(events.readline, b"")
        call = next(json.loads(next(lines).split(b":", 1)[1]) for line in lines if line == b"event: call\n")
        assert call["model_requested"] == "heard-1"
        begun = time.monotonic()
        process.child.terminate()
        assert process.child.wait(timeout=60) == 0
        assert time.monotonic() - begun < 15, "it waited for the listener"
        connection.close()


def test_pages_follow_one_another_without_a_gap_or_a_double(proxy):
    for path, name, key in [
        ("/api/v1/calls?limit=7&route=sim", "calls", "id"),
        ("/api/v1/sessions?limit=2&sort=tokens", "sessions", "id"),
        ("/api/v1/groups?limit=2&by=agent,outcome", "groups", "by"),
    ]:
        seen, cursor = [], ""
        while cursor is not None:
            page = proxy.json(path + (f"&cursor={cursor}" if cursor else ""))
            seen += [json.dumps(row[key]) for row in page[name]]
            cursor = page["next_cursor"]
        whole = proxy.json(path.split("limit")[0] + "limit=1000&" + path.split("&", 1)[1])
        assert seen == [json.dumps(row[key]) for row in whole[name]], path
        assert len(seen) == len(set(seen)) >= 3, path


def test_sessions_add_up_to_their_calls(proxy):
    sessions = [row for row in proxy.json("/api/v1/sessions")["sessions"] if row["id"].startswith("session/")]
    assert len(sessions) == 7
    calls = proxy.json("/api/v1/calls?limit=1000")["calls"]
    for session in sessions:
        own = [call for call in calls if call["session"] == session["id"]]
        assert session["calls"] == len(own)
        assert session["tokens"]["output"] == sum(call["tokens"]["reported"]["output"] for call in own)
        detail = proxy.json("/api/v1/sessions/" + urllib.request.quote(session["id"], safe=""))
        assert [call["id"] for call in detail["calls"]] == sorted(call["id"] for call in own)
        for call in detail["calls"]:
            assert all(one["end"] == other["start"] for one, other in zip(call["phases"], call["phases"][1:]))
