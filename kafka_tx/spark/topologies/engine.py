"""Runs the jobs of attempts on Spark: a new RDD for each, narrow stages fused.

Two attempts never share an RDD with a shuffle: Spark keeps map output by RDD, and would
give the second attempt the records of the first one.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from math import inf
from typing import Any

import pyarrow as pa
from pyspark import RDD, Broadcast, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from kafka_tx.errors import FailedException, FormatError, KafkaTxError
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.permit import PermitAddress, PermitServer, permit
from kafka_tx.running.task_reports import DriverAddress
from kafka_tx.running.worker_python import task_done
from kafka_tx.spark.versions.job_failures import JobLostError, is_stopped, job_failure
from kafka_tx.spark.versions.workers import whole
from kafka_tx.stored import VERSION, check_same_version
from kafka_tx.topology.plan.physical import Phase, PhysicalPlan
from kafka_tx.topology.run.jobs import FrameJob, Reads, TaskJob
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped, Message
from kafka_tx.topology.run.task_failures import failure_of

COMMIT_POOL = "kafka-tx-commit"
"""Scheduler pool of commit phases on executors, in Spark's scheduler mode FAIR."""

_LARGE = 512 << 10
"""From these bytes on, a plan, and the reads of a job, are broadcast and then removed.
PySpark broadcasts what exceeds 1 MiB of a job, and leaves a file of it on the driver's
disk for as long as the session."""

_FAILURES = (BatchFailed, BatchStopped)
"""Tell enough. A worker of another version than the driver says no more than that."""

_FEW_ROWS, _QUICK_S, _APART = 200, 0.25, 20
"""A processing job of at most ``_FEW_ROWS`` rows runs as one task of Spark: each task
costs some milliseconds, each exchange some tens. Bolts that wait for long need their
tasks side by side: after a job that took longer than ``_QUICK_S``, so many jobs do,
until one of them takes as long. Then so many run as one task whatever they take."""


