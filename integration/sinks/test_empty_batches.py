"""Batches without new records, written to Kafka, and killed between their steps."""

from __future__ import annotations

import time

import pytest

from integration.cluster.records import Record
from integration.reading import reader
from integration.sinks.exactly_once_job import LOGGED
from integration.sinks.test_exactly_once import Job

BEGIN = int(time.time()) // 10 * 10
KEYS = 20
STEPS = (
    "before-begin",
    "before-commit",
    "after-commit",
    "before-spark-commit",
    LOGGED,
)
"""Before a part's transaction, in it, after one part of two, after both, and after
Spark's commit log."""


def each_key(second):
    """A record of each key whose event time is so long after the beginning."""
    stamp_ms = (BEGIN + second) * 1000
    return [Record("x", key=f"k{n}", timestamp_ms=stamp_ms) for n in range(KEYS)]


def window(second, count):
    return {f"{BEGIN + second}|k{n}": count for n in range(KEYS)}


@pytest.mark.all
def test_windows_are_written_once_wherever_their_driver_is_killed(
    spark, kafka, topic, produce, tmp_path, python
):
    source, target = topic(1), topic(2)
    produce(source, [*each_key(1), *each_key(2), *each_key(25)])
    job = Job(
        tmp_path,
        python,
        servers=kafka.bootstrap_servers,
        source=source,
        target=target,
        batch=1000,
        windows="10 seconds",
    )
    try:
        for step in STEPS:  # txid 1 has the records, txid 2 has none
            job.start({step: 2})
            assert job.wait_at(step) == 2
            job.kill()
        run_out(job)
        assert written(spark, kafka, target) == window(0, "2")
        produce(source, [*each_key(26), *each_key(41)])
        run_out(job)
    finally:
        job.kill()

    assert written(spark, kafka, target) == window(0, "2") | window(20, "2")


def run_out(job):
    (job.work / "finished").unlink(missing_ok=True)
    job.start()
    job.wait_until("the job is finished", lambda: job.is_finished)
    job.kill()


def written(spark, kafka, topic):
    """What readers of committed records see, each key once."""
    given = {"subscribe": topic, "kafka__isolation__level": "read_committed"}
    df = reader(spark, kafka.bootstrap_servers, streaming=False, **given).load()
    rows = [(row.key.decode(), row.value.decode()) for row in df.collect()]
    found = dict(rows)
    assert len(found) == len(rows)
    return found
