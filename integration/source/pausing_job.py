"""A job that stops dead at a named point of a batch's life, to be killed there.

Run in a driver by ``test_crashes``: it reads a topic through ``kafka_tx`` into a
SQLite table that stores the txid with its rows, and writes a marker file when it has
reached the point.
"""

from __future__ import annotations

import argparse
import sqlite3
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from integration.bounded import read_out
from integration.pausing import LASTS_S
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.source.data_source import KafkaTxDataSource
from kafka_tx.spark.source.stream import KafkaTxStreamReader
from kafka_tx.spark.versions.streams import as_this_spark_calls_it

POINTS = (
    "before-plan",
    "after-plan",
    "in-task",
    "before-sink",
    "after-sink",
    "after-commit-log",
    "before-mirror",
)


class Pause:
    """Stops the process that reaches ``point`` in or after transaction ``txid``."""

    def __init__(self, point: str, txid: int, marker: str) -> None:
        self.point, self.txid, self.marker = point, txid, Path(marker)

    def reach(self, point: str, txid: int) -> None:
        if point == self.point and txid >= self.txid:
            self.marker.touch()
            time.sleep(600)  # until it is killed


class PausingLedger:
    """A Ledger that pauses around its writes."""

    def __init__(self, ledger: Any, pause: Pause) -> None:
        self._ledger, self._pause = ledger, pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def plan(self, epoch: int, metadata: Any, **more: Any) -> None:
        self._pause.reach("before-plan", metadata.txid)
        self._ledger.plan(epoch, metadata, **more)
        self._pause.reach("after-plan", metadata.txid)

    def commit(self, epoch: int, txid: int, *args: Any, **more: Any) -> bool:
        self._pause.reach("after-commit-log", txid)
        done: bool = self._ledger.commit(epoch, txid, *args, **more)
        self._pause.reach("before-mirror", txid)
        return done

    def commit_with_next(
        self, epoch: int, txid: int, completed_ms: int, told: Any, **more: Any
    ) -> None:
        def written(is_first: bool) -> None:
            self._pause.reach("before-mirror", txid)
            told(is_first)

        self._pause.reach("after-commit-log", txid)
        self._ledger.commit_with_next(epoch, txid, completed_ms, written, **more)


class PausingReader(KafkaTxStreamReader):
    """The real reader, with pauses."""

    def __init__(self, options: Any, pause: Pause) -> None:
        super().__init__(options)
        self._pause = pause

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._options, self._pause)

    def _open(self) -> Any:
        batches: Any = super()._open()
        batches._ledger = PausingLedger(batches._ledger, self._pause)
        batches._reset()
        return batches

    def read(self, partition: Any) -> Any:
        if partition.wanted.start > 0:
            self._pause.reach("in-task", self._pause.txid)
        return super().read(partition)


class PausingSource(KafkaTxDataSource):
    """``format("kafka_tx_pausing")``."""

    @classmethod
    def name(cls) -> str:
        return "kafka_tx_pausing"

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's
        pause = Pause(
            self.options["pause.point"],
            int(self.options["pause.txid"]),
            self.options["pause.marker"],
        )
        return as_this_spark_calls_it(PausingReader(self.options, pause))


class Sink:
    """Rows and their txid, in one SQLite transaction: a replay finds itself done."""

    def __init__(self, path: str, pause: Pause) -> None:
        self._path, self._pause = path, pause

    def __call__(self, df: DataFrame, attempt: TransactionAttempt) -> None:
        rows = [(r.partition, r.offset, bytes(r.value)) for r in df.collect()]
        self._pause.reach("before-sink", attempt.txid)
        with sqlite3.connect(self._path) as db:
            db.execute("CREATE TABLE IF NOT EXISTS done (txid INTEGER PRIMARY KEY)")
            db.execute("CREATE TABLE IF NOT EXISTS rows (part, offs, value)")
            seen = db.execute("SELECT 1 FROM done WHERE txid = ?", (attempt.txid,))
            if seen.fetchone() is None:
                db.execute("INSERT INTO done VALUES (?)", (attempt.txid,))
                db.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
        self._pause.reach("after-sink", attempt.txid)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "topic", "checkpoint", "point", "mode", "store"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--txid", type=int, default=2)
    parser.add_argument("--if-owned", default="fence")
    parser.add_argument("--attach", action="store_true")
    return parser.parse_args(words)


def run(spark: SparkSession, given: argparse.Namespace) -> None:
    """Read what is there, or up to the pause."""
    pause = Pause(given.point, given.txid, f"{given.work}/reached")
    spark.dataSource.register(PausingSource)
    with ExitStack() as opened:
        if given.attach:  # closed as a process does at its end, which may come later
            opened.callback(attach(spark, pause).close)
        read_out(
            spark.readStream.format("kafka_tx_pausing")
            .option("kafka.bootstrap.servers", given.servers)
            .option("subscribe", given.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .option("tx.id", given.topic)
            .option("tx.mode", given.mode)
            .option("tx.ifOwned", given.if_owned)
            .option("tx.store", given.store)
            .option("tx.commitGroupId", f"{given.topic}-group")
            .option("pause.point", given.point)
            .option("pause.txid", str(given.txid))
            .option("pause.marker", f"{given.work}/reached")
            .load()
            .writeStream.foreachBatch(
                kafka_tx.for_each_transaction(Sink(f"{given.work}/sink.db", pause))
            )
            .option("checkpointLocation", given.checkpoint),
            LASTS_S,
        )


def attach(spark: SparkSession, pause: Pause) -> Any:
    """Commit promptly, with pauses."""
    attached: Any = kafka_tx.attach(spark, metrics_port=None)
    opened = attached._listener.feed._open_parts

    def pausing_parts(tx_id: str) -> Any:
        ledger, mirror = opened(tx_id)
        return PausingLedger(ledger, pause), mirror

    attached._listener.feed._open_parts = pausing_parts
    return attached
