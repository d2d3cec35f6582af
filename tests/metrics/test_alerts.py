"""The alert rules ask only what exists, say what to do, and have tests of their own."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_tx.metrics.promql import problems, selectors

GRAFANA = Path(__file__).parents[2] / "grafana"


def load(name: str) -> Any:
    return yaml.safe_load((GRAFANA / name).read_text(encoding="utf-8"))


RULES = [rule for group in load("alerts.yml")["groups"] for rule in group["rules"]]
TESTS = load("alerts_test.yml")["tests"]
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])


@every_rule
def test_every_rule_uses_only_what_the_catalogue_has(rule: dict[str, Any]) -> None:
    assert selectors(rule["expr"]) or rule["expr"].startswith('up{job="kafka_tx"}')
    assert problems(rule["expr"]) == []


@every_rule
def test_every_rule_has_a_severity_a_summary_and_advice(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description"}
    assert len(rule["annotations"]["summary"]) < 120
    assert rule["annotations"]["description"].endswith(".")


@every_rule
def test_annotations_name_only_labels_that_the_alert_has(rule: dict[str, Any]) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    grouped = re.search(r"by \(([^)]*)\)", rule["expr"])
    selected = selectors(rule["expr"])

    kept = set(grouped[1].split(", ")) if grouped else set()
    if not grouped:
        kept = set(selected[0].labels) if selected else {"job", "instance"}
    assert named
    assert named <= kept


@every_rule
def test_every_rule_is_shown_firing_and_not_firing(rule: dict[str, Any]) -> None:
    outcomes = {
        bool(case["exp_samples"])
        for test in TESTS
        for case in test["promql_expr_test"]
        if re.search(rf"\b{rule['alert']}\b", case["expr"])
    }

    assert outcomes == {True, False}


def test_the_test_series_exist() -> None:
    series = [s["series"] for test in TESTS for s in test["input_series"]]

    found = [problem for each in series for problem in problems(each)]

    assert series
    assert found == []


def test_rules_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in RULES]

    assert len(set(names)) == len(names)
    assert all(name.startswith("KafkaTx") for name in names)


def test_the_scrape_file_loads_the_rules_and_gives_the_job_its_name() -> None:
    scrape_file = load("prometheus.yml")

    assert scrape_file["rule_files"] == ["alerts.yml"]
    assert [job["job_name"] for job in scrape_file["scrape_configs"]] == ["kafka_tx"]
