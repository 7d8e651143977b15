"""The table of metrics as the binary prints it, and the metrics that a PromQL expression uses."""

import functools
import json
import re
import subprocess

# Labels that Prometheus adds to scraped series; the Kubernetes labels only for targets in Kubernetes.
SCRAPE_LABELS = {"instance", "job", "cluster", "namespace", "pod", "service"}
KEYWORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset"}
KEYWORDS |= {"inf", "nan"}
LABEL_LIST = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
MATCHERS = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")


@functools.cache
def metrics(binary):
    lines = subprocess.run([binary, "print", "metrics", "--json"], capture_output=True, text=True, check=True).stdout
    return {metric["name"]: metric for metric in map(json.loads, lines.splitlines())}


def exposed(metric):
    if metric["kind"] != "histogram":
        return [metric["name"]]
    # A native histogram is one series with the metric's own name.
    return [metric["name"] + suffix for suffix in ("", "_bucket", "_count", "_sum")]


def used(expression):
    """Returns the metric names, the labels that select each, and the grouping labels."""
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
    """Returns the names in an expression that the table does not have; `foreign` are names of other exporters."""
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
