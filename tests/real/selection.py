"""A plugin for pytest: which tests run, on which worker, and what is printed about them at the end.

`--part NAME` runs the tests of a part of `make test-all`; without it, those that belong to no part run. `-n auto` starts as
many workers as the part can use.
"""

import os
import pathlib
import re
import shlex
import sys

import pytest
from xdist.scheduler import LoadScopeScheduling

from lanes import DEFAULT, LANES, copy_scripts

# Tests that run on one worker, in order: by default the tests of one file. These files share one fixture that takes
# most of a minute. In the others, most tests wait, or each part has its own fixture.
GROUPS = (
    (r"test_(?:prometheus|native_histograms|dashboards)\.py", "observed"),
    (r"test_page\.py::.*\[(\w+)", r"page-\1"),
    (r"test_api\.py::.*\[(memory|ledger)\]", r"api-\1"),
    (r"test_slo\.py::(test_a_kill|test_everybody)", r"slo-\1"),
    (r"test_fleet_rules\.py::(\w+.*)", r"fleet-\1"),
    (r"test_rules\.py::(test_no_event_is_lost)", r"rules-\1"),
    (r"test_otlp\.py::test_a_receiver_in_trouble\w*\[(\w+)", r"otlp-\1"),
    (r"(test_\w+)\.py", r"\1"),
)
# The slowest groups, longest first, so that no worker starts one of them at the end.
LONGEST = ("page-many", "page-looks", "observed", "page-first", "page-incident", "page-calls", "test_alerting", "slo-test_a_kill", "slo-test_everybody")


def pytest_addoption(parser):
    parts = ", ".join(name for name in LANES if name != DEFAULT)
    parser.addoption("--part", metavar="NAME", help=f"run the tests of this part: {parts}")


def pytest_configure(config):
    config.addinivalue_line("markers", "part(name): belongs to this part of `make test-all`, and not to `make test`")
    if (part := config.option.part) is not None and (part == DEFAULT or part not in LANES):
        raise pytest.UsageError(f"--part {part}: the parts are {', '.join(name for name in LANES if name != DEFAULT)}")
    if not hasattr(config, "workerinput"):
        copy_scripts()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    # Groups start in the order of the tests, not by their number of tests.
    config.option.loadscopereorder = False
    part = config.option.part
    if part and LANES[part].workers == 0 and config.option.numprocesses not in (None, 0, "auto"):
        raise pytest.UsageError(f"the tests of {part} run one after the other: leave out -n")


def pytest_xdist_make_scheduler(config, log):
    # The marker xdist_group has no effect here: xdist 3.8 adds the group to a name that pytest 9.2 does not let it
    # change.
    return GroupScheduling(config, log) if config.option.dist == "load" else None


def group_of(nodeid):
    pattern, name = next(each for each in GROUPS if re.match(each[0], nodeid))
    return re.match(pattern, nodeid).expand(name)


class GroupScheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid):
        return group_of(nodeid)


def pytest_xdist_auto_num_workers(config):
    return LANES[config.option.part or DEFAULT].workers


def part_of(item):
    marker = item.get_closest_marker("part")
    if marker is None:
        return None
    if len(marker.args) != 1 or marker.args[0] not in LANES or marker.args[0] == DEFAULT:
        raise pytest.UsageError(f"{item.nodeid}: part{marker.args} is not a part of lanes.py")
    return marker.args[0]


def names_tests(config):
    """Returns whether every argument is a file or a test. Those run whatever their part is."""
    paths = [pathlib.Path(config.invocation_params.dir, argument.split("::")[0]) for argument in config.args]
    return all(path.is_file() for path in paths)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    chosen, others = [], []
    everything = config.option.part is None and names_tests(config)
    for item in items:
        (chosen if everything | (part_of(item) == config.option.part) else others).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
    place = {name: at for at, name in enumerate(LONGEST)}
    # The order within a group stays.
    items[:] = sorted(chosen, key=lambda item: place.get(group_of(item.nodeid), len(place)))


def from_here(config, nodeid):
    """Returns the name of a test for a command in the folder of the invocation."""
    file, *rest = nodeid.split("::", 1)
    path = os.path.relpath(config.rootpath / file, config.invocation_params.dir)
    return "::".join([path, *rest])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """Prints at the very end which tests were skipped, which failed, and how to repeat failed ones."""
    result = yield
    config, reporter = session.config, session.config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(config, "workerinput") or reporter is None:
        return result
    skipped = {from_here(config, report.nodeid): reason_of(report) for report in reporter.stats.get("skipped", [])}
    for name, reason in skipped.items():
        reporter.write_line(f"skipped: {name}: {reason}")
    if file := os.environ.get("TOKENGAUGE_SKIPPED"):
        with open(file, "a") as output:
            output.writelines(f"{name}\t{reason}\n" for name, reason in skipped.items())
    wrong = [report for kind in ("failed", "error") for report in reporter.stats.get(kind, [])]
    for name in dict.fromkeys(from_here(config, report.nodeid) for report in wrong):
        reporter.write_line(f"failed: {name}")
        reporter.write_line(f"  to repeat: {python(config)} -m pytest {shlex.quote(name)}")
    return result


def python(config):
    """Returns the interpreter for a command in the folder of the invocation."""
    path = pathlib.Path(sys.executable)
    folder = config.invocation_params.dir
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def reason_of(report):
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(reason.removeprefix("Skipped: ").split())
