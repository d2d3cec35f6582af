"""Exact ranges of a partition as Arrow record batches, in plain Python.

The columns and types are those of Spark's Kafka source, so that Spark takes a batch
without converting it. A consumer of confluent-kafka cannot ask for the id of a topic,
and an admin client for each range would cost more than a small range: so a process
keeps one for each cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message

from kafka_tx.config import POLL_TIMEOUT_MS
from kafka_tx.errors import BrokerUnavailableError, KafkaTxError
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.collector import collector_paused
from kafka_tx.kafka.errors import is_absent, is_unreachable
from kafka_tx.kafka.librdkafka_names import CONSUMER_ONLY
from kafka_tx.kafka.range_fetch import RangeFetch, offset_of
from kafka_tx.kafka.topics import from_description
from kafka_tx.model import OffsetRange
from kafka_tx.native.idle_clients import Idle
from kafka_tx.planned_topic import of_planned_topic
from kafka_tx.record_schema import HEADER, arrow_schema

_HEADER_MAP = pa.map_(pa.string(), pa.binary())
"""The type Arrow fills fastest from pairs; its parts become the list of structs."""

_LARGEST_MS = (2**63 - 1) // 1000
"""Spark's timestamps are microseconds in 64 bits."""


class UnreadableRecordError(Exception):
    """The message at ``index`` cannot become a row. Never leaves ``kafka/``."""

    def __init__(self, index: int, offset: int, why: str) -> None:
        super().__init__(why)
        self.index = index
        self.offset = offset


def record_batch(
    messages: Sequence[Message], topic: str, partition: int, include_headers: bool
) -> pa.RecordBatch:
    """Decode messages of one partition, in offset order and free of error events.

    Null and empty stay apart, in values and headers. A message without a timestamp gets
    -1 ms and type -1. Source: Spark, KafkaRecordToRowConverter (deviates: a timestamp
    beyond 64 bits of microseconds is null instead of the end of the query).

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
    """The offsets; messages are not read one by one if there is no gap."""
    count = len(messages)
    if not count:
        return np.empty(0, np.int64)
    first = offset_of(messages[0])
    if offset_of(messages[-1]) - first == count - 1:
        return np.arange(first, first + count, dtype=np.int64)
    return np.fromiter(map(Message.offset, messages), np.int64, count)


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
            offset_of(messages[index]),
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


_idle: Idle[frozenset[tuple[str, str]], AdminConnection] = Idle(600, each=1, settings=2)


def topic_id_now(
    settings: Mapping[str, str], topic: str, timeout_ms: int
) -> str | None:
    """The id of the topic; empty: no such topic; None: no answer in time.

    ``settings`` are those of the consumer that reads.

    Raises:
        AuthenticationError: A broker refuses the client.
        KafkaError: A broker answers with another error.
    """
    usable = frozenset((k, v) for k, v in settings.items() if k not in CONSUMER_ONLY)
    connection = _idle.take(usable) or AdminConnection(dict(usable))
    try:
        return connection.renewed(
            lambda: _asked(connection, topic, Deadline(timeout_ms))
        )
    except BrokerUnavailableError:
        return None
    finally:
        _idle.keep(usable, connection)


def _asked(connection: AdminConnection, topic: str, deadline: Deadline) -> str | None:
    answer = connection.described([topic], deadline)[topic]
    if not isinstance(answer, ClientError):
        return from_description(answer).topic_id or ""
    if is_absent(answer):
        return ""
    if is_unreachable(answer):
        return None
    raise connection.failed(answer, f"asking for the id of topic '{topic}'")


DEFAULT_BATCH_BYTES = 4 << 20

_FIRST_COUNT = 2_000
_LARGEST_COUNT = 50_000


class KafkaRangeReader:
    """Reads ranges with a fresh consumer each (a reused one may stall for a second).

    Picklable: it holds no client between reads.

    Args:
        settings: From ``client_settings(…, purpose="consumer")``.
        include_headers: Whether the batches have the column ``headers``.
        timeout_ms: The longest time without progress. The clock stands still while the
            user of the iterator works on a batch.
        batch_bytes: About the size of a batch. If records suddenly grow, up to that of
            the client's queue (``queued.max.messages.kbytes``), or of one record.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        include_headers: bool = False,
        timeout_ms: int = POLL_TIMEOUT_MS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> None:
        self._settings = settings
        self._include_headers = include_headers
        self._timeout_ms = timeout_ms
        self._batch_bytes = batch_bytes

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """As ``RangeReader.read``. An empty range asks no broker.

        Raises also:
            UnknownTopicError: The topic or partition does not exist.
            FetchError: No progress within the time-out, or a record that is broken or
                cannot become a row; or no broker reports the topic id.
            ConfigError: librdkafka refuses a setting.
        """
        if not len(wanted):
            return
        ask = partial(topic_id_now, self._settings, wanted.topic_partition.topic)
        yield from of_planned_topic(
            self._fetched(wanted), wanted, ask, self._timeout_ms
        )

    def _fetched(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        fetch = RangeFetch(self._settings, wanted, self._timeout_ms)
        count = _FIRST_COUNT
        try:
            while True:
                batch, failure = self._next_batch(fetch, wanted, count)
                if batch is not None:
                    count = _next_count(batch, self._batch_bytes)
                    yield batch
                if failure is not None:
                    raise failure
                if batch is None:
                    return
                fetch.resume_clock()
        finally:
            fetch.close()

    def _next_batch(
        self, fetch: RangeFetch, wanted: OffsetRange, count: int
    ) -> tuple[pa.RecordBatch | None, KafkaTxError | None]:
        """About ``count`` records, and what is wrong with the one after them."""
        failure: KafkaTxError | None = None
        with collector_paused():
            messages: list[Message] = []
            size = 0
            while len(messages) < count and size < self._batch_bytes:
                if fetch.is_done:
                    break
                try:
                    fresh = fetch.take(count - len(messages))
                except KafkaTxError as error:
                    failure = error
                    break
                if len(fresh) == count:
                    messages = fresh  # the client bounds the bytes of what it queues
                else:
                    size += sum(map(len, fresh))
                    messages += fresh
            batch, odd = self._decoded(messages, wanted)
        if odd is not None:
            failure = fetch.unreadable(odd.offset, str(odd))
        return batch, failure

    def _decoded(
        self, messages: list[Message], wanted: OffsetRange
    ) -> tuple[pa.RecordBatch | None, UnreadableRecordError | None]:
        failure = None
        while messages:
            try:
                batch = record_batch(
                    messages, *wanted.topic_partition, self._include_headers
                )
            except UnreadableRecordError as error:
                failure = error
                messages = messages[: error.index]
            else:
                return batch, failure
        return None, failure


def _next_count(batch: pa.RecordBatch, batch_bytes: int) -> int:
    row_bytes = max(1, int(batch.nbytes) // int(batch.num_rows))
    return max(1, min(_LARGEST_COUNT, batch_bytes // row_bytes))
