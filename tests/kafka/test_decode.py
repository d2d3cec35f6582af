"""Messages become the rows of Spark's Kafka source."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_tx.kafka.reader import record_batch
from kafka_tx.record_schema import arrow_schema

SPARK_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS = StructField(
    "headers",
    ArrayType(
        StructType(
            [StructField("key", StringType()), StructField("value", BinaryType())]
        )
    ),
)
SOME_TIME_MS = 1_700_000_000_123


def message(offset: int, value: bytes | None = b"v", **more: Any) -> Message:
    fields: dict[str, Any] = {
        "key": None,
        "timestamp": (TIMESTAMP_CREATE_TIME, SOME_TIME_MS),
        **more,
    }
    return Message(topic="orders", partition=3, offset=offset, value=value, **fields)


def column(name: str, *messages: Message, include_headers: bool = False) -> list[Any]:
    batch = record_batch(list(messages), "orders", 3, include_headers)
    return list(batch.column(name).to_pylist())


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_schema_is_the_one_spark_itself_would_write(include_headers: bool) -> None:
    more = [HEADERS] if include_headers else []
    schema = StructType([*SPARK_SCHEMA.fields, *more])

    wanted = to_arrow_schema(schema, timezone="UTC")

    assert arrow_schema(include_headers).equals(wanted, check_metadata=True)


@pytest.mark.parametrize("include_headers", [False, True])
def test_a_batch_has_exactly_that_schema_and_is_valid(include_headers: bool) -> None:
    batch = record_batch([message(7), message(9)], "orders", 3, include_headers)

    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(include_headers), check_metadata=True)
    assert batch.num_rows == 2


def test_topic_and_partition_stand_in_every_row() -> None:
    assert column("topic", message(1), message(2)) == ["orders", "orders"]
    assert column("partition", message(1), message(2)) == [3, 3]


def test_a_topic_name_is_utf8() -> None:
    batch = record_batch([message(1), message(2)], "bestellte-Stücke", 0, False)

    assert batch.column("topic").to_pylist() == ["bestellte-Stücke"] * 2


@pytest.mark.parametrize(
    "offsets", [[5], [5, 6, 7], [5, 7, 8], [0, 10, 2**40]], ids=str
)
def test_offsets_are_exact_with_and_without_holes(offsets: list[int]) -> None:
    assert column("offset", *map(message, offsets)) == offsets


def test_a_tombstone_stays_null_and_empty_bytes_stay_empty() -> None:
    messages = [
        message(1, None, key=b"k"),
        message(2, b"", key=b""),
        message(3, b"\x00\xff", key=None),
    ]

    assert column("value", *messages) == [None, b"", b"\x00\xff"]
    assert column("key", *messages) == [b"k", b"", None]


def test_timestamps_keep_their_milliseconds_and_java_s_type_numbers() -> None:
    messages = [
        message(1, timestamp=(TIMESTAMP_CREATE_TIME, SOME_TIME_MS)),
        message(2, timestamp=(TIMESTAMP_LOG_APPEND_TIME, 0)),
        message(3, timestamp=(TIMESTAMP_NOT_AVAILABLE, -1)),
    ]

    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert column("timestamp", *messages) == [
        epoch + dt.timedelta(milliseconds=SOME_TIME_MS),
        epoch,
        epoch - dt.timedelta(milliseconds=1),
    ]
    assert column("timestampType", *messages) == [0, 1, -1]


def test_headers_keep_order_repetition_and_nulls() -> None:
    messages = [
        message(1, headers=[("a", b"1"), ("b", None), ("a", b"")]),
        message(2),
        message(3, headers=[]),
        message(4, headers=[("ü", b"\xff")]),
    ]

    assert column("headers", *messages, include_headers=True) == [
        [
            {"key": "a", "value": b"1"},
            {"key": "b", "value": None},
            {"key": "a", "value": b""},
        ],
        None,
        None,
        [{"key": "ü", "value": b"\xff"}],
    ]


def test_no_messages_make_an_empty_batch() -> None:
    batch = record_batch([], "orders", 3, True)

    assert batch.num_rows == 0
    assert batch.schema == arrow_schema(True)


def test_a_batch_survives_arrow_s_stream_format() -> None:
    batch = record_batch([message(1), message(2)], "orders", 3, True)
    sink = pa.BufferOutputStream()

    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)

    with pa.ipc.open_stream(sink.getvalue()) as reader:
        assert reader.read_all().to_batches() == [batch]
