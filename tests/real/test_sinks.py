"""Sinks with real stores: ClickHouse (as a library behind HTTP) and SeaweedFS, whose files DuckDB reads. Each call
of the ledger is in both exactly once, through an outage and a killed proxy."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree

import pytest

from clickhouse import PYTHON, STORES, ClickHouse
from processes import free_port, running
from test_ledger import Proxy
from test_store_readers import assert_alike, figures

pytestmark = pytest.mark.part("stores")

CALLS = 120
TABLE = "tokengauge_calls"


class S3:
    def __init__(self, url):
        self.url = url

    def names(self, prefix):
        after = ""
        while True:
            query = urllib.parse.urlencode({"list-type": 2, "max-keys": 1000, "prefix": f"{prefix}/", "start-after": after})
            with urllib.request.urlopen(f"{self.url}/llm?{query}", timeout=10) as response:
                listing = ElementTree.fromstring(response.read())
            space = re.match(r"\{.*\}", listing.tag)[0]
            names = [key.text for key in listing.iter(f"{space}Key")]
            yield from names
            if listing.findtext(f"{space}IsTruncated") != "true":
                return
            after = names[-1]

    def delete(self, name):
        request = urllib.request.Request(f"{self.url}/llm/{urllib.parse.quote(name)}", method="DELETE")
        urllib.request.urlopen(request, timeout=10).close()

    def fetch(self, folder, prefix):
        for name in self.names(prefix):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with urllib.request.urlopen(f"{self.url}/llm/{urllib.parse.quote(name)}", timeout=10) as response:
                file.write_bytes(response.read())


@pytest.fixture
def clickhouse(tmp_path):
    store = ClickHouse(tmp_path / "clickhouse", tmp_path / "clickhouse.log")
    store.start()
    yield store
    if store.context:
        store.stop()


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seaweed")
    ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
    grpc = {name: free_port() for name in ports}
    command = [STORES / "bin/weed", "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    # Two servers at once would use the same ports for services other than S3.
    command += ["-master.volumeSizeLimitMB=64", "-volume.max=20", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    for name, port in ports.items():
        command += [f"-{name}.port={port}", f"-{name}.port.grpc={grpc[name]}"]
    with running(command, folder / "weed.log") as process:
        store = S3(f"http://127.0.0.1:{ports['s3']}")
        process.wait_for(lambda: bucket(store.url), "an S3")
        yield store
        # A regular stop takes half a minute.
        process.child.kill()


def bucket(url):
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/llm", method="PUT"), timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


@pytest.fixture
def config(tmp_path, simulator, clickhouse, seaweed):
    for name in ("key", "secret"):
        (tmp_path / name).write_text("any")
    file = tmp_path / "proxy.toml"
    file.write_text(
        f"""
