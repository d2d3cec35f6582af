"""Runs the jobs of at-least-once topologies on Spark."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from py4j.protocol import Py4JError
from pyspark import RDD, cloudpickle

from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.topologies.engine import SparkEngine
from kafka_tx.topology.chunks import RecordJob
from kafka_tx.topology.failures import failure_of
from kafka_tx.topology.jobs import TaskJob
from kafka_tx.topology.messages import Message
from kafka_tx.topology.pace import Pace
from kafka_tx.topology.phases import Phase
from kafka_tx.topology.plan import Plan, Wave

logger = logging.getLogger(__name__)


class RecordEngine(SparkEngine):
    """A ``SparkEngine`` whose tasks track rows back to their records."""

    def has_begun(self, attempt: TransactionAttempt) -> bool:
        """Whether a task of an attempt that runs began; true when Spark cannot tell."""
        tracker = self._context._jsc.sc().statusTracker()
        try:
            jobs = tracker.getJobIdsForTag(self._tag(attempt))
            stages = [
                s for job in jobs for s in tracker.getJobInfo(job).get().stageIds()
            ]
            infos = [tracker.getStageInfo(stage) for stage in stages]
        except Py4JError as error:
            logger.info("Spark does not tell about %s: %s", attempt, error)
            return True
        return any(
            info.isDefined()
            and (info.get().numActiveTasks() or info.get().numCompletedTasks())
            for info in infos
        )

    def _rdd(self, job: TaskJob) -> RDD[Any]:
        records = dict(job.records) if isinstance(job, RecordJob) else {}
        pace = job.pace if isinstance(job, RecordJob) else None
        sent = cloudpickle.dumps(records)
        rdd = self._first(job)
        for number in range(len(job.waves)):
            run = RecordPartitionRun(
                self._plan, job.waves, job.attempt, sent, number, pace
            )
            if number:
                rdd = rdd.partitionBy(job.partitions[number], _same)
            rdd = rdd.mapPartitionsWithIndex(run)
        return rdd


@dataclass(frozen=True, slots=True)
class RecordPartitionRun:
    """What Spark calls in each partition of one wave (executor). Pickled.

    Attributes:
        plan: Pickled; read once per process.
        waves: All waves of the job.
        attempt: The chunk.
        records: Pickled; what each spout reads.
        wave: Index of this one.
        pace: How long it gives rows to bolts.
    """

    plan: bytes
    waves: tuple[Wave, ...]
    attempt: TransactionAttempt
    records: bytes
    wave: int
    pace: Pace | None = None

    def __call__(
        self, partition: int, given: Iterator[Any]
    ) -> Iterator[tuple[int, Message]]:
        """Yield pairs (partition of the next wave, message)."""
        plan = _plan_of(self.plan)
        messages: Iterator[Message] = chain.from_iterable(given)
        if self.wave:
            messages = (message for _, message in given)
        records = {}
        if self.wave == 0:
            try:
                records = pickle.loads(self.records)  # noqa: S301 - our own bytes
            except Exception as error:  # noqa: BLE001 - any error is word to the driver
                spout = plan.graph.components[0].name
                yield (
                    0,
                    failure_of(error, self.attempt, spout, partition, is_spout=False),
                )
                return
        job = RecordJob(
            plan,
            Phase.PROCESSING,
            self.waves,
            self.attempt,
            records=records,
            pace=self.pace,
        )
        yield from job.run_partition(self.wave, partition, messages)


@lru_cache(maxsize=16)
def _plan_of(payload: bytes) -> Plan:
    plan: Plan = pickle.loads(payload)  # noqa: S301 - our own bytes
    return plan


def _same(partition: int) -> int:
    """Partitions are numbers already."""
    return partition
