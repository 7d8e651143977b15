"""The Grafana dashboards and their panels."""

import json
import pathlib

import yaml

FOLDER = pathlib.Path(__file__).parent.parent.parent / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))
# The dashboards by their data source.
CLICKHOUSE = [file for file in FILES if file.stem.startswith("warehouse-")]
PROMETHEUS = [file for file in FILES if file not in CLICKHOUSE]
# Exceptions for linters of dashboards and alerts.
EXCLUSIONS = yaml.safe_load((FOLDER / ".lint").read_text())["exclusions"]


def loaded(file):
    return json.loads(file.read_text())


def panels(dashboard):
    """Returns all panels without rows, including panels in collapsed rows."""
    inside = [panel for row in dashboard["panels"] for panel in row.get("panels", [])]
    return [panel for panel in dashboard["panels"] + inside if panel["type"] != "row"]
