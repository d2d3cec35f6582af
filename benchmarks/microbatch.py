"""Micro-batches: the median trigger time of kafka_tx against Spark's own connector.

Each micro-batch counts its records by key in ``foreachBatch`` and collects the result.
Cases with a size only catch up with a full topic, so many records a trigger; in those
called live so many records arrive, one micro-batch takes them, the next ones arrive.
The two sources alternate, several runs each; the first triggers of a run do not count.
"""

from __future__ import annotations

import argparse
import tempfile
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.report import Case, print_report
from benchmarks.servers import PARTITIONS, broker, fill, session, write
from integration.cluster.interface import KafkaCluster
from integration.cluster.waiting import wait_until

SOURCES = ("kafka_tx", "kafka")
SMALL, LARGE = 1_000, 100_000
RECORD_BYTES = 100
WAIT = "kafka.fetch.max.wait.ms"
TRIGGERS = 12
WARM_UP = 4

Run = Callable[[str], list[float]]
"""From the name of a source to the milliseconds of each counted trigger."""


def count_by_key(df: DataFrame, _: int) -> None:
    df.groupBy("key").count().collect()


def start(
    spark: SparkSession,
    source: str,
    options: Mapping[str, str],
    checkpoint: str,
    **trigger: Any,
) -> StreamingQuery:
    reader = spark.readStream.format(source).option("startingOffsets", "earliest")
    writer = reader.options(**options).load().writeStream.foreachBatch(count_by_key)
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def batches_of(query: StreamingQuery) -> list[dict[str, Any]]:
    return [p for p in query.recentProgress if p["numInputRows"]]


def times(batches: list[dict[str, Any]], size: int) -> list[float]:
    assert [p["numInputRows"] for p in batches] == [size] * TRIGGERS
    return [p["durationMs"]["triggerExecution"] for p in batches[WARM_UP:]]


def catch_up(
    spark: SparkSession, cluster: KafkaCluster, topic: str, size: int, source: str
) -> list[float]:
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": topic,
        "maxOffsetsPerTrigger": str(size),
    }
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        query = start(spark, source, options, checkpoint, availableNow=True)
        query.awaitTermination()
    return times(batches_of(query), size)


def live(
    spark: SparkSession,
    cluster: KafkaCluster,
    more: Mapping[str, str],
    size: int,
    source: str,
) -> list[float]:
    topic = f"live-{uuid.uuid4().hex}"
    cluster.create_topic(topic, PARTITIONS)
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": topic,
        "minOffsetsPerTrigger": str(size),
        **more,
    }
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        query = start(spark, source, options, checkpoint, processingTime="0 seconds")
        try:
            for number in range(1, TRIGGERS + 1):
                write(producer, topic, size, RECORD_BYTES)
                wait_until(
                    f"batch {number}", lambda n=number: len(batches_of(query)) == n
                )
            return times(batches_of(query), size)
        finally:
            query.stop()


def measure(name: str, run: Run, runs: int) -> Case:
    taken: dict[str, list[float]] = {source: [] for source in SOURCES}
    for number in range(runs):
        for source in SOURCES if number % 2 else reversed(SOURCES):
            taken[source] += run(source)
    ours, theirs = (median(taken[source]) for source in SOURCES)
    return Case(name, ours, theirs, "ms")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks microbatch")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=3, help="runs of each source")
    given = parser.parse_args(arguments)
    with broker() as cluster, session() as spark:
        cases: dict[str, Run] = {}
        for size in (SMALL, LARGE):
            fill(cluster, f"full-{size}", size * TRIGGERS, RECORD_BYTES)
            cases[f"{size}"] = partial(catch_up, spark, cluster, f"full-{size}", size)
        cases[f"{SMALL} live"] = partial(live, spark, cluster, {}, SMALL)
        quick = {WAIT: "10"}
        cases[f"{SMALL} live, {WAIT}=10"] = partial(live, spark, cluster, quick, SMALL)
        measured = [measure(name, run, given.runs) for name, run in cases.items()]
    print_report("microbatch", "Spark's connector", measured, as_json=given.json)
