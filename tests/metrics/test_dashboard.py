"""The dashboard file is what the table of panels says, and asks only what exists."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana import dashboard
from grafana.panels import query
from kafka_tx.metrics import catalogue
from tests.metrics.promql import metrics_in, problems

FILE = Path(__file__).parents[2] / "grafana" / "dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
EVERY = [
    each for panel in DASHBOARD["panels"] for each in (panel, *panel.get("panels", []))
]
ROWS = [panel for panel in EVERY if panel["type"] == "row"]
PANELS = [panel for panel in EVERY if panel["type"] != "row"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]


def test_the_file_is_the_generators_output() -> None:
    assert FILE.read_text(encoding="utf-8") == dashboard.text(), "run: make dashboard"


def queries_where(is_broken: Callable[[dict[str, Any]], bool]) -> list[str]:
    """The queries that break a rule."""
    assert TARGETS
    return [target["expr"] for target in TARGETS if is_broken(target)]


def test_every_query_uses_only_what_the_catalogue_has() -> None:
    assert not queries_where(lambda target: not metrics_in(target["expr"]))
    assert not queries_where(lambda target: problems(target["expr"]) != [])


def test_every_legend_names_only_labels_the_query_keeps() -> None:
    def kept(target: dict[str, Any]) -> list[str]:
        labels = target["expr"].split("by (")[1].split(")")[0].split(", ")
        return [label for label in labels if label != "le"]

    def named(target: dict[str, Any]) -> list[str]:
        return [part.split("}}")[0] for part in target["legendFormat"].split("{{")[1:]]

    assert not queries_where(lambda target: not named(target))
    assert not queries_where(lambda target: named(target) != kept(target))


def test_every_query_follows_the_chosen_id() -> None:
    def ignores_the_id(target: dict[str, Any]) -> bool:
        used = metrics_in(target["expr"])
        has_id = all("id" in metric.label_names for metric in used)
        return has_id and 'id=~"$id"' not in target["expr"]

    def is_wrong_about_topics(target: dict[str, Any]) -> bool:
        has_topic = all(m.is_per_partition for m in metrics_in(target["expr"]))
        return has_topic != ('topic=~"$topic"' in target["expr"])

    assert not queries_where(ignores_the_id)
    assert not queries_where(is_wrong_about_topics)


def test_every_query_follows_the_chosen_job() -> None:
    assert not queries_where(lambda target: 'job=~"$job"' not in target["expr"])
    marks = DASHBOARD["annotations"]["list"][1:]
    assert [mark["name"] for mark in marks] == ["Replays", "Stops"]
    assert all('job=~"$job"' in mark["expr"] for mark in marks)
    assert all(problems(mark["expr"]) == [] for mark in marks)


def test_the_file_says_nothing_that_grafana_10_does_not_know() -> None:
    """A newer Grafana migrates what an older one wrote; none goes the other way."""
    assert DASHBOARD["schemaVersion"] == 38  # of Grafana 10.0
    assert {panel["type"] for panel in PANELS} == {"stat", "table", "timeseries"}
    types = {each["type"] for each in DASHBOARD["templating"]["list"]}
    assert types == {"datasource", "query", "textbox"}


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {used for target in TARGETS for used in metrics_in(target["expr"])}

    missing = [metric for metric in catalogue.ALL if metric not in shown]
    # the first is what Spark's own source reports, the other a detail of one batch
    assert missing == [catalogue.BEHIND_LATEST, catalogue.START_OFFSET]


def test_the_first_row_says_whether_all_is_right_and_details_are_folded() -> None:
    assert [row["title"] for row in ROWS][:3] == ["Is it all right?", "Loss", "Lag"]
    assert [row["collapsed"] for row in ROWS] == [False] * 3 + [True] * 4
    (states,) = (p for p in PANELS if p["fieldConfig"]["defaults"].get("mappings"))
    assert states["title"] == "State"
    assert states["gridPos"] == {"h": 5, "w": 24, "x": 0, "y": 1}
    (mapping,) = states["fieldConfig"]["defaults"]["mappings"]
    texts = [mapping["options"][str(n)]["text"] for n in range(5)]
    assert texts == ["ok", "behind", "stalled", "losing records", "gone"]


def test_the_state_goes_by_the_critical_alert_rules() -> None:
    """One that wakes somebody is never "ok"."""
    (states,) = (p for p in PANELS if p["title"] == "State")
    (target,) = states["targets"]
    rules = yaml.safe_load((FILE.parent / "alerts.yml").read_text(encoding="utf-8"))
    critical = [
        rule
        for group in rules["groups"]
        for rule in group["rules"]
        if rule["labels"]["severity"] == "critical"
    ]

    shown = target["expr"].replace('job=~"$job", id=~"$id", ', "")
    shown = shown.replace('{job=~"$job", id=~"$id"}', "")

    assert len(critical) >= 7
    assert [rule["alert"] for rule in critical if rule["expr"] not in shown] == []


def test_each_line_has_a_unit_and_says_what_it_draws() -> None:
    def says_nothing(target: dict[str, Any]) -> bool:
        return not target["legendFormat"].split("}}")[-1].strip()

    graphs = [panel for panel in PANELS if panel["type"] == "timeseries"]
    mute = [p["title"] for p in graphs if any(map(says_nothing, p["targets"]))]
    assert mute == []
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)


def test_the_runbook_opens_at_an_address_of_the_user() -> None:
    (link,) = DASHBOARD["links"]

    assert link["url"] == "${runbook}"


def test_no_two_lines_of_a_panel_have_the_same_name() -> None:
    for panel in PANELS:
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(set(legends)) == len(legends), panel["title"]


def test_panels_do_not_overlap_and_stay_inside_the_grid() -> None:
    places = [panel["gridPos"] for panel in EVERY]

    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)


def test_panels_are_numbered_from_top_to_bottom() -> None:
    assert [panel["id"] for panel in EVERY] == list(range(1, len(EVERY) + 1))
    tops = [panel["gridPos"]["y"] for panel in EVERY]
    assert all(above <= below for above, below in pairwise(tops))


def test_the_data_source_and_the_id_can_be_chosen() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}

    assert list(variables) == ["datasource", "job", "id", "topic", "runbook"]
    assert variables["datasource"]["query"] == "prometheus"
    for name in ("job", "id", "topic"):
        wanted = variables[name]["query"]
        series, label = (
            wanted.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        )
        assert label == name
        assert problems(f"sum by ({label}) ({series})") == []
    sources = {target["datasource"]["uid"] for target in TARGETS}
    assert sources == {"${datasource}"}


def test_thresholds_begin_at_zero_and_rise() -> None:
    with_steps = [p for p in PANELS if "thresholds" in p["fieldConfig"]["defaults"]]

    assert with_steps
    for panel in with_steps:
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        values = [step["value"] for step in steps]
        assert values == sorted(values)
        assert values[0] == 0  # a number: the schemas of Grafana 10 and 11 know no null


def test_the_program_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "dashboard.json"

    dashboard.main([str(target)])

    assert target.read_text(encoding="utf-8") == dashboard.text()


def test_the_shorthands_stand_for_what_the_user_chose() -> None:
    made = query("sum by (id) (rate(x_total<id><rate>)) + y<topic>", "both")

    assert made.expression == (
        'sum by (id) (rate(x_total{job=~"$job", id=~"$id"}[$__rate_interval]))'
        ' + y{job=~"$job", id=~"$id", topic=~"$topic"}'
    )
    assert made.legend == "{{id}} both"
