"""The dashboards for ClickHouse: every query of a panel and of a variable runs in a real ClickHouse. The table holds many
calls several times. Each figure of a panel is compared with a figure that Python computes from each call once."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import re
import sqlite3
import time
import urllib.parse
import urllib.request

import pytest

import warehouse_calls as calls
from clickhouse import ClickHouse
from dashboards import CLICKHOUSE, loaded, panels
from grafana_clickhouse import ALL, filled_in
from processes import running
from test_dashboards import SPAN, page  # noqa: F401 (a fixture)
from test_fleet_questions import ddl
from test_ledger import Proxy
from test_sinks import run
from warehouse_calls import FIGURES, NAME_OF, SINCE, SUMS, UNTIL

pytestmark = pytest.mark.part("stores")

FILTERS = ["cluster", "namespace", "pod", "team", "upstream", "model"]

# The columns that tell the rows of a table apart.
KEYS = {
    "session": lambda row: row.get("session"),
    "call": lambda row: row["id"],
    "reason": NAME_OF["reason"],
    "known": calls.model,
    "model_name": NAME_OF["model"],
    "upstream_name": NAME_OF["upstream"],
    "upstream": lambda row: row.get("upstream"),
    "kind": NAME_OF["outcome"],
    "error_type": lambda row: row.get("error_type"),
    "status": lambda row: row.get("status"),
}
# Columns that are neither keys nor in `FIGURES`.
OTHERS = {
    "started_at": lambda rows: rows[0]["started_at"],
    "pod_name": lambda rows: rows[0].get("pod", rows[0].get("instance")),
    "ending": lambda rows: NAME_OF["outcome"](rows[0]),
    "first_at": lambda rows: min(row["started_at"] for row in rows),
    "last_at": lambda rows: max(row["started_at"] for row in rows),
    "longest_trace": lambda rows: last(rows, "trace_id", "duration_seconds"),
    "last_trace": lambda rows: last(rows, "trace_id", "started_at"),
    "last_team": lambda rows: last(rows, "team", "started_at"),
    "last_user": lambda rows: last(rows, "user", "started_at"),
    "agents": lambda rows: ", ".join(sorted({row["agent"] for row in rows if "agent" in row})),
    "models": lambda rows: ", ".join(sorted({calls.model(row) for row in rows if calls.model(row)})),
}
OF_CALL = ("trace_id", "agent", "team", "ttft_seconds", "ttft_upstream_seconds", "output_tokens_per_second", "duration_seconds")
OF_CALL += ("concurrency", "stalls")
OTHERS |= {column: lambda rows, column=column: rows[0].get(column) for column in OF_CALL}
# The names of a panel's series, the figure by which the largest are shown, and how many are shown.
SERIES = {
    **{f"Cost by {name}": (name, "cost", 20) for name in ("team", "model", "agent", "user")},
    "Cost of the ten most expensive sessions": ("session", "cost", 10),
    "Cached input by model": ("model", "input", 10),
    "Calls without a price by reason": ("reason", "unpriced", 99),
    "Failed calls of sessions by outcome": ("outcome", "failed", 99),
    "Failed calls by outcome": ("outcome", "failed", 20),
    "Failed calls by upstream": ("upstream", "failed", 20),
    **{f"TTFT by {name}{kind}": (name, "calls_with_ttft", 10) for name in ("model", "upstream") for kind in ("", ", p95")},
    **{f"Output TPS by {name}{kind}": (name, "calls_with_tps", 10) for name in ("model", "upstream") for kind in ("", ", median")},
}
OTHER_NAMES = "all others"
# Tables of the first rows: their key, and the figure that sorts them. The first row has the largest figure, unless it is a speed.
MOST = 100
FIRST = {
    "Most expensive sessions": ("session", "cost"),
    "Slowest sessions": ("session", "model_seconds"),
    "Slowest calls by TTFT": ("call", "ttft_p50"),
    "Slowest calls by output TPS": ("call", "tps_p50"),
    "Slowest calls by duration": ("call", "duration_p95"),
}


def last(rows, column, by):
    known = [row for row in rows if column in row]
    return max(known, key=lambda row: row[by])[column] if known else None


def text_boxes(dashboard):
    return {one["name"]: one["query"] for one in dashboard["templating"]["list"] if one["type"] == "textbox"}


def every_panel():
    found = [(file, panel) for file in CLICKHOUSE for panel in panels(loaded(file))]
    return pytest.mark.parametrize("file, panel", [pytest.param(file, panel, id=f"{file.stem}: {panel['title']}") for file, panel in found])


def every_variable():
    found = [(file, one) for file in CLICKHOUSE for one in loaded(file)["templating"]["list"] if one["type"] == "query"]
    return pytest.mark.parametrize("file, variable", [pytest.param(file, one, id=f"{file.stem}: {one['name']}") for file, one in found])


@dataclasses.dataclass
class Warehouse:
    """A table of calls in ClickHouse, and the same calls in Python, each once."""

    server: ClickHouse
    rows: list
    table: str
    since: int
    until: int
    step: int

    def ask(self, file, sql, chosen):
        """Returns the rows of a query. `chosen` has the chosen names of variables. All is chosen for the others."""
        variables = text_boxes(loaded(file)) | {"table": self.table} | dict.fromkeys(FILTERS, ALL) | chosen
        statement = filled_in(sql, variables, self.since, self.until, self.step)
        assert "$" not in statement
        answer = self.server.query(f"{statement} SETTINGS output_format_json_quote_64bit_integers = 0 FORMAT JSONEachRow")
        return [json.loads(line) for line in answer.splitlines()]

    def calls(self, file, title, chosen):
        """Returns the calls of the time range that a panel is about, and such calls of the previous period."""
        for since, until, end_counts in ((self.since, self.until, True), (2 * self.since - self.until, self.since, False)):
            rows = calls.selected(self.rows, chosen, since, until, end_counts)
            if file.stem != "warehouse-sessions":
                rows = [row for row in rows if row["operation_class"] in ("generation", "embedding")]
            elif title != "Calls without a session":
                rows = [row for row in rows if "session" in row]
            yield rows

    def check(self, file, panel, chosen):
        """Compares a panel with the calls."""
        title, sql = panel["title"], panel["targets"][0]["rawSql"]
        found = self.ask(file, sql, chosen)
        rows, previous = self.calls(file, title, chosen)
        assert found and rows, (title, chosen)
        keys = keys_of(title, sql, found, rows, self.step)
        now, before = grouped(rows, keys), grouped(previous, keys) if any(column.startswith("previous_") for column in found[0]) else {}
        for row in found:
            name = tuple(row[column] for column in keys)
            for column in row.keys() - keys.keys() - {"filter"}:
                expected = figure(column, row, now.get(name, []), before.get(name, []))
                expected = pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected
                assert row[column] == expected, (title, name, column, chosen)
        assert len({tuple(row[column] for column in keys) for row in found}) == len(found), title
        if title in FIRST:
            assert [FIGURES[FIRST[title][1]](now[row[column],]) for row in found for column in keys] == first(title, now)
            return
        # No call is missing, and none counts twice.
        for column in found[0].keys() & SUMS.keys():
            assert sum(row[column] or 0 for row in found) == pytest.approx(SUMS[column](rows) or 0, rel=1e-12), (title, column, chosen)


def figure(column, row, rows, previous):
    if column.startswith("previous_"):
        return FIGURES[column.removeprefix("previous_")](previous)
    if column == "change":
        compared = next(each for each in row if f"previous_{each}" in row)
        now, before = FIGURES[compared](rows), FIGURES[compared](previous)
        return now / before - 1 if now is not None and before else None
    return KEYS[column](rows[0]) if column in KEYS else (FIGURES | OTHERS)[column](rows)


def grouped(rows, keys):
    found = collections.defaultdict(list)
    for row in rows:
        found[tuple(key(row) for key in keys.values())].append(row)
    return found


def keys_of(title, sql, found, rows, step):
    """Returns the columns that tell the rows of a panel apart, each with its value for a call."""
    if title in FIRST:
        return {FIRST[title][0]: KEYS[FIRST[title][0]]}
    keys = {column: key for column, key in KEYS.items() if column in found[0]}
    sessions = calls.by_session(row for row in rows if "session" in row)
    if "time" in found[0]:
        of_session = found[0].keys() & {"sessions", "mean_calls", "mean_cost"}
        keys["time"] = lambda row: step_of(min(each["started_at"] for each in (sessions[row["session"]] if of_session else [row])), step)
    if "series" in found[0]:
        name, by, most = SERIES[title]
        largest = {each[0] for each in largest_of(rows, name, by)[:most]}
        keys["series"] = lambda row: NAME_OF[name](row) if NAME_OF[name](row) in largest else OTHER_NAMES
    if "name" in found[0]:
        keys["name"] = NAME_OF[title.removeprefix("Totals by ")]
    if "bucket" in found[0]:
        bounds = [float(bound) for bound in re.search(r"\[([\d., ]+)\]", sql)[1].split(",")]
        unit = found[0]["bucket"].split(" ", 2)[2:]
        keys["bucket"] = lambda row: bucket(value_of(title, row, sessions), bounds, unit)
    return keys


def largest_of(rows, name, by):
    groups = grouped(rows, {name: NAME_OF[name]})
    values = {each[0]: FIGURES[by](calls_of) for each, calls_of in groups.items()}
    return sorted(((each, value) for each, value in values.items()), key=lambda pair: (-(pair[1] or 0), pair[0]))


def value_of(title, row, sessions):
    if title == "Sessions by number of calls":
        return len(sessions[row["session"]])
    if title == "Sessions by cost":
        return calls.cost(sessions[row["session"]])
    known = calls.steady([row], "ttft_seconds" if title.startswith("TTFT") else "output_tokens_per_second")
    return known[0] if known else None


def bucket(value, bounds, unit):
    if value is None:
        return None
    return " ".join(["≥", f"{max(bound for bound in bounds if bound <= value):g}", *unit])


def step_of(started_at, step):
    seconds = calls.milliseconds(started_at) // 1000
    return calls.written(seconds // step * step * 1000).removesuffix(".000")


def first(title, groups):
    """Returns the figures that sort the first rows of a table."""
    by = FIRST[title][1]
    figures = [FIGURES[by](rows) for rows in groups.values()]
    # Sessions without a cost are last. Calls without the figure are not in their table.
    known, unknown = [each for each in figures if each is not None], [each for each in figures if each is None and by == "cost"]
    return (sorted(known, reverse=not by.startswith("tps")) + unknown)[:MOST]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dashboards")
    with ClickHouse(folder / "clickhouse", folder / "clickhouse.log").started() as server:
        # Merges would remove calls that are in the table several times.
        server.query("SYSTEM STOP MERGES")
        yield server


@pytest.fixture(scope="module")
def warehouse(server, tokengauge, tmp_path_factory):
    ddl(tokengauge, tmp_path_factory.mktemp("ddl"), server)
    deliveries = calls.made()
    for rows in deliveries:
        server.query(f"INSERT INTO tokengauge_calls FORMAT JSONEachRow\n{calls.lines(rows)}")
    yield Warehouse(server, calls.each_once(deliveries), "default.tokengauge_calls", SINCE, UNTIL, 3 * 3600)


@pytest.mark.parametrize("name", ["warehouse", "delivered"])
def test_the_table_holds_calls_several_times(request, name):
    made = request.getfixturevalue(name)
    rows, once = (int(made.server.query(f"SELECT count() FROM {made.table} {final} FORMAT TSV")) for final in ("", "FINAL"))
    assert rows > once == len(made.rows) == (calls.CALLS if name == "warehouse" else REAL_CALLS)


@every_panel()
def test_a_panel_has_the_figures_of_the_calls(warehouse, file, panel):
    warehouse.check(file, panel, {})


@every_panel()
def test_a_panel_has_the_figures_of_the_calls_that_filters_select(warehouse, file, panel):
    for name in FILTERS:
        names = sorted({NAME_OF[name](row) for row in warehouse.rows})
        for chosen in (names[-1:], names[:2]):
            warehouse.check(file, panel, {name: chosen})
    warehouse.check(file, panel, {"team": ["the boss's", "ads"], "model": ["llama 3.3 (8B)", "unknown", "gpt-4.1"]})


@every_variable()
def test_a_variable_offers_the_names_of_the_calls(warehouse, file, variable):
    def offered(chosen):
        return [row["value"] for row in warehouse.ask(file, variable["query"]["rawSql"], chosen)]

    name = variable["name"]
    names = {NAME_OF[name](row) for row in calls.selected(warehouse.rows, {})}
    assert offered({}) == sorted(names) and len(names) > 1
    for filter in ("cluster", "namespace", "upstream"):
        if f"${filter})" in variable["query"]["rawSql"]:
            chosen = {filter: [NAME_OF[filter](warehouse.rows[0])]}
            assert offered(chosen) == sorted({NAME_OF[name](row) for row in calls.selected(warehouse.rows, chosen)})


@pytest.fixture(scope="module")
def delivered(server, tokengauge, simulator, tmp_path_factory):
    """Calls through a proxy that a sink delivered twice, and the same calls from the ledger of the proxy."""
    folder = tmp_path_factory.mktemp("delivered")
    config = folder / "proxy.toml"
    config.write_text(CONFIG.format(folder=folder, simulator=simulator, clickhouse=server.url))
    run(tokengauge, "export", "sink", "ddl", "--apply", "--config", config)
    origin = {"k8s.cluster.name": "eu", "k8s.namespace.name": "agents", "k8s.pod.name": "agent-1"}
    as_pod = ["env", "OTEL_RESOURCE_ATTRIBUTES=" + ",".join(f"{name}={value}" for name, value in origin.items()), tokengauge]
    since = int(time.time() * 1000)
    with running([*as_pod, "run", "--config", config], folder / "proxy.log", expected_exit=0) as process:
        proxy = Proxy(process)
        with concurrent.futures.ThreadPoolExecutor(4) as agents:
            list(agents.map(lambda number: ask(proxy, number), range(REAL_CALLS)))
        proxy.wait('tokengauge_sink_records_total{sink="clickhouse"}', REAL_CALLS)
    # Batches with other calls are not recognised as repeated ones.
    again = folder / "again.toml"
    again.write_text(config.read_text().replace("batch_rows = 16", "batch_rows = 7"))
    run(*as_pod, "export", "sink", "replay", "--since", "1h", "--config", again)
    with contextlib.closing(sqlite3.connect(folder / "state/ledger.sqlite")) as ledger:
        ledger.row_factory = sqlite3.Row
        rows = [{name: row[name] for name in row.keys() if row[name] is not None} for row in ledger.execute("SELECT * FROM calls_readable")]
    pod = dict(zip(("cluster", "namespace", "pod"), origin.values(), strict=True))
    rows = [row | pod | {"started_at": calls.written(calls.milliseconds(row["started_at"]))} for row in rows]
    yield Warehouse(server, rows, "default.delivered_calls", since, int(time.time() * 1000), 5)


REAL_CALLS = 80
CONFIG = """
listen = "127.0.0.1:0"
state_dir = "{folder}/state"
[measure]
warm_up_calls = 0
warm_up_for = "0s"
[admin]
listen = "127.0.0.1:0"
[[upstream]]
name = "one"
url = "{simulator}"
[[upstream]]
name = "two"
url = "{simulator}"
[[route]]
path = "/one"
strip = true
upstream = "one"
[[route]]
path = "/two"
strip = true
upstream = "two"
[[payer]]
team = "search"
path = "/one"
[[price]]
model = "priced"
input = 3
cached_input = 0.3
output = 11
[[sink]]
kind = "clickhouse"
url = "{clickhouse}"
table = "delivered_calls"
batch_rows = 16
batch_wait = "100ms"
"""


def ask(proxy, number):
    """Makes one call. Every seventh fails, every fifth has no price, every ninth has no session."""
    body = {"model": "unknown-1" if number % 5 == 0 else "priced", "stream": True, "user": f"ada-{number % 3}"}
    body |= {"messages": [{"role": "user", "content": "word " * (1 + number)}]}
    ending = ["status=500", "reset=@3", "error=@4"][number % 3] if number % 7 == 0 else "usage=on"
    headers = {
        "content-type": "application/json",
        "traceparent": f"00-{number + 1:032x}-{number + 1:016x}-01",
        "x-sim": f"ttft={5 + number}ms,gap={2 + number % 4}ms,tokens={60 + number % 9},{ending}",
        "x-tokengauge-agent": f"agent {number % 2}",
    }
    if number % 9:
        headers["x-tokengauge-session"] = f"run {number % 12}"
    url = f"{proxy.url}/{'one' if number % 2 else 'two'}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    # The simulator was told to break some calls.
    with contextlib.suppress(OSError, http.client.HTTPException), urllib.request.urlopen(request, timeout=60) as response:
        response.read()


@every_panel()
def test_a_panel_has_the_figures_of_calls_that_a_sink_delivered(delivered, file, panel):
    delivered.check(file, panel, {})


def links():
    """Returns the links in tables: the panel, the column, and the address."""
    found = []
    for file, panel in [(file, panel) for file in CLICKHOUSE for panel in panels(loaded(file))]:
        for override in panel["fieldConfig"]["overrides"]:
            lists = [each["value"] for each in override["properties"] if each["id"] == "links"]
            found += [(file, panel, override["matcher"]["options"], link["url"]) for each in lists for link in each]
    return [pytest.param(*each, id=f"{each[0].stem}: {each[1]['title']}, {each[2]}") for each in found]


def followed(url, column, row, boxes):
    """Returns the address that a link of a row leads to."""
    values = {name: urllib.parse.quote(value) for name, value in SPAN.items()}
    values |= {"${__value.raw:percentencode}": urllib.parse.quote(row[column], safe=""), "${__data.fields.filter:raw}": row.get("filter")}
    # The page reads addresses that are relative to it.
    for name, value in (values | {"${traces:raw}": boxes["traces"], "${page:raw}/": ""}).items():
        url = url.replace(name, value or "")
    return url


@pytest.mark.parametrize("file, panel, column, url", links())
def test_a_link_of_a_row_leads_to_its_calls(warehouse, page, file, panel, column, url):
    # A cell without a value has no link.
    rows = [row for row in warehouse.ask(file, panel["targets"][0]["rawSql"], {}) if row[column]]
    odd = [row for row in rows if re.search(r"\W", row[column])]
    unknown = [row for row in rows if "unknown" in row.values()]
    for row in [*rows[:1], *odd[:1], *unknown[:1]]:
        address = followed(url, column, row, text_boxes(loaded(file)))
        assert "$" not in address
        if column in ("longest_trace", "trace_id", "last_trace"):
            assert address == f"http://127.0.0.1:16686/trace/{row[column]}"
            continue
        read = page(address)
        assert read["problems"] == [], address
        if column in ("session", "call"):
            assert (read["view"], read["id"]) == (column, row[column])
            continue
        by = panel["title"].removeprefix("Totals by ")
        names = {"model_name": "model", "name": by, "upstream": "upstream", "kind": "outcome"}
        expected = {names[each]: row[each] for each in row.keys() & names.keys() if row[each] != "unknown"}
        if "reason" in row:
            expected = {"cost_unavailable": row["reason"]}
        given = {name: value for name, value in read["params"].items() if name not in ("from", "to", "by")}
        assert given == expected and {"from", "to"} <= read["params"].keys(), address


def test_every_table_leads_to_the_live_page():
    tables = {panel["title"] for file in CLICKHOUSE for panel in panels(loaded(file)) if panel["type"] == "table"}
    assert tables == {link.values[1]["title"] for link in links() if link.values[3].startswith("${page:raw}/")}


@pytest.mark.parametrize(
    "sql, expected",
    {
        # Documented examples of the data source (docs/sources/query-editor.md).
        "$__timeFilter_ms(time)": "time >= fromUnixTimestamp64Milli(1415792726123) AND time <= fromUnixTimestamp64Milli(1447328726456)",
        "$__fromTime_ms": "fromUnixTimestamp64Milli(1415792726123)",
        "$__toTime_ms": "fromUnixTimestamp64Milli(1447328726456)",
        "$__timeInterval(column)": "toStartOfInterval(toDateTime(column), INTERVAL 20 second)",
        "$__conditionalAll(condition, $none)": "1=1",
        "$__conditionalAll(f(a, 'b') IN (${two:sqlstring}), $two)": "f(a, 'b') IN ('a','it''s')",
        "FROM ${box:raw} FINAL": "FROM d.t FINAL",
    }.items(),
)
def test_a_query_is_filled_in_as_the_data_source_does(sql, expected):
    variables = {"none": ALL, "two": ["a", "it's"], "box": "d.t"}
    assert filled_in(sql, variables, 1415792726123, 1447328726456, 20) == expected
