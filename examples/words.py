"""Counts words, and how many words are common, in two tables that never disagree.

Run it: python examples/words.py

A word moves from bucket to bucket as it gets more common (0 to 9 times, 10 to 19, …).
``word_count`` also stores the count before the batch, beside count and txid. If a batch
is committed again, it finds its txid there, and emits the same moves again.
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
    BasicBolt,
    BatchBolt,
    Committer,
    FailedException,
    MemoryTransactionalSpout,
    TransactionalTopologyBuilder,
)
from kafka_tx.errors import FencedError
from kafka_tx.spark.quiet_stop import stop_quietly

BUCKET = 10
LINES = ["the cow jumped over the moon", "the man went to the store", "cow and moon"]
WORK = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, WORK)
DATABASE = str(WORK / "words.db")


class Split(BasicBolt):
    fields = "word string"

    def execute(self, row, collector):
        for word in row.line.split():
            collector.emit((word,))


class KeyedCount(Committer, BatchBolt):
    """Updates its share of the words; two tasks, each with words of its own."""

    fields = "word string, count bigint, previous bigint"

    def __init__(self, database):
        self.database = database

    def prepare(self, context, collector):
        self.attempt, self.collector = context.attempt, collector
        self.counts = Counter()

    def execute(self, row):
        self.counts[row.word] += 1

    def finish_batch(self):
        with closing(sqlite3.connect(self.database, timeout=30)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            fence(db, self.attempt)
            for word, added in sorted(self.counts.items()):
                count, previous = self.update(db, word, added)
                self.collector.emit((word, count, previous))

    def update(self, db, word, added):
        found = db.execute(
            "SELECT count, previous, txid FROM word_count WHERE word = ?", (word,)
        ).fetchone()
        count, previous, txid = found or (0, 0, 0)
        if txid >= self.attempt.txid:
            return count, previous
        db.execute(
            "INSERT OR REPLACE INTO word_count VALUES (?, ?, ?, ?)",
            (word, count + added, count, self.attempt.txid),
        )
        return count + added, count


def fence(db, attempt):
    """Let no former owner write, whatever its txid; remember the newest one."""
    newest = "UPDATE owner SET epoch = ? WHERE epoch <= ?"
    if not db.execute(newest, (attempt.epoch, attempt.epoch)).rowcount:
        raise FencedError(f"another owner than that of {attempt} writes here")


class Bucketize(BasicBolt):
    """Says which buckets gain and lose a word."""

    fields = "bucket bigint, delta bigint"

    def execute(self, row, collector):
        was, now = row.previous // BUCKET, row.count // BUCKET
        if row.previous == 0:
            collector.emit((now, 1))
        elif was != now:
            collector.emit((was, -1))
            collector.emit((now, 1))


class BucketCount(BatchBolt):
    """Below a committer: finishes in the commit phase, in txid order, like it."""

    def __init__(self, database, marker):
        self.database, self.marker = database, Path(marker)

    def prepare(self, context, collector):
        self.attempt = context.attempt
        self.deltas = Counter()

    def execute(self, row):
        self.deltas[row.bucket] += row.delta

    def finish_batch(self):
        if self.attempt.txid == 3 and not self.marker.exists():
            self.marker.touch()
            raise FailedException("fails once, when the words are stored already")
        with closing(sqlite3.connect(self.database, timeout=30)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            fence(db, self.attempt)
            for bucket, delta in self.deltas.items():
                db.execute(
                    "INSERT OR IGNORE INTO bucket_count VALUES (?, 0, 0)", (bucket,)
                )
                db.execute(
                    "UPDATE bucket_count SET words = words + ?, txid = ?"
                    " WHERE bucket = ? AND txid < ?",
                    (delta, self.attempt.txid, bucket, self.attempt.txid),
                )


def create_tables():
    with closing(sqlite3.connect(DATABASE)) as db, db:
        db.execute("CREATE TABLE word_count (word PRIMARY KEY, count, previous, txid)")
        db.execute("CREATE TABLE owner (epoch)")
        db.execute("INSERT INTO owner VALUES (0)")
        db.execute("CREATE TABLE bucket_count (bucket PRIMARY KEY, words, txid)")


def main():
    print("starting Spark …", flush=True)
    create_tables()
    rows = [(LINES[number % len(LINES)],) for number in range(60)]
    spout = MemoryTransactionalSpout([rows[::2], rows[1::2]], "line string", 6)
    builder = TransactionalTopologyBuilder("words", "spout", spout, 2)
    builder.set_bolt("split", Split).shuffle_grouping("spout")
    counts = builder.set_bolt("count", KeyedCount(DATABASE), 2)
    counts.fields_grouping("split", ["word"])
    builder.set_bolt("bucketize", Bucketize).shuffle_grouping("count")
    buckets = builder.set_bolt("buckets", BucketCount(DATABASE, WORK / "failed"))
    buckets.global_grouping("bucketize")
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
        {"tx.store": f"sqlite:///{WORK}/state.db", "topology.max.spout.pending": 2},
    )
    handle.process_all_available()
    handle.stop()
    stop_quietly(spark)

    with closing(sqlite3.connect(DATABASE)) as db:
        counts = dict(db.execute("SELECT word, count FROM word_count"))
        buckets = dict(db.execute("SELECT bucket, words FROM bucket_count"))
    expected = Counter(word for (line,) in rows for word in line.split())
    print(f"replays: {handle.status.replays}")
    print(f"words right: {counts == expected}")
    moved = Counter(count // BUCKET for count in expected.values())
    kept = {bucket: words for bucket, words in buckets.items() if words}
    print(f"buckets right: {kept == moved}: {dict(sorted(kept.items()))}")


if __name__ == "__main__":
    main()
