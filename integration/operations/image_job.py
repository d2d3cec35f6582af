"""A job in a container: reads a topic once, and says what it saw.

Given to ``spark-submit`` by ``test_image``, with brokers and topic.
"""

from __future__ import annotations

import json
import sys

import pyspark
from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from kafka_tx.model import TransactionAttempt


def main(servers: str, topic: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    seen: list[int] = []
    txids: list[int] = []

    def see(df: DataFrame, attempt: TransactionAttempt) -> None:
        seen.extend(int(row.value) for row in df.select("value").collect())
        txids.append(attempt.txid)

    query = (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "10")
        .option("tx.id", topic)
        .option("tx.store", "sqlite:////tmp/state.db")
        .load()
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(see))
        .option("checkpointLocation", "/tmp/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
    found = {"spark": pyspark.__version__, "seen": sorted(seen), "txids": txids}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
