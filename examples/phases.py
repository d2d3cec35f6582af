"""Shows in which phase each component runs: A → B, A → C, B → C, C → D.

Run it: python examples/phases.py

B and D are committers: their finish_batch runs in the commit phase of the batch. A
finishes in the processing phase. C cannot finish before B, and D not before C, so both
finish in the same commit phase. B and C execute the rows of A earlier, in the
processing phase. Two batches are in flight: the processing of one overlaps with the
commit of the other, but only one batch commits at a time, the lowest txid first.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import time

from pyspark.sql import SparkSession

from kafka_tx import (
    BatchBolt,
    Committer,
    MemoryTransactionalSpout,
    TransactionalTopologyBuilder,
)
from kafka_tx.spark.quiet_stop import stop_quietly

began = time.monotonic()


def say(attempt, component, what):
    ms = (time.monotonic() - began) * 1000
    print(f"{ms:7.0f} ms  txid {attempt.txid}  {component}  {what}", flush=True)


class Talkative(BatchBolt):
    """Says when it is given rows and when it finishes; hands the number of rows on."""

    fields = "rows bigint"

    def prepare(self, context, collector):
        self.context, self.collector, self.rows = context, collector, 0

    def execute(self, row):
        self.rows += 1
        say(self.context.attempt, self.context.component, "execute")

    def finish_batch(self):
        say(self.context.attempt, self.context.component, "finish")
        self.collector.emit((self.rows,))


class TalkativeCommitter(Committer, Talkative):
    def finish_batch(self):
        say(self.context.attempt, self.context.component, "commit")
        time.sleep(0.05)
        self.collector.emit((self.rows,))


def main():
    print("starting Spark …", flush=True)
    rows = [(number,) for number in range(3)]
    spout = MemoryTransactionalSpout([rows], "n bigint", take_per_partition=1)
    builder = TransactionalTopologyBuilder("phases", "spout", spout)
    builder.set_bolt("A", Talkative).shuffle_grouping("spout").on_driver()
    builder.set_bolt("B", TalkativeCommitter).global_grouping("A")
    c = builder.set_bolt("C", Talkative).global_grouping("A").global_grouping("B")
    c.on_driver()
    builder.set_bolt("D", TalkativeCommitter).global_grouping("C")
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
    work = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, work)
    store = f"sqlite:///{work}/state.db"
    handle = topology.start(spark, {"tx.store": store, "topology.max.spout.pending": 2})
    handle.process_all_available()
    handle.stop()
    stop_quietly(spark)
    print(f"committed up to txid {handle.status.committed_txid}")


if __name__ == "__main__":
    main()
