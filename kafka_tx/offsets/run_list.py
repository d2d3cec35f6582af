"""Runs in two parallel sorted lists: small, exact, made for few runs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class RunList:
    """Sorted disjoint half-open runs of integers; runs that touch are one run."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        """Number of runs."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The runs ``(start, end)``, ascending."""
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, value: int) -> bool:
        at = bisect_right(self._starts, value) - 1
        return at >= 0 and value < self._ends[at]

    @property
    def first(self) -> int | None:
        """The lowest integer, or None when empty."""
        return self._starts[0] if self._starts else None

    @property
    def last_end(self) -> int | None:
        """One past the highest integer, or None when empty."""
        return self._ends[-1] if self._ends else None

    def add(self, start: int, end: int) -> None:
        """Put ``[start, end)`` in, joined with every run it overlaps or touches."""
        if start >= end:
            return
        low = bisect_left(self._ends, start)
        high = bisect_right(self._starts, end)
        if low < high:
            start = min(start, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def remove(self, start: int, end: int) -> None:
        """Take ``[start, end)`` out, cutting the runs at its edges."""
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        if low >= high:
            return
        before, after = self._starts[low], self._ends[high - 1]
        kept = [(before, start)] if before < start else []
        if after > end:
            kept.append((end, after))
        self._starts[low:high] = [run[0] for run in kept]
        self._ends[low:high] = [run[1] for run in kept]

    def overlap(self, start: int, end: int) -> list[tuple[int, int]]:
        """The runs that overlap ``[start, end)``, cut to it, ascending."""
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        return [
            (max(self._starts[at], start), min(self._ends[at], end))
            for at in range(low, high)
        ]
