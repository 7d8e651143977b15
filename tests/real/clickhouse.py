"""ClickHouse as a library behind HTTP, and a receiver for the inserts of a sink."""

import contextlib
import http.server
import json
import pathlib
import threading
import urllib.parse
import urllib.request

from processes import free_port, running

HERE = pathlib.Path(__file__).parent
STORES = HERE.parent.parent / ".cache/real/stores"
PYTHON = STORES / "bin/python"


class ClickHouse:
    """A server that can stop and restart with its data."""

    def __init__(self, folder, log):
        self.folder, self.log, self.port = folder, log, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.context = None

    def start(self):
        command = [PYTHON, HERE / "clickhouse_server.py", self.port, self.folder]
        self.context = running(command, self.log)
        self.context.__enter__().wait_for_line(r"listening on (\d+)")

    def stop(self):
        self.context.__exit__(None, None, None)
        self.context = None

    @contextlib.contextmanager
    def started(self):
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def query(self, text):
        with urllib.request.urlopen(urllib.request.Request(self.url + "/", text.encode()), timeout=60) as response:
            return response.read().decode()

    def ids(self, table="tokengauge_calls"):
        return self.query(f"SELECT id FROM {table} FINAL FORMAT TSV").split()


class InsertReceiver:
    """Accepts inserts as ClickHouse does and keeps their rows, for tests that do not query the store. The ClickHouse
    library has 0.7 GB."""

    def __init__(self):
        self.statements, self.rows = [], []

    @contextlib.contextmanager
    def started(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("query")
                receiver.statements.append(query[0] if query else body)
                if query:
                    receiver.rows += [json.loads(line) for line in body.splitlines()]
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
