"""Writes the dashboard for Grafana: ``python -m grafana.dashboard <path>``.

Turns the table in ``panels`` into Grafana's classic JSON model as Grafana 10.0 has it;
later versions, 13 too, migrate it as they import it. The same table gives the same
text, byte for byte.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grafana.panels import MARKS, ROWS, Mark, Panel, PanelRow

Json = dict[str, Any]

RUNBOOK = "docs/runbook.md"
"""The runbook's address until somebody enters one that a browser can open."""

_DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_GRID_COLUMNS = 24


def text() -> str:
    """The dashboard as JSON text."""
    return json.dumps(dashboard(), indent=2) + "\n"


def dashboard() -> Json:
    """The dashboard in Grafana's JSON model."""
    return {
        "uid": "kafka-tx",
        "title": "kafka_tx",
        "description": "Lag, headroom, commits and batches of kafka_tx jobs.",
        "tags": ["kafka", "spark", "kafka_tx"],
        "schemaVersion": 38,
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all panels
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": [_BUILT_IN, *map(_annotation, MARKS)]},
        "links": [_RUNBOOK],
        "templating": {"list": _variables()},
        "panels": list(_panels(ROWS)),
    }


_RUNBOOK: Json = {
    "title": "Runbook",
    "type": "link",
    "icon": "doc",
    "tooltip": "What to do about each alert",
    "url": "${runbook}",
    "targetBlank": True,
    "asDropdown": False,
    "includeVars": False,
    "keepTime": False,
    "tags": [],
}

_BUILT_IN: Json = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}
"""What people write on the panels themselves; Grafana adds it where it is missing."""


def _annotation(mark: Mark) -> Json:
    return {
        "datasource": _DATASOURCE,
        "enable": True,
        "expr": mark.expression,
        "iconColor": mark.colour,
        "name": mark.name,
        "step": "60s",
        "tagKeys": "id",
        "titleFormat": mark.title,
        "useValueForTime": mark.at_value,
    }


def _variables() -> list[Json]:
    return [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
        },
        _labels_of("job", "kafka_tx_build_info"),
        _labels_of("id", 'kafka_tx_stops_total{job=~"$job"}'),
        _labels_of("topic", 'kafka_tx_committed_offset{job=~"$job", id=~"$id"}'),
        {
            "name": "runbook",
            "label": "Address of the runbook",
            "type": "textbox",
            "query": RUNBOOK,
            "current": {"selected": True, "text": RUNBOOK, "value": RUNBOOK},
        },
    ]


def _labels_of(label: str, series: str) -> Json:
    """A variable that offers every value of a label, all of them chosen at first."""
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _DATASOURCE,
        "query": f"label_values({series}, {label})",
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panels(rows: tuple[PanelRow, ...]) -> Iterator[Json]:
    """Rows from top to bottom, panels from left to right, numbered from 1."""
    number, y = 1, 0
    for row in rows:
        inside = list(_inside(row, number + 1, y + 1))
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.is_folded,
            "gridPos": {"h": 1, "w": _GRID_COLUMNS, "x": 0, "y": y},
            "panels": inside if row.is_folded else [],
        }
        if not row.is_folded:
            yield from inside
        number += 1 + len(inside)
        y = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in inside)


def _inside(row: PanelRow, number: int, y: int) -> Iterator[Json]:
    x = height = 0
    for index, panel in enumerate(row.panels):
        if x + panel.width > _GRID_COLUMNS:
            x, y = 0, y + height
        place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
        yield _panel(panel, number + index, place)
        x, height = x + panel.width, panel.height


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "gridPos": place,
        "datasource": _DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "editorMode": "code",
                "expr": query.expression,
                "legendFormat": query.legend,
                **_when(panel.kind),
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


def _when(kind: str) -> Json:
    """Tables and states show the present, graphs a stretch of time."""
    if kind == "table":
        return {"instant": True, "range": False, "format": "table"}
    if kind == "stat":
        return {"instant": True, "range": False}
    return {"instant": False, "range": True}


def _defaults(panel: Panel) -> Json:
    found: Json = {"unit": panel.unit}
    if panel.kind == "timeseries":
        found["custom"] = {"fillOpacity": 8, "lineWidth": 1, "showPoints": "never"}
    if panel.states:
        texts = {
            str(number): {"text": text, "color": colour, "index": number}
            for number, (text, colour) in enumerate(panel.states)
        }
        found["mappings"] = [{"type": "value", "options": texts}]
        steps = [{"color": c, "value": n} for n, (_, c) in enumerate(panel.states)]
        found["thresholds"] = {"mode": "absolute", "steps": steps}
        found["color"] = {"mode": "thresholds"}
    return found


_OPTIONS: dict[str, Json] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "background",
        "graphMode": "none",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value_and_name",
    },
    "table": {"showHeader": True},
}


def main(arguments: list[str]) -> None:
    """Write the dashboard to the path that is the only argument."""
    (path,) = arguments
    Path(path).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
