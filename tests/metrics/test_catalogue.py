"""The catalogue keeps its own rules."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import kafka_tx
from kafka_tx.metrics import catalogue
from kafka_tx.metrics.metric import PER_PARTITION, Label, Metric, MetricKind

BASE_UNITS = {"seconds", "bytes"}
COUNTED = {
    "records", "offset", "offsets", "batches", "failures", "stops", "replays", "txid",
    "files", "rows",
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


def names_where(is_broken: Callable[[Metric], bool]) -> list[str]:
    """The metrics that break a rule."""
    return [metric.name for metric in catalogue.ALL if is_broken(metric)]


def test_names_are_prefixed_snake_case() -> None:
    assert not names_where(lambda m: not re.fullmatch(r"kafka_tx(_[a-z]+)+", m.name))


def test_total_marks_counters_and_nothing_else() -> None:
    assert not names_where(
        lambda m: m.name.endswith("_total") != (m.kind is MetricKind.COUNTER)
    )


def test_the_last_word_of_a_name_is_a_base_unit_or_what_is_counted() -> None:
    assert not names_where(
        lambda m: m.kind is not MetricKind.INFO and m.unit not in BASE_UNITS | COUNTED
    )


def test_durations_are_the_only_histograms_and_have_rising_bounds() -> None:
    assert not names_where(
        lambda m: bool(m.buckets) != (m.kind is MetricKind.HISTOGRAM)
    )
    assert not names_where(lambda m: list(m.buckets) != sorted(set(m.buckets)))
    assert not names_where(
        lambda m: m.kind is MetricKind.HISTOGRAM and m.unit != "seconds"
    )


def test_labels_are_id_topic_partition_or_have_a_closed_set() -> None:
    """Or the task of a run: as many as an id has jobs."""

    def open_labels(metric: Metric) -> list[Label]:
        return [label for label in metric.labels if not label.values]

    assert not names_where(
        lambda m: (
            m.kind is not MetricKind.INFO
            and not set(open_labels(m)) <= {*PER_PARTITION, *catalogue.TASK}
        )
    )
    assert not names_where(lambda m: bool(NEVER_A_LABEL & set(m.label_names)))


def test_topic_and_partition_come_together_and_after_id() -> None:
    assert not names_where(
        lambda m: (
            bool({"topic", "partition"} & set(m.label_names)) and not m.is_per_partition
        )
    )


def test_the_help_is_one_sentence() -> None:
    assert not names_where(lambda m: not m.help.endswith("."))
    assert not names_where(lambda m: "|" in m.help or "\n" in m.help)


def test_no_name_is_given_twice() -> None:
    assert len(catalogue.BY_NAME) == len(catalogue.ALL)


def test_no_metric_clashes_with_the_samples_of_a_histogram() -> None:
    samples = {
        m.name + suffix
        for m in catalogue.ALL
        if m.kind is MetricKind.HISTOGRAM
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
