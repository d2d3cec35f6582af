"""Micro-batches: the median trigger time of kafka_tx against Spark's own connector.

Each micro-batch counts its records by key in ``foreachBatch`` and collects the result.
The two sources alternate, several runs each; the first triggers of a run do not count.
"""

from __future__ import annotations

import argparse
import tempfile
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from benchmarks.report import Case, print_report
from benchmarks.servers import broker, fill, session

SOURCES = ("kafka_tx", "kafka")
SIZES = (1_000, 100_000)
TRIGGERS = 12
WARM_UP = 4


def count_by_key(df: DataFrame, _: int) -> None:
    df.groupBy("key").count().collect()


def trigger_ms(
    spark: SparkSession, source: str, servers: str, topic: str, size: int
) -> list[float]:
    """Milliseconds of each counted trigger of one run."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        query = (
            spark.readStream.format(source)
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(size))
            .load()
            .writeStream.foreachBatch(count_by_key)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [p for p in query.recentProgress if p["numInputRows"]]
    assert {p["numInputRows"] for p in batches} == {size}
    return [p["durationMs"]["triggerExecution"] for p in batches[WARM_UP:]]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks microbatch")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=3, help="runs of each source")
    given = parser.parse_args(arguments)
    cases = []
    with broker() as cluster, session() as spark:
        for size in SIZES:
            topic = f"microbatch-{size}"
            fill(cluster, topic, size * TRIGGERS, 100)
            taken: dict[str, list[float]] = {source: [] for source in SOURCES}
            for run in range(given.runs):
                for source in SOURCES if run % 2 else reversed(SOURCES):
                    servers = cluster.bootstrap_servers
                    taken[source] += trigger_ms(spark, source, servers, topic, size)
            ours, theirs = (median(taken[source]) for source in SOURCES)
            cases.append(Case(str(size), ours, theirs, "ms"))
    print_report("microbatch", "Spark's connector", cases, as_json=given.json)
