"""A declarative pipeline: a topic into a table, and large orders into another topic.

Needs Spark 4.1 or later with ``pip install "pyspark[pipelines]"``, kafka_tx from a
clone with ``pip install .`` (not ``-e``), and a broker with the topics ``orders``,
whose values are whole numbers, and ``large-orders``. The folder where you run it has
the table afterwards:

    export KAFKA_SERVERS=localhost:9092
    spark-pipelines --conf spark.sql.catalogImplementation=hive \
        run --spec <this folder>/spark-pipeline.yml

A run reads what is there and ends. The next one goes on where this one ended.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

SERVERS = {"kafka.bootstrap.servers": os.environ["KAFKA_SERVERS"]}
ORDERS, LARGE = "orders", "large-orders"


@dp.table
def orders() -> DataFrame:
    source = SparkSession.active().readStream.format("kafka_tx").options(**SERVERS)
    return (
        source.option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .option("tx.id", ORDERS)
        .option("tx.store", f"sqlite:///{Path(__file__).parent.resolve()}/store.db")
        .load()
        .selectExpr("string(key) AS item", "int(string(value)) AS amount")
    )


dp.create_sink("large", "kafka_tx", {**SERVERS, "topic": LARGE, "tx.id": LARGE})


@dp.append_flow(target="large")
def large_orders() -> DataFrame:
    large = SparkSession.active().readStream.table("orders").where("amount > 5")
    return large.selectExpr("item AS key", "string(amount) AS value")
