"""``df.write`` and ``df.writeStream`` with ``format("kafka_tx")``: Spark's Kafka sink.

Columns ``key``, ``value``, ``topic``, ``partition``, ``headers`` (and ``timestamp``),
the option ``topic``, and ``kafka.*``. At-least-once; exactly once with ``tx.id`` and a
txid, which ``write_transaction`` gives.
Source: Spark, KafkaWriter and KafkaWriteTask (deviates: a failed record is named).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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
        check_columns(schema, config.topic)
        self._config = config

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; returns when every one is delivered (executor)."""
        return write_part(self._config, iterator)


class KafkaTxStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: at-least-once."""

    def __init__(self, config: SinkConfig, schema: StructType) -> None:
        if config.id is not None:
            raise ConfigError(
                "writeStream.format('kafka_tx') is at-least-once: its tasks are not"
                " told the txid of the source. For exactly once use"
                " writeStream.foreachBatch(kafka_tx.for_each_transaction(lambda df,"
                " attempt: kafka_tx.write_transaction(df, attempt, options)))",
                option="tx.id",
                value=config.id,
            )
        check_columns(schema, config.topic)
        self._config = config

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; returns when every one is delivered (executor)."""
        return write_part(self._config, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks have delivered; nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed; what others delivered stays, and comes again."""


def write_transaction(
    df: DataFrame,
    attempt: TransactionAttempt,
    options: Mapping[str, str],
    *,
    parts: int = 1,
) -> None:
    """Write a batch to Kafka exactly once, for ``for_each_transaction`` (driver).

    Each part is one Kafka transaction that also commits the txid; a part that an
    earlier try wrote is skipped. Readers need ``isolation.level=read_committed``.

    What it needs: the same rows for the same txid (a transactional source and a
    deterministic plan). An opaque source keeps that promise only as long as its
    checkpoint is kept: planned anew without it, a txid may hold other records, and what
    was written first stays. One part is one transaction for the whole batch, so that
    its rows become visible together and the plan need not be deterministic.

    Args:
        df: Columns as Spark's Kafka sink; with several parts, rows go to parts by
            ``key`` so that the order of a key is kept.
        attempt: Of the batch.
        options: As of ``df.write``: ``kafka.bootstrap.servers``, ``topic`` (required
            here), and ``tx.id``, the name of this sink.
        parts: Kafka transactions in each batch; keep it the same over restarts.

    Raises:
        ConfigError: ``tx.id`` or ``topic`` is missing; with several parts, ``key`` too.
    """
    given = {name.lower(): value for name, value in options.items()}
    for needed in ("tx.id", "topic"):
        if needed not in given:
            raise ConfigError(
                f"write_transaction needs option '{needed}'", option=needed
            )
    if parts > 1 and "key" not in df.columns:
        raise ConfigError.illegal("parts", parts, "1 for rows without a column 'key'")
    spread = df.coalesce(1) if parts == 1 else df.repartition(parts, "key")
    writer = spread.write.format("kafka_tx").mode("append").options(**options)
    writer = writer.option("tx.txid", str(attempt.txid)).option("tx.parts", str(parts))
    writer.save()


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
        with assembly.sender(config) as sender:
            sender.send(records)
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
