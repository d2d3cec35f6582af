"""Drives a topology's transaction coordinator: one thread with a queue of answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar

from kafka_tx.errors import KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import TransactionAttempt
from kafka_tx.protocols import Store
from kafka_tx.running.lag_watch import POLL_EVERY_MS
from kafka_tx.running.serial_worker import SerialWorker
from kafka_tx.running.transactional.batch_progress import (
    Journal,
    Listener,
    TerminalProgress,
)
from kafka_tx.running.transactional.spout_thread import SpoutThread, log_failure
from kafka_tx.spark.topologies.running import (
    CANCEL_AGAIN_S,
    END_WITHIN_S,
    MOST_HANGING,
    AttemptEngine,
    TopologyLoop,
    too_many_hang,
)
from kafka_tx.spark.transactional.attempt import Attempts, Event
from kafka_tx.spark.versions.job_failures import SparkStoppedError
from kafka_tx.topology.declare.spouts import Json
from kafka_tx.topology.plan.physical import PhysicalPlan
from kafka_tx.transactions.coordinator.actions import (
    Action,
    Cancel,
    Initialize,
    StartBatch,
    StartCommit,
    Stopped,
    TransactionCommitted,
    Write,
)
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator
from kafka_tx.transactions.coordinator.idleness import Idleness
from kafka_tx.transactions.coordinator.in_flight_batches import BatchPhase
from kafka_tx.transactions.layout.txid_layout import Door
from kafka_tx.transactions.ledger.ledger_reading import OwnedPosition
from kafka_tx.transactions.ownership import guarded_writes

if TYPE_CHECKING:
    from kafka_tx.kafka.mirror import MirrorThread

logger = event_log(__name__)

_GONE_WITHIN_S = 3.0
"""Seconds that shutdown waits for user code if Spark has stopped."""


@dataclass(frozen=True, slots=True)
class View:
    """The coordinator's state after the last event, for other threads."""

    committed_txid: int | None
    phases: Mapping[TransactionAttempt, BatchPhase]


