"""Task reports of ranges that were read: records, bytes, newest timestamps, skips.

Reports are only for metrics. A batch with missing reports is recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kafka_tx.model import OffsetRange, Skip, TopicPartition
from kafka_tx.offsets.loss import LossReason
from kafka_tx.transactions.layout.commit_stats import TaskSums


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

    def sums_of(self, ranges: Sequence[OffsetRange]) -> TaskSums:
        """The sums of a batch of these ranges; None if a report is missing.

        An earlier try may have read other ranges, whose reports do not count.
        """
        found = [list(self._along(wanted)) for wanted in ranges]
        own = [each for reports in found for each in reports]
        skipped: dict[Skip, int] = {}
        for each in own:
            if each.skipped:
                key = (each.wanted.topic_partition, LossReason.TRIMMED)
                skipped[key] = skipped.get(key, 0) + each.skipped
        sizes = [sum(len(each.wanted) for each in reports) for reports in found]
        if sizes != [len(wanted) for wanted in ranges]:
            return TaskSums(skipped=skipped)
        times = (each.newest_ms for each in own if each.newest_ms is not None)
        return TaskSums(
            records=sum(each.records for each in own),
            bytes=sum(each.bytes for each in own),
            newest_ms=max(times, default=None),
            skipped=skipped,
        )

    def _along(self, wanted: OffsetRange) -> Iterator[ReadReport]:
        """The reports of a range in order, each from the end of the one before."""
        position = wanted.start
        while position < wanted.end:
            found = self.by_range.get((wanted.topic_partition, position))
            if found is None or not len(found.wanted):
                return
            yield found
            position = found.wanted.end
