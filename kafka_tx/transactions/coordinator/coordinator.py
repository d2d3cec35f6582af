"""The transaction coordinator: which batch may be processed, which one may commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from kafka_tx.config import Mode
from kafka_tx.errors import KafkaTxError, TransactionError
from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.coordinator.actions import (
    Action,
    Cancel,
    Initialize,
    Outcome,
    Purpose,
    StartBatch,
    StartCommit,
    Stopped,
    TransactionCommitted,
    Write,
    WriteQueue,
)
from kafka_tx.transactions.coordinator.in_flight_batches import (
    CAN_FAIL,
    BatchPhase,
    InFlightBatches,
)
from kafka_tx.transactions.coordinator.pacing import Pacing, PlanningGate, ReplayPauses
from kafka_tx.transactions.coordinator.uncommitted import Change, MetadataChain
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader, LedgerState

M = TypeVar("M")

POLL_MS = 5_000
"""The store is polled after so long without a write."""

FRESH_MS = 5_000
"""An answer that took longer proves nothing: its process may have been frozen."""


class TransactionCoordinator(Generic[M]):
    """Decides what happens to each txid; events in, actions out.

    Runs in the driver, on one thread; never waits and never calls the runner. The
    runner carries out the actions and sends the answers back as events, in any order,
    late or twice. An answer counts only if its whole attempt matches. **Before every
    event the runner sets** ``now_ms``, **and after it the runner calls** ``tick``; only
    ``tick`` starts batches.

    Life of txid n:

    1. n is in the window [current, current + max_pending) and has no metadata: ``tick``
       → ``Initialize``; answered by ``initialized``. Transactional: → ``Write``;
       metadata is stored before anything is emitted. Opaque: metadata stays in memory,
       except that the first plan of txid 1, if it has ranges, is stored as where the
       id begins.
    2. ``tick`` → ``StartBatch``, PROCESSING. ``processed``: PROCESSED, n waits.
    3. n is current: ``processed`` or ``tick`` → an empty ``Write``, which only the
       owner can make, and only on a store that nobody else has changed. ``stored`` →
       ``StartCommit``, COMMITTING. ``committed``: RECORDING.
    4. → one ``Write``: currtx = n + 1, the numbers of n, opaque metadata of n, no
       metadata below n. ``stored`` → ``TransactionCommitted``; current is n + 1, and
       commits at once if processed.

    A failure or time-out of n before RECORDING drops n *and every later txid*: opaque
    ones are planned anew, transactional ones start again from their stored metadata. A
    crash between 3 and 4 commits n again, under the same txid. A store gives out each
    epoch once, so no attempt id is used twice, and none needs to be stored.

    Source: Storm, TransactionalSpoutCoordinator (deviates: compares attempts before it
    removes; stops at the first txid that is not ready; writes before it emits; pauses
    before it replays a txid again).

    ``reader`` has read ``state``. Its epoch was acquired *before* the read, so that no
    older owner can write in between.

    Attributes:
        is_stopped: Whether ``Stopped`` was given.
        now_ms: When the event happens; monotonic.
    """

    def __init__(
        self, mode: Mode, pacing: Pacing, reader: LedgerReader, state: LedgerState
    ) -> None:
        self._pacing = pacing
        self._epoch = state.epoch
        self._chain = MetadataChain[M](mode, reader, state)
        self._made: dict[str, Any] = {
            "source": reader.id,
            "numbering": state.numbering,
            "mode": mode,
        }
        self._gate = PlanningGate(pacing, self._chain.newest)
        self._in_flight = InFlightBatches(pacing.timeout_ms, pacing.end_timeout_ms)
        self._pauses = ReplayPauses()
        self._writes = WriteQueue(self._chain)
        self._attempts = 0
        self.now_ms = 0
        self._confirmed_ms: int | None = None  # the begin of the last write it took
        self._write_began_ms = 0
        self._asks_again = False
        self._is_paused = self._is_stopping = self.is_stopped = False

    # --- the rule ---

    def tick(self, now_ms: int, *, is_ready: bool) -> list[Action[M]]:
        """Take the due steps: time-outs, the lowest commit, new batches in txid order.

        Call it also at ``wakes_at_ms`` without an event. ``now_ms`` is monotonic.
        ``is_ready``: the spout's answer if ``asks_ready``, else False.
        """
        self.now_ms = now_ms
        if self.is_stopped:
            return []
        attempt = self._in_flight.endless(now_ms)
        if attempt is not None:
            return self.abort(self._endless(attempt))
        return [
            *self._time_out(),
            *self._begun(self._writes.again(now_ms)),
            *self._ask_who_owns(),
            *self._poll_store(),
            *self._fill_window(is_ready),
            *self._finish(),
        ]

    def _time_out(self) -> list[Action[M]]:
        late = self._in_flight.late(self.now_ms)
        if late is None:
            return []
        txid = late.attempt.txid
        reason = f"{late.phase} took longer than {self._in_flight.limit_ms(txid)} ms"
        self._in_flight.was_late(txid)
        return self._fail_from(txid, reason, Outcome.TIMED_OUT)

    def _ask_who_owns(self) -> list[Action[M]]:
        """Before a due commit phase: make a write that only the owner can make."""
        batch = self._in_flight.may_commit(self._current)
        if batch is None or self._writes.holds(Purpose.CONFIRM):
            return []
        return self._write(batch.attempt, Change(), Purpose.CONFIRM)

    def _poll_store(self) -> list[Action[M]]:
        """Confirm at intervals when idle, to notice a restored or replaced store."""
        if self._confirmed_ms is None:
            self._confirmed_ms = self.now_ms
        if self._writes or self.now_ms < self._confirmed_ms + POLL_MS:
            return []
        nothing = TransactionAttempt(self._current, 0)
        return self._write(nothing, Change(), Purpose.CONFIRM)

    def _commit_lowest(self) -> list[Action[M]]:
        """Start a commit phase: only of the lowest uncommitted txid, one at a time.

        Only after the store has just taken a write under our epoch. So a former owner
        that was frozen, or cut off, before this call is fenced before user code writes
        for it.
        """
        batch = self._in_flight.may_commit(self._current)
        if batch is None:
            return []
        batch.phase, batch.since_ms = BatchPhase.COMMITTING, self.now_ms
        return [StartCommit(batch.attempt)]

    def _fill_window(self, is_ready: bool) -> list[Action[M]]:
        """Processing phases: start txids with metadata, plan the first one without.

        Window 3, current 1:  1 open, 2 done, 3 open → nothing starts; 2 waits for 1
                              1 has committed        → 2 commits, 4 is planned
                              2 fails, 3 was done    → 2 and 3 start again, 2 first
        """
        actions: list[Action[M]] = []
        if self._is_paused or self._is_stopping:
            return actions
        for txid in self._window():
            if txid in self._in_flight:
                continue
            if self._pauses.opens_at_ms(txid) > self.now_ms:
                return actions
            if not self._chain.has(txid):
                was_asked = is_ready or not actions or not self._gate.is_new(txid)
                return actions + (self._plan(txid, is_ready) if was_asked else [])
            actions.append(self._start(txid))
        return actions

    def _plan(self, txid: int, is_ready: bool) -> list[Action[M]]:
        if self._writes.holds(Purpose.KEEP):
            return []
        if not self._gate.lets_pass(txid, self.now_ms, is_ready=is_ready):
            return []
        self._gate.planning = attempt = self._new_attempt(txid)
        previous = self._chain.metadata(txid - 1) if txid > 1 else self._chain.start
        return [Initialize(attempt, previous)]

    def _start(self, txid: int) -> Action[M]:
        attempt = self._chain.attempt(txid) or self._new_attempt(txid)
        attempt = replace(attempt, plan=self._chain.digest(txid))
        self._in_flight.start(attempt, self.now_ms)
        self._pauses.started(txid)
        return StartBatch(attempt, self._chain.metadata(txid), self.committed_txid)

    def _fail_from(
        self, txid: int, reason: str, outcome: Outcome = Outcome.FAILED
    ) -> list[Action[M]]:
        dropped = self._in_flight.drop_from(txid, self.now_ms)
        self._chain.drop_from(txid)
        if self._chain.is_opaque:
            self._gate.planning = None  # for a later txid, from a dropped plan
        return [Cancel(dropped, reason, outcome)] if dropped else []

    def _write(
        self, attempt: TransactionAttempt, change: Change, purpose: Purpose
    ) -> list[Action[M]]:
        return [*self._begun(self._writes.add(self._epoch, change, attempt, purpose))]

    def _begun(self, writes: list[Write]) -> list[Write]:
        if writes:
            self._write_began_ms = self.now_ms
        return writes

    def _finish(self) -> list[Action[M]]:
        if not self._is_stopping or self._writes or not self._in_flight.is_idle():
            return []
        return [self._end(None)]

    # --- questions ---

    @property
    def committed_txid(self) -> int | None:
        """The last txid recorded as committed; None before the first one."""
        return self._chain.state.txid or None

    @property
    def state(self) -> LedgerState:
        """Of the store, after the last write."""
        return self._chain.state

    @property
    def max_pending(self) -> int:
        """How many batches may be in flight."""
        return self._pacing.max_pending

    @property
    def planning(self) -> TransactionAttempt | None:
        """The attempt whose ``initialized`` is awaited; plans of others are ignored."""
        return self._gate.planning

    @property
    def phases(self) -> dict[TransactionAttempt, BatchPhase]:
        """Every in-flight attempt, in txid order, and its phase."""
        return self._in_flight.phases()

    def asks_ready(self, now_ms: int) -> bool:
        """Whether ``tick(now_ms)`` plans a brand-new txid if the spout is ready.

        Not while a batch has yet to begin: it would wait for the answer, and the answer
        would not know of it. After that tick another one is due at once.
        """
        at_ms = self._plans_at_ms(only_new=True)
        return at_ms is not None and at_ms <= now_ms and not self._has_to_start()

    def wakes_at_ms(self) -> int | None:
        """When ``tick`` is due without an event; None: never."""
        times = (
            self._in_flight.next_deadline_ms(),
            self._writes.again_at_ms,
            self._plans_at_ms(),
            self._polls_at_ms(),
            self._replays_at_ms(),
        )
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    # --- events: planning ---

    def initialized(
        self, attempt: TransactionAttempt, metadata: M, *, is_empty: bool = False
    ) -> list[Action[M]]:
        """Take the metadata of a new batch.

        An empty batch runs through all phases; the next new txid waits for a pause.
        """
        if attempt != self._gate.planning:
            return []
        self._gate.planned(self.now_ms, is_empty=is_empty)
        first = self._chain.keep(attempt, metadata)
        return self._write(attempt, first, Purpose.KEEP) if first else []

    def initialize_failed(self, attempt: TransactionAttempt) -> list[Action[M]]:
        """The plan failed; it is asked for again after ``retry_ms``."""
        if attempt != self._gate.planning:
            return []
        self._gate.failed(self.now_ms)
        return []

    # --- events: phases ---

    def processed(self, attempt: TransactionAttempt) -> list[Action[M]]:
        """The processing phase of this attempt is complete."""
        batch = self._in_flight.find(attempt, BatchPhase.PROCESSING)
        if batch is None:
            return []
        batch.phase = BatchPhase.PROCESSED
        return self._ask_who_owns()

    def committed(
        self, attempt: TransactionAttempt, stats: Mapping[str, str] | None = None
    ) -> list[Action[M]]:
        """The commit phase is complete: record the commit and ``stats`` in one step."""
        batch = self._in_flight.find(attempt, BatchPhase.COMMITTING)
        if batch is None:
            self._in_flight.has_ended(attempt)
            return []
        batch.phase = BatchPhase.RECORDING
        change = self._chain.record(attempt.txid)
        record = Change({**(stats or {}), **change.put}, change.delete)
        return self._write(attempt, record, Purpose.RECORD)

    def commit_failed(
        self, attempt: TransactionAttempt, reason: str
    ) -> list[Action[M]]:
        """The commit phase has failed and ended: replay this txid and later ones."""
        is_live = self._in_flight.find(attempt, BatchPhase.COMMITTING) is not None
        actions = self.failed(attempt, reason) if is_live else []
        self._in_flight.has_ended(attempt)
        return actions

    def failed(
        self,
        attempt: TransactionAttempt,
        reason: str,
        stops: KafkaTxError | None = None,
    ) -> list[Action[M]]:
        """A part of this attempt was lost or failed: replay this txid and later ones.

        The first replay of a txid begins at once, each later one after a longer pause.
        With ``stops`` (records are damaged) the first one waits, too; after the last
        one everything stops with this error.

        During its commit phase, the next commit phase waits until that call has ended
        (``committed``, ``commit_failed`` or ``crashed``): two must never overlap. The
        wait takes ``end_timeout_ms`` at most; then everything stops.
        """
        if self._in_flight.find(attempt, *CAN_FAIL) is None:
            return []
        is_damaged = stops is not None
        goes_on = self._pauses.failed(attempt.txid, self.now_ms, is_damaged=is_damaged)
        if stops and not goes_on:
            return self.abort(stops)
        return self._fail_from(attempt.txid, reason)

    def crashed(
        self, attempt: TransactionAttempt, error: BaseException
    ) -> list[Action[M]]:
        """The attempt ended in an error that no replay repairs: stop with this error.

        If the attempt was dropped before, the error is ignored: its commit phase, if
        any, has ended without success.
        """
        is_live = self._in_flight.find(attempt, *CAN_FAIL) is not None
        self._in_flight.has_ended(attempt)
        if not is_live and attempt != self._gate.planning:
            return []
        return self.abort(error)

    # --- events: store ---

    def stored(self, write_id: int) -> list[Action[M]]:
        """The write is in the store: when it was made, we owned it, unchanged.

        An answer that was long under way is asked for once more before a commit phase.
        """
        if not self._writes.is_under_way(write_id):
            return []
        self._confirmed_ms = self._write_began_ms
        is_fresh = self.now_ms < self._write_began_ms + FRESH_MS or self._asks_again
        done, following = self._writes.done()
        self._begun(following)
        txid, committed = done.attempt.txid, list[Action[M]]()
        if done.purpose is Purpose.RECORD:
            committed.append(
                TransactionCommitted(done.attempt, self._chain.metadata(txid))
            )
            self._in_flight.land(txid)
            self._pauses.landed(txid)
            self._gate.committed()
        due = self._commit_lowest() if is_fresh else self._ask_who_owns()
        # only once: a store that is always slow must not prevent commits
        self._asks_again = bool(due) and not is_fresh
        return [*committed, *due, *following]

    def store_failed(self, write_id: int, error: Exception) -> list[Action[M]]:
        """Repeat the write after a pause; stop if the error is not retryable."""
        if not self._writes.is_under_way(write_id):
            return []
        if not getattr(error, "retryable", False):
            return self.abort(error)
        self._writes.again_at_ms = self.now_ms + self._pacing.retry_ms
        return []

    # --- events: operator ---

    def pause(self) -> None:
        """Start and plan nothing more; batches in flight go on and commit."""
        self._is_paused = True

    def activate(self) -> None:
        """Undo ``pause``."""
        self._is_paused = False

    def stop(self, *, finish: bool) -> list[Action[M]]:
        """Stop after everything in flight (``finish``), or after the commit under way.

        A commit phase is never cut off: half of it may be visible. A failure meanwhile
        waits for the next start. ``tick`` → ``Stopped`` when nothing is in flight.
        """
        self._is_stopping = True
        if finish or self.is_stopped:
            return []
        under_way = self._in_flight.is_committing(self._current)
        first = self._current + under_way
        return self._fail_from(first, "stopped", Outcome.CANCELLED)

    def abort(self, error: BaseException) -> list[Action[M]]:
        """Stop now, with an error. A restart goes on from the stored state."""
        if self.is_stopped:
            return []
        reason = f"stopped by {error}"
        dropped = self._fail_from(self._current, reason, Outcome.CANCELLED)
        return [*dropped, self._end(error)]

    # --- parts ---

    @property
    def _current(self) -> int:
        return self._chain.state.txid + 1

    def _polls_at_ms(self) -> int | None:
        if self._confirmed_ms is None or self._writes or self.is_stopped:
            return None
        return self._confirmed_ms + POLL_MS

    def _replays_at_ms(self) -> int | None:
        is_at_rest = self._is_paused or self._is_stopping or self.is_stopped
        return None if is_at_rest else self._pauses.wakes_after(self.now_ms)

    def _endless(self, attempt: TransactionAttempt) -> TransactionError:
        return TransactionError(
            f"the commit phase of attempt {attempt} was given up and has not ended"
            f" {self._pacing.end_timeout_ms} ms later. Nothing may commit beside it:"
            " look where its committer hangs, end that process if it still runs, and"
            " start again. Let the committer's own waits end well before"
            " 'tx.timeoutMs'.",
            txid=attempt.txid,
        )

    def _plans_at_ms(self, *, only_new: bool = False) -> int | None:
        """When the next batch is planned, if only time and readiness are missing."""
        is_busy = self._gate.planning is not None or self._writes.holds(Purpose.KEEP)
        if is_busy or self._is_paused or self._is_stopping or self.is_stopped:
            return None
        txid = next((t for t in self._window() if not self._chain.has(t)), None)
        if txid is None or (only_new and not self._gate.is_new(txid)):
            return None
        before = range(self._current, txid + 1)
        first_ms = max(map(self._pauses.opens_at_ms, before))
        return max(self._gate.opens_at_ms(txid), first_ms)

    def _has_to_start(self) -> bool:
        return any(
            self._chain.has(t) and t not in self._in_flight for t in self._window()
        )

    def _window(self) -> range:
        return range(self._current, self._current + self._pacing.max_pending)

    def _new_attempt(self, txid: int) -> TransactionAttempt:
        self._attempts += 1
        attempt = TransactionAttempt.of(txid, epoch=self._epoch, number=self._attempts)
        return replace(attempt, **self._made)

    def _end(self, error: BaseException | None) -> Action[M]:
        self.is_stopped = True
        self._gate.planning = None
        self._writes.clear()
        return Stopped(error)
