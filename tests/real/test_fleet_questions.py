"""Questions to a warehouse: the Rust tests that need a real ClickHouse."""

import os
import pathlib
import shutil
import subprocess

import pytest

from clickhouse import ClickHouse

PROJECT = pathlib.Path(__file__).parent.parent.parent
pytestmark = pytest.mark.part("stores")

TESTS = [
    "warehouse_questions::every_question_has_the_answer_of_the_ledger",
    "warehouse_questions::sums_answer_for_calls_that_need_not_be_read",
    "fleet::calls_of_all_pods_are_together_and_filters_tell_them_apart",
    "fleet::the_use_of_a_key_is_summed_over_all_pods",
]


@pytest.mark.parametrize("name", TESTS)
def test_in_rust(tokengauge, tmp_path, name):
    with ClickHouse(tmp_path / "clickhouse", tmp_path / "clickhouse.log").started() as clickhouse:
        if name.startswith("fleet::"):
            ddl(tokengauge, tmp_path, clickhouse)
        environment = os.environ | {"TOKENGAUGE_CLICKHOUSE": f"127.0.0.1:{clickhouse.port}"}
        done = subprocess.run(command(name), cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=900)
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "1 passed" in said, said[-6000:]


def command(name):
    """What runs one test, with the features of the whole workspace, so that nothing is compiled again."""
    if shutil.which("cargo-nextest"):
        return ["cargo", "nextest", "run", "--locked", "--workspace", "--run-ignored", "only", "-E", f"test(={name})"]
    return ["cargo", "test", "--locked", "--workspace", "--test", "suite", "--", "--ignored", "--exact", name]


def ddl(tokengauge, folder, clickhouse):
    config = folder / "ddl.toml"
    config.write_text(
        f"""
[[upstream]]
name = "none"
url = "http://127.0.0.1:9"
[[route]]
upstream = "none"
[[sink]]
kind = "clickhouse"
url = "{clickhouse.url}"
"""
    )
    subprocess.run([tokengauge, "export", "sink", "ddl", "--apply", "--config", config], check=True, timeout=60)
