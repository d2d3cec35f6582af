"""``foreachBatch`` that writes the records its function rejects to a topic, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.utils import is_remote

from kafka_tx import sink_assembly
from kafka_tx.clock import now_ms
from kafka_tx.config import (
    LEGAL_OPTIONS,
    SinkConfig,
    check_function,
    check_kind,
    check_topic,
    derived_id,
)
from kafka_tx.errors import BrokerUnavailableError, ConfigError
from kafka_tx.kafka import dead_letter_form
from kafka_tx.model import TopicPartition, TransactionAttempt
from kafka_tx.options.sink import parse_sink
from kafka_tx.options.source import parse_source, reads
from kafka_tx.own_topics import leaves_out, may_meet
from kafka_tx.record_schema import BYTES
from kafka_tx.spark.queries.foreach import for_each_transaction
from kafka_tx.spark.sinks.transaction import write_transaction
from kafka_tx.spark.versions import jvm
from kafka_tx.spark.versions.names import BATCH_ID, QUERY_ID
from kafka_tx.stored import LETTERS

if TYPE_CHECKING:
    from kafka_tx.sinks.letter_topic import TopicFacts

    Counts = Mapping[TopicPartition, int]

NEEDED = ("key", "value", "topic", "partition", "offset", "reason")
_COMPARED = (*NEEDED[:-1], "timestamp", "headers")

_HEADERS = "array<struct<key:string,value:binary>>"
_OUR_BYTES = 1_000
"""Most bytes of a dead letter besides record, reason and record headers."""
_NAMED = 64
"""Most bytes that a header takes besides its key and value."""

_PLAIN = ("binary", "string")
"""Types of keys and values without a schema; those of a schema may be such, too."""

_FACTS_S = 600.0
"""How long an answer of the brokers about the topic counts."""

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
    same rows again; what an earlier try has written is skipped. A sink of another name
    does not know it: let the query finish its batch before you rename its ``tx.id``.

    A dead letter has the record's key, value and timestamp, the record's headers if the
    source has ``includeHeaders=true`` (otherwise a typed key or value begins with the
    schema id of its header), and behind them ``kafka_tx.topic``,
    ``kafka_tx.partition``, ``kafka_tx.offset``, ``kafka_tx.error`` (the reason) and
    ``kafka_tx.txid``. If the topic would refuse or soon remove a letter of this time,
    it has the present one, and the record's in ``kafka_tx.timestamp_ms``. Where a
    letter is too large for ``topic`` it has neither the value nor the record's headers,
    and says in ``kafka_tx.bytes`` how large the value is.

    With ``value.mode=PERMISSIVE`` or ``key.mode=PERMISSIVE`` the rows of the batch are
    persisted meanwhile, in memory and on disk: a record whose schema the registry
    learns late is broken for ``function`` and as a dead letter, or for neither. What
    ``function`` persists is its own. A replay asks the registry again.

    Args:
        function: Handles one batch; may be called again with the same txid.
        topic: The dead-letter topic. It must exist, or brokers must make topics.
        tx_id: As of ``for_each_transaction``.
        options: Of the writing, such as ``kafka.bootstrap.servers`` of another cluster.
            Default: the ``kafka.*`` options of the source. Needed with Spark Connect.

    Raises:
        ConfigError: As ``for_each_transaction``; an option is illegal; with Spark
            Connect there are no ``options``. From the query: the topic does not exist
            or takes no dead letters, the query reads it, or a column of the returned
            rows is missing.
        ReplayDiffersError: From the query, with ``tx.mode=opaque``: other rows were
            written for the txid.
    """
    check_topic("topic", topic)
    check_kind("options", options or {}, Mapping, LEGAL_OPTIONS)
    check_function("function", function, "a function (df, attempt)")
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
        self._facts: TopicFacts | None = None
        self._checked_s = 0.0

    def __call__(self, df: DataFrame, attempt: TransactionAttempt) -> None:
        sources = {} if is_remote() else _sources(df)
        source = sources.get(attempt.source, {})
        options = self._sink_options(source, attempt)
        config = parse_sink(options)
        facts = self._topic_now(options, config, sources, attempt)
        counts: Counts = {}
        with ExitStack() as stack:
            given = df
            if not {"key" + BYTES, "value" + BYTES}.isdisjoint(df.columns):
                # a registry may learn an id before a broken record is read again
                stack.callback(df.persist().unpersist)
                # a plan of its own: the function may persist and unpersist what it has
                given = df.where(F.lit(True))
            rejected = self._function(given, attempt)
            if rejected is not None:
                rejected = _with_bytes(_check_rows(rejected), dict(df.dtypes), source)
                is_own = self._options is None
                counts = _written(
                    rejected, attempt, options, config, facts, is_own_cluster=is_own
                )
        if not is_remote():
            _note(df, attempt, counts)

    def _topic_now(
        self,
        options: dict[str, str],
        config: SinkConfig,
        sources: Mapping[str, Mapping[str, str]],
        attempt: TransactionAttempt,
    ) -> TopicFacts:
        """What the topic takes; checked with the first batch, and now and then."""
        if self._facts is None or options != self._checked:
            _check_not_read(sources, attempt, self._topic, config)
            self._facts = sink_assembly.check_letter_topic("topic", config)
            self._checked, self._checked_s = options, time.monotonic()
        elif time.monotonic() - self._checked_s > _FACTS_S:
            self._checked_s = time.monotonic()
            with suppress(BrokerUnavailableError):
                self._facts = sink_assembly.topic_facts(config)
        return self._facts

    def _sink_options(
        self, source: Mapping[str, str], attempt: TransactionAttempt
    ) -> dict[str, str]:
        given = self._options
        if given is None:
            given = {n: v for n, v in source.items() if n.startswith("kafka.")}
        return {
            **given,
            "topic": self._topic,
            "tx.id": derived_id(attempt.source, ".dead-letters"),
            "timestampColumn": "true",
        }


