"""The fixtures of crates/stats must equal the results of public implementations: make.py runs again, and its files
are compared with those that `cargo test` reads."""

import json
import math
import pathlib
import subprocess

import pytest

pytestmark = pytest.mark.part("oracles")

PROJECT = pathlib.Path(__file__).parent.parent.parent
ORACLES = PROJECT / "crates/stats/tests/oracles"
PYTHON = PROJECT / ".cache/real/oracles/bin/python"
FIXTURES = sorted(path.name for path in ORACLES.glob("*.json"))


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """A folder with the current results."""
    assert PYTHON.exists(), f"{PYTHON} is not there: tests/real/install"
    folder = tmp_path_factory.mktemp("oracles")
    subprocess.run([PYTHON, ORACLES / "make.py", folder], check=True)
    return folder


def same(fixture, answer):
    """Compares values; numbers may differ by rounding."""
    if isinstance(fixture, dict):
        return isinstance(answer, dict) and fixture.keys() == answer.keys() and all(same(fixture[key], answer[key]) for key in fixture)
    if isinstance(fixture, list):
        return isinstance(answer, list) and len(fixture) == len(answer) and all(map(same, fixture, answer))
    if isinstance(fixture, float) or isinstance(answer, float):
        return math.isclose(fixture, answer, rel_tol=1e-7, abs_tol=1e-12)
    return type(fixture) is type(answer) and fixture == answer


def test_every_module_has_its_fixture(answers):
    assert FIXTURES == sorted(path.name for path in answers.iterdir())
    assert len(FIXTURES) == 14


@pytest.mark.parametrize("name", FIXTURES)
def test_the_fixture_is_what_the_oracle_answers(answers, name):
    fixture, answer = (json.loads((folder / name).read_text()) for folder in (ORACLES, answers))
    assert len(fixture) == len(answer)
    for index, (ours, theirs) in enumerate(zip(fixture, answer)):
        assert same(ours, theirs), f"case {index}: make.py writes it again"
