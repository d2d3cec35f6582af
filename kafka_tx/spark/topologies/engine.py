"""Runs the jobs of attempts on Spark: a new RDD for each, narrow stages fused.

A constant plan is never used for two attempts: with a shuffle in it Spark would give
the second one the first one's records, because map output is kept by plan.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import RDD, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from kafka_tx.errors import FailedException, KafkaTxError
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.permit import PermitAddress, PermitServer, permit
from kafka_tx.running.task_reports import DriverAddress
from kafka_tx.running.worker_python import task_done
from kafka_tx.spark.versions.job_failures import JobLostError, job_failure
from kafka_tx.topology.plan.physical import Phase, PhysicalPlan
from kafka_tx.topology.run.jobs import FrameJob, Reads, TaskJob
from kafka_tx.topology.run.messages import Message
from kafka_tx.topology.run.task_failures import failure_of

COMMIT_POOL = "kafka-tx-commit"
"""Scheduler pool of commit phases on executors, where Spark schedules fairly."""


class SparkEngine:
    """Runs the jobs of one topology's attempts, of either kind; an ``AttemptEngine``.

    Driver. Each attempt calls from a thread of its own, after ``enter``: job tags and
    properties belong to threads.

    Args:
        spark: A classic session (not Spark Connect).
        plan: Of the topology; pickled once.
    """

    def __init__(self, spark: SparkSession, plan: PhysicalPlan) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._plan = cloudpickle.dumps(plan)
        self._prefix = f"kafka-tx-{plan.graph.id}-"
        mode = self._context.getConf().get("spark.scheduler.mode", "FIFO")
        self._is_fair = mode.upper() == "FAIR"
        self._nothing: dict[int, RDD[Any]] = {}
        self._permit_server: PermitServer | None = None
        self._opening = threading.Lock()

    # --- attempts ---

    def enter(self, attempt: TransactionAttempt) -> None:
        """Mark the jobs of this thread, for ever, as those of an attempt."""
        self._context.addJobTag(self._tag(attempt))
        self._context.setInterruptOnCancel(True)
        self._context.setLocalProperty(
            "spark.job.description", f"{self._prefix}{attempt}"
        )

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Cancel what runs for an attempt now; harmless when nothing does."""
        if self._permit_server is not None:
            self._permit_server.give_up(attempt)
        with suppress(Exception):  # a session that is gone has nothing to cancel
            self._context.cancelJobsWithTag(self._tag(attempt))

    def close(self) -> None:
        """Wait for no task any longer. Harmless twice."""
        if self._permit_server is not None:
            self._permit_server.close()

    def _tag(self, attempt: TransactionAttempt) -> str:
        return f"{self._prefix}{attempt.txid}-{attempt.attempt_id}"

    # --- jobs ---

    def run_tasks(self, job: TaskJob) -> Iterable[Message]:
        """One Spark job: wave after wave, an exchange between two of them.

        That of a commit phase ends when all its tasks have, or their processes.

        Raises:
            JobLostError: A task or executor was lost: the batch may be replayed.
            TransactionError: No replay would help.
        """
        if job.phase is not Phase.COMMIT:
            return self._collect(job, None)
        if self._is_fair:
            self._context.setLocalProperty("spark.scheduler.pool", COMMIT_POOL)
        with self._permits().phase(job.attempt) as address:
            return self._collect(job, address)

    def _permits(self) -> PermitServer:
        with self._opening:
            if self._permit_server is None:
                driver = DriverAddress.of(self._context.getConf().get)
                self._permit_server = PermitServer(driver)
            return self._permit_server

    def _collect(self, job: TaskJob, address: PermitAddress | None) -> list[Message]:
        try:
            return [message for _, message in self._rdd(job, address).collect()]
        except Exception as error:
            raise job_failure(error, job.attempt) from error

    def _rdd(self, job: TaskJob, address: PermitAddress | None) -> RDD[Any]:
        """The job's waves, one after the other.

        Args:
            job: What to run.
            address: Where tasks ask before they begin; None: no need to.
        """
        make, reads = job.shipped(), cloudpickle.dumps(dict(job.reads))
        rdd = self._first(job)
        for number in range(len(job.waves)):
            run = PartitionRun(
                self._plan, job.attempt, make, b"" if number else reads, number, address
            )
            if number:
                rdd = rdd.partitionBy(job.partitions[number], _same)
            rdd = rdd.mapPartitionsWithIndex(run)
        return rdd

    def _first(self, job: TaskJob) -> RDD[Any]:
        """What goes into the first wave, a list for each partition, or nothing."""
        width = job.partitions[0]
        if job.inbox:
            return self._context.parallelize(job.first(), width)
        # Reused by all attempts, which is safe: nothing is shuffled to make it.
        if width not in self._nothing:
            self._nothing[width] = self._context.parallelize([], width)
        return self._nothing[width]

    def run_frames(self, job: FrameJob) -> Iterable[Message]:
        """The bolts with real DataFrames, each exchange as one Arrow table.

        A failure of user code is a message; a lost job asks for a replay.
        """
        return job.run(self._to_frame, self._to_table)

    def _to_frame(self, table: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(table)

    def _to_table(self, frame: DataFrame, names: tuple[str, ...]) -> pa.Table:
        chosen = frame.select([_quoted(name) for name in names])
        try:
            return chosen.toArrow()
        except Exception as error:
            # Which attempt it was is added where this is caught.
            failure = job_failure(error, TransactionAttempt(0, 0))
            if isinstance(failure, JobLostError):
                raise FailedException(str(failure)) from error
            raise


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """What Spark calls in each partition of one wave (executor). Pickled.

    The one runner of tasks, of topologies of both kinds.

    Attributes:
        plan: Pickled; read once per process.
        attempt: What it is run for.
        make: Makes the job.
        reads: Pickled; what spouts read, in the first wave.
        wave: Index of this one.
        address: Where to ask before anything is done; None: no need to.
    """

    plan: bytes
    attempt: TransactionAttempt
    make: Callable[[PhysicalPlan, Reads], TaskJob]
    reads: bytes
    wave: int
    address: PermitAddress | None = None

    def __call__(
        self, partition: int, given: Iterator[Any]
    ) -> Iterator[tuple[int, Message]]:
        """Yield pairs (partition of the next wave, message)."""
        try:
            yield from self._run(partition, given)
        finally:
            task_done()

    def _run(
        self, partition: int, given: Iterator[Any]
    ) -> Iterator[tuple[int, Message]]:
        plan = _plan_of(self.plan)
        if self.wave:
            messages: Iterator[Message] = (message for _, message in given)
        else:
            messages = chain.from_iterable(given)
        reads: Reads = {}
        if self.wave == 0:
            try:
                reads = pickle.loads(self.reads)  # noqa: S301 - our own bytes
            except Exception as error:  # noqa: BLE001 - any error is word to the driver
                spout = plan.graph.components[0].name
                failure = failure_of(
                    error, self.attempt, spout, partition, is_spout=False
                )
                yield 0, failure
                for _ in messages:  # a worker that leaves input unread is lost
                    pass
                return
        job = self.make(plan, reads)
        if self.address is None:
            yield from job.run_partition(self.wave, partition, messages)
        else:
            yield from self._with_permit(self.address, job, partition, list(messages))

    def _with_permit(
        self,
        address: PermitAddress,
        job: TaskJob,
        partition: int,
        messages: list[Message],
    ) -> Iterator[tuple[int, Message]]:
        task = job.waves[self.wave].task_ids[partition]
        try:
            with permit(address, self.attempt, str(task)):
                yield from job.run_partition(self.wave, partition, messages)
        except KafkaTxError as error:  # user code never raises: it was not allowed
            yield (
                0,
                failure_of(error, self.attempt, task.stage, task.task, is_spout=True),
            )


@lru_cache(maxsize=16)
def _plan_of(payload: bytes) -> PhysicalPlan:
    plan: PhysicalPlan = pickle.loads(payload)  # noqa: S301 - our own bytes
    return plan


def _same(partition: int) -> int:
    """Partitions are numbers already."""
    return partition


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
