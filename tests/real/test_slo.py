"""Objectives of a real process: losses by a kill, receivers of alerts, and output of the commands."""

import collections
import contextlib
import dataclasses
import http.server
import json
import signal
import subprocess
import threading
import time
import urllib.request

import pytest

from processes import Process, answers, free_port, running
from traffic import chat

ANY_PORT = "127.0.0.1:0"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
# Maximum loss by a kill, and the number of rounds.
LOSS_SECONDS = 10
KILLS = 3
TOLD_WITHIN = 60

BASE = """
state_dir = "{state}"
[measure]
warm_up_calls = 0
[[upstream]]
name = "simulator"
url = "{simulator}"
[[route]]
name = "chat"
path = "/chat"
upstream = "simulator"
workload = "chat"
"""
TTFT = """
[[slo]]
name = "first"
ttft.at_most = "{most}"
select.workload = "chat"
runbook_url = "https://wiki.example/slow"
"""


@dataclasses.dataclass
class Proxy:
    process: Process
    url: str
    admin: str

    def api(self):
        with urllib.request.urlopen(f"{self.admin}/api/v1/slos", timeout=10) as response:
            return json.load(response)["slos"]

    def events(self):
        return sum(round(slo["good"] + slo["bad"]) for slo in self.api())

    def kill(self):
        self.process.child.send_signal(signal.SIGKILL)
        self.process.child.wait()


@pytest.fixture
def start(tokengauge, tmp_path):
    with contextlib.ExitStack() as started:
        numbers = iter(range(100))

        def start(config):
            number = next(numbers)
            file = tmp_path / f"proxy-{number}.toml"
            file.write_text(config)
            command = [tokengauge, "run", "--config", file, "--listen", ANY_PORT, "--admin", ANY_PORT]
            process = Process([str(part) for part in command], tmp_path / f"proxy-{number}.log")
            started.callback(lambda: process.child.poll() is None and process.stop())
            traffic = process.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
            admin = process.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")
            return Proxy(process, f"http://{traffic}", f"http://{admin}")

        yield start


@pytest.fixture
def config(simulator, tmp_path):
    base = BASE.format(state=tmp_path / "state", simulator=simulator)
    return lambda more: base + more


def late(proxy, calls, ttft="120ms"):
    call = chat("chat", "gpt-sim", behave=f"gap=1ms,tokens=4,ttft={ttft}")
    for _ in range(calls):
        dataclasses.replace(call, trace=TRACE).make(proxy.url)


def eventually(what, holds, within=TOLD_WITHIN):
    deadline = time.monotonic() + within
    while not (found := holds()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)
    return found


def test_a_kill_costs_at_most_the_last_ten_seconds(start, config):
    text = config(TTFT.format(most="50ms"))
    before = 0
    for _ in range(KILLS):
        proxy = start(text)
        assert proxy.events() >= before, "what the last process could not lose is there"
        stop, seen = threading.Event(), []

        def work():
            while not stop.is_set():
                late(proxy, 1, "20ms")

        workers = [threading.Thread(target=work) for _ in range(4)]
        [worker.start() for worker in workers]
        end = time.monotonic() + LOSS_SECONDS + 4
        while time.monotonic() < end:
            seen.append((time.monotonic(), proxy.events()))
            time.sleep(0.25)
        killed = time.monotonic()
        proxy.kill()
        stop.set()
        [worker.join() for worker in workers]
        before = max(events for at, events in seen if at <= killed - LOSS_SECONDS)
        most = seen[-1][1]
        assert most > before > 0, "traffic continued until the kill"
    proxy = start(text)
    assert before <= proxy.events()
    assert proxy.process.stop() == 0
    assert start(text).events() >= before


def test_a_proper_end_costs_nothing(start, config):
    text = config(TTFT.format(most="50ms"))
    proxy = start(text)
    late(proxy, 7)
    eventually("seven calls", lambda: proxy.events() == 7)
    assert proxy.process.stop() == 0
    proxy = start(text)
    assert proxy.events() == 7
    [slo] = proxy.api()
    assert len(slo["spent_by"]) == 7
    assert {spent["trace_id"] for spent in slo["spent_by"]} == {TRACE}


