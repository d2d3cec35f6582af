"""Counts the records of a topic, each once, although they are delivered at least once.

Run it: python examples/kafka_message_count.py [localhost:9092 orders]

Without arguments, it starts a Kafka broker in this process and fills a topic. With
arguments, it counts the records of your topic. A record may come again after a failure
or a crash. The bolt therefore stores (partition, offset) of each record; SQL counts.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_tx import (
    BasicBolt,
    BrokerHosts,
    KafkaSpout,
    MetadataScheme,
    SpoutConfig,
    TopologyBuilder,
)
from kafka_tx.spark.quiet_stop import stop_quietly
from kafka_tx.testing.mock import MockCluster

MESSAGES = 5_000
PARTITIONS = 3


class Count(BasicBolt):
    """Notes which messages there are; a batch of them at a time.

    Args:
        database: A file; made by ``main``.
    """

    def __init__(self, database: str) -> None:
        self.database = database

    def prepare(self, context):
        self.connection = sqlite3.connect(self.database, timeout=60)

    def execute_arrow(self, batch, collector):
        seen = zip(
            batch.column("partition").to_pylist(),
            batch.column("offset").to_pylist(),
            strict=True,
        )
        with self.connection:
            self.connection.executemany(
                "INSERT OR IGNORE INTO seen VALUES (?, ?)", seen
            )

    def cleanup(self):
        self.connection.close()


def main() -> None:
    print("starting Spark …", flush=True)
    with ExitStack() as stack:
        servers, topic = sys.argv[1:] or embedded(stack)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with closing(sqlite3.connect(work / "count.db")) as database:
            database.execute("CREATE TABLE seen (at, number, PRIMARY KEY (at, number))")
        spark = session()
        stack.callback(stop_quietly, spark)
        run(spark, servers, topic, work)
        show(work / "count.db")


def embedded(stack: ExitStack) -> tuple[str, str]:
    """A broker in this process, and a topic with messages."""
    cluster = stack.enter_context(MockCluster())
    cluster.create_topic("orders", PARTITIONS)
    for n in range(MESSAGES):
        cluster.produce("orders", f"order {n}".encode(), partition=n % PARTITIONS)
    cluster.flush()
    return cluster.bootstrap_servers, "orders"


def run(spark: SparkSession, servers: str, topic: str, work: Path) -> None:
    """Count all that is there now."""
    config = SpoutConfig(
        hosts=BrokerHosts(servers), topic=topic, scheme=MetadataScheme()
    )
    builder = TopologyBuilder("kafka-message-count")
    builder.set_spout("messages", KafkaSpout(config), 2)
    builder.set_bolt("count", Count(str(work / "count.db")), 2).shuffle_grouping(
        "messages"
    )
    handle = builder.build().start(spark, {"tx.store": f"sqlite:///{work}/offsets.db"})
    try:
        assert handle.process_all_available(100)
        print(handle.status)
    finally:
        handle.stop()


def show(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT at, count(*) FROM seen GROUP BY at ORDER BY at"
        counts = dict(connection.execute(query))
    for partition, count in counts.items():
        print(f"partition {partition}: {count} messages")
    print(f"counted {sum(counts.values())} messages")


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
