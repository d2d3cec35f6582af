"""Batches into a table of a lakehouse: kafka_tx against plain writes of the format.

One query writes each batch twice in its ``foreachBatch``: with kafka_tx and without,
into a table each, in turns. The first batches do not count.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from statistics import median

from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from benchmarks.report import Case, print_report
from benchmarks.servers import PARTITIONS, session
from kafka_tx.model import TransactionAttempt

SMALL, LARGE = 1_000, 1_000_000
WARM_UP = 3
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": _CATALOG,
}

Write = Callable[[DataFrame, TransactionAttempt, str], object]


def append(df: DataFrame, given: TransactionAttempt, table: str) -> object:
    return kafka_tx.append_to_table(df, given, table)


def append_plainly(df: DataFrame, _: TransactionAttempt, table: str) -> object:
    return df.write.format("delta").mode("append").saveAsTable(table)


def merge(df: DataFrame, given: TransactionAttempt, table: str) -> object:
    return kafka_tx.write_to_table(df, given, table, merge_into)


def merge_plainly(df: DataFrame, _: TransactionAttempt, table: str) -> object:
    return merge_into(df, table)


def merge_into(df: DataFrame, target: str) -> None:
    df.createOrReplaceTempView("batch")
    df.sparkSession.sql(
        f"MERGE INTO {target} t USING batch b ON t.key = b.key"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


WRITES: dict[str, tuple[Write, Write]] = {
    "append": (append, append_plainly),
    "MERGE": (merge, merge_plainly),
}


def rows(df: DataFrame) -> DataFrame:
    return df.selectExpr("value AS key", "sha2(string(value), 256) AS value")


def measure(spark: SparkSession, kind: str, size: int, runs: int) -> Case:
    """Seconds of a write, the median of the counted batches of one query."""
    taken: dict[str, list[float]] = {"ours": [], "plain": []}
    tables = {side: f"{kind}_{size}_{side}" for side in taken}
    for table in tables.values():
        spark.sql(f"CREATE TABLE {table} (key BIGINT, value STRING) USING delta")

    def both(df: DataFrame, batch: int) -> None:
        given = TransactionAttempt(batch + 1, batch + 1, "lake", f"{batch}", "a1")
        sides = list(zip(taken, WRITES[kind], strict=True))
        for side, write in sides if batch % 2 else sides[::-1]:
            started = time.perf_counter()
            write(rows(df), given, tables[side])
            if batch >= WARM_UP:
                taken[side].append(time.perf_counter() - started)

    source = spark.readStream.format("rate-micro-batch")
    source = source.option("rowsPerBatch", size).option("numPartitions", PARTITIONS)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = source.load().writeStream.foreachBatch(both)
        query = writer.option("checkpointLocation", checkpoint).start()
        while query.isActive and min(map(len, taken.values())) < runs:
            time.sleep(0.1)
        query.stop()
    return Case(f"{kind}, {size:,} rows", *(median(taken[s]) for s in taken), "s")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks lake")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=11, help="counted batches")
    given = parser.parse_args(arguments)
    with session(DELTA) as spark:
        cases = [
            measure(spark, kind, size, given.runs)
            for kind in WRITES
            for size in (SMALL, LARGE)
        ]
    print_report("lake", "plain writes", cases, as_json=given.json)
