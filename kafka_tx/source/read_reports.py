"""Task reports of ranges that were read: records, bytes, newest timestamps, skips.

Reports are only for metrics. A batch with missing reports is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafka_tx.model import OffsetRange, Skip, TopicPartition
from kafka_tx.offsets.loss import LossReason
from kafka_tx.transactions.held import Reported


@dataclass(frozen=True, slots=True)
class ReadReport:
    """The report of one task.

    Attributes:
        wanted: The task's range, which was read to its end.
        bytes: Of keys and values.
        skipped: Offsets at the range's start that were gone.
        newest_ms: Newest record timestamp (Unix time); None: no record had one.
    """

    wanted: OffsetRange
    records: int
    bytes: int
    skipped: int = 0
    newest_ms: int | None = None


@dataclass(slots=True)
class ReadReports:
    """The reports of one batch, by range: a task that ran twice counts once."""

    by_range: dict[tuple[TopicPartition, int], ReadReport] = field(default_factory=dict)

    def add(self, read_report: ReadReport) -> None:
        """Add a report."""
        where = (read_report.wanted.topic_partition, read_report.wanted.start)
        self.by_range[where] = read_report

    def reported_for(self, ranges: Sequence[OffsetRange]) -> Reported:
        """The sums of a batch of these ranges; None if a report is missing."""
        own = self.of(ranges)
        skipped = own.skipped_offsets()
        if not own.cover(ranges):
            return Reported(skipped=skipped)
        return Reported(
            records=own.total_records(),
            bytes=own.total_bytes(),
            newest_ms=own.newest_ms(),
            skipped=skipped,
        )

    def of(self, ranges: Iterable[OffsetRange]) -> ReadReports:
        """The reports that cover these ranges; an earlier try may have read others."""
        found = ReadReports()
        for wanted in ranges:
            for read_report in self._along(wanted):
                found.add(read_report)
        return found

    def cover(self, ranges: Iterable[OffsetRange]) -> bool:
        """Whether every offset of these ranges was reported."""
        return all(
            sum(len(each.wanted) for each in self._along(wanted)) == len(wanted)
            for wanted in ranges
        )

    def total_records(self) -> int:
        """Records of the batch."""
        return sum(each.records for each in self.by_range.values())

    def total_bytes(self) -> int:
        """Key and value bytes of the batch."""
        return sum(each.bytes for each in self.by_range.values())

    def newest_ms(self) -> int | None:
        """The newest of all record timestamps."""
        found = [each.newest_ms for each in self.by_range.values()]
        return max((ms for ms in found if ms is not None), default=None)

    def skipped_offsets(self) -> dict[Skip, int]:
        """Offsets that were gone when a task read them."""
        found: dict[Skip, int] = {}
        for read_report in self.by_range.values():
            if read_report.skipped:
                key = (read_report.wanted.topic_partition, LossReason.TRIMMED)
                found[key] = found.get(key, 0) + read_report.skipped
        return found

    def _along(self, wanted: OffsetRange) -> Iterator[ReadReport]:
        """The reports of a range in order, each from the end of the one before."""
        position = wanted.start
        while position < wanted.end:
            found = self.by_range.get((wanted.topic_partition, position))
            if found is None or not len(found.wanted):
                return
            yield found
            position = found.wanted.end
