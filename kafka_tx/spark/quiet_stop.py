"""Ends a local session without the traces of its idle Python workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_tx.spark.versions.jvm import local_process


def stop_quietly(spark: SparkSession) -> None:
    """Stop a session; in local mode its idle Python workers end first.

    PySpark prints a ``BrokenPipeError`` with its trace for each worker that waits for
    work while its session ends, which looks like a failure and is none. On a cluster
    that goes to the logs of executors.
    """
    process = local_process(spark)
    with suppress(OSError):
        for worker in _workers(process) if process is not None else ():
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    spark.stop()


def _workers(process: int) -> set[int]:
    """The forks of its daemons; each Python source has a daemon of its own."""
    parents = dict(_parents())
    return _children(parents, _children(parents, {process}))


def _children(parents: dict[int, int], of: set[int]) -> set[int]:
    return {process for process, parent in parents.items() if parent in of}


def _parents() -> Iterator[tuple[int, int]]:
    """Each process of this machine, and its parent."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            after_name = (place / "stat").read_text().rpartition(")")[2].split()
            yield int(place.name), int(after_name[1])
