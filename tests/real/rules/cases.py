"""Series minute by minute for `promtool test rules`."""

import json
import re

import yaml
from prometheus import checked

EVALUATION = "5m"
EVENTS = "tokengauge_slo_events_total"
DAY = 24 * 60


def counter(*pieces):
    """A counter in promtool's notation, from pieces of (minutes, increase per minute)."""
    value, notation = 0, ["0"]
    for minutes, rise in pieces:
        notation.append(f"{value + rise}+{rise}x{minutes - 1}")
        value += rise * minutes
    return " ".join(notation)


def events(slo, good, bad, instance="a"):
    reasons = {"good": "met", "bad": "missed", "excluded": "client_cancelled"}
    pieces = {"good": good, "bad": bad, "excluded": [(minutes, 5) for minutes, _ in good]}
    labels = {verdict: f'slo="{slo}",verdict="{verdict}",reason="{reasons[verdict]}",instance="{instance}"' for verdict in pieces}
    return {f"{EVENTS}{{{labels[verdict]}}}": counter(*pieces[verdict]) for verdict in pieces}


def firing(alert, **labels):
    selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f'count(ALERTS{{alertname="{alert}",alertstate="firing",{selector}}}) or vector(0)'


def check(folder, rules, series, expectations):
    """`expectations`: (minute, expression, value). promtool compares exactly, so values are rounded there."""
    tests = [
        {"expr": expression, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": value}]}
        for minute, expression, value in expectations
    ]
    groups = yaml.safe_load(rules.read_text())["groups"]
    slos = set(re.findall(r'slo="([\w-]+)"', " ".join(series) + str(expectations)))
    wanted = re.compile(f"tokengauge(-calls|-slo-({'|'.join(slos)})(-increases)?)?")
    part = folder / "rules.yaml"
    # promtool takes seconds for a day of all groups.
    chosen = [group for group in groups if wanted.fullmatch(group["name"])]
    part.write_text(yaml.safe_dump({"groups": chosen}))
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    file = folder / "test.yaml"
    group = {"interval": "1m", "input_series": inputs, "promql_expr_test": tests}
    order = sorted((group["name"] for group in chosen), key=lambda name: not name.endswith("-increases"))
    test = {"rule_files": [str(part)], "evaluation_interval": EVALUATION, "group_eval_order": order, "tests": [group]}
    file.write_text(json.dumps(test))
    checked("promtool", "test", "rules", file)
