"""Every metric kafka_tx exposes, in one table.

The registry takes names, labels and buckets from here, the dashboard and the alert
rules are checked against it, and ``markdown()`` prints it for the documentation. A name
that is not here cannot be measured.

Rules: prefix ``kafka_tx_``; the last word of a name is its unit, a base unit, before
``_total``, which is on counters only. Labels are ``id``, ``topic``, ``partition`` and
labels with a closed set of values; never a txid, a run or a host, so that the number of
series follows the number of partitions.
"""

from __future__ import annotations

from kafka_tx.metrics.metric import (
    PER_ID,
    PER_PARTITION,
    PREFIX,
    Fed,
    Label,
    Metric,
    MetricKind,
    Rows,
)
from kafka_tx.offsets.loss import LossReason

OUTCOME = Label("outcome", ("committed", "failed", "timed_out", "cancelled"))
PHASE = Label("phase", ("planning", "processing", "waiting", "committing"))
SKIP_REASON = Label(
    "reason", tuple(reason for reason in LossReason if reason != LossReason.COMPACTED)
)
LOSS_REASON = Label("reason", (*LossReason, "retry_limit"))
STATISTIC = Label("statistic", ("min", "max", "avg"))
FAIL_REASON = Label("reason", ("failed", "timed_out"))
STOP_REASON = Label(
    "reason",
    (
        *("fenced", "state", "kafka", "data_loss"),
        *("replay_impossible", "replay_differs", "config", "user"),
    ),
)

# Seconds. A batch is rarely below 25 ms; one of a minute is slow.
BATCH_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
# Few, because these exist once for each partition.
FETCH_BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)

# --- moved by every commit ----------------------------------------------------------

_partition = Rows(Fed.COMMIT, PER_PARTITION)
_id = Rows(Fed.COMMIT, PER_ID)

COMMITTED_OFFSET = _partition.gauge(
    "committed_offset",
    "Next offset to process: everything below it is done.",
    storm="latestCompletedOffset",
)
END_OFFSET = _partition.gauge(
    "end_offset",
    "End of the log when it was last looked at: high watermark, or last stable offset"
    " under read_committed.",
    storm="latestTimeOffset",
)
LOG_START_OFFSET = _partition.gauge(
    "log_start_offset",
    "First offset the log still holds, when it was last looked at.",
    storm="earliestTimeOffset",
)
LAG_RECORDS = _partition.gauge(
    "lag_records",
    "End offset minus committed offset, never below 0; holes in the log count.",
    storm="spoutLag",
)
LAG_SECONDS = _partition.gauge(
    "lag_seconds",
    "Time since the log was first seen to reach past the committed offset; 0 when"
    " nothing waits. The oldest waiting record is at least this old.",
)
RETENTION_HEADROOM = _partition.gauge(
    "retention_headroom_records",
    "Committed offset minus log start; negative when records were lost to retention.",
)
SKIPPED_OFFSETS = _partition.counter(
    "skipped_offsets",
    "Offsets the position jumped over without reading them, by reason.",
    SKIP_REASON,
    storm="lostMessageCount",
)
BEHIND_LATEST = _id.gauge(
    "behind_latest_offsets",
    "Lag in records of the partitions of an id, as Spark's own source has it in its"
    " metrics: minOffsetsBehindLatest, maxOffsetsBehindLatest, avgOffsetsBehindLatest.",
    STATISTIC,
)
LAST_COMMIT = _id.gauge(
    "last_commit_timestamp_seconds",
    "Unix time of the last commit that the store has recorded.",
)
COMMIT_LATENCY = _id.histogram(
    "commit_latency_seconds",
    "From the begin of the commit phase until the store has recorded it.",
    buckets=COMMIT_BUCKETS,
)
MIRROR_FAILURES = _id.counter(
    "mirror_failures", "Commits whose offsets could not be copied to the Kafka group."
)
STOPS = _id.counter(
    "stops",
    "Queries and topologies that ended with an error, by kind of error.",
    STOP_REASON,
)

LAST_STOP = _id.gauge(
    "last_stop_timestamp_seconds",
    "Unix time when one last ended with such an error, also in an earlier process, as"
    " the store has it; 0: never.",
    STOP_REASON,
    begins_at_zero=True,
)

# --- numbered batches ---------------------------------------------------------------

_partition = Rows(Fed.BATCH, PER_PARTITION)
_id = Rows(Fed.BATCH, PER_ID)

