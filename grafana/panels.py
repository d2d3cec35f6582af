"""The dashboard's rows and panels in the order of the screen, and what a panel is."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BY = re.compile(r"by \(([^()]+)\)")
_SHORTHANDS = {
    "<job>": '{job=~"$job"}',
    "<id>": '{job=~"$job", id=~"$id"}',
    "<topic>": '{job=~"$job", id=~"$id", topic=~"$topic"}',
    "<rate>": "[$__rate_interval]",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and the name of its lines, which may name labels."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        title: A few words.
        text: What the reader should make of it.
        unit: Grafana's name of the unit.
        queries: What it shows; all in ``unit``.
        kind: Grafana's name of the visualisation.
        width: In columns of Grafana's grid of 24.
        height: In rows of it.
        thresholds: ``(colour, from)``; the first one holds from the bottom.
    """

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    thresholds: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """Lines across all panels, at moments that explain what they show.

    Attributes:
        name: As the switch above the panels has it.
        colour: Of the lines.
        expression: Where it has a value there is a line.
        title: What a line says; may name labels.
        at_value: The value is the moment, in Unix milliseconds.
    """

    name: str
    colour: str
    expression: str
    title: str
    at_value: bool = False


@dataclass(frozen=True, slots=True)
class PanelRow:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def graph(title: str, text: str, unit: str, *queries: Query) -> Panel:
    """Lines over time, a third of the dashboard wide."""
    return Panel(title, text, unit, queries)


def number(
    title: str, text: str, unit: str, query: Query, *thresholds: tuple[str, float]
) -> Panel:
    """One number for each id, a quarter of the dashboard wide."""
    return Panel(title, text, unit, (query,), "stat", 6, 5, thresholds)


def query(expression: str, name: str = "") -> Query:
    """A query; ``<id>``, ``<topic>`` and ``<rate>`` stand for what the user chose.

    Its lines are called by the labels they are summed ``by``, and by ``name``.
    """
    labels = _BY.search(expression)
    assert labels is not None
    shown = [label for label in labels[1].split(", ") if label != "le"]
    legend = " ".join(f"{{{{{label}}}}}" for label in shown)
    for short, meant in _SHORTHANDS.items():
        expression = expression.replace(short, meant)
    return Query(expression, f"{legend} {name}".strip())


def rate(counter: str, by: str, name: str = "") -> Query:
    """How much a counter grows in a second, summed ``by`` labels."""
    return query(f"sum by ({by}) (rate({counter}<rate>))", name)


def increase(counter: str, by: str, name: str = "") -> Query:
    """How much a counter grew in an interval of the graph, summed ``by`` labels."""
    return query(f"sum by ({by}) (increase({counter}<rate>))", name)


def quantiles(histogram: str, where: str = "<id>") -> tuple[Query, ...]:
    """Median, 95th and 99th percentile of a histogram, for each id."""
    buckets = f"sum by (le, id) (rate({histogram}_bucket{where}<rate>))"
    quantiles = ((0.5, "median"), (0.95, "p95"), (0.99, "p99"))
    return tuple(
        query(f"histogram_quantile({share}, {buckets})", name)
        for share, name in quantiles
    )


_COMMIT_AGE = query("time() - max by (id) (kafka_tx_last_commit_timestamp_seconds<id>)")

NOW = PanelRow(
    "Now",
    (
        number(
            "Commit age",
            "Time since the last commit. It grows while a job is idle, and while it is"
            " stuck: then records wait.",
            "s",
            _COMMIT_AGE,
            ("green", 0),
            ("orange", 300),
            ("red", 600),
        ),
        number(
            "Records waiting",
            "Log end minus committed offset, all partitions.",
            "short",
            query("sum by (id) (kafka_tx_lag_records<topic>)"),
        ),
        number(
            "Waiting for",
            "The oldest waiting record has waited at least this long.",
            "s",
            query("max by (id) (kafka_tx_lag_seconds<topic>)"),
            ("green", 0),
            ("orange", 300),
            ("red", 900),
        ),
        number(
            "Smallest headroom",
            "Records between log start and committed offset, on the partition with"
            " fewest. At 0, with records waiting, retention deletes unprocessed ones.",
            "short",
            query("min by (id) (kafka_tx_retention_headroom_records<topic>)"),
        ),
    ),
)

