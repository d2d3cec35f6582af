"""Appends orders to a table and keeps totals by MERGE in another, each order once.

Run it: python examples/lakehouse.py [delta or iceberg] [localhost:9092 orders]

Without arguments the tables are Delta's; Iceberg needs Spark 4.0 or 4.1. Without a
broker's address, it starts one in this process and fills a topic. The first
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

ORDERS, PARTITIONS, BATCH = 1_500, 2, 500
LINE = ".".join(pyspark.__version__.split(".")[:2])
DELTA = {
    "spark.jars.packages": f"io.delta:delta-spark_{LINE}_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": (
        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
    "spark.databricks.delta.snapshotPartitions": "2",
}
RELEASE = {"4.0": "1.11.0", "4.1": "1.12.0"}.get(LINE)
ICEBERG = {
    "spark.jars.packages": (
        f"org.apache.iceberg:iceberg-spark-runtime-{LINE}_2.13:{RELEASE}"
    ),
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.cache-enabled": "false",  # or it shows tables as they were
}


class Save:
    """Writes a batch into both tables.

    Args:
        orders: The table of all orders; the first batch makes it.
        totals: The table of the totals of each item.
        dies_at: The txid after whose first table the query fails; 0: none.
    """

    def __init__(self, orders: str, totals: str, dies_at: int = 0) -> None:
        self.orders, self.totals = orders, totals
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
        given = sys.argv[1:]
        form = given.pop(0) if given[:1] in (["delta"], ["iceberg"]) else "delta"
        servers, topic = given or embedded(stack)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spark = session(form, work)
        stack.callback(stop_quietly, spark)
        tables = [table(form, work, name) for name in ("orders", "totals")]
        columns = "(item STRING, amount BIGINT)"
        spark.sql(f"CREATE TABLE {in_sql(tables[1])} {columns} USING {form}")
        spark.sparkContext.setLogLevel("OFF")  # the error is ours
        try:
            run(spark, servers, topic, work, Save(*tables, dies_at=2))
        except pyspark.errors.StreamingQueryException:
            print("the query died; its checkpoint is deleted")
            shutil.rmtree(work / "checkpoint")
        spark.sparkContext.setLogLevel("ERROR")
        run(spark, servers, topic, work, Save(*tables))
        show(spark, *tables)


def table(form: str, work: Path, name: str) -> str:
    """A path, or a name, whose catalog says which format it has."""
    return f"{work}/{name}" if form == "delta" else f"lake.sales.{name}"


def in_sql(table: str) -> str:
    return f"delta.`{table}`" if "/" in table else table


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
        .start()
    )
    try:
        query.processAllAvailable()  # bounded runs of Spark 4.1 have one batch
    finally:
        query.stop()


def show(spark: SparkSession, *tables: str) -> None:
    orders, totals = (spark.table(in_sql(name)) for name in tables)
    written, summed = (df.agg(F.sum("amount")).first()[0] for df in (orders, totals))
    print(f"{orders.count()} orders; amounts: {written} appended, {summed} merged")


def session(form: str, work: Path) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]")
    if form == "iceberg" and RELEASE is None:
        sys.exit(f"Iceberg has no jar for Spark {LINE}: use 4.0 or 4.1, or delta")
    warehouse = {"spark.sql.catalog.lake.warehouse": f"{work}/lake"}
    settings = DELTA if form == "delta" else {**ICEBERG, **warehouse}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
