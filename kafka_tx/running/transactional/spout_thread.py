"""The thread of a transactional topology that calls the spout."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.serial_worker import SerialWorker
from kafka_tx.topology.declare.spouts import BatchSource, Json, Spout
from kafka_tx.topology.run.messages import BatchFailed
from kafka_tx.topology.run.task_failures import failure_of

logger = event_log(__name__)

_READY_WITHIN_S = 0.02
"""Seconds that the runner waits for the spout's answer whether it is ready."""


class Poll(NamedTuple):
    """A spout's answer.

    Attributes:
        is_ready: Whether a new batch may be planned.
        drained_at: The number of the question, if nothing is left to be planned;
            0: rows are left, or may be, or nobody asked.
    """

    is_ready: bool = False
    drained_at: int = 0


_readers: dict[int, SpoutThread] = {}
"""The threads that have opened spouts and not closed them, by the spouts' ``id``."""


class SpoutThread:
    """Calls a spout, one call after the other, in the order of the requests.

    A spout holds the plans of one run. So only one thread at a time opens a spout.

    Args:
        worker: The thread.
        spout: The user's spout.
        component: The spout's component name.
        watch: Polls the logs of the spout, for metrics.
    """

    def __init__(
        self,
        worker: SerialWorker,
        spout: Spout,
        component: str,
        watch: Callable[[], None],
    ) -> None:
        self._spout = spout
        self._component = component
        self._watch = watch
        self._worker = worker
        self._polling: Future[Poll] | None = None
        self._watching: Future[None] | None = None
        self._is_closing = False
        self._is_reader = False
        self._topology = ""

    def open(self, topology: str) -> None:
        """Open the spout for the topology of this id, and wait until it is open.

        Raises:
            ConfigError: A topology reads the spout, which ``close`` then leaves open.
            Exception: The error of the spout's ``open``.
        """
        self._topology = topology
        reader = _readers.setdefault(id(self._spout), self)
        self._is_reader = reader is self
        if not self._is_reader:
            way = (
                "wait until the spout's call returns that has outlived its topology"
                if reader._is_closing
                else "stop that topology first"
            )
            raise ConfigError(
                f"component '{self._component}': topology '{reader._topology}' still"
                f" reads this spout object. Make another spout object for this start,"
                f" or {way}."
            )
        self._worker.submit(self._spout.open).result()

    def poll(self, txid: int, question: int = 0) -> Poll | None:
        """Ask whether a new batch may be planned; None: no answer yet, ask again.

        The next call returns an answer that came too late for this one. After a
        retryable error the spout is not ready.

        Args:
            txid: Of the new batch.
            question: Its number, to ask also whether a spout that is not ready is
                drained; 0: do not ask that.

        Raises:
            KafkaTxError: The spout failed beyond repair.
        """
        if self._polling is None:
            self._polling = self._worker.submit(lambda: self._poll(question))
        try:
            error = self._polling.exception(_READY_WITHIN_S)
        except TimeoutError:
            return None
        answered, self._polling = self._polling, None
        if error is None:
            return answered.result()
        self._check(error, TransactionAttempt(txid, 0))
        return Poll()

    def _poll(self, question: int) -> Poll:
        is_ready = self._spout.is_ready()
        if is_ready or not question or not self._spout.is_drained():
            return Poll(is_ready)
        return Poll(drained_at=question)

    def plan(
        self,
        attempt: TransactionAttempt,
        previous: Json | None,
        planned: Callable[[Json, bool, bool], None],
        failed: Callable[[KafkaTxError | None], None],
    ) -> None:
        """Plan a batch.

        Args:
            attempt: The attempt at the batch.
            previous: Metadata of the batch before.
            planned: Called with the metadata, whether the batch is known to be empty,
                and whether the spout also has nothing left.
            failed: Called with the error that stops the topology; None: retry later.
        """

        def work() -> None:
            try:
                metadata = self._spout.initialize_transaction(attempt.txid, previous)
                is_empty = self._spout.is_empty(metadata)
                is_last = is_empty and self._spout.is_drained() is not False
            except BaseException as error:  # noqa: BLE001 - _check decides
                try:
                    self._check(error, attempt)
                except KafkaTxError as stops:
                    failed(stops)
                else:
                    failed(None)
            else:
                planned(metadata, is_empty, is_last)

        self._worker.submit(work)

    def batch(self, attempt: TransactionAttempt, metadata: Json) -> Future[BatchSource]:
        """The reads for the tasks of an attempt."""
        return self._worker.submit(lambda: self._spout.batch(attempt, metadata))

    def observed(
        self, attempt: TransactionAttempt, metadata: Json, facts: dict[str, Json]
    ) -> None:
        """Report the facts that the tasks of an attempt found to the spout."""
        self._tell(lambda: self._spout.observed(attempt, metadata, facts))

    def committed(self, txid: int, metadata: Json) -> None:
        """Report to the spout that a batch is recorded."""
        self._tell(lambda: self._spout.committed(txid, metadata))

    def watch(self) -> None:
        """Poll the logs of the spout soon; not while such a poll is under way."""
        if self._watching is None or self._watching.done():
            self._watching = self._tell(self._watch_unless_closing)

    def _watch_unless_closing(self) -> None:
        if not self._is_closing:
            self._watch()

    def close(self, timeout_s: float) -> bool:
        """Close the spout and end the thread; False if that takes longer."""
        self._is_closing = True
        if self._is_reader:
            self._tell(self._close)
        return self._worker.close(timeout_s)

    def _close(self) -> None:
        try:
            self._spout.close()
        finally:
            del _readers[id(self._spout)]

    def _tell(self, call: Callable[[], None]) -> Future[None]:
        told = self._worker.submit(call)
        told.add_done_callback(log_failure)
        return told

    def _check(self, error: BaseException, attempt: TransactionAttempt) -> None:
        """Log an error after which the spout goes on.

        Raises:
            KafkaTxError: The error stops the topology.
        """
        failure = failure_of(error, attempt, self._component, 0, is_spout=True)
        if not isinstance(failure, BatchFailed):
            raise failure.error
        logger.warning("cannot be planned yet: %s", failure, attempt=attempt)


def log_failure(done: Future[Any]) -> None:
    """Log an error of a listener or of a call to the spout; batches go on."""
    error = done.exception()
    if error is not None:
        logger.error("a call beside the batches failed", exc_info=error)
