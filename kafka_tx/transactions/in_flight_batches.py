"""The batches in flight and the phase of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from kafka_tx.model import TransactionAttempt


class BatchPhase(StrEnum):
    """Where a batch in flight is."""

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
    """One attempt, its phase, and when that phase began."""

    attempt: TransactionAttempt
    phase: BatchPhase
    since_ms: int


class InFlightBatches:
    """One flight for each active txid.

    ``timeout_ms`` bounds the phases in which work is done; None: they never end late.
    A txid that was late has twice as long the next time, up to eight times, until it
    has landed: a replay ends workers, and new ones take their time to start.
    ``patience_ms`` bounds the wait for the end of a commit phase that was dropped.
    """

    def __init__(self, timeout_ms: int | None, patience_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._patience_ms = patience_ms
        self._in_flight: dict[int, InFlightBatch] = {}
        self._late: Counter[int] = Counter()  # how often, by txid
        self._ending: dict[TransactionAttempt, int] = {}  # until when we wait for it

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
        """The flight of exactly this attempt, in one of these phases; else None."""
        batch = self._in_flight.get(attempt.txid)
        if batch is None or batch.attempt != attempt or batch.phase not in phases:
            return None
        return batch

    def may_commit(self, txid: int) -> InFlightBatch | None:
        """The flight of a txid that waits for its commit phase, if none is still on."""
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
        """Its commit is recorded."""
        del self._in_flight[txid]
        del self._late[txid]

    def was_late(self, txid: int) -> None:
        """It is dropped because of that, and has longer the next time."""
        self._late[txid] += 1

    def limit_ms(self, txid: int) -> int:
        """How long each of its phases may take."""
        return (self._timeout_ms or 0) << min(self._late[txid], _MOST_DOUBLINGS)

    def drop_from(self, txid: int, now_ms: int) -> tuple[TransactionAttempt, ...]:
        """Forget this txid and every later one; return their attempts, ascending.

        A commit call that is dropped may still write: until it ``has_ended``, no txid
        ``may_commit``.
        """
        later = [self._in_flight.pop(t) for t in sorted(self._in_flight) if t >= txid]
        dropped = [f.attempt for f in later if f.phase is BatchPhase.COMMITTING]
        self._ending |= dict.fromkeys(dropped, now_ms + self._patience_ms)
        return tuple(batch.attempt for batch in later)

    def late(self, now_ms: int) -> InFlightBatch | None:
        """The lowest flight whose phase has lasted too long."""
        late = [f for f in self._timed() if self._deadline_ms(f) <= now_ms]
        return min(late, key=lambda batch: batch.attempt.txid, default=None)

    def has_ended(self, attempt: TransactionAttempt) -> None:
        """The commit call of this attempt has returned, one way or the other."""
        self._ending.pop(attempt, None)

    def endless(self, now_ms: int) -> TransactionAttempt | None:
        """A dropped commit call whose end was waited for long enough."""
        late = (a for a, until_ms in self._ending.items() if until_ms <= now_ms)
        return next(late, None)

    def next_deadline_ms(self) -> int | None:
        """When the next flight will be late, or patience with a commit call ends."""
        deadlines = [*map(self._deadline_ms, self._timed()), *self._ending.values()]
        return min(deadlines, default=None)

    def is_idle(self) -> bool:
        """Whether nothing is in flight and no dropped commit call is still on."""
        return not self._in_flight and not self._ending

    def phases(self) -> dict[TransactionAttempt, BatchPhase]:
        """Every attempt in flight, in txid order, and its phase."""
        return {f.attempt: f.phase for _, f in sorted(self._in_flight.items())}

    def _timed(self) -> list[InFlightBatch]:
        if self._timeout_ms is None:
            return []
        return [f for f in self._in_flight.values() if f.phase in _CAN_TIME_OUT]

    def _deadline_ms(self, batch: InFlightBatch) -> int:
        return batch.since_ms + self.limit_ms(batch.attempt.txid)
