"""Runs the jobs of at-least-once topologies on Spark."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from pyspark import RDD, cloudpickle
from pyspark.sql import SparkSession

from kafka_tx.model import TransactionAttempt
from kafka_tx.running.at_least_once.hangs import HangWatch
from kafka_tx.running.task_reports import WordDesk
from kafka_tx.spark.at_least_once.chunk_jobs import Hangs
from kafka_tx.spark.topologies.engine import SparkEngine
from kafka_tx.topology.plan.phases import Phase
from kafka_tx.topology.plan.physical import Plan, Wave
from kafka_tx.topology.run.jobs import TaskJob
from kafka_tx.topology.run.messages import Message
from kafka_tx.topology.run.task_failures import failure_of
from kafka_tx.topology.tracked.chunks import RecordJob
from kafka_tx.topology.tracked.pace import Pace

logger = logging.getLogger(__name__)


class RecordEngine(SparkEngine):
    """A ``SparkEngine`` whose tasks track rows back to their records."""

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        super().__init__(spark, plan)
        self._words: WordDesk | None = None
        self._timeout_s = 0.0

    def listen(self, timeout_ms: int, take: Hangs) -> None:
        """Have tasks tell of rows that bolts do not give back (before the first job).

        ``take`` is called on a thread of its own.
        """
        config = self._context.getConf()
        host = config.get("spark.driver.host", "127.0.0.1")
        bind = config.get("spark.driver.bindAddress", host)

        def word(told: dict[str, Any]) -> None:
            attempt = TransactionAttempt.parse(str(told["attempt"]))
            roots = np.array([int(root) for root in told["roots"]], np.int64)
            take(attempt, str(told["component"]), roots)

        try:
            self._words = WordDesk(host, word, "kafka-tx hangs", bind=bind)
        except OSError as error:
            logger.warning("executors cannot tell that a bolt hangs: %s", error)
        self._timeout_s = timeout_ms / 1_000

    def close(self) -> None:
        """Listen no more."""
        super().close()
        if self._words is not None:
            self._words.close()

    def _watch(self, attempt: TransactionAttempt) -> HangWatch | None:
        if self._words is None:
            return None
        return HangWatch(self._words.address, attempt, self._timeout_s)

    def _rdd(self, job: TaskJob, address: object = None) -> RDD[Any]:  # noqa: ARG002
        records = dict(job.records) if isinstance(job, RecordJob) else {}
        pace = job.pace if isinstance(job, RecordJob) else None
        watch = self._watch(job.attempt)
        sent = cloudpickle.dumps(records)
        rdd = self._first(job)
        for number in range(len(job.waves)):
            run = RecordPartitionRun(
                self._plan, job.waves, job.attempt, sent, number, pace, watch
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
        watch: Tells of rows that bolts do not give back.
    """

    plan: bytes
    waves: tuple[Wave, ...]
    attempt: TransactionAttempt
    records: bytes
    wave: int
    pace: Pace | None = None
    watch: HangWatch | None = None

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
            watch=self.watch,
        )
        yield from job.run_partition(self.wave, partition, messages)


@lru_cache(maxsize=16)
def _plan_of(payload: bytes) -> Plan:
    plan: Plan = pickle.loads(payload)  # noqa: S301 - our own bytes
    return plan


def _same(partition: int) -> int:
    """Partitions are numbers already."""
    return partition