class TransactionalRunner(TopologyLoop[list[Action[Json]]]):
    """Performs the coordinator's actions, and brings the answers to the coordinator.

    The loop owns the coordinator. The spout is called on a thread of its own, the store
    on another one, listeners on a third; each attempt runs on its own thread.

    Args:
        plan: Of the topology.
        engine: Runs the jobs of attempts; closed at the end.
        spout: Opened; closed at the end.
        coordinator: Opened with the state from the store.
        journal: Records the progress of attempts.
        store: This process is its owner; closed at the end.
        listeners: Called after each committed batch.
        mirror: Called at the start and after each committed batch, to copy the
            position to a group; closed at the end.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        engine: AttemptEngine,
        spout: SpoutThread,
        coordinator: TransactionCoordinator[Json],
        journal: Journal,
        store: Store,
        listeners: Sequence[Listener] = (),
        mirror: MirrorThread | None = None,
    ) -> None:
        super().__init__(journal.id, journal.registry, journal.clock, store)
        self.journal = journal
        """Read by any thread: ``recent`` and ``replays`` only."""
        self._machine = coordinator
        self._listeners = listeners
        self._mirror = mirror
        self._owned = OwnedPosition(store, Door.TRANSACTIONAL)
        self._epoch = coordinator.state.epoch
        self._idleness = Idleness()
        self._spout = spout
        self._watch_at_ms = self._clock.monotonic_ms() + POLL_EVERY_MS
        self._attempts = Attempts(
            engine, plan, coordinator, journal, self._spout, self._post
        )
        self._writes = SerialWorker(f"kafka-tx {self.id} store")
        self._notices = SerialWorker(f"kafka-tx {self.id} notices")
        self.view = View(coordinator.committed_txid, {})
        """The committed txid and the in-flight batches; replaced as a whole."""

    # --- called from other threads ---

    def _open(self) -> None:
        self._copy_to_group()  # a former owner may have left it behind

    def _ask_idle(self) -> Callable[[], bool]:
        return self._idleness.begin()

    # --- the loop ---

    def _step(self) -> None:
        """Call ``tick``, then wait for an event and perform its actions."""
        now_ms = self._clock.monotonic_ms()
        is_ready = self._machine.asks_ready(now_ms) and self._is_ready()
        self._perform(lambda: self._machine.tick(now_ms, is_ready=is_ready))
        self._show()
        self.journal.in_flight(
            self.view.phases, is_planning=self._machine.planning is not None
        )
        if self._is_over:
            return
        self._watch_logs(now_ms)
        try:
            event = self._events.get(timeout=self._wait_s())
        except Empty:
            self._attempts.cancel_again()
        else:
            self._machine.now_ms = self._clock.monotonic_ms()
            self._perform(event)

    def _show(self) -> None:
        self.view = View(self._machine.committed_txid, self._machine.phases)

    def _watch_logs(self, now_ms: int) -> None:
        """Have the logs polled at intervals, also while the spout is not asked.

        So lag and headroom stay true while a batch hangs, and during a pause.
        """
        if now_ms >= self._watch_at_ms:
            self._watch_at_ms = now_ms + POLL_EVERY_MS
            self._spout.watch()

    def _wait_s(self) -> float:
        wakes_at_ms = self._machine.wakes_at_ms()
        due_ms = self._watch_at_ms
        if wakes_at_ms is not None:
            due_ms = min(due_ms, wakes_at_ms)
        wait_s = max(0.0, (due_ms - self._clock.monotonic_ms()) / 1000)
        return min(wait_s, CANCEL_AGAIN_S) if self._attempts.ending else wait_s

    def _is_ready(self) -> bool:
        txid = (self._machine.committed_txid or 0) + 1
        may_be_idle = self._waiters.are_there and not self._machine.phases
        try:
            poll = self._spout.poll(txid, self._idleness.ask() if may_be_idle else 0)
        except KafkaTxError as error:
            self._perform(lambda error=error: self._abort(error))  # type: ignore[misc]
            return False
        if poll is None:
            return False
        if may_be_idle and poll.drained_at:
            with self._waiters.changing():
                self._idleness.found(poll.drained_at)
        return poll.is_ready

    # --- actions ---

    def _perform(self, event: Event) -> None:
        """Perform the actions of an event; an error of the event stops the topology."""
        try:
            actions = event()
        except Exception as error:  # noqa: BLE001 - the handle raises it
            actions = self._abort(error)
        self._is_stopping |= any(isinstance(action, Stopped) for action in actions)
        for action in actions:
            self._DO[type(action)](self, action)

    def _plan(self, request: Initialize[Json]) -> None:
        attempt, machine, journal = request.attempt, self._machine, self.journal
        idleness, question = self._idleness, self._idleness.ask()
        journal.planning(attempt)

        def planned(metadata: Json, is_empty: bool, is_last: bool) -> None:
            def event() -> list[Action[Json]]:
                journal.planned(attempt)
                idleness.planned(attempt.txid, question, is_last=is_last)
                return machine.initialized(attempt, metadata, is_empty=is_empty)

            self._post(event)

        def failed(error: KafkaTxError | None) -> None:
            def event() -> list[Action[Json]]:
                if error is not None:
                    return machine.crashed(attempt, error)
                if attempt == machine.planning:
                    journal.plan_failed()
                return machine.initialize_failed(attempt)

            self._post(event)

        self._spout.plan(attempt, request.previous, planned, failed)

    def _write(self, write: Write) -> None:
        store, machine = self._store, self._machine
        assert store is not None

        def make() -> None:
            try:
                guarded_writes.write(
                    store, write.epoch, write.put, write.delete, write.expect
                )
            except Exception as error:  # noqa: BLE001 - for the coordinator
                logger.warning("a write to %s failed: %s", store.url, error)
                answer = _failed_write(machine, write.write_id, error)
                self._post(answer)
            else:
                self._post(lambda: machine.stored(write.write_id))

        self._writes.submit(make)

    def _start_batch(self, batch: StartBatch[Json]) -> None:
        attempt, metadata = batch.attempt, batch.metadata
        source = self._spout.batch(attempt, metadata)
        self.journal.started(attempt, metadata)
        self._attempts.start(attempt, metadata, source)

    def _start_commit(self, commit: StartCommit) -> None:
        self.journal.committing(commit.attempt)
        self._attempts.commit(commit.attempt)

    def _cancel(self, cancel: Cancel) -> None:
        if not self._is_stopping:
            for attempt in cancel.attempts:
                logger.warning("will be replayed: %s", cancel.reason, attempt=attempt)
            self.journal.dropped(cancel)
        self._attempts.give_up(cancel.attempts)
        most = MOST_HANGING + 2 * self._machine.max_pending
        if self._attempts.ending > most and not self._is_stopping:
            last = f"the last ones {cancel.attempts} ({cancel.reason})"
            error = too_many_hang(most, f"attempts were given up, {last},")
            self._perform(lambda: self._abort(error))

    def _committed(self, committed: TransactionCommitted[Json]) -> None:
        attempt, metadata = committed.attempt, committed.metadata
        self._attempts.done(attempt)
        progress = self.journal.committed(attempt, metadata)
        self._spout.committed(attempt.txid, metadata)
        self._show()  # before a caller who waits looks at it
        if not self._machine.phases:
            with self._waiters.changing():
                self._idleness.committed(attempt.txid)
        for listener in self._listeners:
            self._notice(listener, progress)
        self._copy_to_group()

    def _copy_to_group(self) -> None:
        if self._mirror is not None:
            self._mirror(lambda: self._owned.of(self._epoch))

    def _notice(self, call: Callable[[Any], None], given: object) -> None:
        self._notices.submit(lambda: call(given)).add_done_callback(log_failure)

    def _stopped(self, stopped: Stopped) -> None:
        self.error, self._is_over = stopped.error, True

    def _stop(self, *, finish: bool) -> list[Action[Json]]:
        self._is_stopping = True
        return self._machine.stop(finish=finish)

    def _abort(self, error: BaseException) -> list[Action[Json]]:
        return self._machine.abort(error)

    def _pause(self, is_paused: bool, /) -> list[Action[Json]]:
        (self._machine.pause if is_paused else self._machine.activate)()
        return []

    _DO: ClassVar[Mapping[type, Callable[[TransactionalRunner, Any], None]]] = {
        Initialize: _plan,
        Write: _write,
        StartBatch: _start_batch,
        StartCommit: _start_commit,
        Cancel: _cancel,
        TransactionCommitted: _committed,
        Stopped: _stopped,
    }

    # --- the end ---

    def _release(self) -> list[str] | None:
        try:
            return self._end_work()
        finally:
            self.journal.ended()
            self.view = View(self._machine.committed_txid, {})

    def _end_work(self) -> list[str] | None:
        is_gone = isinstance(self.error, SparkStoppedError)
        deadline = time.monotonic() + (_GONE_WITHIN_S if is_gone else END_WITHIN_S)
        hanging = self._attempts.end_all(deadline - time.monotonic())
        for listener in self._listeners:
            if isinstance(listener, TerminalProgress):
                self._notices.submit(listener.close)
        if self._mirror is not None:
            self._notices.submit(self._mirror.close)
        workers = (self._spout, self._writes, self._notices)
        closed = [w.close(max(1.0, deadline - time.monotonic())) for w in workers]
        return hanging if hanging or not all(closed) else None


def _failed_write(
    machine: TransactionCoordinator[Json], write_id: int, error: Exception
) -> Event:
    return lambda: machine.store_failed(write_id, error)
