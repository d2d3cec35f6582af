"""Batches into a table of a lakehouse: kafka_tx against plain writes of the format.

One query writes each batch twice in its ``foreachBatch``: with kafka_tx and without,
into a table each, in turns. The first batches do not count.

``--look-up`` measures how long the look for a sink's last txid takes as a table gets
1,000 commits: for the sink that writes them, for a sink that has not written since the
first one, and for programs that have just started. With ``--expire``, an Iceberg table
has only its newest snapshot at each look. ``--draw FOLDER`` writes it as an SVG file;
that needs matplotlib.

Iceberg needs a Spark that it has jars for: run it with the Python of ``make matrix``,
``.nox/spark-4-1-4/bin/python -m benchmarks lake``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from benchmarks.report import Case, Growth, drawn_to, print_report
from benchmarks.servers import PARTITIONS, session
from integration.cluster.versions import DELTA, ICEBERG, SPARK_LINE
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.sinks import delta, iceberg
from kafka_tx.spark.sinks.formats import Batch

SMALL, LARGE = 1_000, 1_000_000
WARM_UP = 3
COMMITS = (1, 10, 50, 100, 200, 400, 600, 800, 1_000)
LOOKS = 5
EXPIRE = (
    "CALL lake.system.expire_snapshots(table => 'db.looked',"
    " older_than => TIMESTAMP '2100-01-01')"
)

Write = Callable[[DataFrame, TransactionAttempt, str], object]
Plainly = Callable[[DataFrame, str, str], object]


def settings(kind: str, work: Path) -> dict[str, str]:
    if kind == "delta":
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": catalog,
            "spark.databricks.delta.snapshotPartitions": "2",  # as there are cores
        }
    return {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(work),
        "spark.sql.defaultCatalog": "lake",
    }


def append(df: DataFrame, given: TransactionAttempt, table: str) -> object:
    return kafka_tx.append_to_table(df, given, table)


def append_plainly(df: DataFrame, form: str, table: str) -> object:
    return df.write.format(form).mode("append").saveAsTable(table)


def merge(df: DataFrame, given: TransactionAttempt, table: str) -> object:
    return kafka_tx.write_to_table(df, given, table, merge_into)


def merge_plainly(df: DataFrame, _: str, table: str) -> object:
    return merge_into(df, table)


def merge_into(df: DataFrame, target: str) -> None:
    df.createOrReplaceTempView("batch")
    df.sparkSession.sql(
        f"MERGE INTO {target} t USING batch b ON t.key = b.key"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


WRITES: dict[str, tuple[Write, Plainly]] = {
    "append": (append, append_plainly),
    "MERGE": (merge, merge_plainly),
}


def rows(df: DataFrame, size: int) -> DataFrame:
    """Keys that come again in every other batch, so that a MERGE updates."""
    return df.selectExpr(
        f"value % {2 * size} AS key", "sha2(string(value), 256) AS value"
    )


class InTurns:
    """Writes each batch with kafka_tx and plainly, into a table each.

    Attributes:
        taken: Seconds of the counted writes, by side.
    """

    def __init__(self, form: str, kind: str, size: int, runs: int) -> None:
        self._form, self._size, self._runs = form, size, runs
        self._ours, self._plainly = WRITES[kind]
        self.taken: dict[str, list[float]] = {"ours": [], "plain": []}
        self.tables = {side: f"db.{kind}_{size}_{side}" for side in self.taken}

    def is_done(self) -> bool:
        return min(map(len, self.taken.values())) >= self._runs

    def __call__(self, df: DataFrame, batch: int) -> None:
        if self.is_done():
            return
        for side in ("ours", "plain") if batch % 2 else ("plain", "ours"):
            started = time.perf_counter()
            if side == "ours":
                given = attempt(batch + 1)
                self._ours(rows(df, self._size), given, self.tables[side])
            else:
                self._plainly(rows(df, self._size), self._form, self.tables[side])
            if batch >= WARM_UP:
                self.taken[side].append(time.perf_counter() - started)


def measure(spark: SparkSession, form: str, kind: str, size: int, runs: int) -> Case:
    """Seconds of a write, the median of the counted batches of one query."""
    both = InTurns(form, kind, size, runs)
    for table in both.tables.values():
        spark.sql(f"CREATE TABLE {table} (key BIGINT, value STRING) USING {form}")
    source = spark.readStream.format("rate-micro-batch")
    source = source.option("rowsPerBatch", size).option("numPartitions", PARTITIONS)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = source.load().writeStream.foreachBatch(both)
        query = writer.option("checkpointLocation", checkpoint).start()
        while query.isActive and not both.is_done():
            time.sleep(0.1)
        query.stop()
        if error := query.exception():
            raise error
    figures = (median(taken) for taken in both.taken.values())
    case = Case(f"{form} {kind}, {size:,} rows", *figures, "s")
    print(f"{case.case}: {case.ratio:.2f}", file=sys.stderr)  # all of it takes minutes
    return case


def look_up(
    spark: SparkSession, form: str, sizes: list[int], *, expires: bool
) -> Growth:
    """Milliseconds of a look, after so many commits of one of two sinks."""
    spark.sql(f"CREATE TABLE db.looked (key BIGINT, value STRING) USING {form}")
    df = rows(spark.range(1).withColumnRenamed("id", "value"), 1)
    kafka_tx.append_to_table(df, attempt(1), "db.looked", sink="silent")
    found: dict[int, Mapping[str, float]] = {}
    for txid in range(1, max(sizes) + 1):
        kafka_tx.append_to_table(df, attempt(txid), "db.looked", sink="busy")
        if txid not in sizes:
            continue
        if expires:
            spark.sql(EXPIRE).collect()
        found[txid] = polls(df, form, txid)
        print(f"{txid:,} commits: {found[txid]}", file=sys.stderr)
    name = f"lake-{form}-expired" if expires else f"lake-{form}"
    return Growth(name, "commits of the table", found)


def attempt(txid: int) -> TransactionAttempt:
    return TransactionAttempt(txid, txid, "lake", f"{txid}", "a1")


def polls(df: DataFrame, form: str, txid: int) -> dict[str, float]:
    kind = iceberg.IcebergAppend if form == "iceberg" else delta.DeltaAppend

    def poll(sink: str, *, is_new: bool) -> float:
        taken = []
        for _ in range(LOOKS):
            if is_new:
                forget(df.sparkSession, form)
            started = time.perf_counter()
            kind(Batch(df, "db.looked", sink)).stored(attempt(txid))
            taken.append((time.perf_counter() - started) * 1000)
        return median(taken)

    return {
        "the next batch, ms": poll("busy", is_new=False),
        "the first batch of a program, ms": poll("busy", is_new=True),
        "the first one of a silent sink, ms": poll("silent", is_new=True),
    }


def forget(spark: SparkSession, form: str) -> None:
    """What a program that has just started does not know."""
    if form == "delta":
        delta._seen.clear()
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def main(arguments: list[str]) -> None:
    forms = [name for name, has in (("delta", DELTA), ("iceberg", ICEBERG)) if has]
    parser = argparse.ArgumentParser(prog="python -m benchmarks lake")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=11, help="counted batches")
    parser.add_argument("--format", choices=forms, default=forms[0])
    parser.add_argument("--only", choices=[*WRITES], nargs="+", default=[*WRITES])
    parser.add_argument("--sizes", type=int, nargs="+", default=[SMALL, LARGE])
    parser.add_argument("--look-up", action="store_true", help="instead of writes")
    parser.add_argument("--expire", action="store_true", help="Iceberg's snapshots")
    parser.add_argument("--commits", type=int, default=COMMITS[-1], help="at most")
    parser.add_argument("--draw", type=drawn_to, metavar="FOLDER", help="an SVG file")
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work,
        session(settings(given.format, Path(work))) as spark,
    ):
        spark.sql("CREATE DATABASE db")
        if given.look_up:
            sizes = [size for size in COMMITS if size <= given.commits]
            growth = look_up(spark, given.format, sizes, expires=given.expire)
            growth.print()
            if given.draw:
                growth.draw(given.draw)
            return
        cases = [
            measure(spark, given.format, kind, size, given.runs)
            for kind in given.only
            for size in given.sizes
        ]
    name = f"plain writes, Spark {SPARK_LINE}"
    print_report("lake", name, cases, as_json=given.json)
