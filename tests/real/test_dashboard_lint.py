"""The rules of grafana/dashboard-linter, copied from its source, applied to the dashboards.

The linter is a Go program that no package registry here has. `dashboards/.lint` lists deliberate exceptions in the
linter's own format."""

import pathlib
import re

import pytest

from dashboards import EXCLUSIONS, FILES, loaded, panels

PROJECT = pathlib.Path(__file__).parent.parent.parent
# The units of the linter's list that the dashboards use.
UNITS = {"none", "short", "percentunit", "s", "bytes", "reqps", "cps", "currencyUSD", "dateTimeAsIso", "bool_yes_no"}
SELECTOR = re.compile(r"(?<![\w.$])([a-zA-Z_:][\w:]*)?\{([^}]*)\}")
SOURCES = {"$datasource", "${datasource}"}


def variables(dashboard):
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def template_datasource(dashboard):
    found = [one for one in variables(dashboard).values() if one["type"] == "datasource"]
    if [one["name"] for one in found] != ["datasource"] or found[0]["label"] != "Data source":
        yield None, "no single template `datasource`, labelled `Data source`"


def template_of(name):
    def rule(dashboard):
        found = variables(dashboard).get(name)
        if not found:
            yield None, f"no template {name}"
        elif (found["type"], found["multi"], found["allValue"], found["label"]) != ("query", True, ".+", name.title()):
            yield None, f"{name} is no query of several, all of them by .+"
        elif found["datasource"]["uid"] not in SOURCES:
            yield None, f"{name} asks another source"

    return rule


def template_label_promql(dashboard):
    for variable in variables(dashboard).values():
        asked = variable["query"]["query"] if variable["type"] == "query" else "label_values(x)"
        if not re.fullmatch(r"(label_names|label_values|metrics|query_result)\(.+\)", asked):
            yield None, asked


def template_on_time_change_reload(dashboard):
    for variable in variables(dashboard).values():
        if variable["type"] == "query" and variable["refresh"] != 2:
            yield None, variable["name"]


def panel_datasource(dashboard):
    for panel in panels(dashboard):
        if panel["datasource"]["uid"] not in SOURCES:
            yield panel, "a source that is no template"


def panel_title_description(dashboard):
    for panel in panels(dashboard):
        if not (panel["title"] and panel["description"]):
            yield panel, "no title or no description"


def panel_units(dashboard):
    for panel in panels(dashboard):
        if panel["type"] in {"stat", "table", "timeseries", "gauge"} and panel["fieldConfig"]["defaults"]["unit"] not in UNITS:
            yield panel, panel["fieldConfig"]["defaults"]["unit"]


def panel_no_targets(dashboard):
    for panel in panels(dashboard):
        if not panel["targets"]:
            yield panel, "no query"


def only_prometheus(rule):
    """The linter applies some rules only to dashboards for Prometheus."""

    def whole(dashboard):
        if variables(dashboard).get("datasource", {}).get("query", "prometheus") == "prometheus":
            yield from rule(dashboard)

    return whole


def by_query(rule):
    def whole(dashboard):
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield from ((panel, problem) for problem in rule(target["expr"]))

    return whole


def target_rate_interval(expression):
    for function, _, span in re.findall(r"\b(i?rate)\(([^()]*)\[([^\]]*)\]\)", expression):
        if span != "$__rate_interval":
            yield f"{function} over {span}"


def target_matcher(name):
    def rule(expression):
        for metric, matchers in SELECTOR.findall(expression):
            if f'{name}=~"${name}"' not in matchers:
                yield f"{metric} without {name}"
        if not SELECTOR.search(expression):
            yield f"nothing is selected by {name}"

    return rule


def target_counter_agg(expression):
    for found in re.finditer(r"\b\w+_total\b(\{[^}]*\})?", expression):
        before, after = expression[: found.start()], expression[found.end() :]
        if not (re.search(r"\b(rate|irate|increase)\($", before) and after.startswith("[")):
            yield found.group()


def uneditable(dashboard):
    if dashboard["editable"]:
        yield None, "it can be edited"


RULES = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": only_prometheus(template_of("job")),
    "template-instance-rule": only_prometheus(template_of("instance")),
    "template-label-promql-rule": only_prometheus(template_label_promql),
    "template-on-time-change-reload-rule": template_on_time_change_reload,
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
    "target-rate-interval-rule": only_prometheus(by_query(target_rate_interval)),
    "target-job-rule": only_prometheus(by_query(target_matcher("job"))),
    "target-instance-rule": only_prometheus(by_query(target_matcher("instance"))),
    "target-counter-agg-rule": only_prometheus(by_query(target_counter_agg)),
    "uneditable-dashboard": uneditable,
}


def excluded(rule, dashboard, panel):
    entries = EXCLUSIONS.get(rule, {}).get("entries", [])
    here = [entry for entry in entries if entry["dashboard"] == dashboard["title"]]
    return any("panel" not in entry or (panel and entry["panel"] == panel["title"]) for entry in here)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_rule_of_the_linter_holds(file, rule):
    dashboard = loaded(file)
    found = [(panel and panel["title"], why) for panel, why in RULES[rule](dashboard) if not excluded(rule, dashboard, panel)]
    assert not found


def test_every_exclusion_is_needed():
    dashboards = [loaded(file) for file in FILES]
    # The other rules are for alerts: `test_rules_lint.py`.
    assert all(rule in RULES or rule.startswith("alert-") for rule in EXCLUSIONS)
    for rule in RULES.keys() & EXCLUSIONS.keys():
        for entry in EXCLUSIONS[rule]["entries"]:
            dashboard = next(one for one in dashboards if one["title"] == entry["dashboard"])
            titles = [panel and panel["title"] for panel, _ in RULES[rule](dashboard)]
            assert (entry["panel"] in titles) if "panel" in entry else titles, entry


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_notices_what_it_forbids(rule):
    dashboard = loaded(PROJECT / "dashboards/proxy.json")
    panel = next(panel for panel in panels(dashboard) if panel["type"] == "timeseries")
    target, templates = panel["targets"][0], dashboard["templating"]["list"]
    named = variables(dashboard)
    breaks = {
        "template-datasource-rule": lambda: templates.pop(0),
        "template-job-rule": lambda: named["job"].update(allValue=".*"),
        "template-instance-rule": lambda: templates.remove(named["instance"]),
        "template-label-promql-rule": lambda: named["job"]["query"].update(query="labels(up)"),
        "template-on-time-change-reload-rule": lambda: named["job"].update(refresh=1),
        "panel-datasource-rule": lambda: panel["datasource"].update(uid="prometheus"),
        "panel-title-description-rule": lambda: panel.update(description=""),
        "panel-units-rule": lambda: panel["fieldConfig"]["defaults"].update(unit="tokens"),
        "panel-no-targets-rule": lambda: panel.update(targets=[]),
        "target-rate-interval-rule": lambda: target.update(expr='rate(x{job=~"$job", instance=~"$instance"}[5m])'),
        "target-job-rule": lambda: target.update(expr='up{instance=~"$instance"}'),
        "target-instance-rule": lambda: target.update(expr="up"),
        "target-counter-agg-rule": lambda: target.update(expr='x_total{job=~"$job", instance=~"$instance"}'),
        "uneditable-dashboard": lambda: dashboard.update(editable=True),
    }
    assert not list(RULES[rule](dashboard))
    breaks[rule]()
    assert list(RULES[rule](dashboard))
