"""The dashboard's rows and panels in the order of the screen, and what a panel is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

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
        states: Texts and colours that stand for the numbers 0, 1, …
    """

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    states: tuple[tuple[str, str], ...] = ()


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
    """Panels under one heading; ``is_folded``: until somebody opens the row."""

    title: str
    panels: tuple[Panel, ...]
    is_folded: bool = False


def graph(title: str, text: str, unit: str, *queries: Query) -> Panel:
    """Lines over time, a third of the dashboard wide."""
    return Panel(title, text, unit, queries)


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


def quantiles(histogram: str, name: str, where: str = "<id>") -> tuple[Query, ...]:
    """Median and 99th percentile of a histogram, for each id."""
    buckets = f"sum by (le, id) (rate({histogram}_bucket{where}<rate>))"
    return tuple(
        query(f"histogram_quantile({share}, {buckets})", f"{name}, {text}")
        for share, text in ((0.5, "median"), (0.99, "p99"))
    )


def _rules() -> dict[str, str]:
    """The expressions of the alert rules, by name: the states are made of them."""
    loaded = yaml.safe_load((Path(__file__).parent / "alerts.yml").read_text("utf-8"))
    rules = [rule for group in loaded["groups"] for rule in group["rules"]]
    return {rule["alert"]: _chosen(rule["expr"]) for rule in rules}


def _chosen(expression: str) -> str:
    """An expression of a rule, of the ids that the user chose."""

    def chosen(found: re.Match[str]) -> str:
        more = f", {found[2]}" if found[2] else ""
        return f'{found[1]}{{job=~"$job", id=~"$id"{more}}}'

    return re.sub(r"\b(kafka_tx_\w+)(?:{([^{}]*)})?", chosen, expression)


def _state() -> Query:
    """Each id's worst state; the first expression that has an id decides."""
    rules = _rules()

    def any_of(*names: str) -> str:
        return " or ".join(f"max by (id) ({rules[f'KafkaTx{name}']})" for name in names)

    states = (
        (4, any_of("Down", "LagUnknown")),
        (3, any_of("HeadroomSmall", "DataLoss", "RecordsLost")),
        (2, any_of("CommitStalled", "Stopped", "ReplayStorm", "Takeovers")),
        (1, "max by (id) (kafka_tx_lag_seconds<id>) > 300"),
        (0, "max by (id) (kafka_tx_last_commit_timestamp_seconds<id>)"),
        (0, "max by (id) (kafka_tx_run_since_timestamp_seconds<id>)"),
    )
    parts = (f"(0 * ({asked}) + {number})" for number, asked in states)
    return query(f"max by (id) ({' or '.join(parts)})")


STATES = (
    ("ok", "green"),
    ("behind", "yellow"),
    ("stalled", "orange"),
    ("losing records", "red"),
    ("gone", "purple"),
)
"""Texts and colours of the numbers 0, 1, …"""

RIGHT = PanelRow(
    "Is it all right?",
    (
        Panel(
            "State",
            "The worst that is true of each id. gone: no process runs it, or `kafka-tx"
            " lag --serve` has no figures of it. losing records: retention deletes"
            " unread ones soon, or records were lost within 15 minutes. stalled:"
            " nothing is committed, or an error ended the job. behind: records wait for"
            " more than 5 minutes. The alert rules, without their waiting times,"
            " decide.",
            "none",
            (_state(),),
            kind="stat",
            width=24,
            height=5,
            states=STATES,
        ),
    ),
)

