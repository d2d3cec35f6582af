"""Three ways to exactly once, and what they cost: the same count in each of them.

Run it: python examples/three_designs.py

1. Each transaction is one tuple, one transaction at a time: the simplest, the slowest.
2. Each transaction is a batch, one batch at a time: all tasks wait while it commits.
3. Several batches are processed side by side; only one of them commits at a time.

All designs store the same: the count, the txid that was added last, and the epoch of
its owner. They differ in two numbers: the rows of a batch, and the batches in flight.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
from contextlib import closing

from pyspark.sql import SparkSession

from kafka_tx import (
    BatchBolt,
    Committer,
    MemoryTransactionalSpout,
    TransactionalTopologyBuilder,
)
from kafka_tx.errors import FencedError
from kafka_tx.spark.quiet_stop import stop_quietly

ROWS = [(number,) for number in range(20)]
DESIGNS = {
    "one tuple at a time": (1, 1),
    "one batch at a time": (2, 1),
    "pipelined batches": (2, 4),
}
"""Rows in a batch, and batches pending."""


class PartialCount(BatchBolt):
    """Counts a task's rows, after a look at something slow."""

    fields = "rows bigint"

    def prepare(self, context, collector):
        self.collector, self.rows = collector, 0

    def execute(self, row):
        self.rows += 1

    def finish_batch(self):
        time.sleep(0.2)
        self.collector.emit((self.rows,))


class Total(Committer, BatchBolt):
    """Keeps count, txid and epoch; only a later txid counts, and no former owner's."""

    def __init__(self, path):
        self.path = path

    def prepare(self, context, collector):
        self.attempt, self.rows = context.attempt, 0

    def execute(self, row):
        self.rows += row.rows

    def finish_batch(self):
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("CREATE TABLE IF NOT EXISTS total (rows, txid, epoch)")
            rows, txid, epoch = read(db)
            if self.attempt.epoch < epoch:
                raise FencedError(f"epoch {epoch} owns the count, not {self.attempt}")
            if txid < self.attempt.txid:
                rows, txid = rows + self.rows, self.attempt.txid
            new = (rows, txid, self.attempt.epoch)
            db.execute("DELETE FROM total")
            db.execute("INSERT INTO total VALUES (?, ?, ?)", new)


def read(db):
    row = db.execute("SELECT rows, txid, epoch FROM total").fetchone()
    return row or (0, 0, 0)


def count(spark, rows_in_a_batch, pending):
    """Count all rows; how many there were, in how many batches."""
    with tempfile.TemporaryDirectory() as work:
        return count_in(work, spark, rows_in_a_batch, pending)


def count_in(work, spark, rows_in_a_batch, pending):
    spout = MemoryTransactionalSpout([ROWS], "n bigint", rows_in_a_batch)
    builder = TransactionalTopologyBuilder("count", "spout", spout)
    builder.set_bolt("partial", PartialCount).shuffle_grouping("spout")
    builder.set_bolt("total", Total(f"{work}/total.db")).global_grouping("partial")
    handle = builder.build().start(
        spark,
        {
            "tx.store": f"sqlite:///{work}/state.db",
            "topology.max.spout.pending": pending,
        },
    )
    handle.process_all_available()
    handle.stop()
    with closing(sqlite3.connect(f"{work}/total.db")) as db:
        return read(db)[:2]


def main():
    print("starting Spark …", flush=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[4]")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    for name, (rows_in_a_batch, pending) in DESIGNS.items():
        began = time.monotonic()
        rows, txid = count(spark, rows_in_a_batch, pending)
        took_s = time.monotonic() - began
        print(f"{name}: {rows} of {len(ROWS)} rows in {txid} batches, {took_s:.1f} s")
    stop_quietly(spark)


if __name__ == "__main__":
    main()
