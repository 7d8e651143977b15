"""Proxies that export by OTLP, receivers, and an upstream that remembers its requests."""

import contextlib
import http.server
import json
import pathlib
import sys
import threading
import time

from gauge import Gauge
from processes import running

HERE = pathlib.Path(__file__).parent
PHOENIX = HERE.parent.parent / ".cache/real/phoenix/bin"
ANY_PORT = "127.0.0.1:0"
# Short intervals, so that tests do not wait for the next batch.
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_BLRP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "300"}


def eventually(find, what, seconds=120):
    """Polls `find()` until it returns a true value, and returns that value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := find():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"no {what} within {seconds} s")


class ExportingGauge(Gauge):
    def __init__(self, process, call_log):
        traffic = process.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
        admin = process.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")
        super().__init__(f"http://{traffic}", f"http://{admin}", call_log)
        self.process = process

    def failures(self, exporter):
        lines = self.scrape("/metrics").splitlines()
        wanted = f'tokengauge_export_failures_total{{exporter="{exporter}",reason="'
        found = [line[len(wanted) :].split('"} ') for line in lines if line.startswith(wanted)]
        return {reason: float(value) for reason, value in found}


@contextlib.contextmanager
def exporting(tokengauge, folder, upstream, variables, *arguments):
    """A proxy in front of `upstream` with these OpenTelemetry variables. On exit it is stopped and flushes."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = [f"{name}={value}" for name, value in (SOON | variables).items()]
    command = ["env", *environment, tokengauge, "run", *arguments]
    if upstream:
        command += ["--upstream", upstream]
    command += ["--listen", ANY_PORT, "--admin", ANY_PORT, "--call-log", folder / "calls.jsonl"]
    with running(command, folder / "proxy.log", expected_exit=0) as process:
        yield ExportingGauge(process, folder / "calls.jsonl")


class Receiver:
    def __init__(self, url, file):
        self.url = url
        self.file = file

    def messages(self, path):
        text = self.file.read_text() if self.file.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line["message"] for line in lines if line["path"] == path]

    def spans(self):
        return [
            span
            for message in self.messages("/v1/traces")
            for resource in message.get("resourceSpans", [])
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def metrics(self):
        newest = self.messages("/v1/metrics")[-1:]
        return {
            metric["name"]: metric
            for message in newest
            for resource in message["resourceMetrics"]
            for scope in resource["scopeMetrics"]
            for metric in scope["metrics"]
        }


@contextlib.contextmanager
def receiving(folder, *behaviour):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "received.jsonl"
    command = [sys.executable, HERE / "otlp_receiver.py", file, *behaviour]
    with running(command, folder / "receiver.log") as process:
        port = process.wait_for_line(r"listening on (\d+)")
        yield Receiver(f"http://127.0.0.1:{port}", file)


@contextlib.contextmanager
def upstream(answer):
    """An upstream that answers with the result of `answer(path, headers, body)`: status, content type, bytes. If the
    status is None, it closes the connection in the middle. Yields its address and the received heads as lines."""
    heads = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            heads.append([f"{name}: {value}" for name, value in self.headers.items()])
            status, kind, content = answer(self.path, self.headers, body)
            self.send_response(status or 200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content) + (0 if status else 100)))
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = status is None

        do_GET = do_POST

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", heads
    finally:
        server.shutdown()
        server.server_close()