PROGRESS = PanelRow(
    "Progress",
    (
        graph(
            "Lag in records",
            "Log end minus committed offset; holes in the log count.",
            "short",
            query("sum by (id, topic) (kafka_tx_lag_records<topic>)"),
        ),
        graph(
            "Offsets behind latest",
            "Least, greatest and mean lag of the partitions, as Spark's own source has"
            " it. Far apart: a skewed topic, or a partition that is stuck.",
            "short",
            query("max by (id, statistic) (kafka_tx_behind_latest_offsets<id>)"),
        ),
        graph(
            "Lag in seconds",
            "Time since the log was first seen to reach past the committed offset, on"
            " the partition furthest behind.",
            "s",
            query("max by (id, topic) (kafka_tx_lag_seconds<topic>)"),
        ),
        graph(
            "Retention headroom",
            "Committed offset minus log start, on the partition that has least.",
            "short",
            query("min by (id, topic) (kafka_tx_retention_headroom_records<topic>)"),
        ),
        graph(
            "Offsets",
            "Summed over the partitions: committed follows the end and stays above the"
            " log start.",
            "short",
            query("sum by (id, topic) (kafka_tx_end_offset<topic>)", "end"),
            query("sum by (id, topic) (kafka_tx_committed_offset<topic>)", "committed"),
            query("sum by (id, topic) (kafka_tx_log_start_offset<topic>)", "log start"),
        ),
        graph("Commit age", "Time since the last commit.", "s", _COMMIT_AGE),
        graph(
            "Commit latency",
            "From the begin of the commit phase until the store has recorded it.",
            "s",
            *quantiles("kafka_tx_commit_latency_seconds"),
        ),
        graph(
            "Skipped offsets",
            "Jumped over without reading, by reason. Above 0: find out why.",
            "short",
            increase("kafka_tx_skipped_offsets_total<topic>", "id, topic, reason"),
        ),
        graph(
            "Failed mirrors to the Kafka group",
            "Results are right; only what the group shows to others is behind.",
            "short",
            increase("kafka_tx_mirror_failures_total<id>", "id"),
        ),
        graph(
            "Stops with an error",
            "Queries and topologies that ended, by kind of error.",
            "short",
            increase("kafka_tx_stops_total<id>", "id, reason"),
        ),
        graph(
            "Ended within 15 minutes",
            "1 where a query or topology of the id ended with an error less than 15"
            " minutes ago, also in an earlier process.",
            "short",
            query(
                "time() - max by (id, reason)"
                " (kafka_tx_last_stop_timestamp_seconds<id>) < bool 900"
            ),
        ),
    ),
)

BATCHES = PanelRow(
    "Numbered batches",
    (
        graph(
            "Records per second",
            "In committed batches.",
            "short",
            rate("kafka_tx_records_total<id>", "id"),
        ),
        graph(
            "Offsets per second",
            "By topic; holes in the log count.",
            "short",
            rate("kafka_tx_offsets_total<topic>", "id, topic"),
        ),
        graph(
            "Bytes per second",
            "Keys and values, where they are counted.",
            "Bps",
            rate("kafka_tx_bytes_total<id>", "id"),
        ),
        graph(
            "Batches without bytes",
            "Reports of their tasks are missing; the records are all there.",
            "short",
            increase("kafka_tx_unmeasured_batches_total<id>", "id"),
        ),
        graph(
            "Batches by outcome",
            "Attempts per second by how they ended.",
            "short",
            rate("kafka_tx_batches_total<id>", "id, outcome"),
        ),
        graph(
            "Batches in flight by phase",
            "Not yet committed. Many waiting: the commit phase is the narrow place.",
            "short",
            query("sum by (id, phase) (kafka_tx_in_flight_batches<id>)"),
        ),
        graph(
            "Age of the oldest batch in flight",
            "Since it was planned. Grows without end: a batch hangs, or is replayed"
            " again and again.",
            "s",
            query(
                "(time() - max by (id)"
                " (kafka_tx_in_flight_since_timestamp_seconds<id>))"
                " * (max by (id)"
                " (kafka_tx_in_flight_since_timestamp_seconds<id>) > bool 0)"
            ),
        ),
        graph(
            "Time by phase",
            "Mean time a committed batch spent in each phase.",
            "s",
            query(
                "sum by (id, phase)"
                " (rate(kafka_tx_phase_duration_seconds_sum<id><rate>))"
                " / sum by (id, phase)"
                " (rate(kafka_tx_phase_duration_seconds_count<id><rate>))"
            ),
        ),
        graph(
            "Batch duration",
            "From planning a batch until its commit was recorded.",
            "s",
            *quantiles("kafka_tx_batch_duration_seconds"),
        ),
        graph(
            "Replays",
            "Second and later attempts at a batch.",
            "short",
            increase("kafka_tx_replays_total<id>", "id"),
        ),
        graph(
            "Txid",
            "The one that committed last and the one that commits next. A flat line:"
            " nothing commits.",
            "none",
            query("max by (id) (kafka_tx_committed_txid<id>)", "committed"),
            query("max by (id) (kafka_tx_current_txid<id>)", "current"),
        ),
        graph(
            "Age of the newest record",
            "Wall clock minus the newest timestamp in committed batches, where it is"
            " known: an upper bound of the lag, also high when nobody produces.",
            "s",
            query(
                "time() - max by (id) (kafka_tx_newest_record_timestamp_seconds<id>)"
            ),
        ),
        graph(
            "Time of a table's commit",
            "From the check before a commit of a Delta or Iceberg table to the check"
            " after it.",
            "s",
            *quantiles("kafka_tx_table_commit_seconds"),
        ),
        graph(
            "Files added to tables",
            "Many small ones: compact the table, or let batches be larger.",
            "short",
            increase("kafka_tx_table_files_total<id>", "id"),
        ),
        graph(
            "Rows written to tables",
            "Per second. More than the records: a MERGE writes unchanged rows again.",
            "short",
            rate("kafka_tx_table_rows_total<id>", "id"),
        ),
    ),
)

