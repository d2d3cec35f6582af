"""Limits the records of a batch, and cuts a batch into the ranges of tasks.

The results are those of Spark's own Kafka source, down to the rounding of its doubles,
so that a query plans the same batches after its format is changed.
Source: Spark 4.2, KafkaMicroBatchStream.rateLimit and .delayBatch,
KafkaOffsetRangeCalculator.getRanges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kafka_tx.config import BatchLimits
from kafka_tx.errors import ConfigError
from kafka_tx.model import OffsetRange, TopicPartition

ASSUMED_RECORD_BYTES = 1024
_MEMORY = 0.8


class RecordSize:
    """Average size of records; recent batches count most."""

    def __init__(self) -> None:
        self._records = 0.0
        self._bytes = 0.0

    def observe(self, records: int, size_bytes: int) -> None:
        """Add the size of a batch that was read."""
        self._records = self._records * _MEMORY + records
        self._bytes = self._bytes * _MEMORY + size_bytes

    @property
    def average_bytes(self) -> float:
        """Average bytes of a record, at least 1; a guess before the first batch."""
        if not self._records:
            return ASSUMED_RECORD_BYTES
        return max(self._bytes / self._records, 1.0)


def limited_ends(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limits: BatchLimits,
    record_bytes: float,
) -> dict[TopicPartition, int]:
    """The end of each partition in a new batch; no end is below its start."""
    chosen = dict(ends)
    per_partition = limits.max_records_per_partition
    if per_partition is not None:
        chosen = {p: min(end, starts[p] + per_partition) for p, end in chosen.items()}
    records = limits.max_records
    if limits.max_bytes is not None:
        fitting = max(int(limits.max_bytes / record_bytes), 1)
        records = fitting if records is None else min(records, fitting)
    return chosen if records is None else rate_limit(records, starts, chosen)


def rate_limit(
    limit: int,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Share ``limit`` offsets among partitions in proportion to their unread offsets.

    A partition with unread offsets gets at least one offset, so the sum may exceed
    ``limit`` by one for each small partition. A partition without a start is not
    limited: the caller adds the earliest offset of a new one. A partition whose end is
    not beyond its start keeps this end, even below the start: the caller decides
    whether this is data loss.
    """
    sizes = {
        partition: end - starts[partition]
        for partition, end in ends.items()
        if partition in starts and end > starts[partition]
    }
    total = float(sum(sizes.values()))
    limited = dict(ends)
    for partition, size in sizes.items():
        share = float(limit) * (float(size) / total)
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(ends[partition], starts[partition] + offsets)
    return limited


def is_delayed(
    min_offsets: int,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    now_ms: int,
    last_batch_ms: int | None,
    max_delay_ms: int,
) -> bool:
    """Whether a batch should wait because too little is available (driver).

    If the answer is False the caller plans a batch, even without records to read, and
    passes ``now_ms`` as the next ``last_batch_ms``.

    Args:
        min_offsets: Offsets that a batch waits for (``minOffsetsPerTrigger``).
        starts: The next offset to read; a missing partition counts from 0, as in Spark,
            unless the caller adds its earliest offset.
        ends: Current end of each partition's log (exclusive).
        now_ms: By a monotonic clock: one that is set back makes the wait longer.
        last_batch_ms: Time of the last answer False in this process; None: never; the
            answer is False then.
        max_delay_ms: Longest wait since ``last_batch_ms`` (``maxTriggerDelay``).
    """
    if last_batch_ms is None or now_ms - last_batch_ms >= max_delay_ms:
        return False
    available = sum(end - starts.get(partition, 0) for partition, end in ends.items())
    return available < min_offsets


def task_ranges(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Cut the ranges of a batch, one for a partition, into the ranges of its tasks.

    First no piece has more than ``max_records`` offsets. Then, if there are fewer than
    ``min_partitions`` pieces, large pieces are cut further in proportion to their size,
    which gives *about* ``min_partitions``. Pieces are contiguous, cover their range
    exactly and come in its order. Empty ranges are dropped.

    Raises:
        ConfigError: A limit is below 1.
    """
    _check_positive("minPartitions", min_partitions)
    _check_positive("maxRecordsPerPartition", max_records)
    pieces = [wanted for wanted in ranges if len(wanted) > 0]
    if max_records is not None:
        pieces = [
            piece
            for wanted in pieces
            for piece in _cut(wanted, math.ceil(float(len(wanted)) / max_records))
        ]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _cut_in_proportion(pieces, min_partitions)
    return pieces


def _check_positive(option: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ConfigError.illegal(option, value, "an integer of 1 or more")


def _cut_in_proportion(
    pieces: Sequence[OffsetRange], wanted_parts: int
) -> list[OffsetRange]:
    """Cut pieces into about ``wanted_parts`` pieces.

    Pieces too small to be cut are excluded first: with them the large pieces would get
    too few parts. As in Spark, they are excluded by partition.
    """
    total = sum(len(piece) for piece in pieces)
    small = [piece for piece in pieces if _parts(len(piece), total, wanted_parts) == 1]
    whole = {piece.topic_partition for piece in small}
    large_total = total - sum(len(piece) for piece in small)
    large_parts = max(wanted_parts - len(small), 1)
    cut: list[OffsetRange] = []
    for piece in pieces:
        if piece.topic_partition in whole:
            cut.append(piece)
        else:
            cut += _cut(piece, _parts(len(piece), large_total, large_parts))
    return cut


def _parts(size: int, total: int, wanted_parts: int) -> int:
    # Half rounds up, as Java rounds; Python's round() would go to the even number.
    return max(math.floor(float(size) / float(total) * wanted_parts + 0.5), 1)


def _cut(wanted: OffsetRange, parts: int) -> list[OffsetRange]:
    """Cut into equal parts; the remainder goes to the later parts."""
    pieces = []
    start = wanted.start
    parts = min(parts, len(wanted))  # further parts would be empty
    for part in range(parts):
        end = start + (wanted.end - start) // (parts - part)
        if end > start:
            pieces.append(wanted.between(start, end))
        start = end
    return pieces
