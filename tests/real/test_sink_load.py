"""5,000 finished calls a second to real stores, which are unreachable for half of the time, and a writer that is
killed. TOKENGAUGE_SINK_SECONDS is the duration (60), TOKENGAUGE_SINK_PROFILE the build (dev): `make sink-load`
runs ten minutes of a release build."""

import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import time
import urllib.request

import pytest

from conftest import PROJECT
from processes import running
from test_sinks import duckdb, run, until
from test_sinks import clickhouse, seaweed  # noqa: F401 (fixtures)

pytestmark = pytest.mark.part("alone")

SECONDS = int(os.environ.get("TOKENGAUGE_SINK_SECONDS", "60"))
PROFILE = os.environ.get("TOKENGAUGE_SINK_PROFILE", "dev")
RATE = 5_000
FILES = "*/*/*.parquet"
# Run apart, each store shows its own cost. Together, the test takes half of the time.
APART, TOGETHER = ["clickhouse", "s3"], ["clickhouse+s3"]


@pytest.fixture(scope="module")
def load():
    """Starts `cargo bench --bench sinks` with options, after building it."""
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
    """Returns the output. The exit code is 1 if a call is lost or not stored in time."""
    output, _ = process.communicate(timeout=2 * seconds + 600)
    print(output)
    assert process.returncode == 0, output
    return json.loads(output.splitlines()[-1])


@pytest.fixture
def table(clickhouse, tokengauge, tmp_path):
    (tmp_path / "ddl.toml").write_text(f'[[sink]]\nkind = "clickhouse"\nurl = "{clickhouse.url}"\n[[upstream]]\nname = "u"\nurl = "http://127.0.0.1:9"\n[[route]]\nupstream = "u"\n')
    run(tokengauge, "export", "sink", "ddl", "--apply", "--config", tmp_path / "ddl.toml")
    return clickhouse


def in_table(store):
    """Returns the number of rows and of different ids."""
    return [int(number) for number in store.query("SELECT count(), uniqExact(id) FROM tokengauge_calls FINAL FORMAT TSV").split()]


def in_bucket(store, prefix, folder):
    store.fetch(folder, prefix)
    return duckdb(f"SELECT count(*), count(DISTINCT id) FROM read_parquet('{folder}/{prefix}/{FILES}')")[0]


def test_the_ledger_without_a_sink_for_comparison(load):
    seen = finished(load("--seconds", SECONDS // 10), SECONDS)
    assert seen["calls"] == SECONDS // 10 * RATE


@pytest.mark.parametrize("stores", APART if SECONDS > 60 else TOGETHER)
def test_stores_have_every_call_once_after_an_outage(load, table, seaweed, tmp_path, stores):
    of_store = {"clickhouse": ["--clickhouse", table.url], "s3": ["--s3", seaweed.url, "--bucket", "llm", "--prefix", tmp_path.name]}
    options = [option for store in stores.split("+") for option in of_store[store]]
    seen = finished(load(*options, "--seconds", SECONDS, "--away", SECONDS // 2), SECONDS)
    assert seen["calls"] == SECONDS * RATE
    assert seen["waiting_at_most"] > SECONDS // 3 * RATE, "it was away"
    if "clickhouse" in stores:
        assert in_table(table) == [seen["calls"]] * 2
    if "s3" in stores:
        assert in_bucket(seaweed, tmp_path.name, tmp_path / "files") == [seen["calls"]] * 2


def test_a_fleet_keeps_up(load, table, tokengauge, tmp_path):
    """Compares the calls in `tokengauge fleet` while they arrive, and measures its CPU time."""
    seconds = SECONDS // 3
    command = [tokengauge, "fleet", "--store", table.url, "--listen", "127.0.0.1:0", "--config", tmp_path / "ddl.toml"]
    with running(command, tmp_path / "fleet.log", expected_exit=0) as process:
        admin = "http://" + process.wait_for_line(r"admin on (\S+)")
        began = time.monotonic()
        load_process = load("--clickhouse", table.url, "--seconds", seconds)
        behind = []
        while load_process.poll() is None:
            stored = in_table(table)[0]
            behind.append(stored - known(admin))
            time.sleep(1)
        sent = finished(load_process, seconds)["calls"]
        until(lambda: known(admin) == sent, lambda: f"{known(admin)} of {sent}", seconds=60)
        ticks = pathlib.Path(f"/proc/{process.child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        cpu = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        print(json.dumps({"behind_at_most": max(behind), "caught_up_after": time.monotonic() - began, "cpu_seconds": cpu}))
        groups = json.load(urllib.request.urlopen(f"{admin}/api/v1/groups?by=model&since=1h", timeout=30))["groups"]
        assert sum(group["calls"] for group in groups) == sent


def known(admin):
    with urllib.request.urlopen(f"{admin}/api/v1/pods", timeout=10) as response:
        return json.load(response)["store"]["calls"]


def test_a_killed_writer_continues_where_it_was(load, table, seaweed, tmp_path):
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