class SparkEngine:
    """Runs the jobs of one topology's attempts, of either kind; an ``AttemptEngine``.

    Runs on the driver, in a classic session. Each attempt has a thread of its own,
    which calls ``enter`` first: Spark's job tags and properties belong to threads. The
    plan is pickled once.
    """

    def __init__(self, spark: SparkSession, plan: PhysicalPlan) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._plan: bytes | Broadcast[bytes] = cloudpickle.dumps(plan)
        self._prefix = f"kafka-tx-{plan.graph.id}-"
        mode = self._context.getConf().get("spark.scheduler.mode", "FIFO")
        self._is_fair = mode.upper() == "FAIR"
        self._nothing: dict[int, RDD[Any]] = {}
        self._permit_server: PermitServer | None = None
        self._opening = threading.Lock()
        self._apart, self._slow_s = 0, inf
        # 1 and more: small jobs to spread, after one that took _slow_s as one task
        # -1 and less: small jobs to run as one task, however long they take

    # --- attempts ---

    def enter(self, attempt: TransactionAttempt) -> None:
        """Mark all later jobs of this thread as jobs of an attempt."""
        self._context.addJobTag(self._tag(attempt))
        self._context.setInterruptOnCancel(True)
        description = f"{self._prefix}{attempt}"
        self._context.setLocalProperty("spark.job.description", description)

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Cancel the running jobs of an attempt; harmless if none runs."""
        if self._permit_server is not None:
            self._permit_server.give_up(attempt)
        with suppress(Exception):  # a session that is gone has nothing to cancel
            self._context.cancelJobsWithTag(self._tag(attempt))

    def close(self) -> None:
        """Stop waiting for tasks, and remove the plan's file. Harmless twice."""
        if self._permit_server is not None:
            self._permit_server.close()
        # one that is gone has no files, and a new one has a broadcast of that number
        if not isinstance(self._plan, bytes) and not is_stopped(self._context):
            _remove(self._plan)

    def _tag(self, attempt: TransactionAttempt) -> str:
        return f"{self._prefix}{attempt.txid}-{attempt.attempt_id}"

    # --- jobs ---

    def run_tasks(self, job: TaskJob) -> Iterable[Message]:
        """Run one Spark job: all waves in order, with an exchange between two waves.

        A commit phase returns only when all its tasks, or their processes, have ended.

        Raises:
            JobLostError: A task or executor was lost: the batch may be replayed.
            TransactionError: A replay would not help.
        """
        if job.phase is not Phase.COMMIT:
            return self._process(job)
        if self._is_fair:
            self._context.setLocalProperty("spark.scheduler.pool", COMMIT_POOL)
        with self._permits().phase(job.attempt) as address:
            return self._collect(job, address)

    def _process(self, job: TaskJob) -> list[Message]:
        rows = job.most_rows
        if rows is None or rows > _FEW_ROWS:
            return self._collect(job, None)
        is_apart, began_s, took_s = self._apart > 0, time.monotonic(), inf
        try:
            messages = self._collect(replace(job, is_together=not is_apart), None)
            took_s = time.monotonic() - began_s
        finally:
            self._learn(took_s, is_apart=is_apart)
        return messages

    def _learn(self, took_s: float, *, is_apart: bool) -> None:
        """Decide how the next small jobs run; ``took_s`` of a lost job is infinite."""
        if took_s == inf or (self._apart == 0 and took_s > _QUICK_S):
            self._apart, self._slow_s = _APART, took_s
        elif is_apart and took_s >= self._slow_s:
            self._apart = -_APART  # the machine is slow, and more tasks make it slower
        elif self._apart:
            self._apart -= 1 if self._apart > 0 else -1

    def _permits(self) -> PermitServer:
        with self._opening:
            if self._permit_server is None:
                driver = DriverAddress.of(self._context.getConf().get)
                self._permit_server = PermitServer(driver)
            return self._permit_server

    def _collect(self, job: TaskJob, address: PermitAddress | None) -> list[Message]:
        reads: bytes | Broadcast[bytes] = b""
        try:
            reads = self._broadcast_if_large(cloudpickle.dumps(dict(job.reads)))
            found = self._rdd(job, address, reads).collect()
        except Exception as error:
            raise job_failure(error, job.attempt) from error
        finally:
            _remove(reads)
        messages = [message for _, message in found if message is not None]
        # what Spark sends here ends also where its JVM does
        is_whole = len(found) - len(messages) >= job.partitions[-1]
        if is_whole or any(isinstance(each, _FAILURES) for each in messages):
            return messages
        raise JobLostError("Spark has not sent all results", txid=job.attempt.txid)

    def _shipped_plan(self) -> bytes | Broadcast[bytes]:
        with self._opening:
            if isinstance(self._plan, bytes):
                self._plan = self._broadcast_if_large(self._plan)
            return self._plan

    def _broadcast_if_large(self, pickled: bytes) -> bytes | Broadcast[bytes]:
        is_large = len(pickled) > _LARGE
        return self._context.broadcast(pickled) if is_large else pickled

    def _rdd(
        self,
        job: TaskJob,
        address: PermitAddress | None,
        reads: bytes | Broadcast[bytes],
    ) -> RDD[Any]:
        """An RDD with the job's waves; tasks ask ``address`` before they begin."""
        make = job.shipped()
        rdd, plan = self._first(job), self._shipped_plan()
        for number in range(len(job.partitions)):
            work = plan, job.attempt, make, b"" if number else reads
            run = PartitionRun(VERSION, *work, number, address)
            if number:
                rdd = rdd.partitionBy(job.partitions[number], _same)
            rdd = rdd.mapPartitionsWithIndex(run)
        return rdd

    def _first(self, job: TaskJob) -> RDD[Any]:
        """The input of the first wave: a list for each partition, or nothing."""
        width = job.partitions[0]
        if job.inbox:
            return self._context.parallelize(job.first(), width)
        # All attempts use it again, which is safe: it has no shuffle.
        if width not in self._nothing:
            self._nothing[width] = self._context.parallelize([], width)
        return self._nothing[width]

    def run_frames(self, job: FrameJob) -> Iterable[Message]:
        """Run the bolts on Spark DataFrames; each exchange is one Arrow table.

        A failure of user code becomes a message; a lost job causes a replay.
        """
        return job.run(self._to_frame, self._to_table)

    def _to_frame(self, table: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(table)

    def _to_table(self, frame: DataFrame, names: tuple[str, ...]) -> pa.Table:
        chosen = frame.select([_quoted(name) for name in names])
        try:
            return chosen.toArrow()
        except Exception as error:
            # The caller that catches this error adds the attempt.
            failure = job_failure(error, TransactionAttempt(0, 0))
            if isinstance(failure, JobLostError):
                raise FailedException(str(failure)) from error
            raise


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """Spark calls it on executors, for each partition of one wave. Pickled.

    Runs the tasks of both kinds of topologies.

    Attributes:
        version: Of the driver.
        plan: Pickled, by itself or behind a broadcast; read once per process.
        reads: As ``plan``; the reads of spouts, for the first wave.
        wave: Index of the wave.
        address: The task asks this server before it begins; None: it does not ask.
    """

    version: str
    plan: bytes | Broadcast[bytes]
    attempt: TransactionAttempt
    make: Callable[[PhysicalPlan, Reads], TaskJob]
    reads: bytes | Broadcast[bytes]
    wave: int
    address: PermitAddress | None = None

    def __call__(
        self, partition: int, given: Iterator[Any]
    ) -> Iterator[tuple[int, Message | None]]:
        """Yield pairs (partition of the next wave, message).

        Of the last wave there is one more, without a message: the partition has ended.
        """
        try:
            yield from self._run(partition, given)
        finally:
            task_done()

    def _run(
        self, partition: int, given: Iterator[Any]
    ) -> Iterator[tuple[int, Message | None]]:
        try:
            check_same_version(self.version, f"attempt {self.attempt}")
        except FormatError as error:
            yield 0, BatchStopped(self.attempt, error)
            for _ in given:
                pass
            return
        given = whole(given)
        plan = _plan_of(_value_of(self.plan))
        if self.wave:
            messages: Iterator[Message] = (message for _, message in given)
        else:
            messages = chain.from_iterable(given)
        reads: Reads = {}
        if self.wave == 0:
            try:
                reads = pickle.loads(_value_of(self.reads))  # noqa: S301 - our own bytes
            except Exception as error:  # noqa: BLE001 - the driver gets any error
                where = plan.graph.components[0].name, partition
                yield 0, failure_of(error, self.attempt, *where, is_spout=False)
                for _ in messages:  # a worker that leaves input unread is lost
                    pass
                return
        job = self.make(plan, reads)
        yield from self._work(job, partition, messages)
        if self.wave == len(job.partitions) - 1:
            yield 0, None

    def _work(
        self, job: TaskJob, partition: int, messages: Iterator[Message]
    ) -> Iterator[tuple[int, Message]]:
        if self.address is None:
            yield from job.run_partition(self.wave, partition, messages)
            return
        task, given = job.waves[self.wave].task_ids[partition], list(messages)
        try:
            with permit(self.address, self.attempt, str(task)):
                yield from job.run_partition(self.wave, partition, given)
        except KafkaTxError as error:  # errors of user code are messages: no permit
            yield 0, failure_of(error, self.attempt, *task, is_spout=True)


def _value_of(pickled: bytes | Broadcast[bytes]) -> bytes:
    return pickled if isinstance(pickled, bytes) else pickled.value


def _remove(pickled: bytes | Broadcast[bytes]) -> None:
    if not isinstance(pickled, bytes):
        with suppress(Exception):  # its session may be gone
            pickled.destroy()


@lru_cache(maxsize=16)
def _plan_of(payload: bytes) -> PhysicalPlan:
    plan: PhysicalPlan = pickle.loads(payload)  # noqa: S301 - our own bytes
    return plan


def _same(partition: int) -> int:
    """The partitioner: a key is a partition's number already."""
    return partition


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
