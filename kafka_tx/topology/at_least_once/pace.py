"""How long tasks give rows to bolts, and how many records make a chunk.

A chunk must be answered before its records time out. So a task stops giving rows to
bolts after a while and reports the other rows. The next chunk is as large as the part
that was processed, and larger while tasks are quick: a Spark job costs some tens of
milliseconds, whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

ROWS_PER_TURN = 4096
_FIRST_TURN = 8
_TURNS = 16
"""About how often a task reads the clock until its time is over."""

_GROWS = 4

_SHARE_OF_TASK = 8
_SHRINKS = 8

FIRST_RECORDS = 10_000
"""Records of the first chunk. Also the most if a bolt runs on the driver, because it
gets all rows of a chunk at once."""

MOST_RECORDS = 1_000_000
"""Most records of a chunk: the driver needs about 20 bytes for an in-flight record."""

_WANTED_S = 1.0
"""The time that the longest task of a chunk should take."""

_JOB_SHARE = 4
"""A job may take this multiple of its longest task: tasks wait for each other."""

_MOST_GROWTH, _LEAST_GROWTH = 16.0, 0.5
"""Bounds for the growth from one chunk to the next."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a task may give rows to bolts. Pickled.

    Attributes:
        within_s: Seconds from the task's first row on; ``math.inf``: no limit.
        clock: Monotonic seconds.
    """

    within_s: float
    clock: Callable[[], float]

    @classmethod
    def of(
        cls, timeout_ms: int | None, clock: Callable[[], float], *, records: int = 2
    ) -> Pace:
        """An eighth of the time-out: tasks may have to wait for each other.

        A chunk of one record may use the whole time-out: no chunk is smaller.
        """
        if timeout_ms is None:
            return cls(math.inf, clock)
        share = _SHARE_OF_TASK if records > 1 else 1
        return cls(timeout_ms / 1e3 / share, clock)


class Turns:
    """How many rows a task gives to bolts in one turn, and whether it gives more.

    The first turn is always given, however long it takes: otherwise a slow task would
    never process a row. ``None`` as pace: full turns without a time limit.
    """

    def __init__(self, pace: Pace | None) -> None:
        self._pace = pace
        self._began_s: float | None = None
        self._turn_began_s = 0.0
        self.rows = ROWS_PER_TURN if pace is None else _FIRST_TURN
        """Most rows of the next turn."""
        self.is_over = False
        """Whether no more rows are given."""

    def begin(self) -> None:
        """A turn begins."""
        if self._pace is None:
            return
        self._turn_began_s = self._pace.clock()
        if self._began_s is None:
            self._began_s = self._turn_began_s

    def is_late(self) -> bool:
        """Whether the time is over within a turn."""
        if self._pace is None or self._began_s is None:
            return False
        return self._pace.clock() - self._began_s >= self._pace.within_s

    def done(self) -> None:
        """The turn has ended."""
        if self._pace is None or self._began_s is None:
            return
        now_s = self._pace.clock()
        took_s = max(now_s - self._turn_began_s, 1e-9)
        grows = min(_GROWS, self._pace.within_s / _TURNS / took_s)
        self.rows = min(ROWS_PER_TURN, max(1, int(self.rows * grows)))
        self.is_over = now_s - self._began_s >= self._pace.within_s


class ChunkSize:
    """How many records make the next chunk, ``most`` as configured.

    If tasks had no time for all of their rows, the size falls to the processed rows.
    Otherwise it doubles up to ``FIRST_RECORDS``. Above that it follows the longest
    task, which should take 1 s, and the job, which should take 4 s.

    After a chunk that timed out or was lost, the size falls, and stays small until all
    records of that chunk were sent again. So a record that hangs, or kills its worker,
    is found in a few steps. After a chunk without any processed record, the next chunks
    hold one record each, which may use the whole time-out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._suspects = 0
        self.records = min(most, FIRST_RECORDS)
        """Most records of the next chunk."""

    def ended(
        self, records: int, tried: int, took_s: float = 0.0, job_s: float = 0.0
    ) -> None:
        """A chunk of so many records was answered, of which bolts were given ``tried``.

        Its longest task worked for ``took_s``, its job for ``job_s``.
        """
        took_s = max(took_s, job_s / _JOB_SHARE)
        self._suspects = max(0, self._suspects - tried)
        if not tried:
            self._suspects = max(self._suspects, _SHRINKS)
        if tried < records:
            self.records = max(1, min(self.records, tried))
        elif self._suspects:
            return
        elif self.records < FIRST_RECORDS:
            self.records = min(self._most, FIRST_RECORDS, self.records * 2)
        else:
            wanted = _WANTED_S / max(took_s, 1e-9)
            growth = max(_LEAST_GROWTH, min(_MOST_GROWTH, wanted))
            fitting = max(FIRST_RECORDS, int(records * growth))
            if took_s > _WANTED_S or fitting > self.records:
                self.records = min(self._most, fitting)

    def lost(self, records: int) -> None:
        """A chunk of so many records ended without an answer."""
        self._shrink(records, 2)

    def timed_out(self, records: int) -> None:
        """A chunk of so many records was not answered in time."""
        self._shrink(records, _SHRINKS)

    def _shrink(self, records: int, by: int) -> None:
        self._suspects = records
        self.records = max(1, min(self.records, FIRST_RECORDS, records) // by)
