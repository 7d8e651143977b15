"""5,000 finished calls a second on the way to real stores, which are away for half of the time; and a writer that is killed.
TOKENGAUGE_SINK_SECONDS is how long (60), TOKENGAUGE_SINK_PROFILE the build (dev): `make sink-load` is ten minutes of a release."""

import json
import os
import signal
import sqlite3
import subprocess
import time

import pytest

from clickhouse import ClickHouse
from conftest import PROJECT
from test_sinks import duckdb, run
from test_sinks import clickhouse, seaweed  # noqa: F401 (fixtures)

SECONDS = int(os.environ.get("TOKENGAUGE_SINK_SECONDS", "60"))
PROFILE = os.environ.get("TOKENGAUGE_SINK_PROFILE", "dev")
RATE = 5_000
FILES = "*/*/*.parquet"


@pytest.fixture(scope="module")
def load():
    """Starts `cargo bench --bench sinks` with options; it is built before anything is measured."""
    command = ["cargo", "bench", "--locked", "--quiet", "--profile", PROFILE, "--bench", "sinks", "--no-run", "--message-format", "json"]
    built = subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True).stdout
    artifacts = [json.loads(line) for line in built.splitlines()]
    program = next(one["executable"] for one in artifacts if one.get("executable") and one["target"]["name"] == "sinks")
    keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}

    def start(*options):
        arguments = [program, "--rate", RATE, *options]
        return subprocess.Popen([str(part) for part in arguments], env=os.environ | keys, stdout=subprocess.PIPE, text=True)

    return start


def finished(process, seconds):
    """What it printed; it ends with 1 where a call is lost or not stored in time."""
    output, _ = process.communicate(timeout=2 * seconds + 600)
    print(output)
    assert process.returncode == 0, output
    return json.loads(output.splitlines()[-1])


@pytest.fixture
def table(clickhouse, tokengauge, tmp_path):
    (tmp_path / "ddl.toml").write_text(f'[[sink]]\nkind = "clickhouse"\nurl = "{clickhouse.url}"\n[[upstream]]\nname = "u"\nurl = "http://127.0.0.1:9"\n[[route]]\nupstream = "u"\n')
    run(tokengauge, "sink", "ddl", "--apply", "--config", tmp_path / "ddl.toml")
    return clickhouse


def in_table(store):
    """Rows and different ids."""
    return [int(number) for number in store.query("SELECT count(), uniqExact(id) FROM tokengauge_calls FINAL FORMAT TSV").split()]


def in_bucket(store, prefix, folder):
    store.fetch(folder, prefix)
    return duckdb(f"SELECT count(*), count(DISTINCT id) FROM read_parquet('{folder}/{prefix}/{FILES}')")[0]


def test_the_ledger_alone_is_what_to_compare_with(load):
    seen = finished(load("--seconds", SECONDS // 4), SECONDS)
    assert seen["calls"] == SECONDS // 4 * RATE


def test_clickhouse_has_every_call_once_after_an_outage(load, table):
    seen = finished(load("--clickhouse", table.url, "--seconds", SECONDS, "--away", SECONDS // 2), SECONDS)
    assert seen["calls"] == SECONDS * RATE
    assert seen["waiting_at_most"] > SECONDS // 3 * RATE, "it was away"
    assert in_table(table) == [seen["calls"]] * 2


def test_s3_has_every_call_once_after_an_outage(load, seaweed, tmp_path):
    options = ["--s3", seaweed.url, "--bucket", "llm", "--prefix", tmp_path.name]
    seen = finished(load(*options, "--seconds", SECONDS, "--away", SECONDS // 2), SECONDS)
    assert seen["calls"] == SECONDS * RATE
    assert seen["waiting_at_most"] > SECONDS // 3 * RATE, "it was away"
    assert in_bucket(seaweed, tmp_path.name, tmp_path / "files") == [seen["calls"]] * 2


def test_a_killed_writer_goes_on_where_it_was(load, table, seaweed, tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    options = ["--clickhouse", table.url, "--s3", seaweed.url, "--bucket", "llm", "--prefix", tmp_path.name, "--folder", folder]
    first = load(*options, "--seconds", 60)
    deadline = time.monotonic() + 60
    while in_table(table)[0] < 2 * RATE:
        assert time.monotonic() < deadline, "calls in the table"
        time.sleep(0.2)
    first.kill()
    assert first.wait(20) == -signal.SIGKILL
    finished(load(*options, "--seconds", 4), 60)
    with sqlite3.connect(folder / "ledger.sqlite") as ledger:
        kept = ledger.execute("SELECT count(*) FROM calls").fetchone()[0]
    assert kept > 6 * RATE
    assert in_table(table) == [kept] * 2
    assert in_bucket(seaweed, tmp_path.name, tmp_path / "files") == [kept] * 2
