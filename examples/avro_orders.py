"""Adds up orders that were written with Avro and a schema registry, each once.

Run it: python examples/avro_orders.py localhost:9092 orders http://localhost:8081

It needs the extra ``registry``: in a clone, ``pip install '.[registry]'``. The schema
needs the fields ``customer`` (text) and ``amount`` (a whole number, such as cents); it
may have others, and may change from one run to the next. Records that cannot be
decoded go to the topic ``<topic>-dead``, which must exist, with their bytes and the
reason.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import kafka_tx
from kafka_tx import TransactionalMap, TransactionAttempt


def main(servers: str, topic: str, registry: str) -> None:
    """Add up what is there now; the next run adds what came since."""
    print("starting Spark …", flush=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    place = Path(tempfile.gettempdir(), f"{topic}-totals")
    place.mkdir(exist_ok=True)
    totals = TransactionalMap(f"sqlite:///{place}/totals.db", "totals")

    def add(df: DataFrame, attempt: TransactionAttempt) -> DataFrame:
        """Add a batch to the totals; gives the records that are broken."""
        orders = df.where("value IS NOT NULL").select("value.*")
        kafka_tx.update_map(
            orders, attempt, totals, key="customer", value="amount", reducer="sum"
        )
        broken = df.where("value_error IS NOT NULL")
        return broken.withColumn("reason", F.col("value_error"))

    spark = SparkSession.builder.appName("avro orders").getOrCreate()
    query = (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("tx.id", f"{topic}-totals")
        .option("tx.store", f"sqlite:///{place}/store.db")
        .option("value.format", "avro")
        .option("value.mode", "PERMISSIVE")
        .option("schema.registry.url", registry)
        .load()
        .writeStream.foreachBatch(kafka_tx.with_dead_letters(add, f"{topic}-dead"))
        .option("checkpointLocation", f"{place}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = {row["key"]: row["value"] for row in totals.to_arrow().to_pylist()}
    print(dict(sorted(found.items())))


if __name__ == "__main__":
    main(*sys.argv[1:])
