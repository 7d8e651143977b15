"""A gateway between two proxies, and between two routes of one: `hop` marks the outer record, and sessions count a
call once."""

import contextlib
import http.server
import json
import secrets
import threading
import time
import urllib.request

import pytest

from processes import free_port, running

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
BODY = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "hi"}]}).encode()
WORDS = 96
WAIT = 60


class Gateway(http.server.BaseHTTPRequestHandler):
    """Forwards requests with its own span, as W3C's Trace Context requires: trace id and state stay."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        version, trace, _, flags = self.headers["traceparent"].split("-")
        headers = {"content-type": "application/json", "traceparent": "-".join((version, trace, secrets.token_hex(8), flags))}
        headers |= {name: self.headers[name] for name in ("tracestate", "x-tokengauge-session")}
        with urllib.request.urlopen(urllib.request.Request(self.server.behind + self.path, body, headers), timeout=30) as answer:
            whole = answer.read()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(whole)))
        self.end_headers()
        self.wfile.write(whole)

    def log_message(self, *_):
        pass


@pytest.fixture
def gateway():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()


class Proxy:
    def __init__(self, traffic, admin):
        self.url, self.admin = f"http://{traffic}", f"http://{admin}"

    def ask(self, path):
        with urllib.request.urlopen(self.admin + path, timeout=10) as answer:
            return json.load(answer)

    def records(self, count):
        deadline = time.monotonic() + WAIT
        while len(calls := self.ask("/api/v1/calls")["calls"]) < count:
            assert time.monotonic() < deadline, f"{len(calls)} of {count}"
            time.sleep(0.05)
        return sorted(calls, key=lambda call: call["route"], reverse=True)

    def session(self):
        [row] = self.ask("/api/v1/sessions")["sessions"]
        assert row["id"] == "s"
        return row["calls"], row["tokens"]["output"]


@contextlib.contextmanager
def proxy(tokengauge, folder, **upstreams):
    """A proxy with a ledger and a route for each upstream, whose traces are discarded."""
    folder.mkdir()
    config = f'state_dir = "{folder}/state"\n'
    config += "".join(f'[[upstream]]\nname = "{name}"\nurl = "{url}"\n' for name, url in upstreams.items())
    config += "".join(f'[[route]]\npath = "/{name}"\nupstream = "{name}"\n' for name in upstreams)
    (folder / "proxy.toml").write_text(config)
    nobody = f"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:{free_port()}/v1/traces"
    command = ["env", nobody, tokengauge, "run", "--config", folder / "proxy.toml"]
    with running([*command, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], folder / "log", expected_exit=0) as process:
        yield Proxy(process.wait_for_line(r"\blistening on (\S+)"), process.wait_for_line(r"\badmin on (\S+)"))


def call(url):
    headers = {"content-type": "application/json", "traceparent": PARENT, "x-tokengauge-session": "s"}
    request = urllib.request.Request(url + "/outer/v1/chat/completions", BODY, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == WORDS


def test_between_two_routes_of_one_proxy_a_session_counts_a_call_once(tokengauge, simulator, gateway, tmp_path):
    with proxy(tokengauge, tmp_path / "one", outer=gateway.url, inner=simulator) as one:
        gateway.behind = one.url + "/inner"
        for _ in range(3):
            call(one.url)
        records = one.records(6)
        assert [(record["route"], record["hop"]) for record in records] == [("outer", 0)] * 3 + [("inner", 1)] * 3
        assert {record["trace_id"] for record in records} == {TRACE}
        assert one.session() == (3, 3 * WORDS)


def test_of_two_proxies_the_outer_one_has_hop_0(tokengauge, simulator, gateway, tmp_path):
    with proxy(tokengauge, tmp_path / "inner", inner=simulator) as inner:
        gateway.behind = inner.url + "/inner"
        with proxy(tokengauge, tmp_path / "outer", outer=gateway.url) as outer:
            call(outer.url)
            for one, hop in ((outer, 0), (inner, 1)):
                [record] = one.records(1)
                assert (record["hop"], record["trace_id"], record["session"]) == (hop, TRACE, "s")
                assert one.session() == (1, WORDS)
