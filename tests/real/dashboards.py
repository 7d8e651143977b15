"""The Grafana dashboards, and their panels wherever they stand."""

import json
import pathlib

FILES = sorted((pathlib.Path(__file__).parent.parent.parent / "dashboards").glob("*.json"))


def loaded(file):
    return json.loads(file.read_text())


def panels(dashboard):
    """Without rows, but with what is in closed ones."""
    inside = [panel for row in dashboard["panels"] for panel in row.get("panels", [])]
    return [panel for panel in dashboard["panels"] + inside if panel["type"] != "row"]
