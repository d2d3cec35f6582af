"""How long a partition has been behind, known without reading a record."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class _Sight(NamedTuple):
    """At this moment the log was first seen to end here."""

    end: int
    at_ms: float


class LagClock:
    """Since when one partition's log reaches past the committed offset.

    Every look at the log end that finds it higher is remembered with its moment. The
    record at the committed offset lies below the first remembered end that is higher,
    so it existed at that moment, and has waited since then *at least*:

    >>> clock = LagClock()
    >>> clock.saw_end(100, at_ms=0)
    >>> clock.saw_end(250, at_ms=60_000)
    >>> clock.behind_ms(99, at_ms=90_000)  # below 100: waits since 0
    90000
    >>> clock.behind_ms(100, at_ms=90_000)  # 100 was first seen at 60,000
    30000
    >>> clock.behind_ms(250, at_ms=90_000)
    0

    The answer is a lower bound. It is short by at most the time between two looks;
    after a restart by what happened before the first look; and by more only when the
    partition is so far behind that looks were thinned out: memory stays at
    ``max_sights`` looks. The moments must come from one monotonic clock. Not
    thread-safe.
    """

    def __init__(self, max_sights: int = 64) -> None:
        self._max_sights = max_sights
        self._sights: deque[_Sight] = deque()

    def __len__(self) -> int:
        """Looks that are remembered."""
        return len(self._sights)

    def saw_end(self, end: int, at_ms: float) -> None:
        """The log ends at ``end`` now (next offset to be written).

        An end below the last one means another log (the topic was made anew, or records
        were lost with a leader): everything seen of the old one is forgotten.
        """
        if self._sights and end < self._sights[-1].end:
            self._sights.clear()
        if not self._sights or end > self._sights[-1].end:
            self._sights.append(_Sight(end, at_ms))
        if len(self._sights) > self._max_sights:
            self._thin_out()

    def behind_ms(self, committed: int, at_ms: float) -> float:
        """How long the offset ``committed`` has been known to wait; 0 if it does not.

        Forgets the ends at or below ``committed``. After a step back of the committed
        offset the answer still is a lower bound.
        """
        while self._sights and self._sights[0].end <= committed:
            self._sights.popleft()
        return max(0, at_ms - self._sights[0].at_ms) if self._sights else 0

    def _thin_out(self) -> None:
        """Forget every second look between the first and the last.

        The offsets of a forgotten look count from the next one, so the bound stays a
        lower bound.
        """
        first, *between, last = self._sights
        self._sights = deque([first, *between[1::2], last])
