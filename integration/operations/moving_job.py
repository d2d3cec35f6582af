"""A job that appends a topic to a table once, and may die between sink and Spark's log.

Run as a program by ``test_moved``, each time under another version of Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import kafka_tx
from integration.bounded import read_out
from integration.cluster.connect import ConnectServer
from integration.cluster.running import running
from integration.cluster.spark_local import local_session
from kafka_tx.model import TransactionAttempt

DIED = 71
"""How it ends where it was told to die."""


@contextmanager
def session(work: Path, *, connect: bool) -> Iterator[Any]:
    """A classic session, or one with a Connect server that ends with it."""
    if not connect:
        spark = local_session(work / f"spark-{pyspark.__version__}")
        yield spark
        spark.stop()
        return
    from pyspark.sql.connect.session import SparkSession

    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    with running(ConnectServer()) as server:
        remote = SparkSession.builder.remote(server.url).create()
        try:
            yield remote
        finally:
            remote.stop()  # while there is a server to take leave of


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "topic"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--die-at", type=int, default=0, help="txid; 0: never")
    parser.add_argument("--connect", action="store_true", help="through Spark Connect")
    given = parser.parse_args()
    work, die_at = Path(given.work), given.die_at
    died = work / f"died-{die_at}"

    def append(df: DataFrame, attempt: TransactionAttempt) -> None:
        values = df.selectExpr("CAST(CAST(value AS STRING) AS INT) AS value")
        kafka_tx.append_once(values, attempt, f"sqlite:///{work}/sink.db", "rows")
        if attempt.txid == die_at:
            died.touch()
            os._exit(DIED)

    with session(work, connect=given.connect) as spark:
        try:
            read_out(
                spark.readStream.format("kafka_tx")
                .option("kafka.bootstrap.servers", given.servers)
                .option("subscribe", given.topic)
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", "10")
                .option("tx.id", "moving")
                .option("tx.store", f"sqlite:///{work}/store.db")
                .load()
                .writeStream.foreachBatch(
                    kafka_tx.for_each_transaction(append, "moving")
                )
                .option("checkpointLocation", str(work / "checkpoint"))
            )
        except PySparkException:  # under Connect the server's process has died
            if not died.exists():
                raise
            sys.exit(DIED)


if __name__ == "__main__":
    main()
