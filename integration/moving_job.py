"""A job that appends a topic to a table once, and may die between sink and Spark's log.

Run as a program by ``test_moved``, each time under another version of Spark.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame

import kafka_tx
from integration.bounded import read_out
from integration.cluster.spark_local import local_session
from kafka_tx.model import TransactionAttempt

DIED = 71
"""How it ends where it was told to die."""


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "topic"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--die-at", type=int, default=0, help="txid; 0: never")
    given = parser.parse_args()
    work = Path(given.work)

    def append(df: DataFrame, attempt: TransactionAttempt) -> None:
        values = df.selectExpr("CAST(CAST(value AS STRING) AS INT) AS value")
        kafka_tx.append_once(values, attempt, f"sqlite:///{work}/sink.db", "rows")
        if attempt.txid == given.die_at:
            os._exit(DIED)

    spark = local_session(work / f"spark-{pyspark.__version__}")
    read_out(
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "10")
        .option("tx.id", "moving")
        .option("tx.store", f"sqlite:///{work}/store.db")
        .load()
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(append))
        .option("checkpointLocation", str(work / "checkpoint"))
    )
    spark.stop()


if __name__ == "__main__":
    main()