listen = "127.0.0.1:0"
state_dir = "{tmp_path}/state"
[admin]
listen = "127.0.0.1:0"
[[upstream]]
name = "simulator"
url = "{simulator}"
[[route]]
upstream = "simulator"
workload = "chat"
[[payer]]
team = "search"
cost_center = "4711"
route = "simulator"
[[price]]
model = "*"
output = 10
[[sink]]
kind = "clickhouse"
url = "{clickhouse.url}"
batch_rows = 50
batch_wait = "200ms"
[[sink]]
kind = "s3"
url = "{seaweed.url}"
bucket = "llm"
prefix = "{tmp_path.name}"
region = "us-east-1"
access_key_id_file = "{tmp_path}/key"
secret_access_key_file = "{tmp_path}/secret"
batch_rows = 50
batch_wait = "200ms"
"""
    )
    return file


def done(tokengauge, *arguments, expected=0):
    command = [str(part) for part in (tokengauge, *arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == expected, ended.stdout + ended.stderr
    return ended


def run(tokengauge, *arguments, expected=0):
    return done(tokengauge, *arguments, expected=expected).stdout


def said(tokengauge, *arguments):
    return done(tokengauge, *arguments).stderr


def ledger_ids(config):
    with sqlite3.connect(config.parent / "state/ledger.sqlite") as ledger:
        return sorted(row[0] for row in ledger.execute("SELECT id FROM calls_readable"))


def until(holds, what, seconds=180):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def delivered(proxy, rows):
    """Returns whether both stores have at least `rows` calls of this process. No call waits, as of the sinks' last
    update."""
    for sink in ("clickhouse", "s3"):
        stored = f'tokengauge_sink_records_total{{sink="{sink}"}}'
        waiting = f'tokengauge_sink_waiting_records{{sink="{sink}"}}'
        until(
            lambda: (proxy.metric(stored) or 0) >= rows and proxy.metric(waiting) == 0,
            lambda: f"{sink}: {proxy.metric(stored)} stored, {proxy.metric(waiting)} wait",
        )


def duckdb(query):
    script = "import duckdb, json, sys; print(json.dumps(duckdb.sql(sys.argv[1]).fetchall(), default=str))"
    output = subprocess.run([PYTHON, "-c", script, query], check=True, capture_output=True, text=True)
    return json.loads(output.stdout)


def test_both_stores_have_every_call_once_through_an_outage_and_a_kill(tokengauge, config, clickhouse, seaweed, tmp_path):
    read = f"read_parquet('{tmp_path}/files/*/*/*/*.parquet', hive_partitioning = true, union_by_name = true)"

    def in_files():
        shutil.rmtree(tmp_path / "files", ignore_errors=True)
        seaweed.fetch(tmp_path / "files", tmp_path.name)
        return [row[0] for row in duckdb(f"SELECT id FROM {read} ORDER BY id")]

    run(tokengauge, "export", "sink", "ddl", "--apply", "--config", config)
    with running([tokengauge, "run", "--config", config], tmp_path / "first.log") as process:
        proxy = Proxy(process)
        proxy.calls(CALLS, "one")
        delivered(proxy, CALLS)
        clickhouse.stop()
        proxy.calls(CALLS, "two")
        proxy.wait('tokengauge_sink_failures_total{sink="clickhouse",reason="unreachable"}', 1)
        clickhouse.start()
        delivered(proxy, 2 * CALLS)
        assert "lost       0 calls" in run(tokengauge, "export", "sink", "status", "--admin", proxy.admin)
        proxy.calls(CALLS, "three")
        os.kill(process.child.pid, signal.SIGKILL)
        process.child.wait()
    with running([tokengauge, "run", "--config", config], tmp_path / "second.log", expected_exit=0) as process:
        proxy = Proxy(process)
        proxy.calls(1, "four")
        proxy.wait("tokengauge_ledger_records_total", 1)
        # Calls that waited before the kill are also stored.
        until(lambda: sorted(clickhouse.ids()) == ledger_ids(config), lambda: "not every call is in ClickHouse")
        until(lambda: in_files() == ledger_ids(config), lambda: "not every call is in S3")
    ids = ledger_ids(config)
    assert len(ids) > 2 * CALLS
    assert sorted(clickhouse.ids()) == in_files() == ids
    # Send all calls again, with half of the files missing.
    replay = ["export", "sink", "replay", "--sink", "s3", "--since", "1h", "--config", config]
    assert f"0 calls sent, {len(ids)} already stored, 0 refused" in said(tokengauge, *replay)
    kept = sorted(seaweed.names(tmp_path.name))
    for name in kept[::2]:
        seaweed.delete(name)
    said(tokengauge, *replay)
    assert in_files() == ids
    # Each partition contains only calls of its day.
    wrong = f"SELECT count(*) FROM {read} WHERE day <> started_at::DATE OR hour::INT <> extract('hour' FROM started_at)"
    assert duckdb(f"SET TimeZone = 'UTC'; {wrong}") == [[0]]
    columns = "schema_version > 1, route, outcome, model, normalised_output_tokens > 0, ttft_seconds > 0"
    assert duckdb(f"SELECT DISTINCT {columns} FROM {read} WHERE session = 'one'") == [
        [True, "simulator", "complete", "m", True, True]
    ]


def test_files_of_an_older_version_are_read_with_newer_ones(tokengauge, config, seaweed, tmp_path):
    run(tokengauge, "export", "sink", "ddl", "--apply", "--config", config)
    with running([tokengauge, "run", "--config", config], tmp_path / "proxy.log", expected_exit=0) as process:
        proxy = Proxy(process)
        proxy.calls(5, "new")
        delivered(proxy, 5)
    seaweed.fetch(tmp_path / "files", tmp_path.name)
    old = tmp_path / f"files/{tmp_path.name}/day=2025-01-01/hour=00/a-b.parquet"
    old.parent.mkdir(parents=True)
    row = "SELECT 0::BIGINT schema_version, 'old' id, TIMESTAMP '2025-01-01 00:00:01' started_at, 'm' model"
    duckdb(f"COPY ({row}) TO '{old}' (FORMAT parquet)")
    read = f"read_parquet('{tmp_path}/files/*/*/*/*.parquet', hive_partitioning = true, union_by_name = true)"
    found = duckdb(f"SELECT schema_version > 1, count(*), count(ttft_seconds) FROM {read} GROUP BY ALL ORDER BY ALL")
    assert found == [[False, 1, 0], [True, 5, 5]]


def test_commands_answer_from_a_store_as_they_do_from_a_ledger(tokengauge, config, clickhouse, tmp_path):
    run(tokengauge, "export", "sink", "ddl", "--apply", "--config", config)
    with running([tokengauge, "run", "--config", config], tmp_path / "proxy.log", expected_exit=0) as process:
        proxy = Proxy(process)
        for session in range(12):
            proxy.calls(10, f"s-{session}")
        delivered(proxy, CALLS)
    ledger = config.parent / "state/ledger.sqlite"
    store = f"clickhouse://127.0.0.1:{clickhouse.port}/default?table={TABLE}"

    def both(*arguments, since=()):
        by_ledger = run(tokengauge, *arguments, "--ledger", ledger)
        return by_ledger, run(tokengauge, *arguments, "--store", store, *since)

    def same(pair):
        assert_alike(figures(pair[0]), figures(pair[1]))

    def records(text):
        # Only a store knows which pod measured a call.
        return sorted(re.sub(r',"pod":\{[^}]*\}', "", line) for line in text.splitlines())

    for form in ("jsonl", "csv"):
        ours, theirs = both("export", "--format", form, "--since", "1h", "--config", config)
        assert records(ours) == records(theirs) and len(records(ours)) >= CALLS
    for by in ("model", "agent", "route,workload"):
        same(both("report", "--since", "1h", "--by", by, "--format", "json"))
    ours, theirs = both("report", "--since", "1h", "--by", "team,cost-center", "--format", "csv")
    assert ours == theirs
    assert {line.split(",")[:2] == ["search", "4711"] for line in ours.splitlines()[1:]} == {True}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    same(both("drift", "--format", "json", "--at", now, "--config", config))
    log = tmp_path / "calls.jsonl"
    log.write_text(run(tokengauge, "export", "--format", "jsonl", "--since", "1h", "--ledger", ledger, "--config", config))
    assert run(tokengauge, "slo", "suggest", log) == run(tokengauge, "slo", "suggest", "--store", store)


def test_a_table_of_an_older_version_is_written_to_and_read(tokengauge, config, clickhouse, tmp_path):
    columns = "id UUID, started_at DateTime64(3, 'UTC'), schema_version UInt16, model Nullable(String), outcome Nullable(String)"
    order = "ENGINE = ReplacingMergeTree(schema_version) ORDER BY (started_at, id)"
    clickhouse.query(f"CREATE TABLE {TABLE} ({columns}) {order}")
    with running([tokengauge, "run", "--config", config], tmp_path / "proxy.log", expected_exit=0) as process:
        proxy = Proxy(process)
        proxy.calls(5, "s")
        delivered(proxy, 5)
    assert sorted(clickhouse.ids()) == ledger_ids(config)
    store = f"clickhouse://127.0.0.1:{clickhouse.port}/default"
    lines = run(tokengauge, "export", "--format", "jsonl", "--since", "1h", "--store", store, "--config", config).splitlines()
    assert len(lines) == 5
    assert {json.loads(line)["model"] for line in lines} == {"m"}
    assert {json.loads(line)["session"] for line in lines} == {None}
    run(tokengauge, "export", "sink", "ddl", "--apply", "--config", config)
    assert "session" in clickhouse.query(f"DESCRIBE TABLE {TABLE} FORMAT TSV")
