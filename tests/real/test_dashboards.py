"""The Grafana dashboards: every query finds data in a real run and uses only known metrics, and Grafana's types
accept them."""

import itertools
import json
import math
import pathlib
import re
import shutil
import subprocess
import urllib.parse

import pytest

import table
import vllm_metrics
from dashboards import CLICKHOUSE, FILES, PROMETHEUS, loaded, panels
from prometheus import finite

PROJECT = pathlib.Path(__file__).parent.parent.parent
GRAFANA = PROJECT / ".cache/real/grafana"
HERE = pathlib.Path(__file__).parent
OTHER_EXPORTERS = set(re.findall(r"^([\w:]+){", vllm_metrics.exposition(1), re.MULTILINE))
OTHER_EXPORTERS |= {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
# Recorded series; `test_rules.py` compares them with the table.
OTHER_EXPORTERS |= set(re.findall(r"record: (\S+)", (HERE / "rules/file.yaml").read_text()))
# Grafana's unit names; "none" and "short" are for plain numbers.
UNITS = {"s", "bytes", "percentunit", "short", "none", "reqps", "cps", "currencyUSD", "suffix: tok/s", "dateTimeAsIso", "bool_yes_no"}

# Metrics of the injector, which does not run here.
ELSEWHERE = {"tokengauge_injections_total"}
OPEN_PANELS = 12

every_dashboard = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def queries():
    """Returns every query of every panel for Prometheus: name, expression, and whether it is an instant query."""
    found = [(file, panel, target) for file in PROMETHEUS for panel in panels(loaded(file)) for target in panel["targets"]]
    named = [(f"{file.stem}: {panel['title']} {target['refId']}", target) for file, panel, target in found]
    return [pytest.param(target["expr"], target["instant"], id=name) for name, target in named]


def annotations():
    found = [(file, one) for file in PROMETHEUS for one in loaded(file)["annotations"]["list"] if "expr" in one]
    return [pytest.param(one["expr"], id=f"{file.stem}: {one['name']}") for file, one in found]


def variables():
    found = [(file, variable) for file in PROMETHEUS for variable in loaded(file)["templating"]["list"]]
    queried = [(f"{file.stem}: {one['name']}", one) for file, one in found if one["type"] == "query"]
    return [pytest.param(one["query"]["query"], id=name) for name, one in queried]


def filled_in(expression, seconds):
    """Fills in variables as Grafana does with All chosen everywhere."""
    expression = expression.replace("$__rate_interval", "10s").replace("$__interval", "1s")
    expression = expression.replace("$__range_s", str(seconds)).replace("$__range", f"{seconds}s")
    return re.sub(r"\$(cluster|namespace|job|instance|upstream|route|model|workload|slo)\b", ".*", expression)


@pytest.mark.parametrize("expression, instant", queries())
def test_every_query_of_a_panel_finds_data_in_a_real_run(observed, expression, instant):
    if any(name in expression for name in ELSEWHERE):
        pytest.skip("no proxy exports it")
    prometheus = observed.prometheus
    expression = filled_in(expression, math.ceil(prometheus.end - prometheus.start))
    assert "$" not in expression
    if instant:
        values = finite(prometheus.query(expression, prometheus.end))
    else:
        values = finite(itertools.chain.from_iterable(points for _, points in prometheus.query_range(expression)))
    assert values, expression


@pytest.mark.parametrize("expression", annotations())
def test_an_annotation_asks_what_prometheus_answers_and_only_for_known_metrics(observed, tokengauge, expression):
    observed.prometheus.query_range(filled_in(expression, 60))
    assert not table.wrong(expression, table.metrics(tokengauge), OTHER_EXPORTERS | {"ALERTS"})


@pytest.mark.parametrize("query", variables())
def test_every_variable_has_values(observed, query):
    selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
    assert observed.prometheus.label_values(label, filled_in(selector, 60)), query


@pytest.mark.parametrize("expression, instant", queries())
def test_a_query_uses_only_metrics_and_labels_of_the_table(tokengauge, expression, instant):
    assert not table.wrong(expression, table.metrics(tokengauge), OTHER_EXPORTERS)


def test_a_wrong_metric_or_label_would_be_noticed(tokengauge):
    metrics = table.metrics(tokengauge)
    for expression, problem in {
        "rate(tokengauge_request_total[5m])": "metric tokengauge_request_total",
        'tokengauge_requests_total{modle="x"}': "tokengauge_requests_total by label modle",
        "sum by (session) (rate(tokengauge_requests_total[5m]))": "grouping by session",
        "tokengauge_token_ratios{}": "metric tokengauge_token_ratios",
        'tokengauge_requests_total{le="1"}': "tokengauge_requests_total by label le",
    }.items():
        assert table.wrong(expression, metrics) == [problem]
    assert not table.wrong('a_b:c{x="}"} / on (le) sum by (le) (rate(tokengauge_token_ratio_bucket{le="1"}[5m]))', metrics, {"a_b:c"})


@every_dashboard
def test_it_is_provisionable_as_it_is(file):
    dashboard = loaded(file)
    assert (dashboard["id"], dashboard["uid"], dashboard["schemaVersion"]) == (None, f"tokengauge-{file.stem}", 42)
    assert "__inputs" not in dashboard
    kind, boxes = ("grafana-clickhouse-datasource", ["table", "page", "traces"]) if file in CLICKHOUSE else ("prometheus", ["page"])
    first, *others = dashboard["templating"]["list"]
    assert (first["type"], first["name"], first["query"]) == ("datasource", "datasource", kind)
    source = {"type": kind, "uid": "${datasource}"}
    assert [one["name"] for one in others if one["type"] == "textbox"] == boxes
    assert any(link["url"].startswith("${page}") for link in dashboard["links"])
    queried = [variable for variable in others if variable["type"] == "query"]
    assert len(queried) + len(boxes) == len(others) and all(variable["datasource"] == source for variable in queried)
    for panel in panels(dashboard):
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
    names = {variable["name"] for variable in queried}
    asked = [target.get("expr") or target["rawSql"] for panel in panels(dashboard) for target in panel["targets"]]
    used = [set(re.findall(r'"\$(\w+)"|, \$(\w+)\)', query)) for query in asked]
    assert {name for query in used for pair in query for name in pair if name} == names, "variables that are defined, and those that are used"


@pytest.mark.parametrize("file", CLICKHOUSE, ids=lambda file: file.stem)
def test_every_query_of_a_warehouse_counts_a_call_once_and_obeys_all_filters(file):
    dashboard = loaded(file)
    filters = {variable["name"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"}
    for target in [target for panel in panels(dashboard) for target in panel["targets"]]:
        assert target["editorType"] == "sql" and (target["queryType"], target["format"]) in {("table", 1), ("timeseries", 0)}
        tables = re.findall(r"FROM (\$\S+.*)", target["rawSql"])
        assert tables == ["${table:raw} FINAL"] and set(re.findall(r", \$(\w+)\)", target["rawSql"])) == filters


@every_dashboard
def test_every_panel_says_what_it_shows_in_which_unit(file):
    for panel in panels(loaded(file)):
        title = panel["title"]
        assert title and panel["fieldConfig"]["defaults"]["unit"] in UNITS, title
        assert len(panel["description"]) > 15 and panel["description"].endswith("."), title
        assert panel["targets"], title


@pytest.mark.parametrize("file", PROMETHEUS, ids=lambda file: file.stem)
def test_every_line_has_a_legend_and_a_range_of_the_dashboard(file):
    for panel in panels(loaded(file)):
        title = panel["title"]
        named = all("legendFormat" in target for target in panel["targets"])
        assert named or panel["type"] in {"stat", "gauge", "table", "heatmap"}, f"{title}: a line without a legend"
        for target in panel["targets"]:
            rates = re.findall(r"\[([^\]:]+)(?::[^\]]*)?\]", target["expr"])
            allowed = {"$__range"} if target["instant"] else {"$__rate_interval", "$__range"}
            if "the last 5 minutes" in panel["description"]:
                allowed |= {"5m"}
            assert set(rates) <= allowed, f"{title}: {rates}"


@every_dashboard
def test_panels_fill_the_grid_without_overlap(file):
    dashboard = loaded(file)
    fills_the_grid(dashboard["panels"])
    for row in dashboard["panels"]:
        if row.get("panels"):
            fills_the_grid(row["panels"])
    ids = [panel["id"] for panel in dashboard["panels"] + panels(dashboard) if panel["type"] == "row"]
    ids += [panel["id"] for panel in panels(dashboard)]
    assert len(ids) == len(set(ids))


def fills_the_grid(placed):
    taken = {}
    for panel in placed:
        at = panel["gridPos"]
        assert 0 <= at["x"] and at["x"] + at["w"] <= 24, panel["title"]
        for cell in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
            assert cell not in taken, f"{panel['title']} lies over {taken.get(cell)}"
            taken[cell] = panel["title"]
    # Every line of the grid is full.
    for y in {y for _, y in taken}:
        assert sum(1 for x in range(24) if (x, y) in taken) == 24, f"a hole in line {y}"


@every_dashboard
def test_few_panels_are_open_at_first_and_closed_rows_hold_the_others(file):
    dashboard = loaded(file)
    shown = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert 1 <= len(shown) <= OPEN_PANELS
    assert dashboard["panels"][0]["type"] == "row" and not dashboard["panels"][0]["collapsed"]
    for row in dashboard["panels"]:
        if row["type"] == "row":
            assert row["collapsed"] == bool(row["panels"]), row["title"]


def test_a_panel_for_each_objective_shows_its_burn_rate_and_where_alerts_begin():
    repeated = [panel for panel in panels(loaded(PROJECT / "dashboards/service-levels.json")) if panel.get("repeat") == "slo"]
    assert [panel["title"] for panel in repeated] == ["Burn rate of $slo"]
    steps = repeated[0]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    # The slowest alert fires at burn rate 1.
    bounds = re.findall(r"ratio_rate\w+{slo=\"chat-ttft\"}\) > ([\d.]+)", (HERE / "rules/file.yaml").read_text())
    bounds = [float(bound) for bound in bounds if float(bound) > 0]
    factors = {round(bound / min(bounds), 3) for bound in bounds}
    assert {step["value"] for step in steps if step["value"] is not None} <= factors


def test_each_dashboard_is_one_of_a_kind():
    dashboards = [loaded(file) for file in FILES]
    for key in ("uid", "title"):
        assert len({dashboard[key] for dashboard in dashboards}) == len(FILES)
    for dashboard in dashboards:
        titles = [panel["title"] for panel in panels(dashboard)]
        assert len(titles) == len(set(titles)), dashboard["title"]


def page_links():
    """Returns links of panels and their columns to the live page: panel, and the part of the address after its
    variable."""
    found = []
    for file, panel in [(file, panel) for file in PROMETHEUS for panel in panels(loaded(file))]:
        config = panel["fieldConfig"]
        lists = [config["defaults"].get("links", [])]
        lists += [each["value"] for override in config["overrides"] for each in override["properties"] if each["id"] == "links"]
        found += [(panel, link["url"].removeprefix("${page:raw}/")) for links in lists for link in links]
    return [pytest.param(panel, address, id=f"{panel['title']}: {address.split('$')[0]}") for panel, address in found]


# Grafana's placeholders: a value of a row, a label of a series, the dashboard's time.
FIELD = re.compile(r"\$\{__(?:value\.raw|(?:data\.fields|field\.labels)\.(\w+)):percentencode\}")
SPAN = {"${__from:date:iso}": "2026-11-26T02:00:00.000Z", "${__to:date:iso}": "2026-11-26T03:00:00.000Z"}


def followed(address, labels):
    """Returns an address of the page for a row or a series with these labels."""
    for variable, instant in SPAN.items():
        address = address.replace(variable, urllib.parse.quote(instant))
    view, query = address.split("?")
    parameters = [parameter.split("=", 1) for parameter in query.split("&")]
    filled = [(name, FIELD.sub(lambda found: urllib.parse.quote(labels[found[1] or name], safe=""), value)) for name, value in parameters]
    return f"{view}?{'&'.join('='.join(each) for each in filled)}"


READ = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const base = new URL("../", pathToFileURL(process.argv[1]));
const url = new URL(process.argv[2], base);
const index = readFileSync(new URL("page/index.html", base), "utf8");
const views = new Map([...index.matchAll(/id="([a-z-]+)" data-path="([^"]+)"/g)].map(([, id, path]) => [`.view[data-path="${path}"]`, { id }]));
const document = { addEventListener() {}, querySelector: (selector) => views.get(selector) };
Object.assign(globalThis, { location: url, document, CSS: { escape: (text) => text }, addEventListener() {} });
const { address, startAddress } = await import(pathToFileURL(process.argv[1]));
startAddress(() => {});
console.log(JSON.stringify(address));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory, unreachable_gauge):
    """Returns a function that parses an address as the live page does."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(PROJECT / "crates/admin/src/page", folder / "page")
    (folder / "page/dimensions.js").write_text(unreachable_gauge.scrape("/page/dimensions.js"))
    (folder / "package.json").write_text('{"type": "module"}')

    def read(address):
        command = ["node", "--input-type=module", "--eval", READ, folder / "page/address.js", address]
        return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)

    return read


@pytest.mark.parametrize("panel, address", page_links())
def test_a_link_of_a_row_or_series_is_an_address_of_the_page(page, panel, address):
    targets = " ".join(target["expr"] for target in panel["targets"])
    grouped = {label for found in table.LABEL_LIST.findall(targets) for label in re.split(r",\s*", found)}
    labels = {label: "complete" if label == "outcome" else f"a {label}/b&c" for label in grouped}
    read = page(followed(address, labels))
    assert read["problems"] == [] and read["view"] == address.split("?")[0]
    named = {name: value for name, value in read["params"].items() if name in labels and value != "failed"}
    assert named == {name: labels[name] for name in named} and named
    assert "${" not in followed(address, labels)


def test_the_page_would_complain_of_a_link_that_it_does_not_know(page):
    assert page("calls?modle=x")["problems"] and page("calls?outcome=fine")["problems"]
    assert page("nowhere?model=x")["view"] != "nowhere"


def test_every_table_leads_to_the_page():
    tables = [panel["title"] for file in PROMETHEUS for panel in panels(loaded(file)) if panel["type"] == "table"]
    assert set(tables) <= {link.values[0]["title"] for link in page_links()} and tables


def test_the_links_of_a_models_row_lead_to_its_calls(observed):
    (panel,) = [panel for file in PROMETHEUS for panel in panels(loaded(file)) if panel["title"] == "Models"]
    calls = filled_in(panel["targets"][0]["expr"], math.ceil(observed.prometheus.end - observed.prometheus.start))
    rows = [labels for labels, value in observed.prometheus.query(calls, observed.prometheus.end) if value > 0]
    # Label values that stand for several models or for none.
    rows = [labels for labels in rows if labels["model"] not in ("other", "unknown")]
    addresses = [link.values[1] for link in page_links() if link.values[0]["title"] == "Models" and "failed" not in link.values[1]]
    assert len(rows) > 5 and addresses
    for labels, address in itertools.product(rows, addresses):
        query = followed(address, labels).split("?")[1]
        # The page's own time is in the past of this run.
        query = "&".join(part for part in query.split("&") if not part.startswith(("from=", "to=")))
        found = json.loads(observed.gauge.scrape(f"/api/v1/calls?operation_class=all&limit=5&{query}"))["calls"]
        assert found and all(call["upstream"] == labels["upstream"] for call in found), query


def types_complain(folder, dashboards):
    """Returns the TypeScript compiler's errors for dashboards, given as name → JSON text."""
    for part in ("types.ts", "tsconfig.json"):
        shutil.copy(HERE / "grafana" / part, folder)
    (folder / "node_modules").symlink_to(GRAFANA / "node_modules")
    for number, text in enumerate(dashboards.values()):
        source = f'import type {{ Ours }} from "./types";\nexport const dashboard: Ours = {text.rstrip()};\n'
        (folder / f"dashboard{number}.ts").write_text(source)
    command = ["node", GRAFANA / "node_modules/typescript/bin/tsc", "--project", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


def test_grafanas_own_types_accept_every_dashboard(tmp_path):
    assert types_complain(tmp_path, {file.stem: file.read_text() for file in FILES}) == ""


def test_grafanas_own_types_would_notice_a_mistake(tmp_path):
    text, warehouse = PROMETHEUS[0].read_text(), CLICKHOUSE[0].read_text()
    mistakes = {
        "an option that does not exist": text.replace('"showLegend"', '"showLegends"', 1),
        "a value that does not exist": text.replace('"drawStyle": "line"', '"drawStyle": "lines"', 1),
        "a panel that does not exist": text.replace('"type": "timeseries"', '"type": "graph"', 1),
        "a query by another name": text.replace('"expr"', '"query"', 1),
        "a variable of another type": text.replace('"refresh": 2', '"refresh": 7', 1),
        "SQL by another name": warehouse.replace('"rawSql": "WITH', '"sql": "WITH', 1).replace('"rawSql": "SELECT\\n', '"sql": "SELECT\\n', 1),
        "SQL for Prometheus": warehouse.replace('"type": "grafana-clickhouse-datasource", "uid"', '"type": "prometheus", "uid"'),
    }
    assert not {text, warehouse} & set(mistakes.values())
    complaints = types_complain(tmp_path, mistakes)
    for number, mistake in enumerate(mistakes):
        assert f"dashboard{number}.ts" in complaints, mistake


def test_the_binary_carries_the_dashboards(tokengauge, tmp_path):
    written = subprocess.run([tokengauge, "print", "dashboards", "--write", tmp_path], capture_output=True, text=True, check=True)
    assert {pathlib.Path(line).name for line in written.stdout.splitlines()} == {file.name for file in FILES} | {"provisioning.yaml"}
    for file in FILES:
        assert (tmp_path / file.name).read_text() == file.read_text()
        printed = subprocess.run([tokengauge, "print", "dashboards", file.stem], capture_output=True, text=True, check=True)
        assert printed.stdout == file.read_text()
