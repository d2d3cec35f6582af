"""The alert rules ask only what exists, say what to do, and have tests of their own."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.metrics.promql import problems, selectors

GRAFANA = Path(__file__).parents[2] / "grafana"


def load(name: str) -> Any:
    return yaml.safe_load((GRAFANA / name).read_text(encoding="utf-8"))


RULES = [rule for group in load("alerts.yml")["groups"] for rule in group["rules"]]
TESTS = load("alerts_test.yml")["tests"]

Rule = dict[str, Any]


def rules_where(is_broken: Callable[[Rule], bool]) -> list[str]:
    """The rules for which something is wrong."""
    assert RULES
    return [rule["alert"] for rule in RULES if is_broken(rule)]


def test_every_rule_uses_only_what_the_catalogue_has() -> None:
    assert not rules_where(lambda rule: not selectors(rule["expr"]))
    assert not rules_where(lambda rule: problems(rule["expr"]) != [])


def test_every_rule_has_a_severity_a_summary_and_advice() -> None:
    def annotations(rule: Rule) -> Any:
        return rule["annotations"]

    severities = {"critical", "warning"}
    assert not rules_where(lambda rule: rule["labels"]["severity"] not in severities)
    fields = {"summary", "description", "runbook_url"}
    assert not rules_where(lambda rule: set(annotations(rule)) != fields)
    assert not rules_where(lambda rule: len(annotations(rule)["summary"]) >= 120)
    assert not rules_where(
        lambda rule: not annotations(rule)["description"].endswith(".")
    )


def test_every_rule_links_to_its_entry_of_the_runbook() -> None:
    page = (GRAFANA.parent / "docs" / "runbook.md").read_text(encoding="utf-8")
    entries = re.findall(r"^## (\w+)$", page, re.MULTILINE)

    links = [rule["annotations"]["runbook_url"] for rule in RULES]

    assert entries == [rule["alert"] for rule in RULES]
    assert links == [f"docs/runbook.md#{entry.lower()}" for entry in entries]


def test_annotations_name_only_labels_that_the_alert_has() -> None:
    def named(rule: Rule) -> set[str]:
        return set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))

    def kept(rule: Rule) -> set[str]:
        grouped = re.search(r"by \(([^)]*)\)", rule["expr"])
        if grouped:
            return set(grouped[1].split(", "))
        selected = selectors(rule["expr"])
        return set(selected[0].labels) if selected else {"job", "instance"}

    assert not rules_where(lambda rule: not named(rule))
    assert not rules_where(lambda rule: not named(rule) <= kept(rule))


def test_every_rule_is_shown_firing_and_not_firing() -> None:
    def outcomes(rule: Rule) -> set[bool]:
        return {
            bool(case["exp_samples"])
            for test in TESTS
            for case in test["promql_expr_test"]
            if re.search(rf"\b{rule['alert']}\b", case["expr"])
        }

    assert not rules_where(lambda rule: outcomes(rule) != {True, False})


def test_the_test_series_exist() -> None:
    series = [s["series"] for test in TESTS for s in test["input_series"]]

    found = [problem for each in series for problem in problems(each)]

    assert series
    assert found == []


def test_rules_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in RULES]

    assert len(set(names)) == len(names)
    assert all(name.startswith("KafkaTx") for name in names)


def test_no_rule_depends_on_where_a_process_runs_or_how_it_is_found() -> None:
    """Discovered targets come and go, with labels of whoever discovers them."""
    of_targets = re.compile(r"\b(job|instance|pod|namespace)\b")
    known = {"KafkaTxNotMeasured"}  # that names the process, which has no id

    named = rules_where(lambda rule: bool(of_targets.search(rule["expr"])))
    assert set(named) == known


def test_the_scrape_file_loads_the_rules() -> None:
    assert load("prometheus.yml")["rule_files"] == ["alerts.yml"]


def test_the_silence_for_a_removed_job_is_longer_than_the_alert_looks_back() -> None:
    page = (GRAFANA.parent / "docs" / "runbook.md").read_text(encoding="utf-8")
    (hours,) = re.findall(r"alertname=KafkaTxDown .*--duration=(\d+)h", page)
    (rule,) = (each for each in RULES if each["alert"] == "KafkaTxDown")
    looks_back = set(re.findall(r"\[(\w+)(?::\w+)?\]", rule["expr"]))

    assert looks_back == {"1d", "10m"}
    assert int(hours) > 24
