"""What every running topology is, whatever its guarantees: loop, threads, handle."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from pyspark import InheritableThread, SparkContext

from kafka_tx.errors import TransactionError
from kafka_tx.logs import about, event_log, same_events
from kafka_tx.metrics.endpoint import Endpoint, Guest, serve
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TransactionAttempt
from kafka_tx.options.topology_options import TopologySettings
from kafka_tx.running.serial_worker import is_worker
from kafka_tx.spark.versions.job_failures import is_stopped, spark_stopped
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


_END_WITHIN_S = 60.0
_POLL_EVERY_S = 2.0


class RunningTopology:
    """A topology that was started, like a ``StreamingQuery``. Safe in any thread."""

    _kept = "recorded"
    """Where a restart goes on from, in one word."""

    def __init__(
        self,
        topology_id: str,
        loop: TopologyLoop[Any],
        registry: MetricsRegistry,
        endpoint: Endpoint | Guest,
    ) -> None:
        self.id = topology_id
        """The topology's id."""
        self.metrics = registry
        """Where its measurements are."""
        self._loop = loop
        self._endpoint = endpoint

    @property
    def metrics_port(self) -> int | None:
        """Where ``/metrics`` answers; None when it was not asked for.

        Then whoever serves metrics in this process shows those of the topology too.
        """
        return self._endpoint.port

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        return not self._loop.has_ended.is_set()

    def exception(self) -> BaseException | None:
        """Why it ended; None while it runs, and after ``stop``."""
        return self._loop.error

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait for the end.

        Args:
            timeout: At most so many seconds.

        Returns:
            Whether it has ended; without a time-out always true.

        Raises:
            KafkaTxError: What ended it, above all a ``ComponentError``.
        """
        ended = self._loop.has_ended.wait(timeout)
        if ended and self._loop.error is not None:
            raise self._loop.error
        return ended

    def process_all_available(self, timeout_s: float | None = None) -> bool:
        """Wait until every record there is now is processed, and that is stored.

        New partitions are looked for. While brokers do not answer, or a partition has
        no leader, nobody knows what there is: it waits.

        Returns:
            Whether that is so; without a time-out always true.

        Raises:
            KafkaTxError: as ``awaitTermination``.
        """
        idle = self._loop.wait_until_idle(timeout_s)
        if self._loop.error is not None:
            raise self._loop.error
        return idle

    def pause(self) -> None:
        """Begin nothing more; what is in flight goes on and is committed."""
        self._loop.pause()

    def activate(self) -> None:
        """Go on after ``pause``."""
        self._loop.activate()

    def _end(self, *, finish: bool, timeout_s: float | None) -> None:
        """Stop, or cut it off when that takes too long.

        From a listener it only begins: the end waits for listeners, too.

        Raises:
            TransactionError: It was cut off.
        """
        self._loop.stop(finish=finish)
        if is_worker():
            return
        if not self._loop.has_ended.wait(timeout_s):
            error = TransactionError(
                f"topology '{self.id}' was not finished within {timeout_s} s and was"
                f" cut off; a restart goes on from what is {self._kept}"
            )
            self._loop.abort(error)
            self._loop.has_ended.wait(_END_WITHIN_S)
            raise error
        self._endpoint.close()

    def __repr__(self) -> str:
        word = "active" if self.isActive else "ended"
        return f"{type(self).__name__}({self.id!r}, {word})"


def end_with_session(loop: TopologyLoop[Any], context: SparkContext) -> None:
    """Let a topology end when its session does, also while it has nothing to do."""

    def watch() -> None:
        while not loop.has_ended.wait(_POLL_EVERY_S):
            if is_stopped(context):
                loop.abort(spark_stopped())
                return

    name = "kafka-tx session watch"
    threading.Thread(target=watch, name=name, daemon=True).start()


def serve_metrics(
    registry: MetricsRegistry, settings: TopologySettings
) -> Endpoint | Guest:
    """``/metrics`` where the settings say, else on every endpoint of this process."""
    if settings.metrics_port is None:
        return Guest(registry)
    return serve(
        registry,
        settings.metrics_port,
        settings.metrics_address,
        shows_page=settings.shows_page,
    )
