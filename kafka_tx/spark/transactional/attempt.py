"""Attempts, each in its own thread, from the reading of its records to its commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from enum import Enum, auto

from kafka_tx.errors import KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.transactional.batch_progress import Journal
from kafka_tx.running.transactional.spout_thread import SpoutThread
from kafka_tx.spark.topologies.running import AttemptEngine, JobThread
from kafka_tx.topology.declare.spouts import BatchSource, Json
from kafka_tx.topology.plan.physical import PhysicalPlan
from kafka_tx.topology.run.attempt_run import Processed, run_commit, run_processing
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped
from kafka_tx.topology.run.task_failures import failure_of
from kafka_tx.transactions.coordinator.actions import Action
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator

logger = event_log(__name__)

Event = Callable[[], list[Action[Json]]]
"""The runner's thread calls it and performs the actions that it returns."""

Replay = Callable[[TransactionAttempt, str, KafkaTxError | None], None]


class _Order(Enum):
    """The runner's order to the thread after the processing phase."""

    COMMIT = auto()
    CANCEL = auto()


class RunningAttempt(JobThread):
    """Runs both phases of one attempt on one thread.

    So committers on the driver are prepared and commit on the same thread, which
    SQLite's connections need. The topology's runner calls all methods.

    Args:
        engine: Runs its jobs.
        plan: Of the topology.
        answers: Gets all results, on the attempt's thread.
        attempt: The attempt to run.
        metadata: The spout's plan of the batch.
        source: The reads of the spout; the future may fail.
    """

    def __init__(
        self,
        engine: AttemptEngine,
        plan: PhysicalPlan,
        answers: Attempts,
        attempt: TransactionAttempt,
        metadata: Json,
        source: Future[BatchSource],
    ) -> None:
        super().__init__(attempt, engine)
        self.metadata = metadata
        self._plan = plan
        self._answers = answers
        self._source = source
        self._order: _Order | None = None
        self._ordered = threading.Condition()

    def start(self) -> None:
        """Begin the processing phase."""
        try:
            super().start()
        except KafkaTxError as error:
            self._answers.crashed(self.attempt, error)
            self._answers.ended(self.attempt)

    def commit(self) -> None:
        """Begin the commit phase, which always has an answer."""
        self._give(_Order.COMMIT)

    def cancel(self) -> None:
        """Stop working; may be repeated until the thread has ended.

        A commit phase that has begun is not interrupted on the driver.
        """
        self._give(_Order.CANCEL)
        super().cancel()

    def _give(self, order: _Order) -> None:
        with self._ordered:
            self._order = self._order or order
            self._ordered.notify()

    # --- on the thread ---

    def _run(self) -> None:
        answers = self._answers
        try:
            processed = self._process()
            if processed is None:
                return
            answers.processed(processed)
            with self._ordered:
                self._ordered.wait_for(lambda: self._order is not None)
            if self._order is _Order.COMMIT:
                self._commit(processed)
            else:
                processed.abandon()
        finally:
            answers.ended(self.attempt)

    def _crashed(self, error: BaseException) -> None:
        self._answer_error(error, self._answers.failed)
        self._answers.ended(self.attempt)

    def _process(self) -> Processed | None:
        answers = self._answers
        source = self._read_source()
        if source is None or self._order is _Order.CANCEL:
            return None
        try:
            self._engine.enter(self.attempt)
            processed = run_processing(self._plan, self.attempt, source, self._engine)
        except BaseException as error:  # noqa: BLE001 - every error has its answer
            self._answer_error(error, answers.failed)
            return None
        if processed.failure is None:
            return processed
        self._answer_failure(processed.failure, answers.failed)
        return None

    def _read_source(self) -> BatchSource | None:
        try:
            return self._source.result()
        except BaseException as error:  # noqa: BLE001 - every error has its answer
            name = self._plan.graph.components[0].name
            failure = failure_of(error, self.attempt, name, 0, is_spout=True)
            self._answer_failure(failure, self._answers.failed)
            return None

    def _commit(self, processed: Processed) -> None:
        answers = self._answers
        try:
            run_commit(processed, self._engine)
        except BaseException as error:  # noqa: BLE001 - every error has its answer
            self._answer_error(error, answers.commit_failed)
            return
        if processed.failure is None:
            answers.committed(self.attempt)
        else:
            self._answer_failure(processed.failure, answers.commit_failed)

    def _answer_failure(
        self, failure: BatchFailed | BatchStopped, replay: Replay
    ) -> None:
        if isinstance(failure, BatchFailed):
            replay(self.attempt, str(failure), failure.stops)
        else:
            self._answers.crashed(self.attempt, failure.error)

    def _answer_error(self, error: BaseException, replay: Replay) -> None:
        if isinstance(error, KafkaTxError) and error.retryable:
            replay(self.attempt, str(error), None)
        else:
            self._answers.crashed(self.attempt, error)


