"""Writing a DataFrame to a topic, at least once: kafka_tx against Spark's own sink.

The rows are cached before, so that only writing is measured. The sinks alternate in one
session; the medians of the counted runs are compared, after one run of each to warm up.
Few rows are written to a Python sink that does nothing, too (``benchmarks.nothing``):
what it takes is the way through Spark.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from benchmarks import nothing
from benchmarks.report import Case, print_report
from benchmarks.servers import broker, session

SINKS = ("kafka_tx", "kafka")
EVERY_SINK = (*SINKS, "nothing")
PARTITIONS = 4
SMALL = 1_000
COMPRESSED = {"kafka.compression.type": "lz4", "kafka.linger.ms": "5"}


def write(
    df: DataFrame, sink: str, servers: str, topic: str, options: Mapping[str, str]
) -> float:
    """Seconds for one write."""
    writer = df.write.format(sink).mode("append").options(**options)
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", topic)
    started = time.perf_counter()
    writer.save()
    return time.perf_counter() - started


def compare(
    df: DataFrame,
    servers: str,
    runs: int,
    options: Mapping[str, str],
    sinks: tuple[str, ...] = SINKS,
) -> dict[str, float]:
    """Median seconds by sink."""
    seconds: dict[str, list[float]] = {sink: [] for sink in sinks}
    for run in range(runs + 1):
        for sink in sinks if run % 2 else sinks[::-1]:
            took = write(df, sink, servers, f"to-{sink}", options)
            if run:
                seconds[sink].append(took)
    return {sink: median(took) for sink, took in seconds.items()}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks write")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)

    cases = []
    with broker() as cluster, session() as spark:
        servers = cluster.bootstrap_servers
        nothing.register(spark)
        for sink in SINKS:
            cluster.create_topic(f"to-{sink}", PARTITIONS)
        number = sql.col("id").cast("string")
        many = (
            spark.range(0, given.records, 1, PARTITIONS)
            .select(
                sql.concat(sql.lit("key-"), number).cast("binary").alias("key"),
                sql.lpad(number, 100, "x").cast("binary").alias("value"),
            )
            .cache()
        )
        few = many.limit(SMALL).repartition(PARTITIONS).cache()
        many.count(), few.count()
        for name, options in (("plain", {}), ("lz4", COMPRESSED)):
            took = compare(many, servers, given.runs, options)
            ours, theirs = (given.records / took[sink] for sink in SINKS)
            case = f"{given.records:,} x 100 B, {name}"
            cases.append(Case(case, ours, theirs, "records/s", less_is_better=False))
        took = compare(few, servers, 2 * given.runs, {}, EVERY_SINK)
        for sink, name in (("kafka", ""), ("nothing", ", to nothing")):
            case = f"{SMALL:,} records{name}"
            cases.append(Case(case, took["kafka_tx"], took[sink], "s"))
    print_report("write", "Spark's own sink", cases, as_json=given.json)
