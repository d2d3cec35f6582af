"""Exact ranges of a partition as Arrow record batches, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
from confluent_kafka import Message

from kafka_tx.kafka.collector import collector_paused
from kafka_tx.kafka.decode import UnreadableRecordError, record_batch
from kafka_tx.kafka.range_fetch import RangeFetch
from kafka_tx.kafka.topic_ids import topic_id_now
from kafka_tx.model import OffsetRange
from kafka_tx.planned_topic import of_planned_topic

DEFAULT_TIMEOUT_MS = 120_000
"""Spark's default of ``kafkaConsumer.pollTimeoutMs``."""
DEFAULT_BATCH_BYTES = 4 << 20

_FIRST_COUNT = 2_000
_LARGEST_COUNT = 50_000


class KafkaRangeReader:
    """Reads ranges with a fresh consumer each (a reused one may stall for a second).

    Picklable: it holds no client between reads.

    Args:
        settings: From ``client_settings(…, purpose="consumer")``.
        include_headers: Whether the batches have the column ``headers``.
        timeout_ms: The longest time without progress. While the user of the iterator
            works on a batch the clock stands still.
        batch_bytes: About the size of a batch. Where records suddenly grow a batch can
            be as large as the client's queue (``queued.max.messages.kbytes``); a record
            that is larger than a batch makes a batch of its own.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        include_headers: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> None:
        self._settings = settings
        self._include_headers = include_headers
        self._timeout_ms = timeout_ms
        self._batch_bytes = batch_bytes

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """See ``protocols.RangeReader.read``. An empty range asks no broker.

        Raises also:
            UnknownTopicError: The topic or partition does not exist.
            FetchError: No progress within the time-out, or a record that is broken or
                cannot become a row: a header key is not UTF-8; or nobody tells which
                topic it was.
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
                    raise fetch.unreadable(failure.offset, str(failure))
                if batch is None:
                    return
                fetch.resume_clock()
        finally:
            fetch.close()

    def _next_batch(
        self, fetch: RangeFetch, wanted: OffsetRange, count: int
    ) -> tuple[pa.RecordBatch | None, UnreadableRecordError | None]:
        """About ``count`` records, and what is wrong with the one after them."""
        with collector_paused():
            messages: list[Message] = []
            size = 0
            while len(messages) < count and size < self._batch_bytes:
                if fetch.is_done:
                    break
                fresh = fetch.take(count - len(messages))
                if len(fresh) == count:
                    messages = fresh  # the client bounds the bytes of what it queues
                else:
                    size += sum(map(len, fresh))
                    messages += fresh
            return self._decoded(messages, wanted)

    def _decoded(
        self, messages: list[Message], wanted: OffsetRange
    ) -> tuple[pa.RecordBatch | None, UnreadableRecordError | None]:
        """The messages before the first one that has no row."""
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
    """As many records as fill a batch, going by the one before it."""
    row_bytes = max(1, int(batch.nbytes) // int(batch.num_rows))
    return max(1, min(_LARGEST_COUNT, batch_bytes // row_bytes))
