"""Appends orders to a Delta table and keeps totals by MERGE, each order once.

Run it: python examples/lakehouse.py [localhost:9092 orders]

Without arguments, it starts a Kafka broker in this process and fills a topic. The first
run of the query dies after its second batch is in the first table. The checkpoint is
then deleted: the next run gets that batch again, under the same txid.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import kafka_tx
from kafka_tx.spark.quiet_stop import stop_quietly
from kafka_tx.testing.mock import MockCluster

ORDERS, PARTITIONS, BATCH = 2_000, 2, 500
LINE = ".".join(pyspark.__version__.split(".")[:2])
DELTA = {
    "spark.jars.packages": f"io.delta:delta-spark_{LINE}_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": (
        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
}


class Save:
    """Writes a batch into both tables.

    Args:
        work: A directory, which has the tables.
        dies_at: The txid after whose first table the query fails; 0: none.
    """

    def __init__(self, work: Path, dies_at: int = 0) -> None:
        self.orders, self.totals = f"{work}/orders", f"{work}/totals"
        self.dies_at = dies_at

    def __call__(self, df, attempt):
        orders = df.selectExpr("string(key) AS item", "int(string(value)) AS amount")
        is_new = kafka_tx.append_to_table(orders, attempt, self.orders)
        print(f"txid {attempt.txid}: {'written' if is_new else 'there already'}")
        if attempt.txid == self.dies_at:
            raise InterruptedError("the driver dies")
        kafka_tx.write_to_table(orders, attempt, self.totals, merge)


def merge(df, target):
    sums = df.groupBy("item").agg(F.sum("amount").alias("amount"))
    sums.createOrReplaceTempView("batch")
    sums.sparkSession.sql(
        f"MERGE INTO {target} t USING batch b ON t.item = b.item"
        " WHEN MATCHED THEN UPDATE SET t.amount = t.amount + b.amount"
        " WHEN NOT MATCHED THEN INSERT *"
    )


def main() -> None:
    print("starting Spark …", flush=True)
    with ExitStack() as stack:
        servers, topic = sys.argv[1:] or embedded(stack)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spark = session()
        stack.callback(stop_quietly, spark)
        totals = f"delta.`{work}/totals`"
        spark.sql(f"CREATE TABLE {totals} (item STRING, amount BIGINT) USING delta")
        spark.sparkContext.setLogLevel("OFF")  # the error is ours
        try:
            run(spark, servers, topic, work, Save(work, dies_at=2))
        except pyspark.errors.StreamingQueryException:
            print("the query died; its checkpoint is deleted")
            shutil.rmtree(work / "checkpoint")
        spark.sparkContext.setLogLevel("ERROR")
        run(spark, servers, topic, work, Save(work))
        show(spark, work)


def embedded(stack: ExitStack) -> tuple[str, str]:
    """A broker in this process, and a topic with orders."""
    cluster = stack.enter_context(MockCluster())
    cluster.create_topic("orders", PARTITIONS)
    for n in range(ORDERS):
        key, value = f"item {n % 7}".encode(), b"%d" % (n % 10)
        cluster.produce("orders", value, key=key, partition=n % PARTITIONS)
    cluster.flush()
    return cluster.bootstrap_servers, "orders"


def run(spark, servers: str, topic: str, work: Path, save: Save) -> None:
    """Write all that is there now."""
    query = (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(BATCH))
        .option("tx.id", "lakehouse")
        .option("tx.store", f"sqlite:///{work}/store.db")
        .load()
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(save))
        .option("checkpointLocation", f"{work}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def show(spark: SparkSession, work: Path) -> None:
    orders = spark.read.format("delta").load(f"{work}/orders")
    totals = spark.read.format("delta").load(f"{work}/totals")
    written, summed = (df.agg(F.sum("amount")).first()[0] for df in (orders, totals))
    print(f"{orders.count()} orders; amounts: {written} appended, {summed} merged")


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]")
    for name, value in DELTA.items():
        builder = builder.config(name, value)
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
