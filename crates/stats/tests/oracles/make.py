"""What public implementations answer, as fixtures of the tests in Rust: `make.py [FOLDER]` writes one JSON file per module, by
default into its own folder.

Every function makes its inputs from a seed and asks the oracle. The program needs build-requirements.txt, then
requirements.txt, as tests/real/install installs them; `cargo test` needs neither it nor Python.
tests/real/test_stats_oracles.py runs it again and compares."""

import json
import pathlib
import sys

import comparisons
import intervals
import series

FIXTURES = {
    "bootstrap": intervals.bootstrap,
    "change": series.change,
    "clustered": intervals.clustered,
    "drift": comparisons.drift,
    "holm": comparisons.holm,
    "mix": comparisons.mix,
    "rank": comparisons.rank,
    "ratio": intervals.ratio,
    "sequence": intervals.sequence,
    "split": comparisons.split,
    "steady": series.steady,
    "stratified": intervals.stratified,
    "student": intervals.student,
    "tail": intervals.tail,
}


def plain(value):
    """Lists and numbers of Python instead of numpy's."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value


def fixture(name):
    """The cases of one module."""
    return plain(FIXTURES[name]())


def lines(cases):
    """One case a line, so that a change can be read. NaN would be no JSON, and is an error."""
    return "[\n" + ",\n".join(json.dumps(case, allow_nan=False) for case in cases) + "\n]\n"


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    for name in FIXTURES:
        (folder / f"{name}.json").write_text(lines(fixture(name)))
