"""Records that fail one by one: retried with a pause, the hopeless put aside.

Run it: python examples/at_least_once.py [localhost:9092 orders orders-dead]

Without arguments it makes a Kafka broker in this process; the topics of a real one must
exist. One order in twenty fails at
first, and is retried while the others go on; order 13 fails for ever, and ends as a
dead letter with the reason in its headers.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_tx import (
    BasicBolt,
    BrokerHosts,
    FailedException,
    KafkaSpout,
    SpoutConfig,
    StringScheme,
    TopicPartition,
    TopologyBuilder,
    assembly,
)
from kafka_tx.config import SinkConfig, SourceConfig
from kafka_tx.kafka.mock import MockCluster
from kafka_tx.kafka.producer import OutRecord
from kafka_tx.model import Assigned, Earliest, OffsetRange

ORDERS = 2_000
PARTITIONS = 3


class Ship(BasicBolt):
    """Ships orders, or fails to."""

    fields = "order string"

    def execute(self, row, collector):
        if row.str == "order 13":
            raise FailedException("order 13 has no address")
        if random.random() < 0.05:
            raise FailedException("the parcel service does not answer")
        collector.emit((row.str,))


def main() -> None:
    with ExitStack() as stack:
        servers, topic, dead = sys.argv[1:] or embedded(stack)
        produce(servers, topic)
        work = stack.enter_context(tempfile.TemporaryDirectory())
        spark = session()
        stack.callback(spark.stop)
        run(spark, servers, topic, dead, Path(work))


def embedded(stack: ExitStack) -> list[str]:
    cluster = stack.enter_context(MockCluster())
    cluster.create_topic("orders", PARTITIONS)
    cluster.create_topic("orders-dead")
    return [cluster.bootstrap_servers, "orders", "orders-dead"]


def run(spark: SparkSession, servers: str, topic: str, dead: str, work: Path) -> None:
    config = SpoutConfig(
        hosts=BrokerHosts(servers),
        topic=topic,
        scheme=StringScheme(),
        retry_initial_delay_ms=50,
        retry_delay_multiplier=2.0,
        retry_limit=5,
        dead_letter_topic=dead,
    )
    print(config, end="\n\n")
    builder = TopologyBuilder("at-least-once")
    builder.set_spout("orders", KafkaSpout(config), 2)
    builder.set_bolt("ship", Ship, 2).shuffle_grouping("orders")
    handle = builder.build().start(spark, {"tx.store": f"sqlite:///{work}/offsets.db"})
    try:
        assert handle.process_all_available(100)
        print(handle.status)
    finally:
        handle.stop()
    for letter in dead_letters(servers, dead):
        print("dead letter:", letter)


def produce(servers: str, topic: str) -> None:
    with assembly.sender(SinkConfig(kafka={"bootstrap.servers": servers})) as sender:
        sender.send(
            OutRecord(topic, None, f"order {n}".encode(), partition=n % PARTITIONS)
            for n in range(ORDERS)
        )


def dead_letters(servers: str, topic: str) -> list[str]:
    view = assembly.cluster_view(source(servers, topic))
    reader = assembly.range_reader(source(servers, topic))
    found = []
    for partition in view.topics(Assigned((TopicPartition(topic, 0),)))[
        topic
    ].partitions:
        bounds = view.bounds([partition])[partition]
        wanted = OffsetRange(partition, bounds.log_start, bounds.end)
        for batch in reader.read(wanted):
            for record in batch.to_pylist():
                headers = {h["key"]: h["value"].decode() for h in record["headers"]}
                found.append(f"{record['value'].decode()} {headers}")
    return found


def source(servers: str, topic: str) -> SourceConfig:
    return SourceConfig(
        subscription=Assigned((TopicPartition(topic, 0),)),
        kafka={"bootstrap.servers": servers},
        start=Earliest(),
        include_headers=True,
    )


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
