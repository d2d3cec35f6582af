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
TASK = (Label("task"), Label("tasks"))
RUN = Label("kind", ("unbounded", "bounded", "ended"))
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
    "Next offset to process. All records below it are processed.",
    storm="latestCompletedOffset",
)
END_OFFSET = _partition.gauge(
    "end_offset",
    "End of the log at the last fetch: high watermark, or last stable offset with"
    " read_committed.",
    storm="latestTimeOffset",
)
LOG_START_OFFSET = _partition.gauge(
    "log_start_offset",
    "First offset in the log at the last fetch.",
    storm="earliestTimeOffset",
)
LAG_RECORDS = _partition.gauge(
    "lag_records",
    "End offset minus committed offset, at least 0. Gaps in the log count.",
    storm="spoutLag",
)
LAG_SECONDS = _partition.gauge(
    "lag_seconds",
    "Seconds since the end of the log was first above the committed offset; 0 without"
    " lag. The oldest unprocessed record is at least this old.",
)
RETENTION_HEADROOM = _partition.gauge(
    "retention_headroom_records",
    "Committed offset minus log start. Negative: retention removed unread records.",
)
RETENTION_EDGE = Rows(Fed.LOG, PER_PARTITION).gauge(
    "retention_edge_offset",
    "First offset that retention keeps for some hours: a quarter of `retention.ms`, 4"
    " hours at most. Unread records below it are lost next. Absent without lag, and"
    " without retention.",
)
SKIPPED_OFFSETS = _partition.counter(
    "skipped_offsets",
    "Offsets that were skipped without being read, by reason.",
    SKIP_REASON,
    storm="lostMessageCount",
)
BEHIND_LATEST = _id.gauge(
    "behind_latest_offsets",
    "Smallest, largest and average lag of an id's partitions, as Spark's own source"
    " reports it: minOffsetsBehindLatest, maxOffsetsBehindLatest,"
    " avgOffsetsBehindLatest.",
    STATISTIC,
)
LAST_COMMIT = _id.gauge(
    "last_commit_timestamp_seconds",
    "Unix time of the last commit in the store.",
)
COMMIT_LATENCY = _id.histogram(
    "commit_latency_seconds",
    "Seconds from the start of the commit phase until the commit was stored.",
    buckets=COMMIT_BUCKETS,
)
RUN_SINCE = Rows(Fed.RUN, PER_ID).gauge(
    "run_since_timestamp_seconds",
    "Unix time since which this process has a run of the id: unbounded (until somebody"
    " stops it) or bounded (`availableNow`, `once`); ended: since when it has none, and"
    " no error ended it. Absent after an error. `task` and `tasks` are `task_index` and"
    " `total_tasks` of jobs that share the partitions of an id.",
    RUN,
    *TASK,
)
BOUNDED_COMMIT = Rows(Fed.STORE, PER_ID).gauge(
    "bounded_commit_timestamp_seconds",
    "Unix time of the last commit in the store, if a bounded run made it.",
)
LAST_POLL = Rows(Fed.STORE, PER_ID).gauge(
    "last_poll_timestamp_seconds",
    "Unix time of the last poll that had figures of the id. Figures that are older than"
    " a minute are not shown.",
)
MIRROR_FAILURES = _id.counter(
    "mirror_failures",
    "Commits whose offsets were not copied to the Kafka group, after errors.",
)
STOPS = _id.counter(
    "stops",
    "Errors that stopped a query or topology, by reason.",
    STOP_REASON,
)

LAST_STOP = _id.gauge(
    "last_stop_timestamp_seconds",
    "Unix time of the last error that stopped a query or topology of the id, in this"
    " process or an earlier one, by reason; 0: never.",
    STOP_REASON,
    begins_at_zero=True,
)

# --- numbered batches ---------------------------------------------------------------

_partition = Rows(Fed.BATCH, PER_PARTITION)
_id = Rows(Fed.BATCH, PER_ID)