RECORDS = _id.counter("records", "Records of committed batches.")
BYTES = _id.counter(
    "bytes",
    "Key and value bytes of committed batches; absent where they are not counted.",
    begins_at_zero=False,
)
UNMEASURED = _id.counter(
    "unmeasured_batches",
    "Committed batches without bytes and newest timestamp, since reports of their tasks"
    " are missing.",
)
OFFSETS = _partition.counter(
    "offsets",
    "Offsets in the ranges of committed batches; holes count, skipped offsets do not.",
)
BATCHES = _id.counter(
    "batches",
    "Attempts at batches by how they ended; cancelled: thrown away because an earlier"
    " batch failed.",
    OUTCOME,
)
REPLAYS = _id.counter(
    "replays", "Attempts that were a second or later try at their batch."
)
CURRENT_TXID = _id.gauge("current_txid", "The txid that commits next.")
COMMITTED_TXID = _id.gauge("committed_txid", "The txid that committed last.")
START_OFFSET = _partition.gauge(
    "start_offset", "First offset of the last committed batch's range."
)
NEWEST_RECORD = _id.gauge(
    "newest_record_timestamp_seconds",
    "Newest record timestamp in committed batches, as Unix time, none beyond the"
    " commit; absent where unknown.",
)
BATCH_DURATION = _id.histogram(
    "batch_duration_seconds",
    "From planning a batch until its commit was recorded; the last attempt only.",
    buckets=BATCH_BUCKETS,
)

# --- phases -------------------------------------------------------------------------

_id = Rows(Fed.PHASE, PER_ID)

IN_FLIGHT_BATCHES = _id.gauge(
    "in_flight_batches",
    "Batches not yet committed, by phase; waiting: processed, and not yet its turn.",
    PHASE,
)
PHASE_DURATION = _id.histogram(
    "phase_duration_seconds",
    "Time a committed batch spent in each phase; the last attempt only.",
    PHASE,
    buckets=BATCH_BUCKETS,
)

# --- record by record ---------------------------------------------------------------

_partition = Rows(Fed.RECORD, PER_PARTITION)

EMITTED_OFFSET = _partition.gauge(
    "emitted_offset", "Next offset to emit.", storm="latestEmittedOffset"
)
COMPLETED_OFFSET = _partition.gauge(
    "completed_offset",
    "First offset that is not completed: what the next commit will store.",
)
EMITTED_RECORDS = _partition.counter(
    "emitted_records",
    "Offsets handed out to be read, with or without a record; retries do not count.",
    storm="fetchAPIMessageCount",
)
COMPLETED_RECORDS = _partition.counter(
    "completed_records", "Records whose tree of tuples was completed."
)
FAILED_RECORDS = _partition.counter(
    "failed_records",
    "Records that a bolt failed or that were not completed in time.",
    FAIL_REASON,
)
RETRIED_RECORDS = _partition.counter("retried_records", "Records emitted again.")
INELIGIBLE_RECORDS = _partition.counter(
    "ineligible_records",
    "Failed records that had no try left.",
    storm="messageIneligibleForRetryCount",
)
DEAD_LETTERS = _partition.counter(
    "dead_letter_records", "Records written to the dead-letter topic."
)
CUT_LETTERS = _partition.counter(
    "cut_dead_letter_records",
    "Dead letters without a value, since the record did not fit into the topic.",
)
LOST_RECORDS = _partition.counter(
    "lost_records",
    "Records that were emitted, never completed, and given up: gone from the log before"
    " their retry, or out of tries without a dead-letter topic.",
    LOSS_REASON,
)
PENDING_RECORDS = _partition.gauge(
    "pending_records", "Records emitted and not completed."
)
RETRY_RECORDS = _partition.gauge(
    "retry_records", "Failed records that wait for their retry."
)
OLDEST_PENDING_AGE = _partition.gauge(
    "oldest_pending_age_seconds",
    "How long the oldest pending record has been pending; 0 when none is.",
)
FETCH_DURATION = _partition.histogram(
    "fetch_duration_seconds",
    "Duration of successful fetches.",
    buckets=FETCH_BUCKETS,
    storm="fetchAPILatencyMax, fetchAPILatencyMean, fetchAPICallCount",
)

# --- the process --------------------------------------------------------------------

BUILD_INFO = Metric(
    name=f"{PREFIX}build_info",
    kind=MetricKind.INFO,
    labels=(Label("version"), Label("python"), Label("spark")),
    help="Always 1; the labels tell the versions, empty where not known.",
    fed=Fed.PROCESS,
)
METRIC_FAILURES = Rows(Fed.PROCESS, ()).counter(
    "metric_failures",
    "Measurements that could not be recorded; the log names each metric once.",
)

ALL: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in ALL}


def markdown() -> str:
    """The catalogue as a Markdown table, in the order of the table above."""
    lines = [
        "| metric | kind | unit | labels | meaning | moved by | in Storm |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *map(_row, ALL)]) + "\n"


def _row(metric: Metric) -> str:
    cells = (
        f"`{metric.name}`",
        metric.kind.value,
        metric.unit,
        ", ".join(_label(label) for label in metric.labels),
        metric.help,
        metric.fed.value,
        metric.storm,
    )
    return f"| {' | '.join(cells)} |"


def _label(label: Label) -> str:
    closed = f" ({', '.join(label.values)})" if label.values else ""
    return f"`{label.name}`{closed}"
