"""Write the Grafana dashboard and the alert rules of Prometheus from `description.toml`.

Run it after a change of the description: python deploy/monitoring/make.py
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["alert_rules", "dashboard", "read_description"]

HERE = Path(__file__).parent
DASHBOARD = HERE / "dashboard.json"
ALERTS = HERE / "alerts.json"
RUNBOOK = "docs/operations.md"
SELECT = 'group=~"$group",client_id=~"$client_id"'
SOURCE = {"type": "prometheus", "uid": "${source}"}
COLUMNS = 24
WIDTH, HEIGHT = 8, 8


def read_description() -> dict[str, Any]:
    """Return the description."""
    return tomllib.loads((HERE / "description.toml").read_text())


def dashboard(description: dict[str, Any]) -> dict[str, Any]:
    """Return the dashboard as Grafana's JSON."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in description["rows"]:
        panels.append(_row(row["title"], len(panels) + 1, top))
        top += 1
        for number, panel in enumerate(row["panels"]):
            left = number * WIDTH % COLUMNS
            top += HEIGHT if number and not left else 0
            panels.append(_panel(panel, len(panels) + 1, left, top))
        top += HEIGHT
    return {
        "title": "coopgroup",
        "uid": "coopgroup",
        "tags": ["kafka", "coopgroup"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "source",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                },
                _variable("group", "label_values(coopgroup_assigned_partitions, group)"),
                _variable(
                    "client_id",
                    'label_values(coopgroup_assigned_partitions{group=~"$group"}, client_id)',
                ),
            ]
        },
        "panels": panels,
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.replace("_", " "),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _row(title: str, number: int, top: int) -> dict[str, Any]:
    place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}


def _panel(panel: dict[str, Any], number: int, left: int, top: int) -> dict[str, Any]:
    stacking = {"mode": "normal" if panel.get("stack") else "none", "group": "A"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel["title"],
        "description": panel["help"],
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": left, "y": top},
        "fieldConfig": {
            "defaults": {
                "unit": panel["unit"],
                "min": 0,
                "custom": {
                    "drawStyle": "line",
                    "lineWidth": 1,
                    "fillOpacity": 30 if panel.get("stack") else 0,
                    "stacking": stacking,
                },
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": one["query"].replace("SELECT", SELECT),
                "legendFormat": one["legend"],
            }
            for at, one in enumerate(panel["queries"])
        ],
    }


def alert_rules(description: dict[str, Any]) -> dict[str, Any]:
    """Return the rules; Prometheus reads JSON, which is YAML, too."""
    rules = [
        {
            "alert": one["name"],
            "expr": one["query"],
            "for": one["for"],
            "labels": {"severity": one["severity"]},
            "annotations": {
                "summary": one["summary"],
                "runbook": f"{RUNBOOK}#{one['name'].lower()}",
            },
        }
        for one in description["alerts"]
    ]
    return {"groups": [{"name": "coopgroup", "rules": rules}]}


def main() -> None:
    """Write both files."""
    description = read_description()
    DASHBOARD.write_text(json.dumps(dashboard(description), indent=1) + "\n")
    ALERTS.write_text(json.dumps(alert_rules(description), indent=1) + "\n")


if __name__ == "__main__":
    main()