class Attempts:
    """Attempts that count, and attempts that were given up and have not ended yet.

    All attempts share the arguments.

    Args:
        engine: Runs the jobs.
        plan: Of the topology.
        coordinator: Gets the results, on the runner's thread.
        journal: Records the progress of attempts.
        spout: Calls the topology's spout.
        post: Takes an event for the runner's thread, from any thread.
    """

    def __init__(
        self,
        engine: AttemptEngine,
        plan: PhysicalPlan,
        coordinator: TransactionCoordinator[Json],
        journal: Journal,
        spout: SpoutThread,
        post: Callable[[Event], None],
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._machine = coordinator
        self._journal = journal
        self._spout = spout
        self._post = post
        self._running: dict[TransactionAttempt, RunningAttempt] = {}
        self._ending: dict[TransactionAttempt, RunningAttempt] = {}

    # --- on the runner's thread ---

    def start(
        self, attempt: TransactionAttempt, metadata: Json, source: Future[BatchSource]
    ) -> None:
        """Begin the processing phase of an attempt."""
        running = RunningAttempt(
            self._engine, self._plan, self, attempt, metadata, source
        )
        self._running[attempt] = running
        running.start()

    def commit(self, attempt: TransactionAttempt) -> None:
        """Begin the commit phase of an attempt."""
        self._running[attempt].commit()

    def done(self, attempt: TransactionAttempt) -> None:
        """Remove an attempt that is committed and recorded."""
        self._running.pop(attempt, None)

    def give_up(self, attempts: Iterable[TransactionAttempt]) -> None:
        """Cancel attempts; they do not count any more."""
        for attempt in attempts:
            running = self._running.pop(attempt, None)
            if running is not None:
                self._ending[attempt] = running
                running.cancel()

    @property
    def ending(self) -> int:
        """Number of attempts that were given up and have not ended."""
        return len(self._ending)

    def cancel_again(self) -> None:
        """Cancel once more the attempts that were given up."""
        for running in self._ending.values():
            running.cancel()

    def end_all(self, timeout_s: float) -> list[str]:
        """Cancel all attempts and wait for their ends; names those that hang."""
        left = [*self._running.values(), *self._ending.values()]
        for running in left:
            running.cancel()
        deadline = time.monotonic() + timeout_s
        hanging = [r for r in left if not r.end(deadline - time.monotonic())]
        self._engine.close()
        return [str(running.attempt) for running in hanging]

    # --- answers, from an attempt's thread ---

    def processed(self, processed: Processed) -> None:
        """The processing phase is complete."""
        attempt = processed.attempt

        def event() -> list[Action[Json]]:
            running = self._running.get(attempt)
            if running is not None:
                self._journal.processed(processed)
                self._spout.observed(attempt, running.metadata, processed.facts)
            return self._machine.processed(attempt)

        self._post(event)

    def failed(
        self, attempt: TransactionAttempt, reason: str, stops: KafkaTxError | None
    ) -> None:
        """The processing phase failed: replay; ``stops`` as of the coordinator."""
        self._post(lambda: self._machine.failed(attempt, reason, stops))

    def committed(self, attempt: TransactionAttempt) -> None:
        """The commit phase is complete."""

        def event() -> list[Action[Json]]:
            running = self._running.get(attempt)
            if running is None:
                return self._machine.committed(attempt)
            stored = self._machine.state.texts
            stats = self._journal.stats_record(attempt, running.metadata, stored)
            return self._machine.committed(attempt, stats)

        self._post(event)

    def commit_failed(
        self,
        attempt: TransactionAttempt,
        reason: str,
        _stops: KafkaTxError | None,  # nothing is read here
    ) -> None:
        """The commit phase has ended without success: replay."""
        self._post(lambda: self._machine.commit_failed(attempt, reason))

    def crashed(self, attempt: TransactionAttempt, error: BaseException) -> None:
        """Stop everything."""

        def event() -> list[Action[Json]]:
            if attempt not in self._machine.phases:
                logger.warning("given up before, it failed: %s", error, attempt=attempt)
            return self._machine.crashed(attempt, error)

        self._post(event)

    def ended(self, attempt: TransactionAttempt) -> None:
        """The thread does nothing more."""

        def event() -> list[Action[Json]]:
            self._ending.pop(attempt, None)
            return []

        self._post(event)
