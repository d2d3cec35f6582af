"""How a position stands to the log it belongs to: the one rule of all doors.

What was committed is never read again in silence. A log that ends below a position has
lost its end (an unclean election, a truncation), or the answer is an older one: look
again until it is settled, then fail, or go on at the new end; what is below was
processed already. Only another topic id means another log, which is read from its
start.

An end that was lost may be covered by other records. So a position has the epoch of the
leader whose log held it. Where another leader tells the end, it is asked where that
epoch ended in its log: the log of the position goes no further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.discovery import is_another


class Finding(StrEnum):
    """What a look at a partition means for the position in it."""

    WITHIN = "within"
    """The log holds it: go on."""

    UNANSWERED = "unanswered"
    """The position stays, nothing is lost by it: the bounds are not known, or nobody
    tells whether they are of the topic that the position is of, or of its log; or a
    former leader told them."""

    TRIMMED = "trimmed"
    """The log start passed it: retention, or records were deleted."""

    CUT = "cut"
    """The log ends below it, or other records begin there; and the topic is the same,
    or was not known before."""

    ANEW = "anew"
    """The topic was deleted and created again: the position is of a log that is gone.

    Whatever the new log holds: fewer records than were read, as many, or more.
    """

    DELETED = "deleted"
    """The partition does not exist, or cannot be seen."""


BELIEVED_AFTER_MS: Final[Mapping[Finding, int]] = {
    Finding.CUT: 10_000,
    Finding.ANEW: 1_000,
    Finding.DELETED: 1_000,
}
"""How long a finding must stand before it counts; others count at once.

A leader that does not know yet that it was replaced tells an end that is too low for as
long as its session lasts; metadata of a broker is old for a moment.
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """A position, and what the last look means for it.

    Attributes:
        finding: What the look means.
        position: The next offset, as it was known before.
        bounds: What the log holds; None where nobody told.
        common_end: Where a later leader's log stops being the one that the position is
            of, below it: what is above are other records. None: it does not.
    """

    finding: Finding
    position: int
    bounds: LogBounds | None = None
    common_end: int | None = None

    @property
    def end(self) -> int:
        """Where the log ends that the position is of; 0 where nobody told."""
        if self.bounds is None:
            return 0
        return _end(self.bounds, self.common_end)

    @property
    def log(self) -> LogBounds | None:
        """What is left of the log that the position is of; None where nobody told."""
        if self.bounds is None or self.common_end is None:
            return self.bounds
        return replace(self.bounds, end=self.end)

    @property
    def is_certain(self) -> bool:
        """Whether it cannot be an old answer: a later leader says what was lost."""
        return self.common_end is not None

    @property
    def means_loss(self) -> bool:
        """Whether a policy must decide: to fail, or to go on at ``next_offset``."""
        return self.finding not in {Finding.WITHIN, Finding.UNANSWERED}

    @property
    def next_offset(self) -> int:
        """Where reading goes on, unless the policy is to fail."""
        if self.finding is Finding.ANEW:
            return 0 if self.bounds is None else self.bounds.log_start
        if self.finding is Finding.TRIMMED and self.bounds is not None:
            return self.bounds.log_start
        if self.finding is Finding.CUT and self.bounds is not None:
            return self.end
        return self.position

    @property
    def reached(self) -> int:
        """Up to where the log is read that is there now; or was trimmed beyond."""
        return self.position if self.finding is Finding.TRIMMED else self.next_offset

    @property
    def lost(self) -> int:
        """How many offsets that were not read yet are gone (``TRIMMED``)."""
        return (
            self.next_offset - self.position if self.finding is Finding.TRIMMED else 0
        )

    @property
    def cut(self) -> int:
        """How many offsets that were read already the log does not hold any more.

        New records will get these numbers again, and are read.
        """
        return self.position - self.next_offset if self.finding is Finding.CUT else 0


def _end(bounds: LogBounds, common_end: int | None) -> int:
    return bounds.end if common_end is None else max(common_end, bounds.log_start)


def stand(
    position: LogPosition,
    bounds: LogBounds | Unavailable | None,
    *,
    exists: bool = True,
) -> Standing:
    """Judge a position by one look at its partition.

    Unknown ids equal nothing. A position of a known topic waits while no broker tells
    which topic the log is of. A position whose topic was not known when it was learnt
    is judged by its offset alone: nothing else is left.

    Leader epochs are compared where both are known, and are of one known topic.

    Args:
        position: The next offset, and the log it was learnt of.
        bounds: What the brokers answered; None, as ``Unavailable``: nothing.
        exists: Whether the brokers name the partition.
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
    return Standing(finding, position.offset, known, common_end)


def _known_of(
    position: LogPosition, bounds: LogBounds | Unavailable | None
) -> tuple[LogBounds | None, int | None]:
    """The bounds if they tell something of a position, and ``Standing.common_end``."""
    if not isinstance(bounds, LogBounds):
        return None, None
    if position.topic_id is not None and bounds.topic_id is None:
        return None, None
    if not is_of_other_leader(position, bounds):
        return bounds, None
    ended = bounds.epoch_ends.get(position.leader_epoch or 0)
    if ended is None:  # a former leader told the bounds, or the new one did not answer
        return None, None
    return bounds, ended if ended < position.offset else None


def is_of_other_leader(position: LogPosition, bounds: LogBounds) -> bool:
    """Whether a log's end was told by another leader than held the position."""
    return (
        position.leader_epoch != bounds.leader_epoch
        and position.topic_id == bounds.topic_id
        and None not in (position.topic_id, position.leader_epoch, bounds.leader_epoch)
    )


class Settling:
    """Which findings are believed: one that may be an old answer must stand a while.

    Args:
        believed_after_ms: How long, by finding.
    """

    def __init__(
        self, believed_after_ms: Mapping[Finding, int] = BELIEVED_AFTER_MS
    ) -> None:
        self._after_ms = believed_after_ms
        self._since: dict[TopicPartition, tuple[Finding, int]] = {}

    def believes(
        self, partition: TopicPartition, standing: Standing, now_ms: int
    ) -> bool:
        """Whether the finding counts now; if not, look again later.

        A partition that does not answer proves nothing either way: it neither counts
        as settled nor starts the wait anew.

        Args:
            partition: Looked at.
            standing: What the look means.
            now_ms: Of a clock that does not go backwards, when it answered.
        """
        finding = standing.finding
        if finding is Finding.UNANSWERED:
            return True
        after_ms = self._after_ms.get(finding, 0)
        if not after_ms or standing.is_certain:
            self._since.pop(partition, None)
            return True
        former, since_ms = self._since.get(partition, (finding, now_ms))
        if former is not finding:
            since_ms = now_ms
        self._since[partition] = finding, since_ms
        return now_ms - since_ms >= after_ms

    def doubted(self) -> list[TopicPartition]:
        """Partitions of which a finding must stand, or stood and was not acted on."""
        return list(self._since)

    def forget(self, partition: TopicPartition) -> None:
        """The finding was acted upon: the next one is a new story."""
        self._since.pop(partition, None)
