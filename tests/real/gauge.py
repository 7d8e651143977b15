"""A running proxy with its call records and metrics."""

import contextlib
import datetime
import json
import pathlib
import re
import time
import urllib.request

RECORD_SECONDS = 60


class Gauge:
    def __init__(self, url, admin, call_log: pathlib.Path):
        self.url = url
        self.admin = admin
        self.call_log = call_log

    def logged(self):
        """Returns the records in the call log, oldest first."""
        if not self.call_log.exists():
            return []
        # A line that is still being written has no line end.
        return [json.loads(line) for line in self.call_log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def calls(self, limit=1000):
        """Returns the records of the API, newest first."""
        return json.loads(self.scrape(f"/api/v1/calls?limit={limit}&operation_class=all"))["calls"]

    def metric(self, name):
        samples = re.findall(rf"^{name}(?:{{.*}})? (\S+)", self.scrape("/metrics"), re.MULTILINE)
        return sum(float(sample) for sample in samples)

    def scrape(self, path):
        with urllib.request.urlopen(self.admin + path, timeout=60) as response:
            return response.read().decode()

    @contextlib.contextmanager
    def next_record(self):
        """Yields a list that will hold the only record made within the block. The record of an earlier call may
        arrive late."""
        began = datetime.datetime.now(datetime.UTC)
        began = began.strftime("%Y-%m-%dT%H:%M:%S.") + f"{began.microsecond // 1000:03}Z"

        def new():
            return [record for record in self.logged() if record["started_at"] >= began]

        records = []
        yield records
        deadline = time.monotonic() + RECORD_SECONDS
        while not new():
            assert time.monotonic() < deadline, f"no call record within {RECORD_SECONDS} s"
            time.sleep(0.01)
        records += new()
        assert len(records) == 1, f"{len(records)} records of one call"
