"""Shared by running topologies of both kinds: loop, threads, handle."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from pyspark import InheritableThread

from kafka_tx.errors import FencedError, TransactionError
from kafka_tx.logs import about, event_log, same_events
from kafka_tx.metrics.endpoint import Endpoint, Guest
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TransactionAttempt
from kafka_tx.protocols import Clock, Store
from kafka_tx.running.last_run import record_stop
from kafka_tx.running.serial_worker import Waiters, is_worker
from kafka_tx.spark.versions.job_failures import job_failure, spark_stopped
from kafka_tx.topology.run.jobs import Engine

logger = event_log(__name__)

E = TypeVar("E")
P = TypeVar("P")


class TopologyLoop(ABC, Generic[E]):
    """One thread that takes all its events from one queue.

    A subclass decides the next step, and the result (``E``) of an event. The methods
    without an underscore may be called from any thread.

    Args:
        topology_id: The topology's id.
        registry: Takes the metrics.
        clock: The machine's.
        store: Takes the reason of a stop; closed at the end. None: the reason is not
            stored.
    """

    def __init__(
        self,
        topology_id: str,
        registry: MetricsRegistry,
        clock: Clock,
        store: Store | None,
    ) -> None:
        self.id = topology_id
        """The topology's id."""
        self.registry = registry
        """The registry with its metrics."""
        self._clock = clock
        self._store = store
        self._events: SimpleQueue[Callable[[], E]] = SimpleQueue()
        self._post = self._events.put
        self._is_stopping = self._is_over = False
        self._waiters = Waiters()
        name = f"kafka-tx {topology_id}"
        self._thread = _TopologyThread(self._run, self._end_before_run, name)
        self.error: BaseException | None = None
        """The error that ended it; None while it runs, and after ``stop``."""
        self.has_ended = threading.Event()
        """Set when everything is released."""

    def start(self, *beside: threading.Thread) -> None:
        """Open what the topology reads from, and start the thread.

        Args:
            beside: Threads to start first; each ends soon after ``has_ended``.

        Raises:
            Exception: The spout cannot be opened, or a thread cannot be started;
                everything is released then.
        """
        try:
            self._open()
            for thread in beside:
                thread.start()
            self._thread.start()
        except BaseException as error:
            self.error = error
            self._end()
            raise

    def stop(self, *, finish: bool) -> None:
        """End; ``finish`` completes in-flight work first, otherwise it is cancelled."""
        self._post(lambda: self._stop(finish=finish))

    def abort(self, error: BaseException) -> None:
        """Stop now; the handle raises ``error``."""
        self._post(lambda: self._abort(error))

    def pause(self) -> None:
        """Begin no new work until ``activate``; in-flight work goes on."""
        self._post(lambda: self._pause(True))

    def activate(self) -> None:
        """Undo ``pause``."""
        self._post(lambda: self._pause(False))

    def wait_until_idle(self, timeout_s: float | None) -> bool:
        """Wait until all records that exist now are done.

        A poll that runs now may have begun before the caller's records existed. So only
        polls that begin after the call count. False if the time is up, or if the
        topology has ended before.
        """
        return self._waiters.wait(self._ask_idle, timeout_s)

    @abstractmethod
    def _ask_idle(self) -> Callable[[], bool]:
        """Whether polls that begin from now on have found nothing to do."""

    def _open(self) -> None:
        """Open what the loop does not open itself."""

    def _spout_ids(self) -> set[str]:
        """The ids under which spouts store offsets and show metrics."""
        return {self.id}

    def _run(self) -> None:
        with about(id=self.id):
            try:
                while not self._is_over:
                    self._step()
            except BaseException as error:
                logger.exception("the topology failed")
                self.error = error
            finally:
                self._end()

    def _end_before_run(self, error: Exception) -> None:
        self.error = spark_stopped()
        self.error.__cause__ = error
        self._end()

    def _end(self) -> None:
        try:
            hanging = self._release()
            if hanging is not None:
                logger.warning(
                    "it has ended, but code of it still runs on the driver %s", hanging
                )
            self.registry.record_end(self.id)
            if isinstance(self.error, FencedError):  # newer owners show these
                for id_ in self._spout_ids() - {self.id}:
                    record_stop(self.registry, None, id_, self.error, self._clock)
            record_stop(self.registry, self._store, self.id, self.error, self._clock)
            if self._store is not None:
                self._store.close()
        except Exception:
            logger.exception("the topology did not end properly")
        finally:  # no thread may wait for ever
            self.has_ended.set()
            self._waiters.end()

    @abstractmethod
    def _step(self) -> None:
        """Do the work that is due, then wait for an event and perform its result."""

    @abstractmethod
    def _stop(self, *, finish: bool) -> E: ...

    @abstractmethod
    def _abort(self, error: BaseException) -> E: ...

    @abstractmethod
    def _pause(self, is_paused: bool, /) -> E: ...

    @abstractmethod
    def _release(self) -> list[str] | None:
        """End everything that was started.

        Returns:
            The names of attempts that hang, as far as known; None: nothing hangs.
        """


class _TopologyThread(InheritableThread):
    """Tells ``has_failed`` if the session is gone before ``run`` begins.

    PySpark gives the new thread its properties first; ``run`` cannot handle that error.
    """

    def __init__(
        self,
        run: Callable[[], None],
        has_failed: Callable[[Exception], None],
        name: str,
    ) -> None:
        super().__init__(target=run, name=name, daemon=True)
        self._has_failed = has_failed

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - the loop ends with it
            self._has_failed(error)


