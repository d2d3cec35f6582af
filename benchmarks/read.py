"""Reading exact ranges into Spark: kafka_tx against Spark's own connector.

A count, a sum of value lengths and a maximum of offsets over whole topics, so that
every column is handed to Spark and nothing is kept. The two alternate in one session;
the medians of the counted runs are compared, after one run of each to warm up.

At 1 KB the peak memory of a Python worker above an idle one stands beside its limit.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from benchmarks.report import Case, print_report
from benchmarks.servers import broker, fill, session
from benchmarks.worker_memory import LIMIT_MB, WorkerMemory

SOURCES = ("kafka_tx", "kafka")
CASES = {
    "100B": (5_000_000, 100, False),
    "1KB": (1_000_000, 1000, False),
    "headers": (1_000_000, 100, True),
}


def read(
    spark: SparkSession, source: str, servers: str, topic: str, *, headers: bool
) -> tuple[float, tuple[int, ...]]:
    """Seconds for one read, and what it found."""
    df = (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("includeHeaders", str(headers).lower())
        .load()
    )
    sums = [
        sql.count("*"),
        sql.sum(sql.length("value")),
        sql.max("offset"),
        sql.count("key"),
    ]
    if headers:
        sums.append(sql.sum(sql.size("headers")))
    began = time.monotonic()
    row = df.agg(*sums).collect()[0]
    return time.monotonic() - began, tuple(row)


def measure(
    spark: SparkSession, servers: str, topic: str, runs: int, *, headers: bool
) -> dict[str, float]:
    """Median seconds of each source, alternating."""
    seconds: dict[str, list[float]] = {source: [] for source in SOURCES}
    found = set()
    for run in range(runs + 1):
        for source in SOURCES if run % 2 else reversed(SOURCES):
            taken, result = read(spark, source, servers, topic, headers=headers)
            found.add(result)
            if run:
                seconds[source].append(taken)
    assert len(found) == 1, f"the two did not read the same: {found}"
    return {source: median(taken) for source, taken in seconds.items()}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks read")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records")
    parser.add_argument("--case", choices=CASES, action="append", help="only these")
    given = parser.parse_args(arguments)
    cases = []
    with broker() as cluster, session() as spark:
        for name in given.case or CASES:
            full, size, headers = CASES[name]
            records = int(full * given.scale)
            fill(cluster, f"read-{name}", records, size, headers=headers)
            memory = WorkerMemory()
            seconds = measure(
                spark,
                cluster.bootstrap_servers,
                f"read-{name}",
                given.runs,
                headers=headers,
            )
            ours, theirs = (records / seconds[source] for source in SOURCES)
            cases.append(Case(name, ours, theirs, "records/s", less_is_better=False))
            if name == "1KB":
                cases.append(Case("1KB-memory", memory.peak_mb(), LIMIT_MB, "MB"))
    print_report("read", "Spark's connector", cases, as_json=given.json)
