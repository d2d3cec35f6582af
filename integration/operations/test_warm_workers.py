"""Python workers that are forked with everything in memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from integration.reading import reader

MODULE = "kafka_tx.spark.daemon"


@pytest.fixture
def warm(spark):
    """The session with the daemon of ours; in local mode it may be changed any time."""
    conf = spark._jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.python.daemon.module", MODULE)
    yield spark
    conf.remove("spark.python.daemon.module")


def told_by_worker(_):
    forked_from = Path(f"/proc/{os.getppid()}/cmdline").read_text()
    return MODULE in forked_from, "pyarrow" in sys.modules


def test_a_worker_after_a_read_that_stopped_early_has_all_in_memory(
    warm, kafka, topic, produce
):
    name = topic(2)
    produce(name, [f"v{n}" for n in range(100)])
    df = reader(
        warm,
        kafka.bootstrap_servers,
        streaming=False,
        subscribe=name,
        startingOffsets="earliest",
    ).load()

    firsts = [len(df.limit(1).collect()) for _ in range(3)]

    assert firsts == [1, 1, 1]
    assert not df.isEmpty()
    assert df.count() == 100
    answers = warm.sparkContext.parallelize(range(2), 2).map(told_by_worker).collect()
    assert answers == [(True, True)] * 2
