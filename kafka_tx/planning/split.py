"""How much of what is available goes into a batch, and how a batch is cut into tasks.

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

_ASSUMED_RECORD_BYTES = 1024
_MEMORY = 0.8


class RecordSize:
    """How large records are on average; recent batches count most."""

    def __init__(self) -> None:
        self._records = 0.0
        self._bytes = 0.0

    def observe(self, records: int, size_bytes: int) -> None:
        """A batch was read."""
        self._records = self._records * _MEMORY + records
        self._bytes = self._bytes * _MEMORY + size_bytes

    @property
    def average_bytes(self) -> float:
        """At least 1; before anything was read a guess."""
        if not self._records:
            return _ASSUMED_RECORD_BYTES
        return max(self._bytes / self._records, 1.0)


def limited_ends(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limits: BatchLimits,
    record_bytes: float,
) -> dict[TopicPartition, int]:
    """Where each partition of a new batch ends.

    Args:
        starts: The next offset of each partition.
        ends: Where each of them ends now; not below its start.
        limits: Of the batch.
        record_bytes: Average size of a record.
    """
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
    """Share ``limit`` offsets among partitions in proportion to what each has left.

    A partition with anything to read gets at least one offset, so the sum may exceed
    ``limit`` by one for each small partition. Called on the driver, once for a batch.

    Args:
        limit: Offsets for the whole batch (``maxOffsetsPerTrigger``), 0 or more.
        starts: The next offset to read. The caller adds the earliest offset of a
            partition that is new; one that is missing here is not limited.
        ends: Where each partition ends now (exclusive).

    Returns:
        The new end for every partition of ``ends``, in its order. A partition whose
        end is not beyond its start keeps that end, also when it lies below the start:
        whether that is data loss is for the caller to say.
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
    """Whether a batch should wait because too little is available.

    Called on the driver whenever a batch could be planned. When the answer is False the
    caller plans it, also when there is nothing to read, and remembers ``now_ms`` as the
    next ``last_batch_ms``.

    Args:
        min_offsets: Offsets worth a batch (``minOffsetsPerTrigger``).
        starts: The next offset to read; a missing partition counts from 0, as in Spark,
            unless the caller adds its earliest offset.
        ends: Where each partition ends now (exclusive).
        now_ms: The same clock as ``last_batch_ms``; a monotonic one is best, since one
            that is set back makes the wait longer.
        last_batch_ms: When this last answered False in this process; None: never, which
            is answered with False.
        max_delay_ms: The longest wait since then (``maxTriggerDelay``).
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
    """Cut the ranges of a batch into the ranges of its tasks.

    First no piece keeps more than ``max_records`` offsets; then, if there are still
    fewer than ``min_partitions`` pieces, large ones are cut further in proportion to
    their size, which gives *about* that many. Pieces are contiguous, cover their range
    exactly and come in its order. Empty ranges are dropped.

    Args:
        ranges: At most one for a partition.
        min_partitions: Spark's ``minPartitions``; None: no wish.
        max_records: Spark's ``maxRecordsPerPartition`` (offsets); None: no bound.

    Raises:
        ConfigError: A bound is below 1.
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
    """Cut pieces so that about ``wanted_parts`` come out.

    Pieces too small to be cut are set aside first: counting them in would leave the
    large ones with too few parts. As in Spark they are set aside by partition.
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
    """Cut into equal parts; what does not divide evenly goes to the later ones."""
    pieces = []
    start = wanted.start
    parts = min(parts, len(wanted))  # of more, the others would be empty
    for part in range(parts):
        end = start + (wanted.end - start) // (parts - part)
        if end > start:
            pieces.append(wanted.between(start, end))
        start = end
    return pieces