AT_LEAST_ONCE = PanelRow(
    "At-least-once spout",
    (
        graph(
            "Emitted and completed",
            "Records per second; retries do not count as emitted.",
            "short",
            rate("kafka_tx_emitted_records_total<topic>", "id", "emitted"),
            rate("kafka_tx_completed_records_total<topic>", "id", "completed"),
        ),
        graph(
            "Pending and waiting for a retry",
            "Records emitted and not completed; failed ones whose time has not come.",
            "short",
            query("sum by (id) (kafka_tx_pending_records<topic>)", "pending"),
            query("sum by (id) (kafka_tx_retry_records<topic>)", "retry"),
        ),
        graph(
            "Oldest pending record",
            "The commit cannot pass it.",
            "s",
            query("max by (id, topic) (kafka_tx_oldest_pending_age_seconds<topic>)"),
        ),
        graph(
            "Failed and retried",
            "Records in the interval.",
            "short",
            increase("kafka_tx_failed_records_total<topic>", "id, reason"),
            increase("kafka_tx_retried_records_total<topic>", "id", "retried"),
        ),
        graph(
            "Given up",
            "Records without a try left, where they went, and records lost.",
            "short",
            increase("kafka_tx_ineligible_records_total<topic>", "id", "no try left"),
            increase("kafka_tx_dead_letter_records_total<topic>", "id", "dead letters"),
            increase("kafka_tx_cut_dead_letter_records_total<topic>", "id", "cut"),
            increase("kafka_tx_lost_records_total<topic>", "id, reason", "lost:"),
        ),
        graph(
            "Ahead of the commit",
            "Offsets from the committed position to the completed and the emitted one.",
            "short",
            query(
                "sum by (id) (kafka_tx_emitted_offset<topic>"
                " - kafka_tx_committed_offset<topic>)",
                "emitted",
            ),
            query(
                "sum by (id) (kafka_tx_completed_offset<topic>"
                " - kafka_tx_committed_offset<topic>)",
                "completed",
            ),
        ),
        graph(
            "Fetch duration",
            "Successful fetches.",
            "s",
            *quantiles("kafka_tx_fetch_duration_seconds", "<topic>"),
        ),
    ),
)

PROCESS = PanelRow(
    "Process",
    (
        Panel(
            "Versions",
            "What runs where.",
            "none",
            (
                query(
                    "max by (instance, version, python, spark)"
                    " (kafka_tx_build_info<job>)"
                ),
            ),
            kind="table",
            width=16,
        ),
        graph(
            "Measurements that failed",
            "The job's log names each of them once.",
            "short",
            increase("kafka_tx_metric_failures_total<job>", "instance"),
        ),
    ),
)

MARKS = (
    Mark(
        "Replays",
        "orange",
        query(
            "sum by (id) (increase(kafka_tx_batches_total"
            '{job=~"$job", id=~"$id", outcome!="committed"}[1m])) > 0'
            " or sum by (id) (increase(kafka_tx_replays_total<id>[1m])) > 0"
        ).expression,
        "{{id}}: a batch failed or was replayed",
    ),
    Mark(
        "Stops",
        "red",
        query(
            "max by (id, reason) (kafka_tx_last_stop_timestamp_seconds<id>) * 1000 > 0"
        ).expression,
        "{{id}} stopped: {{reason}}",
        at_value=True,
    ),
)

ROWS = (NOW, PROGRESS, BATCHES, AT_LEAST_ONCE, PROCESS)
