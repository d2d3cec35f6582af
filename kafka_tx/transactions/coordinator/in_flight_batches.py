"""The in-flight batches and their phases."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from kafka_tx.model import TransactionAttempt


class BatchPhase(StrEnum):
    """The phase of an in-flight batch."""

    PROCESSING = "processing"
    PROCESSED = "processed"
    COMMITTING = "committing"
    RECORDING = "recording"


CAN_FAIL = (BatchPhase.PROCESSING, BatchPhase.PROCESSED, BatchPhase.COMMITTING)
"""Once a commit phase is complete, nothing can undo it."""

_CAN_TIME_OUT = (BatchPhase.PROCESSING, BatchPhase.COMMITTING)

_MOST_DOUBLINGS = 3


@dataclass(slots=True)
class InFlightBatch:
    """One attempt, its phase, and the time when the phase began."""

    attempt: TransactionAttempt
    phase: BatchPhase
    since_ms: int


class InFlightBatches:
    """One in-flight batch for each active txid.

    ``timeout_ms`` bounds the processing and commit phases; None: no limit.
    After each time-out of a txid its limit doubles, up to eight times the limit, until
    the txid is committed: a replay ends workers, and new ones need time to start.
    ``end_timeout_ms`` bounds the wait for the end of a commit phase that was dropped.
    """

    def __init__(self, timeout_ms: int | None, end_timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._end_timeout_ms = end_timeout_ms
        self._in_flight: dict[int, InFlightBatch] = {}
        self._late: Counter[int] = Counter()  # number of time-outs, by txid
        self._ending: dict[TransactionAttempt, int] = {}  # deadline for its end

    def __contains__(self, txid: object) -> bool:
        return txid in self._in_flight

    def start(self, attempt: TransactionAttempt, now_ms: int) -> None:
        """Begin the processing phase of an attempt."""
        self._in_flight[attempt.txid] = InFlightBatch(
            attempt, BatchPhase.PROCESSING, now_ms
        )

    def find(
        self, attempt: TransactionAttempt, *phases: BatchPhase
    ) -> InFlightBatch | None:
        """The batch of exactly this attempt, if in one of these phases."""
        batch = self._in_flight.get(attempt.txid)
        if batch is None or batch.attempt != attempt or batch.phase not in phases:
            return None
        return batch

    def may_commit(self, txid: int) -> InFlightBatch | None:
        """A processed txid's batch; None while a dropped commit call still runs."""
        batch = self._in_flight.get(txid)
        if batch is None or batch.phase is not BatchPhase.PROCESSED or self._ending:
            return None
        return batch

    def is_committing(self, txid: int) -> bool:
        """Whether the commit phase of a txid has begun."""
        batch = self._in_flight.get(txid)
        return batch is not None and batch.phase in (
            BatchPhase.COMMITTING,
            BatchPhase.RECORDING,
        )

    def land(self, txid: int) -> None:
        """Remove a txid whose commit is recorded."""
        del self._in_flight[txid]
        del self._late[txid]

    def was_late(self, txid: int) -> None:
        """The txid timed out: allow more time for its next attempt."""
        self._late[txid] += 1

    def limit_ms(self, txid: int) -> int:
        """Longest time of each phase of a txid."""
        return (self._timeout_ms or 0) << min(self._late[txid], _MOST_DOUBLINGS)

    def drop_from(self, txid: int, now_ms: int) -> tuple[TransactionAttempt, ...]:
        """Drop this txid and every later one; return their attempts, ascending.

        A dropped commit call may still write: until the call ``has_ended``, no txid
        ``may_commit``.
        """
        later = [self._in_flight.pop(t) for t in sorted(self._in_flight) if t >= txid]
        dropped = [f.attempt for f in later if f.phase is BatchPhase.COMMITTING]
        self._ending |= dict.fromkeys(dropped, now_ms + self._end_timeout_ms)
        return tuple(batch.attempt for batch in later)

    def late(self, now_ms: int) -> InFlightBatch | None:
        """The lowest batch whose phase has exceeded its limit."""
        late = [f for f in self._timed() if self._deadline_ms(f) <= now_ms]
        return min(late, key=lambda batch: batch.attempt.txid, default=None)

    def has_ended(self, attempt: TransactionAttempt) -> None:
        """The commit call of this attempt has returned, with or without success."""
        self._ending.pop(attempt, None)

    def endless(self, now_ms: int) -> TransactionAttempt | None:
        """A dropped commit call that has not ended within ``end_timeout_ms``."""
        late = (a for a, until_ms in self._ending.items() if until_ms <= now_ms)
        return next(late, None)

    def next_deadline_ms(self) -> int | None:
        """When the next limit of a phase, or of a dropped commit call, passes."""
        deadlines = [*map(self._deadline_ms, self._timed()), *self._ending.values()]
        return min(deadlines, default=None)

    def is_idle(self) -> bool:
        """Whether nothing is in flight and no dropped commit call still runs."""
        return not self._in_flight and not self._ending

    def phases(self) -> dict[TransactionAttempt, BatchPhase]:
        """Every in-flight attempt, in txid order, and its phase."""
        return {f.attempt: f.phase for _, f in sorted(self._in_flight.items())}

    def _timed(self) -> list[InFlightBatch]:
        if self._timeout_ms is None:
            return []
        return [f for f in self._in_flight.values() if f.phase in _CAN_TIME_OUT]

    def _deadline_ms(self, batch: InFlightBatch) -> int:
        return batch.since_ms + self.limit_ms(batch.attempt.txid)
