"""The unfinished records of one partition: in-flight, waiting, given up, abandoned."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kafka_tx.errors import ConfigError
from kafka_tx.model import CommittedOffset
from kafka_tx.offsets.loss import LossReason, OutOfRange
from kafka_tx.offsets.manager_answers import Counts
from kafka_tx.offsets.retry import BackOff, Failure, RetryQueue
from kafka_tx.offsets.runs import OffsetRuns, RunList


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules:
    """Settings of partition managers; the same for all partitions of a spout.

    Attributes:
        max_uncommitted_offsets: Most offsets of a partition emitted beyond the commit
            (holes not counted). At the limit no new records are emitted; retries, which
            are included, still are. None: no limit.
        max_offset_behind: A record that failed is lost once an offset further than this
            above it is acknowledged; so is a record that fails further than this below
            the last emitted one. No offset further than this above a record that is in
            flight or not tried yet is emitted: each one is tried. None: none is lost.
        out_of_range: Policy if the log has lost offsets to read, or its end below
            emitted ones.
        topology_id, topology_name: Stored with every offset.
    """

    back_off: BackOff = field(default_factory=BackOff)
    max_uncommitted_offsets: int | None = 10_000_000
    max_offset_behind: int | None = None
    out_of_range: OutOfRange = OutOfRange.EARLIEST
    topology_id: str = ""
    topology_name: str = ""

    def __post_init__(self) -> None:
        for option in ("max_uncommitted_offsets", "max_offset_behind"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise ConfigError.illegal(
                    option, value, "an integer of 1 or more, or None for no bound"
                )


class OffsetWindow:
    """The emitted and unfinished offsets of one partition.

    Memory holds only pending offsets; all others below ``emitted_to`` are completed.
    Exception: offsets that an earlier owner completed beyond ``emitted_to`` stay in
    memory until emitting reaches and skips them.

    Attributes:
        emitted_to: The next offset to emit for the first time; only ``cut`` lowers it.
        pending: Emitted and unfinished offsets.
    """

    __slots__ = ("_ahead", "_emissions", "_holes", "emitted_to", "pending")

    def __init__(
        self, emitted_to: int, completed: Iterable[tuple[int, int]] = ()
    ) -> None:
        self.emitted_to = emitted_to
        self.pending = OffsetRuns()
        self._holes = OffsetRuns()
        self._ahead = RunList()
        self._emissions: deque[tuple[int, int]] = deque()  # (end, time), ascending
        for run in completed:
            self._ahead.add(*run)
        self._skip_ahead()

    @property
    def first_unfinished(self) -> int:
        """The first pending offset, or ``emitted_to`` if none is pending."""
        first = self.pending.first
        return self.emitted_to if first is None else first

    @property
    def reached(self) -> int:
        """The end of all offsets emitted, now or by an earlier owner."""
        ahead = self._ahead.last_end
        return self.emitted_to if ahead is None else ahead

    @property
    def size(self) -> int:
        """Offsets from ``first_unfinished`` to ``emitted_to``, holes not counted."""
        low = self.first_unfinished
        self._holes.remove_below(low)
        return self.emitted_to - low - len(self._holes)

    def next_end(self, limit: int) -> int:
        """The end of the next range of new offsets to emit, at most ``limit``."""
        ahead = self._ahead.first
        return limit if ahead is None else min(limit, ahead)

    def emit(self, end: int, now_ms: int) -> int:
        """Make ``[emitted_to, end)`` pending; return the number of offsets."""
        self._holes.remove_below(self.first_unfinished)
        emitted = self.pending.add(self.emitted_to, end)
        self.emitted_to = end
        self._emissions.append((end, now_ms))
        self._skip_ahead()
        return emitted

    def take_hole(self, start: int, end: int) -> int:
        """Complete pending offsets without records; return their number."""
        for run in self.pending.overlap(start, end):
            self._holes.add(*run)
        return self.pending.remove(start, end)

    def skip_to(self, offset: int) -> int:
        """Emit nothing below ``offset``; return how many offsets are never emitted."""
        if offset <= self.emitted_to:
            return 0
        known = self._ahead.overlap(self.emitted_to, offset)
        skipped = offset - self.emitted_to - sum(end - start for start, end in known)
        self.emitted_to = offset
        self._skip_ahead()
        return skipped

    def cut(self, end: int) -> int:
        """Drop ``end`` and all above; return how many of these were pending."""
        dropped = self.pending.remove_from(end)
        self._holes.remove_from(end)
        self._ahead.remove(end, max(end, self.reached))
        self._emissions.clear()
        self.emitted_to = min(self.emitted_to, end)
        return dropped

    def completed(self) -> Iterator[tuple[int, int]]:
        """Finished runs beyond ``first_unfinished``, ascending, not touching."""
        yield from self.pending.gaps(self.first_unfinished, self.emitted_to)
        yield from self._ahead

    def oldest_since_ms(self) -> int | None:
        """When the first pending offset was first emitted; None: none is pending."""
        first = self.pending.first
        while self._emissions and (first is None or self._emissions[0][0] <= first):
            self._emissions.popleft()
        return self._emissions[0][1] if self._emissions else None

    def _skip_ahead(self) -> None:
        while self._ahead.first is not None and self._ahead.first <= self.emitted_to:
            start, end = next(iter(self._ahead))
            self._ahead.remove(start, end)
            self.emitted_to = max(self.emitted_to, end)


class Unfinished:
    """The states of records that are emitted and not completed, and their changes.

    A pending record is in-flight, waits for a retry, or is given up (no further retry;
    pending until the caller has stored it elsewhere). An *abandoned* record is not
    pending: it was in-flight when the commit stopped waiting for it, and is lost only
    if it fails. Completions, give-ups and losses are counted here.
    """

    __slots__ = ("_abandoned", "_counts", "_given_up", "_max_behind", "retry", "window")

    def __init__(
        self, start: CommittedOffset, rules: PartitionRules, counts: Counts
    ) -> None:
        self.window = OffsetWindow(start.offset, start.completed)
        self.retry = RetryQueue(rules.back_off)
        self._max_behind = rules.max_offset_behind
        self._counts = counts
        self._given_up = OffsetRuns()
        self._abandoned = {reason: OffsetRuns() for reason in LossReason}
        for low, high, times in start.failures:
            if high > start.offset:
                self.retry.remember(max(low, start.offset), high, times)

    def in_flight(self, start: int, end: int) -> list[tuple[int, int]]:
        """The runs of ``[start, end)`` that are pending and do not wait for a retry."""
        if end - start == 1:  # records usually fail one at a time
            is_pending = start in self.window.pending
            is_waiting = start in self.retry.waiting
            return [(start, end)] if is_pending and not is_waiting else []
        return [
            part
            for run in self.window.pending.overlap(start, end)
            for part in self.retry.waiting.gaps(*run)
        ]

    @property
    def first_to_try(self) -> int:
        """The first record in flight or not tried yet; ``emitted_to``: there is none.

        Those that failed and wait, for a retry or for their dead letter, are not.
        """
        in_flight = self.window.pending.first_beyond(self.retry.waiting, self._given_up)
        found = [self.window.emitted_to, in_flight, self.retry.first_released]
        return min(offset for offset in found if offset is not None)

    def complete_one(self, offset: int) -> bool:
        """As ``complete``, of one record and faster; False: it is not pending."""
        if not self.window.pending.discard(offset):
            return False
        self._counts.completed += 1
        if self.retry and self.retry.knows(offset):
            self._forget(offset, offset + 1)
        if self._max_behind is not None:
            self.abandon(offset - self._max_behind, LossReason.BEHIND)
        return True

    def complete(self, start: int, end: int) -> int:
        """Complete pending or abandoned offsets; return their number."""
        done = self.window.pending.remove(start, end)
        done += sum(runs.remove(start, end) for runs in self._abandoned.values())
        self._forget(start, end)
        self._counts.completed += done
        if done and self._max_behind is not None:
            self.abandon(end - 1 - self._max_behind, LossReason.BEHIND)
        return done

    def complete_holes(self, start: int, end: int) -> int:
        """Complete offsets that have no record; return their number.

        An offset that failed before had a record: it is lost.
        """
        for run in self._failed(start, end):
            self.lose(*run, LossReason.COMPACTED)
        holes = self.window.take_hole(start, end)
        holes += sum(runs.remove(start, end) for runs in self._abandoned.values())
        self._forget(start, end)
        self._counts.holes += holes
        return holes

    def _failed(self, start: int, end: int) -> list[tuple[int, int]]:
        return [
            run
            for low, high in self.window.pending.overlap(start, end)
            for run in self.retry.failed_before(low, high)
        ]

    def fail(self, start: int, end: int, now_ms: int) -> list[Failure]:
        """Queue an in-flight run for a retry; return the parts that are given up.

        Offsets too far behind are lost instead.
        """
        self._counts.failed += end - start
        if self._max_behind is not None:
            limit = min(end, self.window.emitted_to - self._max_behind)
            if start < limit:
                self.lose(start, limit, LossReason.BEHIND)
                start = limit
        given_up = [
            part for part in self.retry.failed(start, end, now_ms) if not part.may_retry
        ]
        for part in given_up:
            self._counts.given_up += self._given_up.add(part.start, part.end)
        return given_up

    def release(self, start: int, end: int, now_ms: int) -> None:
        """Make an in-flight run due again, except for given-up offsets."""
        for part in list(self._given_up.gaps(start, end)):
            self.retry.released(*part, now_ms)

    def unburied(self, start: int, end: int) -> OffsetRuns:
        """Given-up offsets that are not completed, the abandoned ones included."""
        found = OffsetRuns(*self._given_up.overlap(start, end))
        for runs in self._abandoned.values():
            for run in runs.overlap(start, end):
                found.add(*run)
        return found

    # --- losing ---------------------------------------------------------------------

    def lose(self, start: int, end: int, reason: LossReason) -> int:
        """Drop pending offsets of ``[start, end)`` for good; return their number."""
        lost = self.window.pending.remove(start, end)
        self._forget(start, end)
        self._counts.lost[reason] += lost
        return lost

    def abandon(self, below: int, reason: LossReason) -> None:
        """Stop waiting for pending records below an offset.

        Waiting records are lost at once. In-flight records may still complete.
        """
        pending = self.window.pending
        first = pending.first
        if first is None or first >= below:
            return
        for run in self.retry.waiting.overlap(first, below):
            self._counts.lost[reason] += pending.remove(*run)
        for run in pending.overlap(first, below):
            self._abandoned[reason].add(*run)
        pending.remove_below(below)
        self._forget(first, below)

    def lose_abandoned(self, start: int, end: int) -> None:
        """Abandoned records have failed: they are lost."""
        for reason, runs in self._abandoned.items():
            self._counts.lost[reason] += runs.remove(start, end)

    def skip_to(self, offset: int, reason: LossReason) -> None:
        """Emit nothing below ``offset``; offsets not yet emitted are lost."""
        if offset > self.window.emitted_to:
            self._forget(self.window.emitted_to, offset)
        skipped = self.window.skip_to(offset)
        self._counts.lost[reason] += skipped
        self._counts.skipped[reason] += skipped

    def cut(self, end: int, now_ms: int) -> None:
        """Lose ``end`` and all above; emit in-flight records below ``end`` again."""
        self._counts.lost[LossReason.CUT] += self.window.cut(end)
        self.retry.clear_from(end)
        self._given_up = OffsetRuns()
        for run in self.in_flight(0, end):
            self.retry.released(*run, now_ms)

    def _forget(self, start: int, end: int) -> None:
        if self.retry:
            self.retry.completed(start, end)
            self._given_up.remove(start, end)
