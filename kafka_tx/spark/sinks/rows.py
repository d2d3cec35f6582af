"""From the rows of a DataFrame to records, as Spark's Kafka sink makes them.

Source: Spark, KafkaWriter and KafkaWriteTask (deviates: a failed record is named).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, StructType

from kafka_tx.config import SinkConfig
from kafka_tx.errors import ConfigError
from kafka_tx.kafka.producer import OutRecord

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
_TIMES = ("timestamp", "timestamp_ntz")


def check_columns(schema: StructType, config: SinkConfig) -> None:
    """Check the columns as Spark's sink does, with its texts.

    Raises:
        ConfigError: One is missing or has another type.
    """
    found: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if config.topic is None and "topic" not in found:
        raise ConfigError(
            "topic option required when no 'topic' attribute is present. Use the topic"
            " option for setting a topic.",
            option="topic",
        )
    if "value" not in found:
        raise ConfigError("Required attribute 'value' not found", option="value")
    if config.takes_timestamp and "timestamp" not in found:
        raise ConfigError(
            "option 'timestampColumn' is true, and there is no column 'timestamp'",
            option="timestampColumn",
        )
    types = {**_TYPES, "timestamp": _TIMES} if config.takes_timestamp else _TYPES
    for name, legal in types.items():
        kind = found[name].simpleString() if name in found else legal[0]
        if kind not in legal:
            raise ConfigError(
                f"{name} attribute unsupported type {kind}. {name} must be a(n)"
                f" {' or '.join(legal)}",
                option=name,
            )


def out_records(
    batches: Iterator[pa.RecordBatch], config: SinkConfig
) -> Iterator[OutRecord]:
    """Rows as records; the option ``topic`` wins over the column, as in Spark.

    Raises:
        ConfigError: ``KAFKA_NULL_TOPIC_IN_DATA``; a partition below 0; a header without
            a key.
    """
    topic = config.topic
    for batch in batches:
        names = set(batch.schema.names)
        if not config.takes_timestamp:
            names.discard("timestamp")
        columns = {name: batch.column(name).to_pylist() for name in names}
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
                [_header(header) for header in headers] if headers else None,
                None if partition is None else _partition(partition),
                None if timestamp is None else int(timestamp.timestamp() * 1000),
            )


def _header(header: dict[str, Any] | None) -> tuple[str, bytes | None]:
    if header is None or header["key"] is None:
        raise ConfigError.illegal(
            "headers", header, "headers with a key", "Kafka has none without one."
        )
    return header["key"], header["value"]


def _partition(partition: int) -> int:
    if partition < 0:
        raise ConfigError.illegal(
            "partition", partition, "0 and above, or null: chosen by the key"
        )
    return partition


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
