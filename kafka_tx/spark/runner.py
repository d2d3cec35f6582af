"""Drives a topology's transaction coordinator: one thread, a queue of answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

from pyspark import InheritableThread

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import TransactionAttempt
from kafka_tx.protocols import Clock, Store
from kafka_tx.spark.engine_attempt import AttemptRunner, RunningAttempt
from kafka_tx.spark.engine_progress import (
    Journal,
    LagWatch,
    Listener,
    TerminalProgress,
)
from kafka_tx.spark.engine_spout import SpoutDesk, log_failure
from kafka_tx.spark.engine_workers import SerialWorker
from kafka_tx.topology.attempts import Processed
from kafka_tx.topology.spouts import Json, Spout
from kafka_tx.transactions.actions import (
    Action,
    Cancel,
    Committed,
    Initialize,
    StartBatch,
    StartCommit,
    Stopped,
    Write,
)
from kafka_tx.transactions.coordinator import TransactionCoordinator
from kafka_tx.transactions.flights import Phase

logger = logging.getLogger(__name__)

_CANCEL_AGAIN_S = 0.2
"""A job may begin just after it was cancelled: it is cancelled again."""

_END_WITHIN_S = 30.0
"""How long the end waits for user code that runs on the driver."""


@dataclass(frozen=True)
class RunnerParts:
    """What a runner is made of.

    Attributes:
        spout: The user's.
        spout_name: Its component.
        store: Acquired.
        coordinator: Opened on what the store held.
        journal: Takes what happened.
        clock: The machine's.
        listeners: Told of committed batches.
        watch: Looks at the spout's logs.
        mirror: Sends committed metadata elsewhere, after the store has it.
    """

    spout: Spout
    spout_name: str
    store: Store
    coordinator: TransactionCoordinator[Json]
    journal: Journal
    clock: Clock
    listeners: Sequence[Listener]
    watch: LagWatch
    mirror: Callable[[Json], None] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What the coordinator said after the last event, for other threads."""

    committed_txid: int | None
    phases: Mapping[TransactionAttempt, Phase]


_Event = Callable[[], "list[Action[Json]]"]


