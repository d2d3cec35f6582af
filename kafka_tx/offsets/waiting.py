"""The offsets that wait for a retry, in the order in which they are due."""

from __future__ import annotations

from bisect import bisect_left, insort

from kafka_tx.offsets.runs import OffsetRuns


class WaitingRuns:
    """Offsets with the time at which each is due; those due together stay runs.

    Times are milliseconds of the caller's clock. What leaves, mostly leaves in the
    order in which it is due, so a removal looks at the earliest times first.
    """

    def __init__(self) -> None:
        self.offsets = OffsetRuns()  # all that wait, whenever they are due
        self._by_due: dict[int, OffsetRuns] = {}
        self._times: list[int] = []  # the keys of _by_due, ascending

    def add(self, start: int, end: int, due_ms: int) -> None:
        """Let ``[start, end)`` wait; none of it may be waiting."""
        self.offsets.add(start, end)
        if due_ms not in self._by_due:
            self._by_due[due_ms] = OffsetRuns()
            insort(self._times, due_ms)
        self._by_due[due_ms].add(start, end)

    def remove(self, start: int, end: int) -> int:
        """Take ``[start, end)`` out; returns how many of it waited."""
        removed = left = self.offsets.remove(start, end)
        emptied = []
        for due_ms in self._times:
            if not left:
                break
            runs = self._by_due[due_ms]
            left -= runs.remove(start, end)
            if not len(runs):
                emptied.append(due_ms)
        for due_ms in emptied:
            del self._by_due[due_ms]
            del self._times[bisect_left(self._times, due_ms)]
        return removed

    def remove_from(self, offset: int) -> int:
        """Take out ``offset`` and all above; returns how many waited."""
        end = self.offsets.end
        return 0 if end is None else self.remove(offset, max(offset, end))

    def due(self, now_ms: int, max_offsets: int) -> list[tuple[int, int]]:
        """Runs that are due, longest due first, together at most ``max_offsets``."""
        found: list[tuple[int, int]] = []
        for due_ms in self._times:
            if due_ms > now_ms:
                break
            for start, end in self._by_due[due_ms]:
                if max_offsets <= 0:
                    return found
                end = min(end, start + max_offsets)
                found.append((start, end))
                max_offsets -= end - start
        return found

    def first_due_ms(self) -> int | None:
        """When the next offset is due (may lie in the past); None when none waits."""
        return self._times[0] if self._times else None