LOSS = PanelRow(
    "Loss",
    (
        graph(
            "Lost records",
            "Offsets that were skipped without being read, and records that were given"
            " up. Above 0: find out why.",
            "short",
            increase("kafka_tx_skipped_offsets_total<topic>", "id, reason", "skipped"),
            increase("kafka_tx_lost_records_total<topic>", "id, reason", "lost"),
        ),
        graph(
            "Distance from deletion",
            "Of the partition with least: records from the committed offset down to the"
            " start of the log, and to what retention deletes within hours. Below 0:"
            " unread records are deleted next.",
            "short",
            query(
                "min by (id, topic) (kafka_tx_retention_headroom_records<topic>)",
                "from the log's start",
            ),
            query(
                "min by (id, topic) (kafka_tx_committed_offset<topic>"
                " - kafka_tx_retention_edge_offset<topic>)",
                "from what goes soon",
            ),
        ),
        graph(
            "Ends with an error",
            "Queries and topologies that ended, by kind of error; and how long the last"
            " one is ago, up to 15 minutes.",
            "short",
            increase("kafka_tx_stops_total<id>", "id, reason", "ends"),
            query(
                "max by (id, reason) (time()"
                " - kafka_tx_last_stop_timestamp_seconds<id> < bool 900)",
                "in the last 15 minutes",
            ),
        ),
    ),
)

LAG = PanelRow(
    "Lag",
    (
        graph(
            "Lag in records",
            "Log end minus committed offset; holes in the log count.",
            "short",
            query("sum by (id, topic) (kafka_tx_lag_records<topic>)", "lag"),
        ),
        graph(
            "Lag in seconds",
            "Time since the log was first seen to reach past the committed offset, on"
            " the partition furthest behind.",
            "s",
            query("max by (id, topic) (kafka_tx_lag_seconds<topic>)", "waits"),
        ),
        graph(
            "Time since the last commit, and with batches in flight",
            "The time since a commit grows while a topic is idle, too. The time with"
            " batches in flight, and none committed, grows without end if one hangs, or"
            " is replayed again and again.",
            "s",
            query(
                "time() - max by (id) (kafka_tx_last_commit_timestamp_seconds<id>)",
                "since commit",
            ),
            query(
                "time() - min by (id)"
                " (kafka_tx_in_flight_since_timestamp_seconds<id> > 0)",
                "in flight",
            ),
        ),
    ),
)

BATCHES = PanelRow(
    "Numbered batches",
    (
        graph(
            "Records per second",
            "Records in committed batches, and offsets: these count holes in the log.",
            "short",
            rate("kafka_tx_records_total<id>", "id", "records"),
            rate("kafka_tx_offsets_total<topic>", "id, topic", "offsets"),
        ),
        graph(
            "Bytes per second",
            "Keys and values, where they are counted.",
            "Bps",
            rate("kafka_tx_bytes_total<id>", "id", "bytes"),
        ),
        graph(
            "Attempts",
            "By outcome, and second and later attempts of committed batches.",
            "short",
            increase("kafka_tx_batches_total<id>", "id, outcome", "attempts"),
            increase("kafka_tx_replays_total<id>", "id", "replays"),
        ),
        graph(
            "Batches in flight by phase",
            "Not yet committed. Many waiting: the commit phase is the narrow place.",
            "short",
            query("sum by (id, phase) (kafka_tx_in_flight_batches<id>)", "batches"),
        ),
        graph(
            "Time by phase",
            "Mean time a committed batch spent in each phase.",
            "s",
            query(
                "sum by (id, phase)"
                " (rate(kafka_tx_phase_duration_seconds_sum<id><rate>))"
                " / sum by (id, phase)"
                " (rate(kafka_tx_phase_duration_seconds_count<id><rate>))",
                "mean",
            ),
        ),
        graph(
            "Batch duration",
            "From planning a batch until its commit was recorded; the commit alone.",
            "s",
            *quantiles("kafka_tx_batch_duration_seconds", "batch"),
            *quantiles("kafka_tx_commit_latency_seconds", "commit"),
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
            "Offsets",
            "Summed over the partitions: committed follows the end and stays above the"
            " log start.",
            "short",
            query("sum by (id, topic) (kafka_tx_end_offset<topic>)", "end"),
            query("sum by (id, topic) (kafka_tx_committed_offset<topic>)", "committed"),
            query("sum by (id, topic) (kafka_tx_log_start_offset<topic>)", "log start"),
        ),
        graph(
            "Age of the newest record",
            "Wall clock minus the newest timestamp in committed batches, where it is"
            " known: an upper bound of the lag, also high when nobody produces.",
            "s",
            query(
                "time() - max by (id) (kafka_tx_newest_record_timestamp_seconds<id>)",
                "newest record",
            ),
        ),
    ),
    is_folded=True,
)

