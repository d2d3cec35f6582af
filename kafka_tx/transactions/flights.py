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
class BatchFlight:
    """One attempt, its phase, and when that phase began."""

    attempt: TransactionAttempt
    phase: BatchPhase
    since_ms: int


class BatchFlights:
    """One flight for each active txid.

    ``timeout_ms`` bounds the phases in which work is done; None: they never end late.
    A txid that was late has twice as long the next time, up to eight times, until it
    has landed: a replay ends workers, and new ones take their time to start.
    ``patience_ms`` bounds the wait for the end of a commit phase that was dropped.
    """

    def __init__(self, timeout_ms: int | None, patience_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._patience_ms = patience_ms
        self._flights: dict[int, BatchFlight] = {}
        self._late: Counter[int] = Counter()  # how often, by txid
        self._ending: dict[TransactionAttempt, int] = {}  # until when we wait for it

    def __contains__(self, txid: object) -> bool:
        return txid in self._flights

    def start(self, attempt: TransactionAttempt, now_ms: int) -> None:
        """Begin the processing phase of an attempt."""
        self._flights[attempt.txid] = BatchFlight(
            attempt, BatchPhase.PROCESSING, now_ms
        )

    def find(
        self, attempt: TransactionAttempt, *phases: BatchPhase
    ) -> BatchFlight | None:
        """The flight of exactly this attempt, in one of these phases; else None."""
        flight = self._flights.get(attempt.txid)
        if flight is None or flight.attempt != attempt or flight.phase not in phases:
            return None
        return flight

    def may_commit(self, txid: int) -> BatchFlight | None:
        """The flight of a txid that waits for its commit phase, if none is still on."""
        flight = self._flights.get(txid)
        if flight is None or flight.phase is not BatchPhase.PROCESSED or self._ending:
            return None
        return flight

    def is_committing(self, txid: int) -> bool:
        """Whether the commit phase of a txid has begun."""
        flight = self._flights.get(txid)
        return flight is not None and flight.phase in (
            BatchPhase.COMMITTING,
            BatchPhase.RECORDING,
        )

    def land(self, txid: int) -> None:
        """Its commit is recorded."""
        del self._flights[txid]
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
        later = [self._flights.pop(t) for t in sorted(self._flights) if t >= txid]
        dropped = [f.attempt for f in later if f.phase is BatchPhase.COMMITTING]
        self._ending |= dict.fromkeys(dropped, now_ms + self._patience_ms)
        return tuple(flight.attempt for flight in later)

    def late(self, now_ms: int) -> BatchFlight | None:
        """The lowest flight whose phase has lasted too long."""
        late = [f for f in self._timed() if self._deadline_ms(f) <= now_ms]
        return min(late, key=lambda flight: flight.attempt.txid, default=None)

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
        return not self._flights and not self._ending

    def phases(self) -> dict[TransactionAttempt, BatchPhase]:
        """Every attempt in flight, in txid order, and its phase."""
        return {f.attempt: f.phase for _, f in sorted(self._flights.items())}

    def _timed(self) -> list[BatchFlight]:
        if self._timeout_ms is None:
            return []
        return [f for f in self._flights.values() if f.phase in _CAN_TIME_OUT]

    def _deadline_ms(self, flight: BatchFlight) -> int:
        return flight.since_ms + self.limit_ms(flight.attempt.txid)