class Runner:
    """Performs what the coordinator asks for, and brings it the answers.

    One thread (the loop) owns the coordinator. The spout is called on a thread of its
    own, the store on another one, listeners and mirror on a third; each attempt runs on
    its own thread. Everything comes back through one queue.

    Args:
        parts: What it drives; released when it has ended.
        attempts: Makes what attempts share, given where to tell their answers.
    """

    def __init__(
        self, parts: RunnerParts, attempts: Callable[[Runner], AttemptRunner]
    ) -> None:
        self._parts = parts
        self._machine = parts.coordinator
        self._shared = attempts(self)
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._running: dict[TransactionAttempt, RunningAttempt] = {}
        self._ending: dict[TransactionAttempt, RunningAttempt] = {}
        self._saw_idle = threading.Condition()
        self._idle_looks = 0
        self._is_stopping = False
        self._over: Stopped | None = None
        name = parts.journal.id
        self._spout = SpoutDesk(name, parts.spout, parts.spout_name, parts.watch.look)
        self._store = SerialWorker(f"kafka-tx {name} store")
        self._notices = SerialWorker(f"kafka-tx {name} notices")
        self._thread = InheritableThread(
            target=self._run, name=f"kafka-tx {name}", daemon=True
        )
        self.view = View(parts.coordinator.committed_txid, {})
        """What is in flight; replaced whole."""
        self.error: BaseException | None = None
        """Why it ended; None while it runs, and after ``stop``."""
        self.has_ended = threading.Event()
        """Set when everything is released."""

    # --- called from other threads ---

    def start(self) -> None:
        """Open the spout and begin.

        Raises:
            Exception: What ``spout.open`` raises; everything is released then.
        """
        try:
            self._spout.open()
        except BaseException as error:
            self._over = Stopped(error)
            self._release()
            raise
        self._thread.start()

    def stop(self, *, finish: bool) -> None:
        """See ``TransactionCoordinator.stop``."""
        self._events.put(lambda: self._stop(finish=finish))

    def abort(self, error: BaseException) -> None:
        """Stop now; ``error`` is what the handle raises."""
        self._events.put(lambda: self._machine.abort(error))

    def pause(self) -> None:
        """Start nothing more until ``activate``."""
        self._events.put(lambda: _told(self._machine.pause))

    def activate(self) -> None:
        """Undo ``pause``."""
        self._events.put(lambda: _told(self._machine.activate))

    def wait_until_idle(self, timeout_s: float | None) -> bool:
        """Wait until the spout has nothing new and nothing is in flight."""
        with self._saw_idle:
            # The look under way may have begun before the caller's rows were there.
            wanted = self._idle_looks + 2
            return self._saw_idle.wait_for(
                lambda: self._idle_looks >= wanted or self.has_ended.is_set(), timeout_s
            )

    # --- the loop ---

    def _run(self) -> None:
        try:
            while self._over is None:
                self._step()
        except BaseException as error:
            logger.exception("the runner of %s failed", self._parts.journal.id)
            self._over = Stopped(error)
        finally:
            self._release()

    def _step(self) -> None:
        """Tick, then wait for an event and carry out what it leads to."""
        now_ms = self._parts.clock.monotonic_ms()
        is_ready = self._machine.asks_ready(now_ms) and self._is_ready()
        self._perform(lambda: self._machine.tick(now_ms, is_ready=is_ready))
        self.view = View(self._machine.committed_txid, self._machine.phases)
        self._parts.journal.in_flight(
            self.view.phases, is_planning=self._machine.planning is not None
        )
        if self._over is not None:
            return
        try:
            event = self._events.get(timeout=self._wait_s())
        except Empty:
            for attempt in self._ending.values():
                attempt.cancel()
        else:
            self._perform(event)

    def _wait_s(self) -> float | None:
        wakes_at_ms = self._machine.wakes_at_ms()
        waits = [_CANCEL_AGAIN_S] if self._ending else []
        if wakes_at_ms is not None:
            now_ms = self._parts.clock.monotonic_ms()
            waits.append(max(0.0, (wakes_at_ms - now_ms) / 1000))
        return min(waits, default=None)

    def _is_ready(self) -> bool:
        try:
            ready = self._spout.is_ready((self._machine.committed_txid or 0) + 1)
        except KafkaTxError as error:
            self._perform(lambda error=error: self._machine.abort(error))  # type: ignore[misc]
            return False
        if ready is False and not self._machine.phases:
            with self._saw_idle:
                self._idle_looks += 1
                self._saw_idle.notify_all()
        return bool(ready)

    # --- actions ---

    def _perform(self, event: _Event) -> None:
        """Carry out what an event leads to; an error in it stops the topology."""
        try:
            actions = event()
        except Exception as error:  # noqa: BLE001 - told through the handle
            actions = self._machine.abort(error)
        self._is_stopping |= any(isinstance(action, Stopped) for action in actions)
        for action in actions:
            self._DO[type(action)](self, action)

    def _plan(self, asked: Initialize[Json]) -> None:
        attempt, machine, journal = asked.attempt, self._machine, self._parts.journal
        journal.planning(attempt)

        def planned(metadata: Json, is_empty: bool) -> None:
            def event() -> list[Action[Json]]:
                journal.planned(attempt)
                return machine.initialized(attempt, metadata, is_empty=is_empty)

            self._events.put(event)

        def failed(error: KafkaTxError | None) -> None:
            if error is None:
                self._events.put(lambda: machine.initialize_failed(attempt))
            else:
                self._events.put(lambda: machine.crashed(attempt, error))

        self._spout.plan(attempt, asked.previous, planned, failed)

    def _write(self, write: Write) -> None:
        store, machine = self._parts.store, self._machine

        def make() -> None:
            try:
                store.write(write.epoch, write.put, write.delete)
            except Exception as error:  # noqa: BLE001 - told to the coordinator
                logger.warning("a write to %s failed: %s", store.url, error)
                answer = _failed_write(machine, write.write_id, error)
                self._events.put(answer)
            else:
                self._events.put(lambda: machine.stored(write.write_id))

        self._store.submit(make)

    def _start_batch(self, batch: StartBatch[Json]) -> None:
        attempt, metadata = batch.attempt, batch.metadata
        source = self._spout.batch(attempt, metadata)
        self._parts.journal.started(attempt)
        running = RunningAttempt(self._shared, attempt, metadata, source)
        self._running[attempt] = running
        running.start()

    def _start_commit(self, commit: StartCommit) -> None:
        self._parts.journal.committing(commit.attempt)
        self._running[commit.attempt].commit()

    def _cancel(self, cancel: Cancel) -> None:
        attempts = ", ".join(map(str, cancel.attempts))
        if not self._is_stopping:
            logger.warning("%s will be replayed: %s", attempts, cancel.reason)
            self._parts.journal.dropped(cancel.attempts)
        for attempt in cancel.attempts:
            running = self._running.pop(attempt, None)
            if running is not None:
                self._ending[attempt] = running
                running.cancel()

    def _committed(self, committed: Committed[Json]) -> None:
        attempt, metadata = committed.attempt, committed.metadata
        self._running.pop(attempt, None)
        progress = self._parts.journal.committed(attempt, metadata)
        self._spout.committed(attempt.txid, metadata)
        for listener in self._parts.listeners:
            self._notice(listener, progress)
        if self._parts.mirror is not None:
            self._notice(self._parts.mirror, metadata)

    def _notice(self, call: Callable[[Any], None], given: object) -> None:
        self._notices.submit(lambda: call(given)).add_done_callback(log_failure)

    def _stopped(self, stopped: Stopped) -> None:
        self._over = stopped

    def _stop(self, *, finish: bool) -> list[Action[Json]]:
        self._is_stopping = True
        return self._machine.stop(finish=finish)

    _DO: ClassVar[Mapping[type, Callable[[Runner, Any], None]]] = {
        Initialize: _plan,
        Write: _write,
        StartBatch: _start_batch,
        StartCommit: _start_commit,
        Cancel: _cancel,
        Committed: _committed,
        Stopped: _stopped,
    }

    # --- answers, from attempts' threads ---

    def processed(self, processed: Processed) -> None:
        """See ``Answers``."""
        self._events.put(lambda: self._processed(processed))

    def _processed(self, processed: Processed) -> list[Action[Json]]:
        attempt = processed.attempt
        running = self._running.get(attempt)
        if running is not None:
            self._parts.journal.processed(processed)
            self._spout.observed(attempt, running.metadata, processed.facts)
        return self._machine.processed(attempt)

    def failed(self, attempt: TransactionAttempt, reason: str) -> None:
        """See ``Answers``."""
        self._events.put(lambda: self._machine.failed(attempt, reason))

    def committed(self, attempt: TransactionAttempt) -> None:
        """See ``Answers``."""
        self._events.put(lambda: self._machine.committed(attempt))

    def commit_failed(self, attempt: TransactionAttempt, reason: str) -> None:
        """See ``Answers``."""
        self._events.put(lambda: self._machine.commit_failed(attempt, reason))

    def crashed(self, attempt: TransactionAttempt, error: Exception) -> None:
        """See ``Answers``."""
        self._events.put(lambda: self._crashed(attempt, error))

    def _crashed(
        self, attempt: TransactionAttempt, error: Exception
    ) -> list[Action[Json]]:
        if attempt not in self._running:
            logger.warning("attempt %s, given up before, failed: %s", attempt, error)
        return self._machine.crashed(attempt, error)

    def ended(self, attempt: TransactionAttempt) -> None:
        """See ``Answers``."""
        self._events.put(lambda: _told(lambda: self._ending.pop(attempt, None)))

    # --- the end ---

    def _release(self) -> None:
        """End everything that was started; what hangs is named and left behind."""
        left = [*self._running.values(), *self._ending.values()]
        for attempt in left:
            attempt.cancel()
        hanging = [str(a.attempt) for a in left if not a.end(_END_WITHIN_S)]
        for listener in self._parts.listeners:
            if isinstance(listener, TerminalProgress):
                self._notices.submit(listener.close)
        closed = [worker.close(_END_WITHIN_S) for worker in self._workers()]
        if hanging or not all(closed):
            logger.warning(
                "%s has ended, but user code of it still runs on the driver %s",
                self._parts.journal.id,
                hanging,
            )
        self._parts.store.close()
        self.error = self._over.error if self._over else None
        if self.error is not None:
            self._parts.journal.registry.record_stop(self._parts.journal.id, self.error)
        self.view = View(self._machine.committed_txid, {})
        self._parts.journal.in_flight({}, is_planning=False)
        self.has_ended.set()
        with self._saw_idle:
            self._saw_idle.notify_all()

    def _workers(self) -> tuple[SerialWorker | SpoutDesk, ...]:
        return self._spout, self._store, self._notices


def _told(tell: Callable[[], object]) -> list[Action[Json]]:
    tell()
    return []


def _failed_write(
    machine: TransactionCoordinator[Json], write_id: int, error: Exception
) -> _Event:
    return lambda: machine.store_failed(write_id, error)