def _sources(df: DataFrame) -> dict[str, dict[str, str]]:
    query_id = df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    return jvm.source_options(df.sparkSession, query_id)


def _written(
    rejected: DataFrame,
    attempt: TransactionAttempt,
    options: Mapping[str, str],
    config: SinkConfig,
    facts: TopicFacts,
    *,
    is_own_cluster: bool,
) -> Counts:
    """Write the dead letters; a batch with none costs one job, no transaction."""
    rows = rejected.persist()
    try:
        found = rows.groupBy("topic", "partition").count().collect()
        topics = {each[0] for each in found}
        if is_remote() and config.topic in topics:
            raise _is_read(str(config.topic), attempt)
        if found:
            limit = sink_assembly.largest_batch(config)
            ids = sink_assembly.topic_ids(config, topics) if is_own_cluster else {}
            out = dead_letters(rows, attempt.txid, limit, facts, ids)
            is_opaque = attempt.mode == "opaque"
            write_transaction(out, attempt, options, opaque=is_opaque)
    finally:
        rows.unpersist()
    return {TopicPartition(each[0], each[1]): each[2] for each in found}


def dead_letters(
    rows: DataFrame,
    txid: int,
    limit: int | None,
    facts: TopicFacts,
    ids: Mapping[str, str],
) -> DataFrame:
    """Rejected rows, with the source's columns and ``reason``, as records.

    A further column stands for the rows themselves: a replay is compared by it.

    Args:
        rows: Of one batch.
        txid: Of this batch.
        limit: Largest record batch of the topic, in bytes; None: unknown.
        facts: What else decides which records the topic takes.
        ids: The ids of the rows' topics, as far as known.
    """
    room = 4 * _OUR_BYTES if limit is None else limit - _OUR_BYTES
    longest = min(dead_letter_form.LONGEST_ERROR, max(room, 0)) // 4
    error = F.substring(_reason(), 1, longest)
    own = _headers(
        {
            dead_letter_form.TOPIC: F.col("topic"),
            dead_letter_form.PARTITION: F.col("partition"),
            dead_letter_form.OFFSET: F.col("offset"),
            dead_letter_form.ERROR: error,
            dead_letter_form.TXID: F.lit(txid),
            dead_letter_form.FORMAT: F.lit(LETTERS.number),
        }
    )
    has_headers = "headers" in rows.columns
    none = F.array().cast(_HEADERS)
    theirs = F.coalesce(F.col("headers"), none) if has_headers else none
    size = _bytes("key") + _bytes("value") + F.octet_length(error) + _size_of(theirs)
    fits = F.lit(True) if limit is None else size + _OUR_BYTES <= limit
    place = _headers(
        {dead_letter_form.BYTES: _bytes("value"), dead_letter_form.TOPIC_ID: _id(ids)}
    )
    value_bytes = F.filter(place, lambda each: each["value"].isNotNull())
    largest_key = min(dead_letter_form.LONGEST_KEY, max(room - 4 * longest, 0))
    key_fits = fits | (_bytes("key") <= largest_key)
    stamp, more = _time(rows, facts)
    return rows.select(
        F.when(key_fits, F.col("key")).alias("key"),
        F.when(fits, F.col("value")).alias("value"),
        F.when(fits, F.concat(theirs, own, more))
        .otherwise(F.concat(own, more, value_bytes))
        .alias("headers"),
        stamp.alias("timestamp"),
        _compared(rows).alias(dead_letter_form.COMPARED),
    )


