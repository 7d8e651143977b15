"""The ledger of a running proxy: read by Python's SQLite module, exported and read by DuckDB, and on a disk that
fills up and gets space again."""

import concurrent.futures
import contextlib
import datetime
import json
import pathlib
import sqlite3
import subprocess
import time
import urllib.request

import pytest

from otlp import eventually
from processes import running

HERE = pathlib.Path(__file__).parent
DUCKDB = HERE.parent.parent / ".cache/real/ledger/bin/python"
BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()


def config(folder, simulator, ledger):
    path = folder / "proxy.toml"
    path.write_text(
        f"""
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[ledger]
path = "{ledger}"
[[upstream]]
name = "simulator"
url = "{simulator}"
[[route]]
upstream = "simulator"
workload = "chat"
"""
    )
    return path


class Proxy:
    def __init__(self, process):
        self.url = "http://" + process.wait_for_line(r"listening on (\S+)")
        self.admin = "http://" + process.wait_for_line(r"admin on (\S+)")

    def call(self, session):
        headers = {"content-type": "application/json", "x-tokengauge-session": session}
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", BODY, headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.read().rstrip().endswith(b"[DONE]")

    def calls(self, count, session):
        with concurrent.futures.ThreadPoolExecutor(8) as agents:
            list(agents.map(lambda _: self.call(session), range(count)))

    def metric(self, series):
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=10) as response:
            for line in response.read().decode().splitlines():
                if line.rsplit(" ", 1)[0] == series:
                    return float(line.rsplit(" ", 1)[1])
        return None

    def wait(self, series, at_least):
        deadline = time.monotonic() + 120
        while (self.metric(series) or 0) < at_least:
            assert time.monotonic() < deadline, f"{series} is {self.metric(series)}, not {at_least}"
            time.sleep(0.05)


@contextlib.contextmanager
def serving(tokengauge, file, log):
    with running([tokengauge, "run", "--config", file], log, expected_exit=0) as process:
        yield Proxy(process)


def duckdb(query):
    script = "import duckdb, json, sys; print(json.dumps(duckdb.sql(sys.argv[1]).fetchall(), default=str))"
    output = subprocess.run([DUCKDB, "-c", script, query], check=True, capture_output=True, text=True)
    return json.loads(output.stdout)


def test_calls_are_read_by_tools_that_are_not_ours(tokengauge, simulator, tmp_path):
    ledger = tmp_path / "state/ledger.sqlite"
    file = config(tmp_path, simulator, ledger)
    with serving(tokengauge, file, tmp_path / "proxy.log") as proxy:
        proxy.calls(30, "s-1")
        proxy.calls(10, "s-2")
        proxy.wait("tokengauge_ledger_records_total", 40)
        live = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
        sessions = live.execute("SELECT id, calls, output_tokens FROM sessions_readable ORDER BY id").fetchall()
        sums = "SELECT session, count(*), sum(reported_output_tokens) FROM calls_readable GROUP BY session ORDER BY session"
        assert sessions == live.execute(sums).fetchall()
        assert [row[:2] for row in sessions] == [("s-1", 30), ("s-2", 10)]
        for form in ["parquet", "csv", "jsonl"]:
            to = tmp_path / f"calls.{form}"
            command = [tokengauge, "export", "--config", file, "--format", form, "--since", "1h", "-o", to]
            subprocess.run(command, check=True, capture_output=True)
        columns = "id, started_at, session, model, streamed, status, ttft_seconds, output_tokens_per_second, cost_usd"
        rows = live.execute(f"SELECT {columns} FROM calls_readable ORDER BY key").fetchall()
        live.close()
    of_file = columns.replace("started_at", "epoch_ms(started_at)")
    parquet = duckdb(f"SELECT {of_file} FROM '{tmp_path}/calls.parquet'")
    assert len(parquet) == 40
    for found, kept in zip(parquet, rows, strict=True):
        assert found[0] == kept[0] and found[2:4] == list(kept[2:4])
        began = datetime.datetime.fromisoformat(kept[1])
        assert found[1] == round(began.timestamp() * 1000)
        assert found[4] is True and found[5] == 200
        assert found[6] == pytest.approx(kept[6]) and found[7] == pytest.approx(kept[7])
        assert found[8] is None, "no price is known"
    types = dict(duckdb(f"SELECT column_name, column_type FROM (DESCRIBE FROM '{tmp_path}/calls.parquet')"))
    assert types["started_at"] == "TIMESTAMP WITH TIME ZONE" and types["streamed"] == "BOOLEAN"
    assert types["ttft_seconds"] == "DOUBLE" and types["reported_output_tokens"] == "BIGINT"
    total = "SELECT count(*), sum(reported_output_tokens), count(DISTINCT session)"
    of = {form: duckdb(f"{total} FROM '{tmp_path}/calls.{form}'") for form in ["parquet", "csv"]}
    assert of["csv"] == of["parquet"]
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [row[0] for row in parquet]
    assert sum(line["tokens"]["reported"]["output"] for line in lines) == int(of["parquet"][0][1])


@contextlib.contextmanager
def disk(folder, size):
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_costs_records_and_no_traffic_until_there_is_room(tokengauge, simulator, tmp_path):
    with disk(tmp_path / "disk", "1m") as folder:
        file = config(tmp_path, simulator, folder / "ledger.sqlite")
        with serving(tokengauge, file, tmp_path / "proxy.log") as proxy:
            proxy.calls(20, "s-1")
            proxy.wait("tokengauge_ledger_records_total", 20)
            room = (folder / "fill").open("wb")
            with contextlib.suppress(OSError):
                while room.write(b"x" * 4096):
                    room.flush()
            with contextlib.suppress(OSError):
                room.close()
            lost = 'tokengauge_ledger_lost_records_total{reason="disk_full"}'
            deadline = time.monotonic() + 30
            while not proxy.metric(lost):
                proxy.calls(20, "s-2")
                assert time.monotonic() < deadline, "the disk never filled up"
            # The file is closed before the message is logged.
            eventually(lambda: "make room" in (tmp_path / "proxy.log").read_text(), "word of the full disk")
            (folder / "fill").unlink()
            before = proxy.metric("tokengauge_ledger_records_total")
            deadline = time.monotonic() + 30
            while proxy.metric("tokengauge_ledger_records_total") <= before:
                proxy.calls(5, "s-3")
                assert time.monotonic() < deadline, "it never continues"
            kept = sqlite3.connect(f"file:{folder}/ledger.sqlite?mode=ro", uri=True)
            assert kept.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert kept.execute("SELECT calls FROM sessions_readable WHERE id = 's-1'").fetchone() == (20,)
            kept.close()
