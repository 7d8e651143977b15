"""The rules of monitoring-mixins/mixtool for alerts, copied from its source (pkg/mixer/lint.go), applied to the
generated rules.

Mixtool is a Go program that no package registry here has. For dashboards it runs the rules of
grafana/dashboard-linter (`test_dashboard_lint.py`). `dashboards/.lint`, where mixtool looks for it, lists deliberate
exceptions."""

import copy
import pathlib
import re
import subprocess

import pytest
import yaml

from dashboards import EXCLUSIONS, FILES, loaded

OBJECTIVES = pathlib.Path(__file__).parent / "rules/objectives.toml"
TEMPLATE = re.compile(r"\{\{.+}\}")
FORMS = {"a fleet": [], "by namespace": ["--by", "namespace,cluster"]}


@pytest.fixture(scope="module", params=FORMS)
def groups(request, tokengauge):
    command = [tokengauge, "print", "rules", "--config", OBJECTIVES, *FORMS[request.param]]
    return yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["groups"]


def alerts(group):
    """Mixtool has recording rules in a separate document, and no rules for them."""
    return [rule for rule in group["rules"] if "alert" in rule]


def of_groups(holds):
    return lambda groups: [group["name"] for group in groups if not holds(group)]


def of_alerts(holds):
    return lambda groups: [rule["alert"] for group in groups for rule in alerts(group) if not holds(rule, rule["annotations"])]


RULES = {
    "alert-group-rule-count": of_groups(lambda group: len(alerts(group)) <= 20),
    "alert-group-name-length": of_groups(lambda group: len(group["name"]) <= 40),
    "alert-name-camelcase": of_alerts(lambda rule, _: re.fullmatch(r"([A-Z]+[a-z0-9]+)+", rule["alert"])),
    "alert-name-length": of_alerts(lambda rule, _: len(rule["alert"]) <= 40),
    "alert-severity-rule": of_alerts(lambda rule, _: rule["labels"]["severity"] in {"warning", "critical", "info"}),
    "alert-description-missing-rule": of_alerts(lambda _, annotations: "description" in annotations),
    "alert-description-templating": of_alerts(lambda _, annotations: TEMPLATE.search(annotations.get("description", "{{a}}"))),
    "alert-summary-missing-rule": of_alerts(lambda _, annotations: "summary" in annotations),
    "alert-summary-templating": of_alerts(lambda _, annotations: not TEMPLATE.search(annotations.get("summary", ""))),
    "alert-summary-style": of_alerts(lambda _, annotations: re.fullmatch(r"[A-Z].+\.", annotations.get("summary", "A."))),
}


def excluded(rule, name):
    """Like `isLintExcluded`: without entries the rule is off."""
    entries = EXCLUSIONS.get(rule, {"entries": [{}]}).get("entries", [])
    return not entries or any(entry.get("alert") == name for entry in entries)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_mixtool_holds(groups, rule):
    assert [name for name in RULES[rule](groups) if not excluded(rule, name)] == []


def test_every_exclusion_is_needed(groups):
    for rule in RULES.keys() & EXCLUSIONS.keys():
        found = RULES[rule](groups)
        assert found and EXCLUSIONS[rule]["reason"], rule
        for entry in EXCLUSIONS[rule].get("entries", []):
            assert entry["alert"] in found, entry


BREAKS = {
    "alert-group-rule-count": lambda group, _: group["rules"].extend([group["rules"][0]] * 20),
    "alert-group-name-length": lambda group, _: group.update(name="g" * 41),
    "alert-name-camelcase": lambda _, rule: rule.update(alert="tokengauge_down"),
    "alert-name-length": lambda _, rule: rule.update(alert="T" + "a" * 40),
    "alert-severity-rule": lambda _, rule: rule["labels"].update(severity="page"),
    "alert-description-missing-rule": lambda _, rule: rule["annotations"].pop("description"),
    "alert-description-templating": lambda _, rule: rule["annotations"].update(description="It is down."),
    "alert-summary-missing-rule": lambda _, rule: rule["annotations"].pop("summary"),
    "alert-summary-templating": lambda _, rule: rule["annotations"].update(summary="{{ $labels.instance }} is down."),
    "alert-summary-style": lambda _, rule: rule["annotations"].update(summary="it is down"),
}
WELL = {
    "alert": "TokengaugeDown",
    "labels": {"severity": "warning"},
    "annotations": {"summary": "It is down.", "description": "{{ $labels.instance }} is down."},
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_notices_what_it_forbids(rule):
    group = {"name": "tokengauge", "rules": [copy.deepcopy(WELL)]}
    assert not any(RULES[each]([group]) for each in RULES)
    BREAKS[rule](group, group["rules"][0])
    assert RULES[rule]([group])


def test_dashboards_have_what_mixtool_asks_for_before_the_linter():
    for file in FILES:
        assert loaded(file)["title"] and loaded(file)["uid"]
