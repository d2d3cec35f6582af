"""Compares a position with its log: the one position check of all doors.

Committed records are never read again silently. A log that ends below a position has
lost its end (an unclean election, a truncation), or the answer is outdated: poll until
this is certain, then fail, or go on at the new end; the records below were processed
already. Only another topic id means another log, which is read from its start.

Other records may have replaced a lost end. So a position has the epoch of the leader
whose log held it. If another leader reports the end, it is asked for the end of that
epoch in its log: the position's log ends at this offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.discovery import is_another


class Finding(StrEnum):
    """The result of checking a position against an answer about its partition.

    Attributes:
        WITHIN: The log holds the position: go on.
        UNANSWERED: The position stays, without a loss: the bounds are not known, no
            broker reports whether they belong to the position's topic or log, or a
            former leader reported them.
        TRIMMED: The log start is above the position: retention, or records were
            deleted.
        CUT: The log ends below the position, or has other records from a lower offset
            on; the topic is the same, or was not known before.
        ANEW: The topic was deleted and created again: the position's log is gone. The
            new one may hold fewer records than were read, as many, or more.
        DELETED: The partition does not exist, or is hidden.
    """

    WITHIN = "within"
    UNANSWERED = "unanswered"
    TRIMMED = "trimmed"
    CUT = "cut"
    ANEW = "anew"
    DELETED = "deleted"


BELIEVED_AFTER_MS: Final[Mapping[Finding, int]] = {
    Finding.CUT: 10_000,
    Finding.ANEW: 1_000,
    Finding.DELETED: 1_000,
}
"""How long a finding must last before it counts; other findings count at once.

A leader that does not know yet that it was replaced reports too low an end until its
session ends; a broker's metadata is outdated for a short time.
"""


@dataclass(frozen=True, slots=True)
class PositionCheck:
    """A position, and the finding of the last answer about it.

    Attributes:
        position: The next offset, as known before the answer.
        bounds: Bounds of the log; None: not reported.
        common_end: Offset at which a later leader's log begins to differ from the
            position's log, if that is below the position. None: all records below the
            position are still there, as far as leader epochs tell.
    """

    finding: Finding
    position: int
    bounds: LogBounds | None = None
    common_end: int | None = None

    @property
    def end(self) -> int:
        """End of the position's log; 0: not reported."""
        if self.bounds is None:
            return 0
        return _end(self.bounds, self.common_end)

    @property
    def log(self) -> LogBounds | None:
        """Bounds of the rest of the position's log; None: not reported."""
        if self.bounds is None or self.common_end is None:
            return self.bounds
        return replace(self.bounds, end=self.end)

    @property
    def is_certain(self) -> bool:
        """Whether the finding counts at once: a later leader reports the loss."""
        return self.common_end is not None

    @property
    def means_loss(self) -> bool:
        """Whether a policy must decide to fail, or to go on at ``next_offset``."""
        return self.finding not in {Finding.WITHIN, Finding.UNANSWERED}

    @property
    def next_offset(self) -> int:
        """The next offset to read, unless the policy is to fail."""
        if self.finding is Finding.ANEW:
            return 0 if self.bounds is None else self.bounds.log_start
        if self.finding is Finding.TRIMMED and self.bounds is not None:
            return self.bounds.log_start
        if self.finding is Finding.CUT and self.bounds is not None:
            return self.end
        return self.position

    @property
    def reached(self) -> int:
        """The offset up to which the current log is read or trimmed."""
        return self.position if self.finding is Finding.TRIMMED else self.next_offset

    @property
    def lost(self) -> int:
        """Number of unread offsets that are gone (``TRIMMED``)."""
        return (
            self.next_offset - self.position if self.finding is Finding.TRIMMED else 0
        )

    @property
    def cut(self) -> int:
        """Number of offsets that were read and are gone from the log's end.

        New records will get these offsets again, and are read.
        """
        return self.position - self.next_offset if self.finding is Finding.CUT else 0


def _end(bounds: LogBounds, common_end: int | None) -> int:
    return bounds.end if common_end is None else max(common_end, bounds.log_start)


def check_position(
    position: LogPosition,
    bounds: LogBounds | Unavailable | None,
    *,
    exists: bool = True,
) -> PositionCheck:
    """Check a position against one answer about its partition.

    Unknown ids equal nothing. A position with a topic id waits while no broker reports
    the log's topic id. A position without a topic id is checked by its offset alone.
    Leader epochs are compared if both are known, and belong to one known topic.
    ``exists`` tells whether the brokers list the partition.
    """
    now_id = None if bounds is None else bounds.topic_id
    known, common_end = _known_of(position, bounds)
    if not exists:
        finding = Finding.DELETED
    elif is_another(position.topic_id, now_id):
        finding = Finding.ANEW
    elif known is None:
        finding = Finding.UNANSWERED
    elif _end(known, common_end) < position.offset:
        finding = Finding.CUT
    elif known.log_start > position.offset:
        finding = Finding.TRIMMED
    else:
        finding = Finding.WITHIN
    return PositionCheck(finding, position.offset, known, common_end)


def _known_of(
    position: LogPosition, bounds: LogBounds | Unavailable | None
) -> tuple[LogBounds | None, int | None]:
    """The bounds if they are valid for a position, and ``PositionCheck.common_end``."""
    if not isinstance(bounds, LogBounds):
        return None, None
    if position.topic_id is not None and bounds.topic_id is None:
        return None, None
    if not is_of_other_leader(position, bounds):
        return bounds, None
    ended = bounds.epoch_ends.get(position.leader_epoch or 0)
    if ended is None:  # bounds of a former leader, or no answer of the new one
        return None, None
    return bounds, ended if ended < position.offset else None


def is_of_other_leader(position: LogPosition, bounds: LogBounds) -> bool:
    """Whether another leader than the position's reported the log's end."""
    return (
        position.leader_epoch != bounds.leader_epoch
        and position.topic_id == bounds.topic_id
        and None not in (position.topic_id, position.leader_epoch, bounds.leader_epoch)
    )


class Settling:
    """Decides which findings count: one that may be outdated must last for a time."""

    def __init__(
        self, believed_after_ms: Mapping[Finding, int] = BELIEVED_AFTER_MS
    ) -> None:
        self._after_ms = believed_after_ms
        self._since: dict[TopicPartition, tuple[Finding, int]] = {}

    def believes(
        self, partition: TopicPartition, check: PositionCheck, now_ms: int
    ) -> bool:
        """Whether the finding counts now (a monotonic clock); if not, poll again.

        A partition that does not answer proves nothing: the finding does not count, and
        the wait does not begin anew.
        """
        finding = check.finding
        if finding is Finding.UNANSWERED:
            return True
        after_ms = self._after_ms.get(finding, 0)
        if not after_ms or check.is_certain:
            self._since.pop(partition, None)
            return True
        former, since_ms = self._since.get(partition, (finding, now_ms))
        if former is not finding:
            since_ms = now_ms
        self._since[partition] = finding, since_ms
        return now_ms - since_ms >= after_ms

    def doubted(self) -> list[TopicPartition]:
        """Partitions with a finding that waits, or that counts and was not handled."""
        return list(self._since)

    def forget(self, partition: TopicPartition) -> None:
        """The finding was handled: the next one begins a new wait."""
        self._since.pop(partition, None)
