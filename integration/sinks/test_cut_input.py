"""Tasks whose rows end before their last one, while their workers live on.

Spark kills the workers of a task that it has ended, but they may be quicker: they see
the end of their connection, and take it for the end of their rows. Here Spark's daemon,
which kills them, is halted meanwhile. So it is if a machine kills the JVM.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

import kafka_tx
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.consuming import committed_records, is_settled
from integration.log_ends import log_ends
from integration.source.evolving_job import AT_ONCE
from kafka_tx.model import TransactionAttempt

ROWS, TAG = 1_000, "cut-input"


def held_before_its_last(place):
    """Rows of which the last never comes; tells who started the worker."""

    def held(batches):
        for batch in batches:
            if str(ROWS - 1) in batch.column("value").to_pylist():
                made = place.with_suffix(".made")
                made.write_text(str(os.getppid()))
                made.rename(place)
                time.sleep(PATIENT_S)
            yield batch

    return held


@contextmanager
def at_once(spark):
    """Let rows that are there reach their writer without waiting for others."""
    for name, value in AT_ONCE.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in AT_ONCE:
            spark.conf.unset(name)


@contextmanager
def halted(daemon):
    """Halt this daemon, and those that have its parent: Spark starts several."""
    parent = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    daemons = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for pid in map(int, daemons):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in map(int, daemons):
            os.kill(pid, signal.SIGCONT)


def test_a_task_that_was_ended_commits_no_part_of_its_rows(
    spark, kafka, topic, tmp_path
):
    servers, name, place = kafka.bootstrap_servers, topic(1), tmp_path / "daemon"
    sink = {"kafka.bootstrap.servers": servers, "topic": name, "tx.id": name}
    whole = spark.range(0, ROWS, 1, 1).selectExpr("cast(id AS string) AS value")
    cut = whole.mapInArrow(held_before_its_last(place), whole.schema)
    ended: list[bool] = []

    def end():
        wait_until("the last row is awaited", place.exists)
        wait_until("others are written", lambda: log_ends(servers, name, 1)[0] > 0)
        with halted(place.read_text()):
            spark.sparkContext.cancelJobsWithTag(TAG)
            wait_until("the writer ends", lambda: is_settled(servers, name, 1))
            ended.append(True)

    thread = threading.Thread(target=end)
    thread.start()
    spark.sparkContext.addJobTag(TAG)
    with at_once(spark), pytest.raises(Py4JJavaError, match="cancelled"):
        kafka_tx.write_transaction(cut, attempt(number=0), sink)
    spark.sparkContext.removeJobTag(TAG)
    thread.join()

    assert ended
    assert committed_records(servers, name) == []
    kafka_tx.write_transaction(whole, attempt(number=1), sink)
    found = [int(record.text) for record in committed_records(servers, name)]
    assert sorted(found) == list(range(ROWS))


def attempt(*, number):
    return TransactionAttempt.of(1, epoch=1, number=number)
