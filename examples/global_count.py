"""Counts all words, each exactly once: partial counts → committer → SQLite.

Run it: python examples/global_count.py

The committer stores the txid with the count. If a batch is committed a second time,
after a failure, the stored txid shows that its words are already counted.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_tx import (
    BatchBolt,
    Committer,
    FailedException,
    MemoryTransactionalSpout,
    TransactionalTopologyBuilder,
)
from kafka_tx.errors import FencedError
from kafka_tx.spark.quiet_stop import stop_quietly

LINES = {
    0: ["the cow jumped over the moon", "an apple a day", "the end"],
    1: ["snow white and the seven dwarfs", "i am at two with nature"],
    2: ["four score and seven years ago", "the man went to the store"],
}
WORK = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, WORK)
DATABASE = WORK / "count.db"


class BatchCount(BatchBolt):
    """Counts the words that reach one task."""

    fields = "count bigint"

    def prepare(self, context, collector):
        self.collector = collector
        self.count = 0

    def execute(self, row):
        self.count += len(row.line.split())

    def finish_batch(self):
        self.collector.emit((self.count,))


class UpdateGlobalCount(Committer, BatchBolt):
    """Adds the batch to the stored count, unless that has been done."""

    def prepare(self, context, collector):
        self.txid, self.epoch = context.attempt.txid, context.attempt.epoch
        self.sum = 0

    def execute(self, row):
        self.sum += row.count

    def finish_batch(self):
        with closing(sqlite3.connect(DATABASE)) as db, db:
            fence = "UPDATE total SET epoch = ? WHERE epoch <= ?"
            if not db.execute(fence, (self.epoch, self.epoch)).rowcount:
                raise FencedError(f"a newer owner than {self.epoch} keeps the count")
            db.execute(
                "UPDATE total SET count = count + ?, txid = ? WHERE txid < ?",
                (self.sum, self.txid, self.txid),
            )
        if self.txid == 2 and not (WORK / "failed").exists():
            (WORK / "failed").touch()
            raise FailedException("fails once, just after its commit")


def main():
    print("starting Spark …", flush=True)
    with closing(sqlite3.connect(DATABASE)) as db, db:
        db.execute("CREATE TABLE total (count INTEGER, txid INTEGER, epoch)")
        db.execute("INSERT INTO total VALUES (0, 0, 0)")

    rows = {number: [(line,) for line in lines] for number, lines in LINES.items()}
    spout = MemoryTransactionalSpout(rows, "line string", take_per_partition=1)
    builder = TransactionalTopologyBuilder("global-count", "spout", spout, 3)
    builder.set_bolt("partial-count", BatchCount, 3).shuffle_grouping("spout")
    builder.set_committer_bolt("sum", UpdateGlobalCount).global_grouping(
        "partial-count"
    )
    topology = builder.build()
    print(topology.describe())

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    handle = topology.start(
        spark,
        {"tx.store": f"sqlite:///{WORK}/state.db", "topology.max.spout.pending": 3},
    )
    handle.process_all_available()
    handle.stop()
    stop_quietly(spark)

    with closing(sqlite3.connect(DATABASE)) as db:
        count, txid = db.execute("SELECT count, txid FROM total").fetchone()
    words = sum(len(line.split()) for lines in LINES.values() for line in lines)
    print(f"replays: {handle.status.replays}")
    print(f"counted {count} words in {txid} batches; there are {words}")


if __name__ == "__main__":
    main()
