"""ClickHouse as a library behind HTTP."""

import contextlib
import pathlib
import urllib.request

from processes import free_port, running

HERE = pathlib.Path(__file__).parent
STORES = HERE.parent.parent / ".cache/real/stores"
PYTHON = STORES / "bin/python"


class ClickHouse:
    """A server that can be away and come back with what it had."""

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
