"""What lies between the first unfinished offset of a partition and the next to emit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kafka_tx.offsets.run_list import RunList
from kafka_tx.offsets.runs import OffsetRuns


class OffsetWindow:
    """The emitted offsets of one partition, as far as they are unfinished.

    Only pending offsets are kept. What is completed beyond the first of them is what
    lies between them, so it costs nothing; except what an earlier owner completed
    beyond ``emitted_to``, which is kept until emitting gets there and then skipped.

    Attributes:
        emitted_to: The next offset never emitted; does not go back.
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
        """The first pending offset, or ``emitted_to`` when none is pending."""
        first = self.pending.first
        return self.emitted_to if first is None else first

    @property
    def size(self) -> int:
        """Offsets from ``first_unfinished`` to ``emitted_to``, holes not counted."""
        low = self.first_unfinished
        self._holes.remove_below(low)
        return self.emitted_to - low - len(self._holes)

    def next_end(self, limit: int) -> int:
        """Up to where fresh offsets may be emitted in one range, at most ``limit``."""
        ahead = self._ahead.first
        return limit if ahead is None else min(limit, ahead)

    def emit(self, end: int, now_ms: int) -> int:
        """Make ``[emitted_to, end)`` pending; returns how many offsets that are."""
        emitted = self.pending.add(self.emitted_to, end)
        self.emitted_to = end
        self._emissions.append((end, now_ms))
        self._skip_ahead()
        return emitted

    def take_hole(self, start: int, end: int) -> int:
        """What is pending of ``[start, end)`` has no records; returns how many."""
        for run in self.pending.overlap(start, end):
            self._holes.add(*run)
        return self.pending.remove(start, end)

    def skip_to(self, offset: int) -> int:
        """Emit nothing below ``offset``; returns how many offsets are never emitted."""
        if offset <= self.emitted_to:
            return 0
        known = self._ahead.overlap(self.emitted_to, offset)
        skipped = offset - self.emitted_to - sum(end - start for start, end in known)
        self.emitted_to = offset
        self._skip_ahead()
        return skipped

    def cut(self, end: int) -> int:
        """Forget ``end`` and all above; returns how many pending offsets that drops."""
        dropped = self.pending.remove_from(end)
        self._holes.remove_from(end)
        self._ahead = RunList()
        self._emissions.clear()
        self.emitted_to = min(self.emitted_to, end)
        return dropped

    def completed(self) -> Iterator[tuple[int, int]]:
        """Runs that are finished beyond ``first_unfinished``, ascending, apart."""
        yield from self.pending.gaps(self.first_unfinished, self.emitted_to)
        yield from self._ahead

    def oldest_since_ms(self) -> int | None:
        """When the first pending offset was first emitted; None when none is."""
        first = self.pending.first
        while self._emissions and (first is None or self._emissions[0][0] <= first):
            self._emissions.popleft()
        return self._emissions[0][1] if self._emissions else None

    def _skip_ahead(self) -> None:
        while self._ahead.first is not None and self._ahead.first <= self.emitted_to:
            start, end = next(iter(self._ahead))
            self._ahead.remove(start, end)
            self.emitted_to = max(self.emitted_to, end)
