"""The dashboard file is what the table of panels says, and asks only what exists."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafka_tx.metrics import catalogue, dashboard
from kafka_tx.metrics.metric import Metric
from kafka_tx.metrics.panel import query
from kafka_tx.metrics.promql import metrics_in, problems

FILE = Path(__file__).parents[2] / "grafana" / "dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [
    pytest.param(panel, target, id=f"{panel['id']} {panel['title']} {target['refId']}")
    for panel in PANELS
    for target in panel["targets"]
]


def test_the_file_is_the_generators_output() -> None:
    assert FILE.read_text(encoding="utf-8") == dashboard.text(), "run: make dashboard"


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_every_query_uses_only_what_the_catalogue_has(
    panel: dict[str, Any], target: dict[str, Any]
) -> None:
    assert metrics_in(target["expr"])
    assert problems(target["expr"]) == []


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_every_legend_names_only_labels_the_query_keeps(
    panel: dict[str, Any], target: dict[str, Any]
) -> None:
    kept = target["expr"].split("by (")[1].split(")")[0].split(", ")
    named = [part.split("}}")[0] for part in target["legendFormat"].split("{{")[1:]]

    assert named
    assert named == [label for label in kept if label != "le"]


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_every_query_follows_the_chosen_id(
    panel: dict[str, Any], target: dict[str, Any]
) -> None:
    used = metrics_in(target["expr"])

    if all("id" in metric.label_names for metric in used):
        assert 'id=~"$id"' in target["expr"]
    assert ('topic=~"$topic"' in target["expr"]) == all(
        metric.is_per_partition for metric in used
    )


@pytest.mark.parametrize("metric", catalogue.ALL, ids=lambda metric: metric.name)
def test_every_metric_is_on_the_dashboard(metric: Metric) -> None:
    shown = {
        used
        for panel in PANELS
        for target in panel["targets"]
        for used in metrics_in(target["expr"])
    }

    assert metric in shown or metric is catalogue.START_OFFSET  # a detail of one batch


def test_no_two_lines_of_a_panel_have_the_same_name() -> None:
    for panel in PANELS:
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(set(legends)) == len(legends), panel["title"]


def test_panels_do_not_overlap_and_stay_inside_the_grid() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]

    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)


def test_panels_are_numbered_from_top_to_bottom() -> None:
    assert [panel["id"] for panel in DASHBOARD["panels"]] == list(
        range(1, len(DASHBOARD["panels"]) + 1)
    )
    tops = [panel["gridPos"]["y"] for panel in DASHBOARD["panels"]]
    assert all(above <= below for above, below in pairwise(tops))


def test_the_data_source_and_the_id_can_be_chosen() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}

    assert list(variables) == ["datasource", "id", "topic"]
    assert variables["datasource"]["query"] == "prometheus"
    for name in ("id", "topic"):
        wanted = variables[name]["query"]["query"]
        series, label = (
            wanted.removeprefix("label_values(").removesuffix(")").rsplit(", ")
        )
        assert label == name
        assert problems(f"sum by ({label}) ({series})") == []
    sources = {target["datasource"]["uid"] for _, target in _values(TARGETS)}
    assert sources == {"${datasource}"}


def test_thresholds_begin_without_a_value_and_rise() -> None:
    with_steps = [p for p in PANELS if "thresholds" in p["fieldConfig"]["defaults"]]

    assert with_steps
    for panel in with_steps:
        first, *others = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert first["value"] is None
        values = [step["value"] for step in others]
        assert values == sorted(values)


def test_the_program_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "dashboard.json"

    dashboard.main([str(target)])

    assert target.read_text(encoding="utf-8") == dashboard.text()


def test_the_shorthands_stand_for_what_the_user_chose() -> None:
    made = query("sum by (id) (rate(x_total<id><rate>)) + y<topic>", "both")

    assert made.expression == (
        'sum by (id) (rate(x_total{id=~"$id"}[$__rate_interval]))'
        ' + y{id=~"$id", topic=~"$topic"}'
    )
    assert made.legend == "{{id}} both"


def _values(parameters: list[Any]) -> list[Any]:
    return [parameter.values for parameter in parameters]
