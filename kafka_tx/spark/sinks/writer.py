"""``df.write`` and ``df.writeStream`` with ``format("kafka_tx")``: Spark's Kafka sink.

Columns ``key``, ``value``, ``topic``, ``partition``, ``headers`` (and ``timestamp``),
the option ``topic``, and ``kafka.*``. At-least-once; with ``tx.id`` exactly once:
``writeStream`` counts Spark's batches, as long as its checkpoint lives, and
``write_transaction`` the source's transactions, whatever happens to the checkpoint.
Source: Spark, KafkaWriter and KafkaWriteTask (deviates: a failed record is named).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import DataType, StructType

from kafka_tx import assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import ConfigError
from kafka_tx.kafka.producer import OutRecord
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.queries.foreach import QUERY_ID

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

BATCH_ID = "streaming.sql.batchId"

_TYPES: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
}


class KafkaTxWriter(DataSourceArrowWriter):
    """A batch write. Made on the driver, ``write`` runs in each task."""

    def __init__(self, config: SinkConfig, schema: StructType) -> None:
        if config.id is not None and config.txid is None:
            raise ConfigError(
                "df.write with 'tx.id' has no txid that would tell a replay from a new"
                " batch. Use kafka_tx.write_transaction(df, attempt, options), or leave"
                " 'tx.id' away and write at least once",
                option="tx.id",
                value=config.id,
            )
        check_columns(schema, config.topic)
        self._config = config

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; returns when every one is delivered (executor)."""
        return write_part(self._config, iterator)


class KafkaTxStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: at-least-once; with ``tx.id`` exactly once per checkpoint.

    With ``tx.id`` each task writes its part of Spark's batch in one Kafka transaction
    that also commits the batch's number, under the id of the query, which is the
    checkpoint's. A batch that Spark runs again finds its parts done.
    """

    def __init__(self, config: SinkConfig, schema: StructType) -> None:
        if config.id is not None and config.topic is None:
            raise ConfigError(
                "writeStream with 'tx.id' needs option 'topic', also beside a column"
                " of that name: the batch's number is committed as an offset of it",
                option="topic",
            )
        check_columns(schema, config.topic)
        self._config = config

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; returns when every one is delivered (executor)."""
        config = self._config
        if config.id is not None:
            config = _of_this_batch(config)
        return write_part(config, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks have delivered; nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed; what others delivered stays. Without ``tx.id`` it comes again.

        With it, the next try finds their parts done.
        """


def _of_this_batch(config: SinkConfig) -> SinkConfig:
    context = TaskContext.get()
    assert context is not None
    batch, query = (
        context.getLocalProperty(BATCH_ID),
        context.getLocalProperty(QUERY_ID),
    )
    if batch is None or query is None:
        raise ConfigError(
            "this Spark does not tell tasks of a stream their batch. Leave 'tx.id' away"
            " and write at least once, or use kafka_tx.write_transaction",
            option="tx.id",
            value=config.id,
        )
    # Spark counts batches from 0 and does not tell tasks how many they are.
    return replace(config, txid=int(batch) + 1, parts=0, life=query)


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

    What several parts need: the same rows for the same txid, so a transactional source
    and a deterministic plan. One part is one transaction for the whole batch: its rows
    become visible together, and the plan need not be deterministic. An opaque source
    may plan a batch anew after its checkpoint was lost, with other records, and what is
    in Kafka cannot be taken back: such a replay is refused.

    Args:
        df: Columns as Spark's Kafka sink; with several parts, rows go to parts by
            ``key`` so that the order of a key is kept.
        attempt: Of the batch.
        options: As of ``df.write``: ``kafka.bootstrap.servers``, ``topic`` (required
            here), and ``tx.id``, the name of this sink.
        parts: Kafka transactions in each batch; keep it the same over restarts.
        opaque: For ``tx.mode=opaque``: one transaction for the whole batch, and a
            replay with other rows than were written is refused
            (``KAFKA_TX_REPLAY_DIFFERS``).

    Raises:
        ConfigError: ``tx.id`` or ``topic`` is missing; with several parts, ``key`` too;
            several parts of an opaque batch.
    """
    given = {name.lower(): value for name, value in options.items()}
    for needed in ("tx.id", "topic"):
        if needed not in given:
            raise ConfigError(
                f"write_transaction needs option '{needed}'", option=needed
            )
    if opaque and parts > 1:
        legal = "1 for opaque batches: half of one cannot be replayed"
        raise ConfigError.illegal("parts", parts, legal)
    if parts > 1 and "key" not in df.columns:
        raise ConfigError.illegal("parts", parts, "1 for rows without a column 'key'")
    spread = df.coalesce(1) if parts == 1 else df.repartition(parts, "key")
    writer = spread.write.format("kafka_tx").mode("append").options(**options)
    compares = str(opaque or parts > 1).lower()
    writer = writer.option("tx.txid", str(attempt.txid)).option("tx.parts", str(parts))
    writer.option("tx.compares", compares).save()


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns as Spark's sink does, with its texts.

    Raises:
        ConfigError: One is missing or has another type.
    """
    found: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if topic is None and "topic" not in found:
        raise ConfigError(
            "topic option required when no 'topic' attribute is present. Use the topic"
            " option for setting a topic.",
            option="topic",
        )
    if "value" not in found:
        raise ConfigError("Required attribute 'value' not found", option="value")
    for name, legal in _TYPES.items():
        kind = found[name].simpleString() if name in found else legal[0]
        if kind not in legal:
            raise ConfigError(
                f"{name} attribute unsupported type {kind}. {name} must be a(n)"
                f" {' or '.join(legal)}",
                option=name,
            )


def write_part(
    config: SinkConfig, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Write what one task was given (executor).

    Raises:
        DeliveryError: A record was refused; names its topic, key and size.
        ConfigError: A row has no topic and there is no option ``topic``.
    """
    records = out_records(batches, config.topic)
    if config.id is None or config.txid is None:
        sender = assembly.borrow_sender(config)
        with sender:
            sender.send(records)
        assembly.give_back_sender(sender)
        return WriterCommitMessage()
    context = TaskContext.get()
    assert context is not None
    assembly.part_transaction(config, context.partitionId()).write(records)
    return WriterCommitMessage()


def out_records(
    batches: Iterator[pa.RecordBatch], topic: str | None
) -> Iterator[OutRecord]:
    """Rows as records; the option ``topic`` wins over the column, as in Spark.

    Raises:
        ConfigError: ``KAFKA_NULL_TOPIC_IN_DATA``.
    """
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        nothing = [None] * batch.num_rows
        rows = zip(
            [topic] * batch.num_rows if topic else columns["topic"],
            columns.get("key", nothing),
            columns["value"],
            columns.get("headers", nothing),
            columns.get("partition", nothing),
            columns.get("timestamp", nothing),
            strict=True,
        )
        for to, key, value, headers, partition, timestamp in rows:
            if to is None:
                raise ConfigError(
                    "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the"
                    " producer contains a null topic. Use the `topic` option for"
                    " setting a default topic.",
                    option="topic",
                )
            yield OutRecord(
                to,
                _bytes(key),
                _bytes(value),
                [(h["key"], h["value"]) for h in headers] if headers else None,
                partition,
                None if timestamp is None else int(timestamp.timestamp() * 1000),
            )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