CANCEL_AGAIN_S = 0.2
"""Seconds until a job is cancelled again: it may have begun just after the cancel."""

END_WITHIN_S = 30.0
"""Seconds that shutdown waits for user code on the driver, if the caller gives none."""

MOST_HANGING = 16
"""Given-up attempts that may hang in user code on the driver, each on a thread."""


def too_many_hang(most: int, what: str) -> TransactionError:
    """The error that ends a topology after more than ``most`` hanging attempts."""
    return TransactionError(
        f"more than {most} {what} and their code on the driver still runs, each on a"
        " thread of its own. Bound what components on the driver wait for, or put them"
        " on executors, where they are ended."
    )


class AttemptEngine(Engine, Protocol):
    """An engine that identifies an attempt by the thread that calls."""

    def enter(self, attempt: TransactionAttempt) -> None:
        """All later jobs of this thread belong to this attempt."""

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Let this attempt's jobs fail soon. From any thread; may be repeated."""

    def close(self) -> None:
        """Stop waiting for tasks. Harmless twice."""


class JobThread(ABC):
    """The thread of one attempt: Spark's job tags and properties belong to threads."""

    def __init__(self, attempt: TransactionAttempt, engine: AttemptEngine) -> None:
        self.attempt = attempt
        self._engine = engine
        run, name = same_events(self._run), f"kafka-tx {attempt}"
        self._thread = _TopologyThread(run, self._lost, name)

    def start(self) -> None:
        """Begin.

        Raises:
            KafkaTxError: Spark was stopped, or there is no room for another thread.
        """
        try:
            self._thread.start()
        except Exception as error:
            raise job_failure(error, self.attempt) from error

    @property
    def runs(self) -> bool:
        """Whether the thread runs."""
        return bool(self._thread.is_alive())

    def cancel(self) -> None:
        """Let its jobs fail soon; may be repeated until the thread has ended."""
        self._engine.cancel(self.attempt)

    def end(self, timeout_s: float) -> bool:
        """Cancel again and again until the thread has ended; False if it still runs."""
        deadline = time.monotonic() + timeout_s
        while self.runs and time.monotonic() < deadline:
            self.cancel()
            self._thread.join(CANCEL_AGAIN_S)
        return not self.runs

    @abstractmethod
    def _run(self) -> None:
        """Run the attempt on its thread, and answer every error."""

    def _lost(self, error: Exception) -> None:
        self._crashed(job_failure(error, self.attempt))

    @abstractmethod
    def _crashed(self, error: BaseException) -> None:
        """Answer that ``_run`` has not begun, on its thread."""


_CUT_OFF_WITHIN_S = 60.0


class RunningTopology(ABC, Generic[P]):
    """A topology that was started, like a ``StreamingQuery``. Safe in any thread."""

    def __init__(self, loop: TopologyLoop[Any], endpoint: Endpoint | Guest) -> None:
        self.id = loop.id
        """The topology's id."""
        self.metrics = loop.registry
        """The registry with its metrics."""
        self._loop = loop
        self._endpoint = endpoint

    @property
    def metrics_port(self) -> int | None:
        """The port of ``/metrics``; None if the settings name no port.

        Without one, the port that this process opened first shows the metrics.
        """
        return self._endpoint.port

    @property
    @abstractmethod
    def recentProgress(self) -> list[P]:
        """The last 100 reports of progress since the start, oldest first."""

    @property
    def lastProgress(self) -> P | None:
        """The last one of ``recentProgress``; None before the first one."""
        return next(reversed(self.recentProgress), None)

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        return not self._loop.has_ended.is_set()

    def exception(self) -> BaseException | None:
        """The error that ended it; None while it runs, and after ``stop``."""
        return self._loop.error

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait for the end.

        Args:
            timeout: Most seconds to wait.

        Returns:
            Whether it has ended; without a time-out always true.

        Raises:
            KafkaTxError: The error that ended it, mostly a ``ComponentError``.
        """
        ended = self._loop.has_ended.wait(timeout)
        if ended and self._loop.error is not None:
            raise self._loop.error
        return ended

    def process_all_available(self, timeout_s: float | None = None) -> bool:
        """Wait until every record that exists now is processed and stored as done.

        Includes new partitions. While brokers do not answer, or a partition has no
        leader, the records are unknown, and the call waits.

        Returns:
            False if the time is up, or if the topology was stopped before.

        Raises:
            KafkaTxError: As of ``awaitTermination``.
        """
        idle = self._loop.wait_until_idle(timeout_s)
        if self._loop.error is not None:
            raise self._loop.error
        return idle

    def pause(self) -> None:
        """Begin no new work; in-flight work goes on and is committed."""
        self._loop.pause()

    def activate(self) -> None:
        """Go on after ``pause``."""
        self._loop.activate()

    def _end(self, *, finish: bool, timeout_s: float | None) -> None:
        """Stop the topology, or cut it off if the stop takes too long.

        A listener's call only begins the stop, because the end waits for listeners.

        Raises:
            TransactionError: It was cut off.
        """
        self._loop.stop(finish=finish)
        if is_worker():
            return
        if not self._loop.has_ended.wait(timeout_s):
            error = TransactionError(
                f"topology '{self.id}' was not finished within {timeout_s} s and was"
                f" cut off; a restart goes on from what is stored"
            )
            self._loop.abort(error)
            self._loop.has_ended.wait(_CUT_OFF_WITHIN_S)
            raise error
        self._endpoint.close()

    def __repr__(self) -> str:
        word = "active" if self.isActive else "ended"
        return f"{type(self).__name__}({self.id!r}, {word})"