RECORDS = _id.counter(
    "records",
    "Records of committed batches, without replays. Absent if not counted.",
    begins_at_zero=False,
)
BYTES = _id.counter(
    "bytes",
    "Bytes of keys and values of committed batches. Absent if not counted.",
    begins_at_zero=False,
)
UNMEASURED = _id.counter(
    "unmeasured_batches",
    "Committed batches without counted records, bytes and newest timestamp, because"
    " task reports are missing.",
)
OFFSETS = _partition.counter(
    "offsets",
    "Offsets in the ranges of committed batches. Gaps count, skipped offsets do not.",
)
BATCHES = _id.counter(
    "batches",
    "Attempts at batches, by outcome; cancelled: dropped because an earlier batch"
    " failed.",
    OUTCOME,
)
REPLAYS = _id.counter(
    "replays",
    "Second and later attempts of committed batches, as far as known.",
)
CURRENT_TXID = _id.gauge("current_txid", "The next txid to commit.")
COMMITTED_TXID = _id.gauge("committed_txid", "The last committed txid.")
START_OFFSET = _partition.gauge(
    "start_offset", "First offset of the last committed batch."
)
NEWEST_RECORD = _id.gauge(
    "newest_record_timestamp_seconds",
    "Newest record timestamp in committed batches, as Unix time, at most the time of"
    " the commit. Absent if unknown.",
)
BATCH_DURATION = _id.histogram(
    "batch_duration_seconds",
    "Seconds from planning a batch until its commit was stored; last attempt only.",
    buckets=BATCH_BUCKETS,
)

_id = Rows(Fed.TABLE, PER_ID)

TABLE_COMMIT = _id.histogram(
    "table_commit_seconds",
    "Seconds of a batch's write into a table of a lakehouse, from the check before"
    " the commit to the check after it.",
    buckets=BATCH_BUCKETS,
)
TABLE_FILES = _id.counter(
    "table_files", "Data files that these commits have added, of all tables."
)
TABLE_ROWS = _id.counter(
    "table_rows",
    "Rows in these files; a MERGE may write rows again that it does not change.",
)

# --- phases -------------------------------------------------------------------------

_id = Rows(Fed.PHASE, PER_ID)

IN_FLIGHT_BATCHES = _id.gauge(
    "in_flight_batches",
    "Batches or chunks that are not committed yet, by phase; waiting: for earlier"
    " batches.",
    PHASE,
)
IN_FLIGHT_SINCE = _id.gauge(
    "in_flight_since_timestamp_seconds",
    "Unix time since which batches are in flight and none was committed: of the first"
    " plan of the oldest one, or of a commit since then; 0: none is in flight. At least"
    " once: since when chunks are in flight and nothing completes.",
)
PHASE_DURATION = _id.histogram(
    "phase_duration_seconds",
    "Seconds of a committed batch in each phase; last attempt only.",
    PHASE,
    buckets=BATCH_BUCKETS,
)

# --- record by record ---------------------------------------------------------------

_partition = Rows(Fed.RECORD, PER_PARTITION)

EMITTED_OFFSET = _partition.gauge(
    "emitted_offset", "The next offset to emit.", storm="latestEmittedOffset"
)
COMPLETED_OFFSET = _partition.gauge(
    "completed_offset",
    "First offset that is not completed. The next commit stores it.",
)
EMITTED_RECORDS = _partition.counter(
    "emitted_records",
    "Offsets given to tasks to read, with or without a record; retries do not count.",
    storm="fetchAPIMessageCount",
)
COMPLETED_RECORDS = _partition.counter(
    "completed_records",
    "Records that all bolts have processed, with every tuple made from them.",
)
FAILED_RECORDS = _partition.counter(
    "failed_records",
    "Records that a bolt failed, or that were not completed in time, by reason.",
    FAIL_REASON,
)
RETRIED_RECORDS = _partition.counter("retried_records", "Records emitted again.")
INELIGIBLE_RECORDS = _partition.counter(
    "ineligible_records",
    "Failed records without a retry left.",
    storm="messageIneligibleForRetryCount",
)
DEAD_LETTERS = Rows(Fed.DEAD_LETTER, PER_PARTITION).counter(
    "dead_letter_records",
    "Records written to the dead-letter topic; of committed batches, where a source"
    " rejects them.",
)
CUT_DEAD_LETTERS = _partition.counter(
    "cut_dead_letter_records",
    "Dead letters without a value, because the record was too large for the topic.",
)
LOST_RECORDS = _partition.counter(
    "lost_records",
    "Records that were emitted and never completed, by reason: removed from the log"
    " before a retry, or without a retry left and without a dead-letter topic.",
    LOSS_REASON,
)
PENDING_RECORDS = _partition.gauge(
    "pending_records", "Records that are emitted and not completed yet."
)
RETRY_RECORDS = _partition.gauge(
    "retry_records", "Failed records that wait for their retry."
)
OLDEST_PENDING_AGE = _partition.gauge(
    "oldest_pending_age_seconds",
    "Age of the oldest pending record since it was emitted, in seconds; 0: none.",
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
    help="Always 1. The labels have the versions, empty if unknown.",
    fed=Fed.PROCESS,
)
METRIC_FAILURES = Rows(Fed.PROCESS, ()).counter(
    "metric_failures",
    "Measurements that could not be recorded. The log names each metric once.",
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
