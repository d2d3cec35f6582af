"""Counts the records of a Kafka topic by key, each exactly once.

Run it: python examples/kafka_global_count.py

The brokers are embedded (librdkafka's mock cluster), so you need not install any. A
topology that starts again with the same store continues where it committed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_tx import (
    BatchBolt,
    Committer,
    KeyValueScheme,
    TransactionalKafkaSpout,
    TransactionalTopologyBuilder,
)
from kafka_tx.errors import FencedError
from kafka_tx.spark.quiet_stop import stop_quietly
from kafka_tx.testing.mock import MockCluster

RECORDS, PARTITIONS, KEYS = 20_000, 4, 10
WORK = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, WORK)
DATABASE = WORK / "counts.db"


class PartialCount(BatchBolt):
    """Counts by key what reaches one task, whole Arrow batches at a time."""

    fields = "key string, count bigint"

    def prepare(self, context, collector):
        self.collector, self.counts = collector, Counter()

    def execute_arrow(self, batch):
        for found in batch.column("key").value_counts().to_pylist():
            self.counts[found["values"]] += found["counts"]

    def finish_batch(self):
        for key, count in self.counts.items():
            self.collector.emit((key, count))


class UpdateCounts(Committer, BatchBolt):
    """Adds all keys of a batch in one database transaction, with the txid."""

    def prepare(self, context, collector):
        self.attempt, self.counts = context.attempt, Counter()

    def execute(self, row):
        self.counts[row.key] += row.count

    def finish_batch(self):
        txid, epoch = self.attempt.txid, self.attempt.epoch
        with closing(sqlite3.connect(DATABASE)) as db, db:
            fence = "UPDATE owner SET epoch = ? WHERE epoch <= ?"
            if not db.execute(fence, (epoch, epoch)).rowcount:
                raise FencedError(f"a newer owner than {epoch} keeps the counts")
            db.executemany(
                "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
                " SET count = count + excluded.count, txid = excluded.txid"
                " WHERE txid < excluded.txid",
                [(key, count, txid) for key, count in self.counts.items()],
            )


def main():
    print("starting Spark …", flush=True)
    with closing(sqlite3.connect(DATABASE)) as db, db:
        db.execute("CREATE TABLE owner (epoch)")
        db.execute("INSERT INTO owner VALUES (0)")
        db.execute("CREATE TABLE counts (key PRIMARY KEY, count, txid)")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    with MockCluster() as kafka:
        kafka.create_topic("orders", PARTITIONS)
        for number in range(RECORDS):
            key = b"customer-%d" % (number % KEYS)
            kafka.produce("orders", b"...", key=key, partition=number % PARTITIONS)
        kafka.flush()

        spout = TransactionalKafkaSpout(
            {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "subscribe": "orders",
                "maxOffsetsPerTrigger": 2_500,
            },
            scheme=KeyValueScheme(),
        )
        builder = TransactionalTopologyBuilder("orders", "spout", spout, PARTITIONS)
        builder.set_bolt("partial", PartialCount).shuffle_grouping("spout")
        builder.set_committer_bolt("update", UpdateCounts).global_grouping("partial")
        handle = builder.build().start(
            spark,
            {
                "tx.store": f"sqlite:///{WORK}/state.db",
                "topology.max.spout.pending": 3,
                "tx.progress": True,
            },
        )
        handle.process_all_available()
        handle.stop()
    stop_quietly(spark)

    with closing(sqlite3.connect(DATABASE)) as db:
        counts = dict(db.execute("SELECT key, count FROM counts"))
    print(f"counted {sum(counts.values())} records of {len(counts)} keys")
    print(f"committed up to txid {handle.status.committed_txid}")


if __name__ == "__main__":
    main()