TABLES = PanelRow(
    "Tables of a lakehouse",
    (
        graph(
            "Time of a table's commit",
            "From the check before a commit of a Delta or Iceberg table to the check"
            " after it.",
            "s",
            *quantiles("kafka_tx_table_commit_seconds", "commit"),
        ),
        graph(
            "Files and rows added to tables",
            "Many small files: compact the table, or let batches be larger. More rows"
            " than records: a MERGE writes unchanged rows again.",
            "short",
            increase("kafka_tx_table_files_total<id>", "id", "files"),
            increase("kafka_tx_table_rows_total<id>", "id", "rows"),
        ),
    ),
    is_folded=True,
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
            "Records on their way",
            "Emitted and not completed; waiting for a retry; offsets from the committed"
            " position to the completed and the emitted one.",
            "short",
            query("sum by (id) (kafka_tx_pending_records<topic>)", "pending"),
            query("sum by (id) (kafka_tx_retry_records<topic>)", "retry"),
            query(
                "sum by (id) (kafka_tx_emitted_offset<topic>"
                " - kafka_tx_committed_offset<topic>)",
                "emitted ahead",
            ),
            query(
                "sum by (id) (kafka_tx_completed_offset<topic>"
                " - kafka_tx_committed_offset<topic>)",
                "completed ahead",
            ),
        ),
        graph(
            "Oldest pending record",
            "The commit cannot pass it.",
            "s",
            query(
                "max by (id, topic) (kafka_tx_oldest_pending_age_seconds<topic>)",
                "pending",
            ),
        ),
        graph(
            "Failed records",
            "Records in the interval: failed, retried, without a try left, written to"
            " the dead-letter topic, and cut there.",
            "short",
            increase("kafka_tx_failed_records_total<topic>", "id, reason", "failures"),
            increase("kafka_tx_retried_records_total<topic>", "id", "retried"),
            increase("kafka_tx_ineligible_records_total<topic>", "id", "no try left"),
            increase("kafka_tx_dead_letter_records_total<topic>", "id", "dead letters"),
            increase("kafka_tx_cut_dead_letter_records_total<topic>", "id", "cut"),
        ),
        graph(
            "Fetch duration",
            "Successful fetches.",
            "s",
            *quantiles("kafka_tx_fetch_duration_seconds", "fetch", "<topic>"),
        ),
    ),
    is_folded=True,
)

PROCESS = PanelRow(
    "Processes",
    (
        graph(
            "Runs",
            "How long each run goes on, by process. Two at once: two owners, or tasks."
            " Of `kafka-tx lag --serve`: the time since the last bounded run, and since"
            " it had figures.",
            "s",
            query(
                "time() - max by (id, instance, kind)"
                " (kafka_tx_run_since_timestamp_seconds<id>)",
                "for",
            ),
            query(
                "time() - max by (id) (kafka_tx_bounded_commit_timestamp_seconds<id>)",
                "last bounded run",
            ),
            query(
                "time() - max by (id) (kafka_tx_last_poll_timestamp_seconds<id>)",
                "last figures",
            ),
        ),
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
        ),
        graph(
            "Not measured, not copied",
            "No record is at risk: commits that did not reach the Kafka group, batches"
            " without bytes because reports of their tasks are missing.",
            "short",
            increase("kafka_tx_mirror_failures_total<id>", "id", "failed mirrors"),
            increase("kafka_tx_unmeasured_batches_total<id>", "id", "without bytes"),
        ),
        graph(
            "Measurements that failed",
            "The job's log names each of them once.",
            "short",
            increase("kafka_tx_metric_failures_total<job>", "instance", "failed"),
        ),
    ),
    is_folded=True,
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

ROWS = (RIGHT, LOSS, LAG, BATCHES, TABLES, AT_LEAST_ONCE, PROCESS)
