"""Ends a local session without the traces of its idle Python workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_ALONGSIDE_S = 0.2


def stop_quietly(spark: SparkSession) -> None:
    """Stop a session; in local mode its idle Python workers end first.

    PySpark prints a ``BrokenPipeError`` with its trace for each worker that waits for
    work while its session ends, which looks like a failure and is none. On a cluster
    that goes to the logs of executors.
    """
    with suppress(Py4JError, OSError):
        for worker in _idle_workers(spark):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    spark.stop()


def _idle_workers(spark: SparkSession) -> set[int]:
    context = spark.sparkContext
    if not context.master.startswith("local["):
        return set()
    tasks = context.defaultParallelism
    found = context.parallelize(range(tasks), tasks).mapPartitions(_own_process)
    return set(found.collect())


def _own_process(_: Iterator[int]) -> Iterator[int]:
    """This worker; busy so long that the others are asked, too."""
    time.sleep(_ALONGSIDE_S)
    yield os.getpid()
