"""``foreachBatch`` that writes the records its function rejects to a topic, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.utils import is_remote

from kafka_tx import sink_assembly
from kafka_tx.config import LEGAL_OPTIONS, SinkConfig, check_kind, check_topic
from kafka_tx.errors import ConfigError, UnknownTopicError
from kafka_tx.kafka import dead_letter_form
from kafka_tx.model import TopicPartition, TransactionAttempt
from kafka_tx.options.sink import parse_sink
from kafka_tx.spark.queries.foreach import for_each_transaction
from kafka_tx.spark.sinks.transaction import write_transaction
from kafka_tx.spark.versions import jvm
from kafka_tx.spark.versions.names import BATCH_ID, QUERY_ID

if TYPE_CHECKING:
    Counts = Mapping[TopicPartition, int]

NEEDED = ("key", "value", "topic", "partition", "offset", "reason")

_HEADERS = "array<struct<key:string,value:binary>>"
_OUR_BYTES = 1_000
"""Most bytes of a dead letter besides record, reason and record headers."""
_NAMED = 64
"""Most bytes that a header takes besides its key and value."""

_KEPT = 100
_counts: dict[tuple[str, int, str], Counts] = {}
"""Dead letters of the last batches, by query, Spark's batch and ``tx.id``."""


def with_dead_letters(
    function: Callable[[DataFrame, TransactionAttempt], DataFrame | None],
    topic: str,
    *,
    tx_id: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Wrap ``function(df, attempt)`` for ``foreachBatch``; write rejected rows once.

    As ``for_each_transaction``, and ``function`` returns the rows of the source that it
    rejects: with the source's columns and a column ``reason``, or None for no row. They
    are written to ``topic`` with ``write_transaction``, under the sink id
    ``<tx.id>.dead-letters``, after ``function`` has returned. A replay must reject the
    same rows again; what an earlier try has written is skipped.

    A dead letter has the record's key, value and timestamp, the record's headers if the
    source has ``includeHeaders=true``, and behind them ``kafka_tx.topic``,
    ``kafka_tx.partition``, ``kafka_tx.offset``, ``kafka_tx.error`` (the reason) and
    ``kafka_tx.txid``. A record of time 0, which Kafka's client cannot write, gets the
    present time and ``kafka_tx.timestamp_ms``. Where that is too large for ``topic`` it
    has neither the value nor the record's headers, and says in ``kafka_tx.bytes`` how
    large the value is.

    Args:
        function: Handles one batch; may be called again with the same txid.
        topic: The dead-letter topic. It must exist, or brokers must make topics.
        tx_id: As of ``for_each_transaction``.
        options: Of the writing, such as ``kafka.bootstrap.servers`` of another cluster.
            Default: the ``kafka.*`` options of the source. Needed with Spark Connect.

    Raises:
        ConfigError: As ``for_each_transaction``; an option is illegal; with Spark
            Connect there are no ``options``. From the query: the topic does not exist,
            or a column of the returned rows is missing.
        ReplayDiffersError: From the query, with ``tx.mode=opaque``: other rows were
            written for the txid.
    """
    check_topic("topic", topic)
    check_kind("options", options or {}, Mapping, LEGAL_OPTIONS)
    if not callable(function):
        raise ConfigError.illegal("function", function, "a function (df, attempt)")
    if options is None and is_remote():
        raise ConfigError(
            "with Spark Connect with_dead_letters needs the addresses of the brokers:"
            " with_dead_letters(function, topic, tx_id='...',"
            " options={'kafka.bootstrap.servers': 'host:9092'})",
            option="options",
        )
    return for_each_transaction(_Rejecting(function, topic, options), tx_id)


def counted(query_id: str, batch_id: int, tx_id: str) -> Counts | None:
    """Dead letters of a batch; None if this process does not run the query."""
    return _counts.pop((query_id, batch_id, tx_id), None)


class _Rejecting:
    """The function that ``for_each_transaction`` calls. Spark Connect pickles it."""

    def __init__(
        self,
        function: Callable[[DataFrame, TransactionAttempt], DataFrame | None],
        topic: str,
        options: Mapping[str, str] | None,
    ) -> None:
        self._function = function
        self._topic = topic
        self._options = options
        self._checked: dict[str, str] = {}

    def __call__(self, df: DataFrame, attempt: TransactionAttempt) -> None:
        options = self._sink_options(df, attempt)
        config = parse_sink(options)
        if options != self._checked:
            _check_topic(config)
            self._checked = options
        rejected = self._function(df, attempt)
        counts: Counts = {}
        if rejected is not None:
            _check_rows(rejected)
            counts = _written(rejected, attempt, options, config)
        if not is_remote():
            _note(df, attempt, counts)

    def _sink_options(
        self, df: DataFrame, attempt: TransactionAttempt
    ) -> dict[str, str]:
        given = self._options
        if given is None:
            context = df.sparkSession.sparkContext
            query_id = context.getLocalProperty(QUERY_ID)
            sources = jvm.source_options(df.sparkSession, query_id)
            found = sources.get(attempt.source, {}).items()
            given = {n: v for n, v in found if n.startswith("kafka.")}
        return {
            **given,
            "topic": self._topic,
            "tx.id": f"{attempt.source}.dead-letters",
            "timestampColumn": "true",
        }


def _written(
    rejected: DataFrame,
    attempt: TransactionAttempt,
    options: Mapping[str, str],
    config: SinkConfig,
) -> Counts:
    """Write the dead letters; a batch with none costs one job, no transaction."""
    rows = rejected.persist()
    try:
        found = rows.groupBy("topic", "partition").count().collect()
        if found:
            out = dead_letters(rows, attempt.txid, sink_assembly.largest_batch(config))
            is_opaque = attempt.mode == "opaque"
            write_transaction(out, attempt, options, opaque=is_opaque)
    finally:
        rows.unpersist()
    return {TopicPartition(each[0], each[1]): each[2] for each in found}


def dead_letters(rows: DataFrame, txid: int, limit: int | None) -> DataFrame:
    """Rejected rows, with the source's columns and ``reason``, as records.

    Args:
        rows: Of one batch.
        txid: Of this batch.
        limit: Largest record batch of the topic, in bytes; None: unknown.
    """
    reason = F.coalesce(F.col("reason").cast("string"), F.lit(""))
    error = F.substring(reason, 1, dead_letter_form.LONGEST_ERROR // 4)
    own = _headers(
        {
            dead_letter_form.TOPIC: F.col("topic"),
            dead_letter_form.PARTITION: F.col("partition"),
            dead_letter_form.OFFSET: F.col("offset"),
            dead_letter_form.ERROR: error,
            dead_letter_form.TXID: F.lit(txid),
        }
    )
    has_headers = "headers" in rows.columns
    none = F.array().cast(_HEADERS)
    theirs = F.coalesce(F.col("headers"), none) if has_headers else none
    time = F.col("timestamp") if "timestamp" in rows.columns else F.lit(None)
    time_ms = F.unix_millis(time.cast("timestamp"))
    is_late = F.coalesce(time_ms == 0, F.lit(False))
    late = _headers({dead_letter_form.TIME: time_ms})
    own = F.concat(own, F.when(is_late, late).otherwise(F.array().cast(_HEADERS)))
    size = _bytes("key") + _bytes("value") + F.octet_length(error) + _size_of(theirs)
    fits = F.lit(True) if limit is None else size + _OUR_BYTES <= limit
    value_bytes = _headers({dead_letter_form.BYTES: _bytes("value")})
    key_fits = fits | (_bytes("key") <= dead_letter_form.LONGEST_KEY)
    return rows.select(
        F.when(key_fits, F.col("key")).alias("key"),
        F.when(fits, F.col("value")).alias("value"),
        F.when(fits, F.concat(theirs, own))
        .otherwise(F.concat(own, value_bytes))
        .alias("headers"),
        F.when(~is_late, time.cast("timestamp")).alias("timestamp"),
    )


def _headers(named: Mapping[str, Column]) -> Column:
    return F.array(
        *(
            F.struct(
                F.lit(name).alias("key"),
                value.cast("string").cast("binary").alias("value"),
            )
            for name, value in named.items()
        )
    ).cast(_HEADERS)


def _bytes(name: str) -> Column:
    return F.coalesce(F.octet_length(F.col(name)), F.lit(0))


def _size_of(headers: Column) -> Column:
    return F.aggregate(
        headers,
        F.lit(0),
        lambda sum_, each: (
            sum_
            + F.octet_length(each["key"])
            + F.coalesce(F.octet_length(each["value"]), F.lit(0))
            + _NAMED
        ),
    )


def _check_rows(rejected: DataFrame) -> None:
    check_kind("what the function returns", rejected, DataFrame, "a DataFrame or None")
    missing = [name for name in NEEDED if name not in rejected.columns]
    if missing:
        raise ConfigError(
            f"the rows that the function of with_dead_letters rejects have no column"
            f" {', '.join(missing)}; their columns are {', '.join(rejected.columns)}."
            " Return rows of the source as they are, with one more column 'reason':"
            " df.where(...).withColumn('reason', ...). No letter of this batch was"
            " written; the batch comes again",
            option="reason",
        )


def _check_topic(config: SinkConfig) -> None:
    try:
        sink_assembly.check_topic(config)
    except UnknownTopicError as error:
        legal = "a topic that exists. Create it; the batch comes again"
        raise ConfigError.illegal("topic", config.topic, legal, error.message) from None


def _note(df: DataFrame, attempt: TransactionAttempt, counts: Counts) -> None:
    context = df.sparkSession.sparkContext
    query_id = context.getLocalProperty(QUERY_ID)
    batch_id = int(context.getLocalProperty(BATCH_ID))
    _counts[query_id, batch_id, attempt.source] = counts
    while len(_counts) > _KEPT:  # attach was not called
        del _counts[next(iter(_counts))]
