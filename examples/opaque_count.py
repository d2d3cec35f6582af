"""Counts exactly once although a replayed batch holds other records than before.

Run it: python examples/opaque_count.py

Batch 2 writes its count and fails directly afterwards. At the same moment a partition
becomes unavailable, so the replay holds fewer rows. The committer also stores the count
before the batch, and the replay starts from that count. The missing rows come in a
later batch.
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
    OpaqueMemoryTransactionalSpout,
    TransactionalTopologyBuilder,
)
from kafka_tx.errors import FencedError
from kafka_tx.spark.quiet_stop import stop_quietly

ROWS = 30
WORK = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, WORK)
DATABASE = WORK / "count.db"

rows = [(number,) for number in range(ROWS)]
spout = OpaqueMemoryTransactionalSpout([rows[::2], rows[1::2]], "n bigint", 4)


class Count(BatchBolt):
    fields = "count bigint"

    def prepare(self, context, collector):
        self.collector, self.count = collector, 0

    def execute(self, row):
        self.count += 1

    def finish_batch(self):
        self.collector.emit((self.count,))


class Update(Committer, BatchBolt):
    """Stores (count, previous, txid, attempt); runs on the driver, as the spout.

    A greater attempt id is newer, also of another owner: an older one adds nothing.
    """

    def prepare(self, context, collector):
        self.attempt, self.sum = context.attempt, 0
        self.txid = self.attempt.txid

    def execute(self, row):
        self.sum += row.count

    def finish_batch(self):
        with closing(sqlite3.connect(DATABASE, timeout=30)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            select = "SELECT count, previous, txid, attempt FROM total"
            count, previous, txid, newest = db.execute(select).fetchone()
            if self.attempt.attempt_id < newest:
                raise FencedError(f"attempt {newest} is newer than {self.attempt}")
            base = previous if txid == self.txid else count
            db.execute(
                "UPDATE total SET count = ?, previous = ?, txid = ?, attempt = ?",
                (base + self.sum, base, self.txid, self.attempt.attempt_id),
            )
        print(f"txid {self.txid}: {self.sum} rows, {base} + {self.sum}")
        if self.txid == 2 and not (WORK / "failed").exists():
            (WORK / "failed").touch()
            spout.set_lost(1)
            raise FailedException("failed after its commit, and partition 1 is lost")


def main():
    print("starting Spark …", flush=True)
    with closing(sqlite3.connect(DATABASE)) as db, db:
        db.execute("CREATE TABLE total (count, previous, txid, attempt)")
        db.execute("INSERT INTO total VALUES (0, 0, 0, 0)")

    builder = TransactionalTopologyBuilder("opaque-count", "spout", spout, 2)
    builder.set_bolt("count", Count).shuffle_grouping("spout")
    builder.set_committer_bolt("update", Update).global_grouping("count")

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    handle = builder.build().start(
        spark,
        {"tx.store": f"sqlite:///{WORK}/state.db", "topology.max.spout.pending": 2},
    )
    handle.process_all_available()
    print("partition 1 is found again")
    spout.set_lost(1, lost=False)
    handle.process_all_available()
    handle.stop()
    stop_quietly(spark)

    with closing(sqlite3.connect(DATABASE)) as db:
        (count,) = db.execute("SELECT count FROM total").fetchone()
    print(f"replays: {handle.status.replays}")
    print(f"counted {count} rows; there are {ROWS}")


if __name__ == "__main__":
    main()
