"""What tasks report of the ranges they read: bytes, newest timestamps, skipped offsets.

Reports are measurements: nothing else depends on them, and a batch of which some are
missing is known as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.offsets.loss import LossReason
from kafka_tx.planning.losses import Skip


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one task read.

    Attributes:
        wanted: The range it was given, and has read to its end.
        bytes: Of keys and values.
        skipped: Offsets at its beginning that were gone.
        newest_ms: Newest record timestamp (Unix time); None where there was none.
    """

    wanted: OffsetRange
    bytes: int
    skipped: int = 0
    newest_ms: int | None = None


@dataclass(slots=True)
class Receipts:
    """The reports of one batch, by range: a task that ran twice counts once."""

    by_range: dict[tuple[TopicPartition, int], Receipt] = field(default_factory=dict)

    def add(self, receipt: Receipt) -> None:
        """Take one more."""
        where = (receipt.wanted.topic_partition, receipt.wanted.start)
        self.by_range[where] = receipt

    def cover(self, ranges: Iterable[OffsetRange]) -> bool:
        """Whether every offset of these ranges was reported."""
        return all(self._covers(wanted) for wanted in ranges)

    def total_bytes(self) -> int:
        """Key and value bytes of the batch."""
        return sum(each.bytes for each in self.by_range.values())

    def newest_ms(self) -> int | None:
        """The newest of all record timestamps."""
        found = [each.newest_ms for each in self.by_range.values()]
        return max((ms for ms in found if ms is not None), default=None)

    def skipped_offsets(self) -> dict[Skip, int]:
        """Offsets that were gone when a task came to read them."""
        found: dict[Skip, int] = {}
        for receipt in self.by_range.values():
            if receipt.skipped:
                key = (receipt.wanted.topic_partition, LossReason.TRIMMED)
                found[key] = found.get(key, 0) + receipt.skipped
        return found

    def _covers(self, wanted: OffsetRange) -> bool:
        position = wanted.start
        while position < wanted.end:
            found = self.by_range.get((wanted.topic_partition, position))
            if found is None or not len(found.wanted):
                return False
            position = found.wanted.end
        return True
