"""Counts words with a bolt that fails some of them: each line is retried on its own.

Run it: python examples/reliable_word_count.py [localhost:9092 lines lines-dead]

Without arguments, it starts a Kafka broker in this process. If you name topics of your
own broker, they must exist and be empty: this script writes its lines to the first one.
One word in fifty fails at random. Its line is retried after a pause, while other lines
continue. The line "poison" always fails and becomes a dead letter, with the reason in
its headers. A retried line sends all of its words again. Each word is therefore stored
under its place (partition, offset, number in the line), and counts once.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from kafka_tx import (
    BasicBolt,
    BrokerHosts,
    FailedException,
    KafkaSpout,
    MetadataScheme,
    RichBolt,
    SpoutConfig,
    TopologyBuilder,
)
from kafka_tx.spark.quiet_stop import stop_quietly
from kafka_tx.testing.mock import MockCluster

TEXT = ["the cow jumped over the moon", "the man went to the store", "cow and moon"]
LINES = [TEXT[n % len(TEXT)] for n in range(600)]
POISON = "poison"


class Split(RichBolt):
    """Anchors each word on its line: the line is done when all of its words are."""

    fields = "partition int, line bigint, place int, word string"

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, row):
        for place, word in enumerate(row.str.split()):
            self.collector.emit((row.partition, row.offset, place, word), [row])
        self.collector.ack(row)


class Count(BasicBolt):
    """Stores words, or fails to.

    Args:
        database: A file; made by ``main``.
    """

    def __init__(self, database: str) -> None:
        self.database = database

    def prepare(self, context):
        self.connection = sqlite3.connect(
            self.database, timeout=60, isolation_level=None
        )

    def execute(self, row, collector):
        if row.word == POISON:
            raise FailedException("this word cannot be counted")
        if random.random() < 0.02:
            raise FailedException("the database does not answer")
        self.connection.execute(
            "INSERT OR IGNORE INTO words VALUES (?, ?, ?, ?)",
            (row.partition, row.line, row.place, row.word),
        )

    def cleanup(self):
        self.connection.close()


def main() -> None:
    print("starting Spark …", flush=True)
    with ExitStack() as stack:
        servers, topic, dead = sys.argv[1:] or embedded(stack)
        produce(servers, topic)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with closing(sqlite3.connect(work / "words.db")) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(
                "CREATE TABLE words"
                " (part, line, place, word, PRIMARY KEY (part, line, place))"
            )
        spark = session()
        stack.callback(stop_quietly, spark)
        run(spark, servers, topic, dead, work)
        show(work / "words.db")
        for dead_letter in dead_letters(servers, dead):
            print("dead letter:", dead_letter)


def embedded(stack: ExitStack) -> list[str]:
    cluster = stack.enter_context(MockCluster())
    cluster.create_topic("lines", 3)
    cluster.create_topic("lines-dead")
    return [cluster.bootstrap_servers, "lines", "lines-dead"]


def produce(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for n, line in enumerate([*LINES[:13], POISON, *LINES[13:]]):
        producer.produce(topic, line.encode(), key=str(n).encode())
    producer.flush()


def run(spark: SparkSession, servers: str, topic: str, dead: str, work: Path) -> None:
    config = SpoutConfig(
        hosts=BrokerHosts(servers),
        topic=topic,
        scheme=MetadataScheme(),
        retry_initial_delay_ms=20,
        retry_delay_multiplier=2.0,
        retry_delay_max_ms=500,
        retry_limit=6,
        dead_letter_topic=dead,
    )
    builder = TopologyBuilder("reliable-word-count")
    builder.set_spout("lines", KafkaSpout(config), 2)
    builder.set_bolt("split", Split, 2).shuffle_grouping("lines")
    counts = builder.set_bolt("count", Count(str(work / "words.db")), 2)
    counts.fields_grouping("split", ["word"])
    handle = builder.build().start(spark, {"tx.store": f"sqlite:///{work}/offsets.db"})
    try:
        assert handle.process_all_available(100)
        print(handle.status)
    finally:
        handle.stop()


def show(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT word, count(*) FROM words GROUP BY word"
        counted = Counter(dict(connection.execute(query)))
    there_are = Counter(word for line in LINES for word in line.split())
    for word, count in counted.most_common(3):
        print(f"{word}: {count}")
    print(f"counted {counted.total()} words; there are {there_are.total()}")
    print(f"each word right: {counted == there_are}")


def dead_letters(servers: str, topic: str) -> list[str]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "nobody"})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in partitions])
    found = []
    while (message := consumer.poll(10.0 if not found else 1.0)) is not None:
        headers = {key: value.decode() for key, value in message.headers() or []}
        found.append(f"{(message.value() or b'').decode()} {headers}")
    consumer.close()
    return found


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
