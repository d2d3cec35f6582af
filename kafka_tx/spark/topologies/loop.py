"""The loop that owns a running topology, and the threads of its jobs."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from pyspark import InheritableThread

from kafka_tx.logs import about, event_log, same_events
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.run.jobs import Engine

logger = event_log(__name__)

E = TypeVar("E")


class TopologyLoop(ABC, Generic[E]):
    """One thread, to which everything comes as an event through one queue.

    A subclass decides what to do next, and what an event leads to (``E``). The methods
    without an underscore may be called from any thread.
    """

    def __init__(self, topology_id: str) -> None:
        self._id = topology_id
        self._events: SimpleQueue[Callable[[], E]] = SimpleQueue()
        self._post = self._events.put
        self._is_stopping = self._is_over = False
        self._thread = InheritableThread(
            target=self._run, name=f"kafka-tx {topology_id}", daemon=True
        )
        self.error: BaseException | None = None
        """Why it ended; None while it runs, and after ``stop``."""
        self.has_ended = threading.Event()
        """Set when everything is released."""

    def start(self) -> None:
        """Begin.

        Raises:
            Exception: What is opened first cannot be; everything is released then.
        """
        self._thread.start()

    def stop(self, *, finish: bool) -> None:
        """End; ``finish`` waits for what is in flight, else that is cancelled."""
        self._post(lambda: self._stop(finish=finish))

    def abort(self, error: BaseException) -> None:
        """Stop now; ``error`` is what the handle raises."""
        self._post(lambda: self._abort(error))

    def pause(self) -> None:
        """Begin nothing more until ``activate``; what is in flight goes on."""
        self._post(lambda: self._pause(True))

    def activate(self) -> None:
        """Undo ``pause``."""
        self._post(lambda: self._pause(False))

    @abstractmethod
    def wait_until_idle(self, timeout_s: float | None) -> bool:
        """Wait until all that is there now is done; False when the time is up."""

    def _run(self) -> None:
        with about(id=self._id):
            try:
                while not self._is_over:
                    self._step()
            except BaseException as error:
                logger.exception("the topology failed")
                self.error = error
            finally:
                self._release()

    @abstractmethod
    def _step(self) -> None:
        """Do what is due, then wait for an event and carry out what it leads to."""

    @abstractmethod
    def _stop(self, *, finish: bool) -> E: ...

    @abstractmethod
    def _abort(self, error: BaseException) -> E: ...

    @abstractmethod
    def _pause(self, is_paused: bool, /) -> E: ...

    @abstractmethod
    def _release(self) -> None:
        """End everything that was started; what hangs is named and left behind."""


CANCEL_AGAIN_S = 0.2
"""A job may begin just after it was cancelled: it is cancelled again."""


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


class JobThread(ABC):
    """The thread of one attempt: Spark's job tags and properties belong to threads.

    Args:
        attempt: At a batch, or at a chunk of records.
        engine: Runs its jobs.
    """

    def __init__(self, attempt: TransactionAttempt, engine: AttemptEngine) -> None:
        self.attempt = attempt
        self._engine = engine
        self._thread = InheritableThread(
            target=same_events(self._run), name=f"kafka-tx {attempt}", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def runs(self) -> bool:
        """Whether the thread has not ended."""
        return bool(self._thread.is_alive())

    def cancel(self) -> None:
        """Let it fail soon; may be repeated until the thread has ended."""
        self._engine.cancel(self.attempt)

    def end(self, timeout_s: float) -> bool:
        """Cancel it until its thread has ended; False if that takes longer."""
        deadline = time.monotonic() + timeout_s
        while self.runs and time.monotonic() < deadline:
            self.cancel()
            self._thread.join(CANCEL_AGAIN_S)
        return not self.runs

    @abstractmethod
    def _run(self) -> None:
        """On the thread. Every error has its answer."""
