"""``write_transaction``: a batch of ``for_each_transaction`` into Kafka, once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.utils import is_remote

from kafka_tx import sink_assembly
from kafka_tx.config import LEGAL_OPTIONS, SinkConfig, check_attempt, check_kind
from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log
from kafka_tx.model import TransactionAttempt
from kafka_tx.options.sink import parse_sink
from kafka_tx.options.source import parse_source, reads
from kafka_tx.own_topics import MARKER_TOPIC, leaves_out, may_meet
from kafka_tx.sinks.admission import check_mode, only_write
from kafka_tx.sinks.sink_parts import SinkPlan, Wish
from kafka_tx.spark.speculation import refuse_speculation
from kafka_tx.spark.versions import jvm
from kafka_tx.spark.versions.names import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = event_log(__name__)

_NO_ZONE = "timestamp_ntz"
_Sink = tuple[str, str, str]
_plans: dict[_Sink, SinkPlan] = {}
"""The plans that this process has made, by sink."""


def write_transaction(
    df: DataFrame,
    attempt: TransactionAttempt,
    options: Mapping[str, str],
    *,
    parts: int = 1,
    opaque: bool = False,
) -> None:
    """Write a batch to Kafka exactly once, for ``for_each_transaction`` (driver).

    Each part is one Kafka transaction that also commits the txid; a part that an
    earlier try wrote is skipped. Readers need ``isolation.level=read_committed``.

    Several parts need the same rows for the same txid: a transactional source and a
    deterministic plan. One part is one transaction for the whole batch: its rows
    become visible together, and the plan need not be deterministic. An opaque source
    may plan a batch again after its checkpoint was lost, with other records. Records in
    Kafka cannot be taken back: such a replay is refused.

    The number of parts is stored before the first is written. The first batch after a
    change of ``parts`` still has the earlier number, because it may have begun.

    Args:
        df: Columns as Spark's Kafka sink; with several parts, rows go to parts by
            ``key`` so that the order of a key is kept.
        attempt: Of the batch. A sink takes one write of it: ``union`` what belongs
            together, or give each write a ``tx.id`` of its own.
        options: As of ``df.write``: ``kafka.bootstrap.servers``, ``topic`` (required
            here), and ``tx.id``, the name of this sink.
        parts: Kafka transactions in each batch.
        opaque: For ``tx.mode=opaque``: one transaction for the whole batch, and a
            replay with other rows than were written is refused
            (``KAFKA_TX_REPLAY_DIFFERS``).

    Raises:
        ConfigError: ``tx.id`` or ``topic`` is missing; with several parts, ``key`` too;
            several parts of an opaque batch; an opaque attempt without ``opaque``; a
            second write of the batch; ``spark.speculation`` is on.
        AnotherNumberingError: The sink belongs to another source, or the store of this
            one has begun anew.
        FencedError: A newer owner of the source has written.
        ReplayDiffersError: The txid was written from other records, or rows.
    """
    check_attempt(attempt)
    check_kind("parts", parts, int, "a whole number from 1")
    check_kind("options", options, Mapping, LEGAL_OPTIONS)
    if opaque and parts > 1:
        legal = "1 for opaque batches: half of one cannot be replayed"
        raise ConfigError.illegal("parts", parts, legal)
    if parts > 1 and "key" not in df.columns:
        raise ConfigError.illegal("parts", parts, "1 for rows without a column 'key'")
    config = _checked(options)
    refuse_speculation(df.sparkSession, "exactly-once Kafka sinks")
    sink = _sink(config)
    advice = "give the second one another tx.id of the sink"
    what = f"the sink '{config.id}'"
    if not opaque:
        check_mode(attempt, what)
    with only_write(sink, attempt, what=what, option="tx.id", advice=advice):
        usable, memory = _settled(config, sink, attempt, parts, df)
        plan = "" if opaque else attempt.plan
        names = attempt.source, plan, attempt.numbering
        more = {
            "tx.attempt": json.dumps([attempt.txid, attempt.attempt_id, *names]),
            "tx.parts": str(usable),
            "tx.compares": str(opaque or usable > 1).lower(),
            "tx.memory": memory,
        }
        if config.takes_timestamp and dict(df.dtypes).get("timestamp") == _NO_ZONE:
            df = df.withColumn("timestamp", df["timestamp"].cast("timestamp"))
        spread = _spread(df, attempt, usable, parts)
        writer = spread.write.format("kafka_tx").mode("append").options(**options)
        writer.options(**more).save()


def _spread(
    df: DataFrame, attempt: TransactionAttempt, usable: int, parts: int
) -> DataFrame:
    if usable == 1:
        return df.coalesce(1)
    if "key" in df.columns:
        return df.repartition(usable, "key")
    raise ConfigError.illegal(
        "parts",
        parts,
        f"{usable} for one more batch, with the column 'key': txid {attempt.txid} may"
        " have been begun so",
    )


def _checked(options: Mapping[str, str]) -> SinkConfig:
    given = {name.lower(): value for name, value in options.items()}
    for needed in ("tx.id", "topic"):
        if needed not in given:
            raise ConfigError(
                f"write_transaction needs option '{needed}'", option=needed
            )
    return parse_sink(options)


def _sink(config: SinkConfig) -> _Sink:
    brokers = config.kafka.get("bootstrap.servers", "")
    return brokers, config.marker_topic, config.id or ""


def _check_not_read(df: DataFrame, config: SinkConfig) -> None:
    """Refuse a marker topic that the query reads: each batch would make the next one.

    No pattern matches the default name. The planning process knows no other one.
    """
    topic = config.marker_topic
    if topic == MARKER_TOPIC or is_remote():
        return
    query_id = df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if query_id is None:  # no query runs
        return
    for given in jvm.source_options(df.sparkSession, query_id).values():
        source = parse_source(given, streaming=True)
        if may_meet(source.kafka, config.kafka) and reads(source, topic):
            raise ConfigError.illegal(
                "tx.markerTopic",
                topic,
                "a topic that the query does not read",
                "Each batch would write markers, which are the next batch. Nothing was"
                f" written. Leave the option out for '{MARKER_TOPIC}', which no pattern"
                " matches, or give a subscribePattern that leaves the topic out: it may"
                f" begin with {leaves_out(topic)}.",
            )


def _settled(
    config: SinkConfig,
    sink: _Sink,
    attempt: TransactionAttempt,
    parts: int,
    df: DataFrame,
) -> tuple[int, str]:
    """How many parts the batch has: known, or stored before any is written.

    With it the markers for its tasks, if they were just read.
    """
    wish = Wish(sink[-1], attempt, parts)
    plan, memory = _plans.get(sink), ""
    if plan is None or not plan.follows(wish):
        _check_not_read(df, config)
        keeper = sink_assembly.plan_keeper(config)
        plan, known = keeper.settle(wish)
        _plans[sink], memory = plan, sink_assembly.handed(known)
    usable = plan.parts_of(attempt.txid)
    if usable != parts:
        logger.warning(
            "sink '%s' writes this batch in %d parts, because an earlier try may have"
            " begun it in as many; later batches have %d parts",
            *(wish.id, usable, parts),
            attempt=attempt,
        )
    return usable, memory