def test_a_half_written_state_does_not_stop_the_proxy(start, config, tmp_path):
    text = config(TTFT.format(most="50ms"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state/slo-state.json").write_text('{"version":1,"saved')
    proxy = start(text)
    assert proxy.events() == 0
    assert (tmp_path / "state/slo-state.json.unreadable").exists()


def test_every_change_of_an_objective_is_written_down(start, config, tmp_path):
    def audited():
        return [json.loads(line) for line in (tmp_path / "state/slo-audit.jsonl").read_text().splitlines()]

    for text in [TTFT.format(most="1s"), TTFT.format(most="1s"), TTFT.format(most="2s"), ""]:
        # Another objective keeps the process counting when the first is removed.
        other = '[[slo]]\nname = "up"\navailability = true\n'
        proxy = start(config(text + other))
        assert proxy.process.stop() == 0
    changes = [(line["slo"], line["change"], line["counts"]) for line in audited()]
    assert changes == [
        ("first", "added", "anew"),
        ("up", "added", "anew"),
        ("first", "changed", "anew"),
        ("first", "removed", "kept"),
    ]
    changed = audited()[2]
    assert changed["before"]["sli"] == {"ttft": 1.0} and changed["after"]["sli"] == {"ttft": 2.0}
    assert changed["who"] and changed["at"].endswith("Z") and len(changed["config_sha256"]) == 16


def test_the_series_of_an_objective_are_there_before_its_first_event(start, config):
    proxy = start(config(TTFT.format(most="100ms")))
    with urllib.request.urlopen(f"{proxy.admin}/metrics", timeout=10) as response:
        text = response.read().decode()
    for line in [
        'tokengauge_slo_events_total{slo="first",verdict="good",reason="met"} 0',
        'tokengauge_slo_events_total{slo="first",verdict="bad",reason="deadline"} 0',
        'tokengauge_slo_objective_ratio{slo="first"} 0.99',
        'tokengauge_slo_error_budget_remaining_ratio{slo="first"} 1',
        'tokengauge_slo_burn_rate{slo="first",window="1h"} 0',
    ]:
        assert line in text, line


class Receivers:
    """Webhooks of several kinds on one port; `/broken` returns 503 until it is repaired."""

    def __init__(self):
        self.received = collections.defaultdict(list)
        self.tries = collections.Counter()
        self.broken = True
        receivers = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                receivers.tries[self.path] += 1
                refused = self.path == "/broken" and receivers.broken
                if not refused:
                    receivers.received[self.path].append(body)
                self.send_response(503 if refused else 202)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receivers():
    receivers = Receivers()
    yield receivers
    receivers.server.shutdown()


@pytest.fixture
def alertmanager(tmp_path):
    (tmp_path / "alertmanager.yml").write_text("route:\n  receiver: nobody\nreceivers:\n  - name: nobody\n")
    url = f"http://127.0.0.1:{free_port()}"
    command = ["prometheus-alertmanager", f"--config.file={tmp_path / 'alertmanager.yml'}"]
    command += [f"--storage.path={tmp_path / 'alertmanager'}", f"--web.listen-address={url[7:]}"]
    command += ["--cluster.listen-address="]
    with running(command, tmp_path / "alertmanager.log") as process:
        process.wait_for(lambda: answers(f"{url}/-/ready"), "readiness")
        yield url


def alerts_of(alertmanager):
    with urllib.request.urlopen(f"{alertmanager}/api/v2/alerts", timeout=10) as response:
        return json.load(response)


def test_everybody_is_told_once_that_it_burns_and_once_that_it_is_over(
    start, config, tmp_path, receivers, alertmanager
):
    (tmp_path / "key").write_text("secret-key\n")
    notify = f"""
[[notify]]
kind = "alertmanager"
url = "{alertmanager}"
[[notify]]
kind = "webhook"
url = "{receivers.url}/hook"
[[notify]]
kind = "webhook"
name = "broken"
url = "{receivers.url}/broken"
[[notify]]
kind = "webhook"
name = "tickets"
severity = "ticket"
url = "{receivers.url}/tickets"
[[notify]]
kind = "slack"
url = "{receivers.url}/slack"
[[notify]]
kind = "pagerduty"
url = "{receivers.url}/pagerduty"
routing_key_file = "{tmp_path / 'key'}"
"""
    up = '[[slo]]\nname = "up"\navailability = true\n'
    burning = config(TTFT.format(most="50ms") + up + notify)
    proxy = start(burning)
    late(proxy, 12)
    call = chat("chat", "gpt-sim", behave="status=500")
    for _ in range(12):
        call.make(proxy.url)
    eventually("the Alertmanager knows", lambda: len(alerts_of(alertmanager)) == 2)
    [first, second] = sorted(alerts_of(alertmanager), key=lambda alert: alert["labels"]["slo"])
    assert first["labels"] == {
        "alertname": "TokengaugeErrorBudgetBurn",
        "severity": "page",
        "slo": "first",
        "source": "tokengauge",
    }
    assert first["status"]["state"] == "active" and second["labels"]["slo"] == "up"
    assert first["annotations"]["runbook_url"] == "https://wiki.example/slow"

    def fired(path):
        return [alert["labels"]["slo"] for body in receivers.received[path] for alert in body["alerts"]]

    eventually("the webhook knows", lambda: sorted(fired("/hook")) == ["first", "up"])
    eventually("Slack knows", lambda: "*[PAGE]* first" in "".join(body["text"] for body in receivers.received["/slack"]))
    eventually("PagerDuty knows", lambda: len(receivers.received["/pagerduty"]) == 2)
    assert {event["event_action"] for event in receivers.received["/pagerduty"]} == {"trigger"}
    assert {event["routing_key"] for event in receivers.received["/pagerduty"]} == {"secret-key"}
    assert not receivers.received["/tickets"], "a page makes the ticket superfluous"

    eventually("the broken one was tried", lambda: receivers.tries["/broken"] >= 2)
    receivers.broken = False
    eventually("the repaired receiver knows", lambda: sorted(fired("/broken")) == ["first", "up"], within=40)

    # Counts are on disk by now, so a kill must not repeat the alert.
    time.sleep(6)
    before = {path: len(bodies) for path, bodies in receivers.received.items()}
    proxy.kill()
    proxy = start(burning)
    time.sleep(7)
    assert all(slo["alerts"][0]["firing"] for slo in proxy.api())
    assert {path: len(bodies) for path, bodies in receivers.received.items()} == before, "no storm"
    assert proxy.process.stop() == 0

    # With other criteria, both objectives start again, and the alert has ended.
    start(config(TTFT.format(most="5s") + up.replace('"up"', '"upper"') + notify))
    eventually("the webhook knows the end", lambda: receivers.received["/hook"][-1]["status"] == "resolved")
    eventually(
        "PagerDuty knows the end",
        lambda: [event["event_action"] for event in receivers.received["/pagerduty"][2:]] == ["resolve", "resolve"],
    )
    keys = {event["dedup_key"] for event in receivers.received["/pagerduty"]}
    assert keys == {"tokengauge/first/page", "tokengauge/up/page"}
    eventually("the Alertmanager knows the end", lambda: not alerts_of(alertmanager))


def run(tokengauge, *arguments, code=0):
    done = subprocess.run([tokengauge, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_status_prints_the_table(start, config, tokengauge):
    proxy = start(config(TTFT.format(most="50ms")))
    late(proxy, 12)
    eventually("twelve calls", lambda: proxy.events() == 12)
    address = proxy.admin.removeprefix("http://")
    table = run(tokengauge, "slo", "status", "--admin", address)
    head, row = table.splitlines()
    assert head.startswith("SLO") and row.startswith("first") and "[PAGE over " in row, table
    assert "ttft ≤ 0.05 s" in row and "99% over 30d" in row
    whole = json.loads(run(tokengauge, "slo", "status", "--admin", address, "--json"))
    assert whole["slos"][0]["bad"] == 12
    run(tokengauge, "slo", "status", "--admin", f"127.0.0.1:{free_port()}", code=1)


def test_what_is_suggested_is_valid_and_would_have_been_met(simulator_gauge, tokengauge, tmp_path):
    for ttft in ["20ms", "40ms", "80ms"]:
        for _ in range(10):
            chat("chat", "gpt-sim", behave=f"gap=2ms,tokens=60,ttft={ttft}").make(simulator_gauge.url)
    # The simulator's path has no prefix here.
    chat_path = chat("chat", "gpt-sim").path.removeprefix("/chat")
    for ttft in ["20ms", "40ms", "80ms"]:
        for _ in range(10):
            call = chat("chat", "gpt-sim", behave=f"gap=2ms,tokens=60,ttft={ttft}")
            dataclasses.replace(call, path=chat_path).make(simulator_gauge.url)
    log = simulator_gauge.call_log
    eventually("all calls in the log", lambda: len(simulator_gauge.logged()) >= simulator_gauge.metric("tokengauge_requests_total"))
    suggested = run(tokengauge, "slo", "suggest", log, "--objective", 0.95)
    assert "ttft.at_most" in suggested and "output_tps.at_least" in suggested, suggested
    upstream = '[[upstream]]\nname = "u"\nurl = "http://127.0.0.1:1"\n[[route]]\nname = "all"\nupstream = "u"\n'
    file = tmp_path / "suggested.toml"
    file.write_text(upstream + suggested)
    tested = run(tokengauge, "slo", "test", "--config", file, log)
    assert "all-ttft (ttft" in tested and "all-output-tps" in tested, tested
    speed = next(line for line in tested.splitlines() if line.startswith("all-ttft"))
    assert "met with" in speed, tested
    file.write_text(upstream + '[[slo]]\nname = "never"\nttft.at_most = "1us"\n')
    assert "missed" in run(tokengauge, "slo", "test", "--config", file, log)
    run(tokengauge, "slo", "test", "--strict", "--config", file, log, code=1)


def test_objectives_come_back_from_openslo_as_they_went(tokengauge, tmp_path):
    upstream = '[[upstream]]\nname = "u"\nurl = "http://127.0.0.1:1"\n[[route]]\nname = "all"\nupstream = "u"\n'
    slos = """
[[slo]]
name = "speed"
objective = 0.95
window = "7d"
output_tps.at_least = 30
select.model = "gpt-*"
weight = "token"
[[slo]]
name = "p99"
total_tps.at_least = 12.5
slice = "5m"
slice_target = 0.99
"""
    (tmp_path / "a.toml").write_text(upstream + slos)
    written = run(tokengauge, "slo", "export", "--config", tmp_path / "a.toml")
    assert "apiVersion: openslo/v1" in written and "Timeslices" in written, written
    (tmp_path / "a.yaml").write_text(written)
    back = run(tokengauge, "slo", "import", tmp_path / "a.yaml")
    (tmp_path / "b.toml").write_text(upstream + back)
    assert run(tokengauge, "slo", "export", "--config", tmp_path / "b.toml") == written
