"""The Spark jobs of at-least-once topologies: how many, how large, and which hang."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from pyspark import RDD, InheritableThread
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession

from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TransactionAttempt
from kafka_tx.options.topology_options import RunnerLimits
from kafka_tx.protocols import Clock, Store
from kafka_tx.running.at_least_once.chunk_answers import InFlightChunk
from kafka_tx.running.at_least_once.poller import PollerParts
from kafka_tx.running.permit import PermitAddress
from kafka_tx.running.task_reports import DriverAddress, ReportListener, send_report
from kafka_tx.spark.topologies.attempt import AttemptEngine
from kafka_tx.spark.topologies.engine import SparkEngine
from kafka_tx.topology.at_least_once.chunks import Chunk, RecordJob, Watch
from kafka_tx.topology.at_least_once.pace import Pace
from kafka_tx.topology.at_least_once.records import RecordSource
from kafka_tx.topology.at_least_once.tasks import RecordTask
from kafka_tx.topology.plan.physical import Phase, PhysicalPlan, Wave
from kafka_tx.topology.run.jobs import TaskJob
from kafka_tx.topology.run.messages import Roots

_LOOKS = 8
"""So often it is looked, within the time that a row may take."""

_MOST_ROOTS = 10_000


@dataclass(frozen=True, slots=True)
class HangWatch:
    """Watches a task from a thread of its own (executor). Pickled.

    A report is sent for as long as the row is not given back: the driver may not have
    heard it. While bolts get on, or reset the time-out, that is told too: the driver
    waits for such a chunk.

    Attributes:
        address: Of the driver's ``ReportListener``.
        attempt: The chunk.
        timeout_s: How long bolts may take for a row, or for an Arrow batch.
    """

    address: str
    attempt: TransactionAttempt
    timeout_s: float

    @contextmanager
    def __call__(self, task: RecordTask) -> Iterator[None]:
        """Watch it meanwhile."""
        has_ended = threading.Event()
        name = f"kafka-tx watches {task.id}"
        threading.Thread(
            target=self._watch, args=(task, has_ended), name=name, daemon=True
        ).start()
        try:
            yield
        finally:
            has_ended.set()

    def _watch(self, task: RecordTask, has_ended: threading.Event) -> None:
        place, since_s = task.place, time.monotonic()
        while not has_ended.wait(self.timeout_s / _LOOKS):
            now_place, now_s = task.place, time.monotonic()
            if now_place is None or now_place != place:
                place, since_s = now_place, now_s
                report: dict[str, object] = {"moves": True}
            elif now_s - since_s >= self.timeout_s:
                roots = task.in_hands()[:_MOST_ROOTS].tolist()
                report = {"component": task.running, "roots": roots}
            else:
                continue
            if place is not None and not self._hears(report):
                return

    def _hears(self, report: dict[str, object]) -> bool:
        """Tell the driver; False when nobody listens any more."""
        try:
            send_report(self.address, {"attempt": str(self.attempt), **report})
        except ConnectionRefusedError:
            return False
        except OSError as error:
            logger.warning("the driver does not hear %s: %s", report, error)
        return True


logger = logging.getLogger(__name__)

CANCEL_AGAIN_S = 0.2
"""A job may begin just after it was cancelled: it is cancelled again."""


Hangs = Callable[[TransactionAttempt, str, Roots], None]
"""Takes a chunk, a component, and the records it does not give back."""

Moves = Callable[[TransactionAttempt], None]
"""Takes a chunk of which a task is getting on."""


class ChunkEngine(AttemptEngine, Protocol):
    """An engine whose tasks tell of rows that bolts do not give back."""

    def listen(self, timeout_ms: int, hangs: Hangs, moves: Moves) -> None:
        """Call ``hangs`` for each row, or Arrow batch, that takes longer; repeatedly.

        ``moves`` is called from time to time for chunks that get on.
        """
        ...

    def watch(self, attempt: TransactionAttempt) -> Watch | None:
        """What tells of a task of this chunk; None: nothing does."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