def _compared(rows: DataFrame) -> Column:
    """A number for each rejected row, as the source has it.

    The record that is made of the row depends on the present time and the topic, too.
    """
    names = [name for name in _COMPARED if name in rows.columns]
    parts = (part for name in names for part in (F.isnull(name), F.col(name)))
    reason = F.substring(_reason(), 1, dead_letter_form.LONGEST_ERROR // 4)
    return F.xxhash64(*parts, reason).bitwiseAND(F.lit(2**32 - 1))


def _reason() -> Column:
    return F.coalesce(F.col("reason").cast("string"), F.lit(""))


def _time(rows: DataFrame, facts: TopicFacts) -> tuple[Column, Column]:
    """The time of each dead letter, null for the present one; and the header for it."""
    none = F.array().cast(_HEADERS)
    if "timestamp" not in rows.columns:
        return F.lit(None).cast("timestamp"), none
    time_ms = F.expr("unix_millis(cast(timestamp as timestamp))")
    first_ms, last_ms = dead_letter_form.possible(facts.letter_times(now_ms()))
    may_stay = (time_ms != 0) & time_ms.between(first_ms, last_ms)
    more = _headers({dead_letter_form.TIME: time_ms})
    is_known = F.col("timestamp").isNotNull()
    return (
        F.when(may_stay, F.col("timestamp")),
        F.when(is_known & ~may_stay, more).otherwise(none),
    )


def _id(ids: Mapping[str, str]) -> Column:
    found = F.lit(None).cast("string")
    for topic, topic_id in ids.items():
        found = F.when(F.col("topic") == topic, F.lit(topic_id)).otherwise(found)
    return found


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


def _with_bytes(
    rejected: DataFrame, given: Mapping[str, str], source: Mapping[str, str]
) -> DataFrame:
    """The rows with the records' own bytes, where keys or values are typed.

    A text or bytes may be of a schema, too, unless the function has made it of another
    type.

    Args:
        rejected: What the function returned.
        given: The types of the columns that it was given.
        source: The options of the source. None with Spark Connect: what has a column of
            bytes beside it is typed.

    Raises:
        ConfigError: The source adds no column with the bytes, or rows lack them.
    """
    kinds = dict(rejected.dtypes)
    for side in ("key", "value"):
        held = side + BYTES
        guess = "avro" if held in given and not source else "bytes"
        is_avro = source.get(f"{side}.format", guess).strip().lower() == "avro"
        if kinds[side] in _PLAIN and not is_avro:
            continue
        if kinds[side] in _PLAIN and given.get(side) not in _PLAIN:
            if held in kinds:  # the function has encoded it, but not what is broken
                whole = F.coalesce(F.col(held), F.col(side).cast("binary"))
                rejected = rejected.withColumn(side, whole)
            continue
        if held not in kinds:
            raise ConfigError(
                f"the rows that the function of with_dead_letters rejects have a typed"
                f" '{side}' and no column '{held}' with the record's bytes. Set"
                f" {side}.mode=PERMISSIVE on the source, and return its columns as they"
                " are. No letter of this batch was written; the batch comes again",
                option=f"{side}.mode",
            )
        lost = F.col(side).isNotNull() & F.col(held).isNull()
        if rejected.where(lost).limit(1).count():
            raise ConfigError(
                f"the function of with_dead_letters rejects rows whose '{side}' was"
                f" decoded: '{held}' has the bytes of broken records only, so the"
                " letter would not hold the record. Write such rows to a table, or"
                f" read {side}.format=bytes and decode in the function. No letter of"
                " this batch was written; the batch comes again",
                option=f"{side}.mode",
            )
        rejected = rejected.withColumn(side, F.col(held))
    return rejected


def _check_rows(rejected: DataFrame) -> DataFrame:
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
    return rejected


def _check_not_read(
    sources: Mapping[str, Mapping[str, str]],
    attempt: TransactionAttempt,
    topic: str,
    config: SinkConfig,
) -> None:
    """Refuse a dead-letter topic that the query reads: ConfigError.

    With Spark Connect no source is known; there the rejected rows are looked at.
    """
    for given in sources.values():
        source = parse_source(given, streaming=True)
        if may_meet(source.kafka, config.kafka) and reads(source, topic):
            raise _is_read(topic, attempt)


def _is_read(topic: str, attempt: TransactionAttempt) -> ConfigError:
    return ConfigError.illegal(
        "topic",
        topic,
        "a dead-letter topic that the query does not read",
        "A dead letter that is rejected again would become a dead letter again, for"
        " ever. Give another topic, or a subscribePattern that leaves it out: it may"
        f" begin with {leaves_out(topic)}. Nothing was written; batch {attempt.txid}"
        " comes again",
    )


def _note(df: DataFrame, attempt: TransactionAttempt, counts: Counts) -> None:
    context = df.sparkSession.sparkContext
    query_id = context.getLocalProperty(QUERY_ID)
    batch_id = int(context.getLocalProperty(BATCH_ID))
    _counts[query_id, batch_id, attempt.source] = counts
    while len(_counts) > _KEPT:  # attach was not called
        del _counts[next(iter(_counts))]
