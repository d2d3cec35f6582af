"""The transaction coordinator: which batch may be processed, which one may commit."""

from __future__ import annotations

from typing import TypeVar

from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.actions import Action, Outcome, TransactionCommitted
from kafka_tx.transactions.chain import Planned
from kafka_tx.transactions.flights import CAN_FAIL, BatchPhase
from kafka_tx.transactions.rotating import Change
from kafka_tx.transactions.transaction_window import TransactionWindow
from kafka_tx.transactions.txid_layout import CURRENT
from kafka_tx.transactions.writes import Purpose

M = TypeVar("M")


class TransactionCoordinator(TransactionWindow[M]):
    """Decides what happens to each txid; events in, actions out.

    Runs in the driver, on one thread, waits for nothing and calls nobody. The runner
    carries out the actions and brings the answers back as events, in any order, late or
    twice: an answer is compared on the whole attempt before anything is touched.
    **After every event the runner calls** ``tick``; only there batches start.

    Life of txid n:

    1. n is in the window [current, current + max_pending) and has no metadata: ``tick``
       → ``Initialize``; answered by ``initialized``. Transactional: → ``Write``; it is
       stored before anything is emitted. Opaque: it is kept in memory.
    2. ``tick`` → ``StartBatch``, PROCESSING. ``processed``: PROCESSED, n waits.
    3. n is current: ``tick`` → a ``Write`` of nothing, which only the owner can make,
       and only on a store that is where it was left. ``stored`` → ``StartCommit``,
       COMMITTING. ``committed``: RECORDING.
    4. → one ``Write``: currtx = n + 1, opaque metadata of n, no metadata below n.
       ``stored`` → ``TransactionCommitted``; current is n + 1, and commits at once if
       it can.

    A failure or time-out of n before RECORDING drops n *and every later txid*:
    opaque ones are planned anew, transactional ones start again from their stored
    metadata. A crash between 3 and 4 commits n again, under the same txid.

    Attempt ids are ``epoch * 10**12 + 1, 2, …``. A store hands out each epoch once, so
    none is ever used again and nothing has to be stored for that; and of two attempts
    the one with the greater id is newer, also across restarts and owners.

    Source: Storm, TransactionalSpoutCoordinator (deviates: compares attempts before it
    removes; stops at the first txid that is not ready; writes before it emits).

    Args:
        mode: Whether a replay holds the same records, or what is readable then.
        codec: Between the spout's metadata and the store's text.
        pacing: How many batches at once, and how fast.
        opened: What the new owner found in the store.

    Raises:
        StateCorruptedError: A stored record cannot be read, or the txids have a hole.
    """

    # --- events: planning ---

    def initialized(
        self,
        attempt: TransactionAttempt,
        metadata: M,
        *,
        is_empty: bool = False,
    ) -> list[Action[M]]:
        """Take the metadata of a new batch.

        An empty batch runs through all phases; the next new txid waits a little.
        """
        if attempt != self._gate.planning:
            return self._stale()
        self._gate.planned(self._now_ms, is_empty=is_empty)
        first = self._chain.keep(Planned(attempt, metadata))
        return self._write(attempt, first, Purpose.KEEP) if first else []

    def initialize_failed(self, attempt: TransactionAttempt) -> list[Action[M]]:
        """Nothing could be planned; it is asked for again after ``retry_ms``."""
        if attempt != self._gate.planning:
            return self._stale()
        self._gate.failed(self._now_ms)
        return []

    # --- events: phases ---

    def processed(self, attempt: TransactionAttempt) -> list[Action[M]]:
        """The processing phase of this attempt is complete."""
        flight = self._flights.find(attempt, BatchPhase.PROCESSING)
        if flight is None:
            return self._stale()
        flight.phase = BatchPhase.PROCESSED
        return []

    def committed(self, attempt: TransactionAttempt) -> list[Action[M]]:
        """The commit phase is complete: record that."""
        flight = self._flights.find(attempt, BatchPhase.COMMITTING)
        if flight is None:
            self._flights.has_ended(attempt)
            return self._stale()
        flight.phase = BatchPhase.RECORDING
        text = self._currtx_codec.encode(attempt.txid + 1)
        currtx = Change(put={CURRENT: text})
        record = currtx | self._chain.record(attempt.txid)
        return self._write(attempt, record, Purpose.RECORD)

    def commit_failed(
        self, attempt: TransactionAttempt, reason: str
    ) -> list[Action[M]]:
        """The commit phase has ended without success: replay it, and later txids."""
        is_live = self._flights.find(attempt, BatchPhase.COMMITTING) is not None
        actions = self._fail_from(attempt.txid, reason) if is_live else self._stale()
        self._flights.has_ended(attempt)
        return actions

    def failed(self, attempt: TransactionAttempt, reason: str) -> list[Action[M]]:
        """Something of this attempt was lost or failed: replay it, and later txids.

        During its commit phase, the next commit phase waits until that call has ended
        (``committed``, ``commit_failed`` or ``crashed``): two must never overlap. It
        waits for ``patience_ms`` at most; then everything stops.
        """
        if self._flights.find(attempt, *CAN_FAIL) is None:
            return self._stale()
        return self._fail_from(attempt.txid, reason)

    def crashed(
        self, attempt: TransactionAttempt, error: BaseException
    ) -> list[Action[M]]:
        """This attempt ended in an error that no replay mends: stop all with it.

        Of an attempt that was given up before, only the end counts: its commit phase,
        if there was one, has ended without success.
        """
        is_live = self._flights.find(attempt, *CAN_FAIL) is not None
        self._flights.has_ended(attempt)
        if not is_live and attempt != self._gate.planning:
            return self._stale()
        return self.abort(error)

    # --- events: store ---

    def stored(self, write_id: int) -> list[Action[M]]:
        """The write under way is in the store: it is ours, and as we left it."""
        if not self._writes.is_under_way(write_id):
            return self._stale()
        self._looked_ms = self._now_ms
        done, following = self._writes.done()
        txid, committed = done.attempt.txid, list[Action[M]]()
        if done.purpose is Purpose.RECORD:
            committed.append(
                TransactionCommitted(done.attempt, self._chain.metadata(txid))
            )
            self._flights.land(txid)
            self._current = txid + 1
        self._chain.apply(done.change)
        return [*committed, *self._commit_lowest(), *following]

    def store_failed(self, write_id: int, error: Exception) -> list[Action[M]]:
        """The write under way failed, or may have: the same one again after a pause.

        An error that is not retryable, above all a FencedError or StateLostError,
        stops everything.
        """
        if not self._writes.is_under_way(write_id):
            return self._stale()
        if not getattr(error, "retryable", False):
            return self.abort(error)
        self._writes.again_at_ms = self._now_ms + self._pacing.retry_ms
        return []

    # --- events: operator ---

    def pause(self) -> None:
        """Start and plan nothing more; what is in flight goes on and commits."""
        self._is_paused = True

    def activate(self) -> None:
        """Undo ``pause``."""
        self._is_paused = False

    def stop(self, *, finish: bool) -> list[Action[M]]:
        """Stop after everything in flight (``finish``), or after the commit under way.

        A commit phase is never cut off: half of it may be visible. What fails meanwhile
        waits for the next start. ``tick`` → ``Stopped`` when nothing is in flight.
        """
        self._is_stopping = True
        if finish or self._is_stopped:
            return []
        under_way = self._flights.is_committing(self._current)
        first = self._current + under_way
        return self._fail_from(first, "stopped", Outcome.CANCELLED)

    # --- parts ---

    def _stale(self) -> list[Action[M]]:
        self.stale_answers += 1
        return []
