"""The catalogue keeps its own rules."""

import ast
import re
from pathlib import Path

import pytest

import kafka_tx
from kafka_tx.metrics import catalogue
from kafka_tx.metrics.metric import PER_PARTITION, Kind, Metric

BASE_UNITS = {"seconds", "bytes"}
COUNTED = {
    "records", "offset", "offsets", "batches", "failures", "stops", "replays", "txid",
}  # fmt: skip
NEVER_A_LABEL = {
    "txid",
    "attempt",
    "run",
    "run_id",
    "query",
    "host",
    "hostname",
    "broker",
}

every_metric = pytest.mark.parametrize("metric", catalogue.ALL, ids=lambda m: m.name)


@every_metric
def test_names_are_prefixed_snake_case(metric: Metric) -> None:
    assert re.fullmatch(r"kafka_tx(_[a-z]+)+", metric.name)


@every_metric
def test_total_marks_counters_and_nothing_else(metric: Metric) -> None:
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)


@every_metric
def test_the_last_word_of_a_name_is_a_base_unit_or_what_is_counted(
    metric: Metric,
) -> None:
    if metric.kind is not Kind.INFO:
        assert metric.unit in BASE_UNITS | COUNTED


@every_metric
def test_durations_are_the_only_histograms_and_have_rising_bounds(
    metric: Metric,
) -> None:
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.kind is not Kind.HISTOGRAM or metric.unit == "seconds"


@every_metric
def test_labels_are_id_topic_partition_or_have_a_closed_set(metric: Metric) -> None:
    open_labels = [label for label in metric.labels if not label.values]

    assert metric.kind is Kind.INFO or set(open_labels) <= set(PER_PARTITION)
    assert not NEVER_A_LABEL & set(metric.label_names)


@every_metric
def test_topic_and_partition_come_together_and_after_id(metric: Metric) -> None:
    if {"topic", "partition"} & set(metric.label_names):
        assert metric.is_per_partition


@every_metric
def test_the_help_is_one_sentence(metric: Metric) -> None:
    assert metric.help.endswith(".")
    assert "|" not in metric.help
    assert "\n" not in metric.help


def test_no_name_is_given_twice() -> None:
    assert len(catalogue.BY_NAME) == len(catalogue.ALL)


def test_no_metric_clashes_with_the_samples_of_a_histogram() -> None:
    samples = {
        m.name + suffix
        for m in catalogue.ALL
        if m.kind is Kind.HISTOGRAM
        for suffix in ("_bucket", "_sum", "_count")
    }

    assert not samples & set(catalogue.BY_NAME)


def test_the_table_has_a_row_for_every_metric_with_all_its_labels() -> None:
    head, rule, *rows = catalogue.markdown().splitlines()

    assert head.count("|") == rule.count("|")
    assert [row.split("`")[1] for row in rows] == [m.name for m in catalogue.ALL]
    for row, metric in zip(rows, catalogue.ALL, strict=True):
        assert row.count("|") == head.count("|")
        assert all(f"`{label}`" in row for label in metric.label_names)


def test_the_table_spells_closed_sets_out() -> None:
    assert (
        "| `kafka_tx_batches_total` | counter | batches |"
        " `id`, `outcome` (committed, failed, timed_out, cancelled) |"
    ) in catalogue.markdown()


def test_every_metric_that_storms_spouts_report_has_a_successor() -> None:
    named = {name.strip() for m in catalogue.ALL for name in m.storm.split(",")}

    assert named - {""} == {
        "spoutLag", "earliestTimeOffset", "latestTimeOffset", "latestEmittedOffset",
        "latestCompletedOffset", "fetchAPILatencyMax", "fetchAPILatencyMean",
        "fetchAPICallCount", "fetchAPIMessageCount", "lostMessageCount",
        "messageIneligibleForRetryCount",
    }  # fmt: skip


def test_the_whole_package_measures_only_what_the_catalogue_knows() -> None:
    package = Path(kafka_tx.__file__).parent

    used = {name for path in package.rglob("*.py") for name in _measured_in(path)}

    assert used <= set(catalogue.BY_NAME)


def _measured_in(path: Path) -> set[str]:
    """Names given as text to ``add``, ``set`` or ``observe`` of anything."""
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    return {
        str(call.args[0].value)
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("add", "set", "observe")
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and str(call.args[0].value).startswith("kafka_tx_")
    }
