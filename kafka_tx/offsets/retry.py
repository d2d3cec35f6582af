"""Failed records and the times of their retries: exponential back-off, as runs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from kafka_tx.errors import ConfigError
from kafka_tx.offsets.runs import OffsetRuns


class WaitingRuns:
    """Offsets with their due times; offsets due at the same time stay runs.

    Times are milliseconds of the caller's clock. Offsets mostly leave in the order of
    their due times, so a removal searches the earliest times first.
    """

    def __init__(self) -> None:
        self.offsets = OffsetRuns()  # all waiting offsets, of all due times
        self._by_due: dict[int, OffsetRuns] = {}
        self._times: list[int] = []  # the keys of _by_due, ascending

    def add(self, start: int, end: int, due_ms: int) -> None:
        """Let ``[start, end)`` wait; none of it may wait already."""
        self.offsets.add(start, end)
        if due_ms not in self._by_due:
            self._by_due[due_ms] = OffsetRuns()
            insort(self._times, due_ms)
        self._by_due[due_ms].add(start, end)

    def remove(self, start: int, end: int) -> int:
        """Remove ``[start, end)``; return how many of it waited."""
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
        """Remove ``offset`` and all above; return how many waited."""
        end = self.offsets.end
        return 0 if end is None else self.remove(offset, max(offset, end))

    def due(self, now_ms: int, max_offsets: int) -> list[tuple[int, int]]:
        """Due runs, longest due first, at most ``max_offsets`` together."""
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
        """When the next offset is due (may be in the past); None: none waits."""
        return self._times[0] if self._times else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How long a failed record waits, and how often it is retried.

    The k-th failure waits ``initial_delay_ms * multiplier ** (k - 1)``, at most
    ``max_delay_ms``. ``limit`` is the number of *retries*: a record is processed up to
    ``1 + limit`` times. None: no limit. 0: no retries. Source: Storm,
    ExponentialBackoffMsgRetryManager (deviates: 0 means none).
    """

    initial_delay_ms: int = 0
    multiplier: float = 1.0
    max_delay_ms: int = 60_000
    limit: int | None = None

    def __post_init__(self) -> None:
        legal = "an integer of 0 or more"
        if self.initial_delay_ms < 0:
            raise ConfigError.illegal("initial_delay_ms", self.initial_delay_ms, legal)
        if self.max_delay_ms < 0:
            raise ConfigError.illegal("max_delay_ms", self.max_delay_ms, legal)
        if not self.multiplier >= 1:
            raise ConfigError.illegal(
                "multiplier", self.multiplier, "a number of 1 or more"
            )
        if self.limit is not None and self.limit < 0:
            raise ConfigError.illegal(
                "limit", self.limit, legal, "Leave it out to retry for ever."
            )

    def delay_ms(self, failures: int) -> int:
        """How long a record waits after so many failures (1 or more), in ms."""
        try:  # a float: exact powers of a whole number would grow without an end
            delay = self.initial_delay_ms * float(self.multiplier) ** (failures - 1)
        except OverflowError:
            return self.max_delay_ms if self.initial_delay_ms else 0
        return int(min(delay, self.max_delay_ms))

    def allows(self, failures: int) -> bool:
        """Whether a record with so many failures may be retried."""
        return self.limit is None or failures <= self.limit


class Failure(NamedTuple):
    """A run of records that failed together, with the same number of failures.

    ``failures`` counts this one; ``may_retry`` is False once the limit is passed.
    """

    start: int
    end: int
    failures: int
    may_retry: bool


