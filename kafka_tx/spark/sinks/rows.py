"""From the rows of a DataFrame to records, as Spark's Kafka sink makes them.

Source: Spark, KafkaWriter and KafkaWriteTask (deviates: a failed record is named).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StructType

from kafka_tx.config import SinkConfig
from kafka_tx.errors import ConfigError
from kafka_tx.kafka.out_batch import OutBatch

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


def out_batches(
    batches: Iterator[pa.RecordBatch], config: SinkConfig
) -> Iterator[OutBatch]:
    """Rows as records; the option ``topic`` wins over the column, as in Spark.

    Raises:
        ConfigError: ``KAFKA_NULL_TOPIC_IN_DATA``; a partition below 0; a header without
            a key.
    """
    for batch in batches:
        if batch.num_rows == 0:
            continue
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        topic = config.topic or found["topic"]
        if not isinstance(topic, str) and topic.null_count:
            raise ConfigError(
                "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the"
                " producer contains a null topic. Use the `topic` option for"
                " setting a default topic.",
                option="topic",
            )
        yield OutBatch.of(
            topic,
            found["value"],
            found.get("key"),
            headers=found.get("headers"),
            partition=found.get("partition"),
            timestamp=found.get("timestamp") if config.takes_timestamp else None,
        )
