"""From a list of Kafka messages to one Arrow record batch.

The columns and types are those of Spark's Kafka source, so that Spark takes a batch
without converting it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from kafka_tx.record_schema import HEADER, arrow_schema

_HEADER_MAP = pa.map_(pa.string(), pa.binary())
"""The type Arrow fills fastest from pairs; its parts become the list of structs."""

_LARGEST_MS = (2**63 - 1) // 1000
"""Spark's timestamps are microseconds in 64 bits."""


class UnreadableRecordError(Exception):
    """One message cannot become a row; those before it can. Never leaves ``kafka/``.

    Attributes:
        index: Its place among the messages.
        offset: Its offset.
    """

    def __init__(self, index: int, offset: int, why: str) -> None:
        super().__init__(why)
        self.index = index
        self.offset = offset


def record_batch(
    messages: Sequence[Message], topic: str, partition: int, include_headers: bool
) -> pa.RecordBatch:
    """Decode messages of one partition, in offset order and free of error events.

    A tombstone's value stays null and empty bytes stay empty. A message without a
    timestamp gets -1 ms and type -1; a message without headers gets null, not an empty
    list. Source: Spark, KafkaRecordToRowConverter (deviates: a timestamp beyond 64 bits
    of microseconds is null instead of the end of the query).

    Raises:
        UnreadableRecordError: The first message that has no row: a header key is not
            UTF-8, which only the native reader repairs.
    """
    count = len(messages)
    pairs = chain.from_iterable(map(Message.timestamp, messages))
    timestamps = np.fromiter(pairs, np.int64, 2 * count).reshape(count, 2)
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        _constant_text(topic, count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(_offsets(messages)),
        _microseconds(timestamps[:, 1]),
        pa.array((timestamps[:, 0] - 1).astype(np.int32)),
    ]
    if include_headers:
        columns.append(_headers(messages))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(include_headers))


def _microseconds(milliseconds: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    beyond = (milliseconds > _LARGEST_MS) | (milliseconds < -_LARGEST_MS)
    kind = arrow_schema(False).field("timestamp").type
    if beyond.any():
        return pa.array(np.where(beyond, 0, milliseconds) * 1000, mask=beyond).view(
            kind
        )
    return pa.array(milliseconds * 1000).view(kind)


def _offsets(messages: Sequence[Message]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The offsets; without a look at each message where they leave no hole."""
    count = len(messages)
    if not count:
        return np.empty(0, np.int64)
    first = _offset(messages[0])
    if _offset(messages[-1]) - first == count - 1:
        return np.arange(first, first + count, dtype=np.int64)
    return np.fromiter(map(Message.offset, messages), np.int64, count)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None  # only error events have none
    return offset


def _constant_text(text: str, count: int) -> pa.Array:
    data = text.encode()
    ends = np.arange(count + 1, dtype=np.int32) * len(data)
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data * count)
    )


def _headers(messages: Sequence[Message]) -> pa.Array:
    """One list per message; the headers of all messages decoded as two columns."""
    found: list[Any] = []
    try:
        found.extend(map(Message.headers, messages))  # keeps those before an error
    except (SystemError, UnicodeDecodeError):
        index = len(found)
        raise UnreadableRecordError(
            index,
            _offset(messages[index]),
            "the key of a header is not UTF-8, which only the native reader repairs"
            " (kafka-tx doctor tells why it is not in use)",
        ) from None
    pairs = pa.array([headers or None for headers in found], _HEADER_MAP)
    entries = pa.StructArray.from_arrays([pairs.keys, pairs.items], fields=list(HEADER))
    return pa.ListArray.from_arrays(
        pairs.offsets,
        entries,
        type=arrow_schema(True).field("headers").type,
        mask=pairs.is_null(),
    )
