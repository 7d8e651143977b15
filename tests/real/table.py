"""The table of metrics, as the binary prints it, and which of it a PromQL expression uses."""

import functools
import json
import re
import subprocess

# Prometheus adds these to what it scrapes.
# What Prometheus adds to what it scrapes; those of Kubernetes where the target has them.
SCRAPE_LABELS = {"instance", "job", "cluster", "namespace", "pod", "service"}
KEYWORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset"}
KEYWORDS |= {"inf", "nan"}
LABEL_LIST = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
MATCHERS = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")


@functools.cache
def metrics(binary):
    """Name → metric."""
    lines = subprocess.run([binary, "print", "metrics", "--json"], capture_output=True, text=True, check=True).stdout
    return {metric["name"]: metric for metric in map(json.loads, lines.splitlines())}


def exposed(metric):
    """The names under which Prometheus keeps a metric."""
    if metric["kind"] != "histogram":
        return [metric["name"]]
    # A native histogram is one series under the name itself.
    return [metric["name"] + suffix for suffix in ("", "_bucket", "_count", "_sum")]


def used(expression):
    """The metric names, the labels that each is selected by, and the labels that are grouped by."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    grouped = {label.strip() for found in LABEL_LIST.findall(bare) for label in found.split(",") if label.strip()}
    bare = LABEL_LIST.sub(" ", bare)
    selected = {}
    for name, matchers in MATCHERS.findall(bare):
        selected.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
    bare = re.sub(r"\{[^}]*\}", "", re.sub(r"\[[^\]]*\]", "", bare))
    for name in re.findall(r"(?<![\w.$])([a-zA-Z_:][\w:]*)\b(?!\s*\()", bare):
        if name.lower() not in KEYWORDS:
            selected.setdefault(name, set())
    return selected, grouped


def wrong(expression, table, foreign=()):
    """What an expression uses that the table does not have; `foreign` are names of other exporters."""
    known = {name: set(metric["labels"]) for metric in table.values() for name in exposed(metric)}
    known = {name: labels | SCRAPE_LABELS | ({"le"} if name.endswith("_bucket") else set()) for name, labels in known.items()}
    selected, grouped = used(expression)
    problems = [f"metric {name}" for name in selected if name not in known and name not in foreign]
    for name in known.keys() & selected.keys():
        problems += [f"{name} by label {label}" for label in selected[name] - known[name]]
    if not selected.keys() & set(foreign):
        shared = set().union(*(known.get(name, set()) for name in selected))
        problems += [f"grouping by {label}" for label in grouped - shared]
    return problems
