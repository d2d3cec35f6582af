"""One attempt in its own thread, from the reading of its records to its commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from pyspark import InheritableThread

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.versions.job_failures import job_failure
from kafka_tx.topology.declare.spouts import BatchSource, Json
from kafka_tx.topology.plan.physical import PhysicalPlan
from kafka_tx.topology.run.attempt_run import Processed, run_commit, run_processing
from kafka_tx.topology.run.jobs import Engine
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped
from kafka_tx.topology.run.task_failures import failure_of

Replay = Callable[[TransactionAttempt, str], None]

_CANCEL_AGAIN_S = 0.2
"""A job may begin just after it was cancelled: it is cancelled again."""


class AttemptListener(Protocol):
    """Where an attempt tells how it goes; each is called from the attempt's thread."""

    def processed(self, processed: Processed) -> None:
        """The processing phase is complete."""

    def failed(self, attempt: TransactionAttempt, reason: str) -> None:
        """The processing phase failed: replay."""

    def committed(self, attempt: TransactionAttempt) -> None:
        """The commit phase is complete."""

    def commit_failed(self, attempt: TransactionAttempt, reason: str) -> None:
        """The commit phase has ended without success: replay."""

    def crashed(self, attempt: TransactionAttempt, error: BaseException) -> None:
        """Stop everything."""

    def ended(self, attempt: TransactionAttempt) -> None:
        """The thread does nothing more."""


class _Order(Enum):
    """What the thread was told after its processing phase."""

    COMMIT = auto()
    CANCEL = auto()


class AttemptEngine(Engine, Protocol):
    """An engine that knows attempts by the threads they call from."""

    def enter(self, attempt: TransactionAttempt) -> None:
        """What this thread runs from now on is this attempt's."""
        ...

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Let what runs for this attempt fail soon; from any thread, repeatedly."""
        ...

    def close(self) -> None:
        """Wait for nothing any longer. Harmless twice."""
        ...


@dataclass(frozen=True)
class AttemptRunner:
    """What all attempts of a topology share."""

    engine: AttemptEngine
    plan: PhysicalPlan
    answers: AttemptListener


class RunningAttempt:
    """Runs both phases of one attempt on one thread.

    Committers on the driver therefore commit on the thread they were prepared on, as
    SQLite's connections ask. All methods are called by the topology's runner.

    Args:
        shared: What all attempts share.
        attempt: Which.
        metadata: What the spout planned for it.
        source: What the spout reads; may fail.
    """

    def __init__(
        self,
        shared: AttemptRunner,
        attempt: TransactionAttempt,
        metadata: Json,
        source: Future[BatchSource],
    ) -> None:
        self.attempt = attempt
        self.metadata = metadata
        self._shared = shared
        self._source = source
        self._order: _Order | None = None
        self._ordered = threading.Condition()
        self._thread = InheritableThread(
            target=self._run, name=f"kafka-tx {attempt}", daemon=True
        )

    def start(self) -> None:
        """Begin the processing phase."""
        try:
            self._thread.start()
        except Exception as error:  # noqa: BLE001 - it asks Spark, which may be gone
            self._shared.answers.crashed(self.attempt, job_failure(error, self.attempt))
            self._shared.answers.ended(self.attempt)

    def commit(self) -> None:
        """Begin the commit phase; it is answered, always."""
        self._tell(_Order.COMMIT)

    def cancel(self) -> None:
        """Stop working; may be repeated until the thread has ended.

        A commit phase that has begun is not interrupted on the driver.
        """
        self._tell(_Order.CANCEL)
        self._shared.engine.cancel(self.attempt)

    def end(self, timeout_s: float) -> bool:
        """Cancel it until its thread has ended; False if that takes longer."""
        deadline = time.monotonic() + timeout_s
        self.cancel()
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._thread.join(_CANCEL_AGAIN_S)
            self.cancel()
        return not self._thread.is_alive()

    def _tell(self, order: _Order) -> None:
        with self._ordered:
            self._order = self._order or order
            self._ordered.notify()

    # --- on the thread ---

    def _run(self) -> None:
        answers = self._shared.answers
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

    def _process(self) -> Processed | None:
        shared, answers = self._shared, self._shared.answers
        source = self._read_source()
        if source is None or self._order is _Order.CANCEL:
            return None
        try:
            shared.engine.enter(self.attempt)
            processed = run_processing(shared.plan, self.attempt, source, shared.engine)
        except BaseException as error:  # noqa: BLE001 - every error has its answer
            self._tell_error(error, answers.failed)
            return None
        if processed.failure is None:
            return processed
        self._tell_failure(processed.failure, answers.failed)
        return None

    def _read_source(self) -> BatchSource | None:
        try:
            return self._source.result()
        except BaseException as error:  # noqa: BLE001 - every error has its answer
            name = self._shared.plan.graph.components[0].name
            failure = failure_of(error, self.attempt, name, 0, is_spout=True)
            self._tell_failure(failure, self._shared.answers.failed)
            return None

    def _commit(self, processed: Processed) -> None:
        answers = self._shared.answers
        try:
            run_commit(processed, self._shared.engine)
        except BaseException as error:  # noqa: BLE001 - every error has its answer
            self._tell_error(error, answers.commit_failed)
            return
        if processed.failure is None:
            answers.committed(self.attempt)
        else:
            self._tell_failure(processed.failure, answers.commit_failed)

    def _tell_failure(
        self, failure: BatchFailed | BatchStopped, replay: Replay
    ) -> None:
        if isinstance(failure, BatchFailed):
            replay(self.attempt, str(failure))
        else:
            self._shared.answers.crashed(self.attempt, failure.error)

    def _tell_error(self, error: BaseException, replay: Replay) -> None:
        if isinstance(error, KafkaTxError) and error.retryable:
            replay(self.attempt, str(error))
        else:
            self._shared.answers.crashed(self.attempt, error)
