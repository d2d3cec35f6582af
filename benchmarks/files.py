"""Batches into Parquet files: ``append_files`` against ``df.write.parquet``.

Both write the same persisted rows, in turns, into folders that grow. Which is
first changes from batch to batch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from benchmarks.report import Case, print_report
from benchmarks.servers import PARTITIONS, session
from integration.cluster.versions import SPARK_LINE
from kafka_tx.model import TransactionAttempt

SIZES = 1_000, 1_000_000
WARM_UP = 3


def rows(spark: SparkSession, size: int) -> DataFrame:
    """Keys and digests, in memory: only the writes are measured."""
    df = spark.range(size, numPartitions=PARTITIONS)
    df = df.selectExpr("id AS key", "sha2(string(id), 256) AS value").persist()
    df.count()
    return df


def measure(spark: SparkSession, work: Path, size: int, runs: int) -> Case:
    """Seconds of a write, the median of the counted batches."""
    df = rows(spark, size)
    taken: dict[str, list[float]] = {"ours": [], "plain": []}
    for batch in range(WARM_UP + runs):
        for side in ("ours", "plain") if batch % 2 else ("plain", "ours"):
            started = time.perf_counter()
            if side == "ours":
                given = TransactionAttempt(batch + 1, batch + 1, "files", f"{batch}")
                kafka_tx.append_files(df, given, str(work / f"{size}-ours"))
            else:
                df.write.mode("append").parquet(str(work / f"{size}-plain"))
            if batch >= WARM_UP:
                taken[side].append(time.perf_counter() - started)
    df.unpersist()
    case = Case(f"parquet, {size:,} rows", *map(median, taken.values()), "s")
    print(f"{case.case}: {case.ratio:.2f}", file=sys.stderr)
    return case


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks files")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=15, help="counted batches")
    parser.add_argument("--sizes", type=int, nargs="+", default=[*SIZES])
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work,
        session({}) as spark,
    ):
        cases = [measure(spark, Path(work), size, given.runs) for size in given.sizes]
    name = f"df.write.parquet, Spark {SPARK_LINE}"
    print_report("files", name, cases, as_json=given.json)
