"""The Grafana dashboards, and their panels wherever they stand."""

import json
import pathlib

import yaml

FOLDER = pathlib.Path(__file__).parent.parent.parent / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))
# What linters of dashboards and of alerts are not to complain of.
EXCLUSIONS = yaml.safe_load((FOLDER / ".lint").read_text())["exclusions"]


def loaded(file):
    return json.loads(file.read_text())


def panels(dashboard):
    """Without rows, but with what is in closed ones."""
    inside = [panel for row in dashboard["panels"] for panel in row.get("panels", [])]
    return [panel for panel in dashboard["panels"] + inside if panel["type"] != "row"]
