"""Runs the jobs of at-least-once topologies on Spark."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from pyspark import RDD
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession

from kafka_tx.model import TransactionAttempt
from kafka_tx.running.at_least_once.hangs import HangWatch
from kafka_tx.running.permit import PermitAddress
from kafka_tx.running.task_reports import DriverAddress, ReportListener
from kafka_tx.spark.at_least_once.chunk_jobs import Hangs, Moves
from kafka_tx.spark.topologies.engine import SparkEngine
from kafka_tx.topology.plan.phases import Phase
from kafka_tx.topology.plan.physical import PhysicalPlan, Wave
from kafka_tx.topology.run.jobs import TaskJob
from kafka_tx.topology.tracked.chunks import RecordJob
from kafka_tx.topology.tracked.pace import Pace
from kafka_tx.topology.tracked.records import RecordSource

logger = logging.getLogger(__name__)


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

        def report(told: dict[str, Any]) -> None:
            attempt = TransactionAttempt.parse(str(told["attempt"]))
            if told.get("moves"):
                moves(attempt)
                return
            roots = np.array([int(root) for root in told["roots"]], np.int64)
            hangs(attempt, str(told["component"]), roots)

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