@dataclass(frozen=True)
class AtLeastOnceRunnerParts:
    """What a runner is made of.

    Attributes:
        id: Of the topology.
        plan: Of the topology.
        engine: Runs the jobs.
        pollers: What each spout's poller is made of.
        limits: How much at once.
        registry: Takes the metrics.
        clock: The machine's.
        notes: Where it is noted what ended it, if anywhere; closed at the end.
    """

    id: str
    plan: PhysicalPlan
    engine: ChunkEngine
    pollers: Mapping[str, PollerParts]
    limits: RunnerLimits
    registry: MetricsRegistry
    clock: Clock
    notes: Store | None = None


class ChunkJob:
    """A chunk's job on a thread of its own: tags and properties belong to threads."""

    def __init__(
        self,
        started: InFlightChunk,
        engine: AttemptEngine,
        run: Callable[[], Chunk],
        answer: Callable[[Chunk | BaseException], None],
    ) -> None:
        self.started = started
        self._engine = engine
        self._run_chunk = run
        self._answer = answer
        self.cancelled_ms: int | None = None
        """Since when its answer no longer counts (monotonic); None: it counts."""
        self._thread = InheritableThread(
            target=self._run, name=f"kafka-tx chunk {started.attempt}", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def runs(self) -> bool:
        """Whether its thread has not ended."""
        return bool(self._thread.is_alive())

    def cancel(self, now_ms: int) -> None:
        """Let it fail soon; may be repeated."""
        if self.cancelled_ms is None:
            self.cancelled_ms = now_ms
        self._engine.cancel(self.started.attempt)

    def end(self, timeout_s: float) -> bool:
        """Cancel it until its thread has ended; False if that takes longer."""
        waited_s = 0.0
        while self._thread.is_alive() and waited_s < timeout_s:
            self._engine.cancel(self.started.attempt)
            self._thread.join(CANCEL_AGAIN_S)
            waited_s += CANCEL_AGAIN_S
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._engine.enter(self.started.attempt)
            result: Chunk | BaseException = self._run_chunk()
        except BaseException as error:  # noqa: BLE001 - every error has its answer
            result = error
        self._answer(result)


class ChunkSparkEngine(SparkEngine):
    """A ``SparkEngine`` whose tasks track rows back to their records."""

    def __init__(self, spark: SparkSession, plan: PhysicalPlan) -> None:
        super().__init__(spark, plan)
        self._reports: ReportListener | None = None
        self._timeout_s = 0.0

    def listen(self, timeout_ms: int, hangs: Hangs, moves: Moves) -> None:
        """Have tasks tell of rows that bolts do not give back (before the first job).

        Both are called on a thread of their own.
        """
        driver = DriverAddress.of(self._context.getConf().get)

        def report(reported: dict[str, Any]) -> None:
            attempt = TransactionAttempt.parse(str(reported["attempt"]))
            if reported.get("moves"):
                moves(attempt)
                return
            roots = np.array([int(root) for root in reported["roots"]], np.int64)
            hangs(attempt, str(reported["component"]), roots)

        try:
            self._reports = ReportListener(driver, report, "kafka-tx hangs")
        except OSError as error:
            logger.warning("tasks cannot tell that a bolt hangs: %s", error)
        self._timeout_s = timeout_ms / 1_000

    def close(self) -> None:
        """Listen no more."""
        super().close()
        if self._reports is not None:
            self._reports.close()

    def watch(self, attempt: TransactionAttempt) -> HangWatch | None:
        """What tells of a task of this chunk, wherever it runs; None: nothing does."""
        if self._reports is None:
            return None
        return HangWatch(self._reports.address, attempt, self._timeout_s)

    def _rdd(self, job: TaskJob, address: PermitAddress | None) -> RDD[Any]:
        assert isinstance(job, RecordJob), "a chunk of records has no other phase"
        make = partial(
            record_job, job.waves, job.attempt, job.pace, self.watch(job.attempt)
        )
        return self._partitions(job, make, dict(job.records), address)


def record_job(
    waves: tuple[Wave, ...],
    attempt: TransactionAttempt,
    pace: Pace | None,
    watch: HangWatch | None,
    plan: PhysicalPlan,
    records: Mapping[str, RecordSource] | None,
) -> RecordJob:
    """A chunk's job on an executor: what the driver decided, the plan, the records."""
    return RecordJob(
        plan,
        Phase.PROCESSING,
        waves,
        attempt,
        records=records or {},
        pace=pace,
        watch=watch,
        dumps=CPickleSerializer().dumps,
    )
