"""How much of what Kafka holds goes into one batch."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.config import BatchLimits
from kafka_tx.model import TopicPartition
from kafka_tx.planning.split import rate_limit

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