class RetryQueue:
    """The failed records of one partition, in the order of their due times.

    A record is *waiting* from its failure until its retry starts, and keeps its count
    of failures until it is completed. Records that fail together stay one run. Times
    are milliseconds of the caller's monotonic clock. An instance is false if it holds
    no record.

    Source: Storm, ExponentialBackoffMsgRetryManager.
    """

    def __init__(self, back_off: BackOff) -> None:
        self.back_off = back_off
        # Number of failures -> offsets; 0: released, never failed.
        self._failures: dict[int, OffsetRuns] = {}
        self._waiting = WaitingRuns()

    def __bool__(self) -> bool:
        return bool(self._failures)

    @property
    def waiting(self) -> OffsetRuns:
        """The offsets whose retry has not started. Read only."""
        return self._waiting.offsets

    @property
    def first_released(self) -> int | None:
        """The first offset that was released and has not failed; None: none."""
        runs = self._failures.get(0)
        return None if runs is None else runs.first

    def knows(self, offset: int) -> bool:
        """Whether the offset failed or was released, and is not completed."""
        return any(offset in runs for runs in self._failures.values())

    def failures(self, offset: int) -> int:
        """How often an offset failed; 0 if unknown."""
        for failures, runs in self._failures.items():
            if offset in runs:
                return failures
        return 0

    def remember(self, start: int, end: int, failures: int) -> None:
        """Add failures of ``[start, end)`` under an earlier owner; nothing waits."""
        self._failures.setdefault(failures, OffsetRuns()).add(start, end)

    def failed_runs(self) -> Iterator[tuple[int, int, int]]:
        """Runs ``(start, end, failures)`` that failed at least once, ascending."""
        runs = (
            [(low, high, failures) for low, high in of]
            for failures, of in self._failures.items()
            if failures
        )
        return merge(*runs)

    def failed_before(self, start: int, end: int) -> list[tuple[int, int]]:
        """The runs of ``[start, end)`` that failed at least once."""
        if not self._failures:
            return []
        return [(low, high) for low, high, n in self._histories(start, end) if n]

    def failed(self, start: int, end: int, now_ms: int) -> list[Failure]:
        """Count a failure of ``[start, end)``, none of which may be waiting.

        Records that may be retried wait from now on; the others keep their counts.
        """
        found = []
        for low, high, before in self._histories(start, end):
            failures = before + 1
            if before in self._failures:
                self._forget(low, high, before)
            may_retry = self.back_off.allows(failures)
            self._failures.setdefault(failures, OffsetRuns()).add(low, high)
            if may_retry:
                due_ms = now_ms + self.back_off.delay_ms(failures)
                self._waiting.add(low, high, due_ms)
            found.append(Failure(low, high, failures, may_retry))
        return found

    def released(self, start: int, end: int, now_ms: int) -> None:
        """Let ``[start, end)``, which was never tried, be emitted again at once."""
        for low, high, failures in self._histories(start, end):
            self._failures.setdefault(failures, OffsetRuns()).add(low, high)
            self._waiting.add(low, high, now_ms)

    def due(self, now_ms: int, max_offsets: int) -> list[tuple[int, int]]:
        """Runs that are due, longest due first, cut to ``max_offsets`` together.

        They stay due until ``started``.
        """
        return self._waiting.due(now_ms, max_offsets)

    def next_due_ms(self) -> int | None:
        """When the next retry is due (may be in the past); None: none waits."""
        return self._waiting.first_due_ms()

    def started(self, start: int, end: int) -> int:
        """The retry of ``[start, end)`` is emitted; return how many were waiting."""
        return self._waiting.remove(start, end)

    def completed(self, start: int, end: int) -> None:
        """Drop ``[start, end)``: acknowledged, or lost."""
        self._waiting.remove(start, end)
        for failures in list(self._failures):
            self._forget(start, end, failures)

    def clear_from(self, offset: int) -> int:
        """Drop ``offset`` and all above, and their counts; return how many waited.

        They may come back as other records: the log lost its end.
        """
        dropped = self._waiting.remove_from(offset)
        for failures, runs in list(self._failures.items()):
            runs.remove_from(offset)
            if not len(runs):
                del self._failures[failures]
        return dropped

    def _histories(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """``[start, end)`` cut into runs ``(start, end, failures so far)``."""
        if end - start <= 1:
            return [(start, end, self.failures(start))] if start < end else []
        known = OffsetRuns()
        parts = []
        for failures, runs in self._failures.items():
            for low, high in runs.overlap(start, end):
                parts.append((low, high, failures))
                known.add(low, high)
        parts += [(low, high, 0) for low, high in known.gaps(start, end)]
        return sorted(parts)

    def _forget(self, start: int, end: int, failures: int) -> None:
        runs = self._failures[failures]
        runs.remove(start, end)
        if not len(runs):
            del self._failures[failures]
