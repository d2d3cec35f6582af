"""A topology that counts a topic into maps of two databases.

Run in a driver by ``test_crashes``: a Python worker kills itself, and a driver
stops at a named point of a batch's commit phase, to be killed there.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import kafka_tx
from integration.source.pausing_job import Pause

POINTS = ("in-transaction", "between-databases", "after-state")
TASKS = 2

Maps = dict[str, kafka_tx.NonTransactionalMap]


def maps_of(url: str, mode: str) -> Maps:
    """What is counted in one database; opaque batches need opaque maps."""
    plain = kafka_tx.OpaqueMap if mode == "opaque" else kafka_tx.TransactionalMap
    return {
        "records": plain(url, "records"),
        "sums": kafka_tx.OpaqueMap(url, "sums"),
        "newest": kafka_tx.OpaqueMap(url, "newest"),
    }


REDUCERS = {"records": "sum", "sums": "sum", "newest": "max"}


class Count(kafka_tx.BatchBolt):
    """Adds up the rows of each key; one of all workers dies once."""

    fields = "key string, records bigint, sums bigint, newest bigint"

    def __init__(self, place: str) -> None:
        self.place = place

    def prepare(self, context: kafka_tx.TaskContext, collector: Any) -> None:
        self.context, self.collector = context, collector
        self.batches: list[pa.RecordBatch] = []

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def finish_batch(self) -> None:
        if self.context.attempt.txid == 2 and self.context.task == 0:
            self._die_once()
        if not self.batches:
            return
        table = pa.Table.from_batches(self.batches).select(["key", "value"])
        value = table.column("value").cast(pa.int64())
        table = table.set_column(1, "value", value)
        sums = table.group_by("key").aggregate(
            [("value", "count"), ("value", "sum"), ("value", "max")]
        )
        columns = ["key", "value_count", "value_sum", "value_max"]
        self.collector.emit_arrow(
            sums.select(columns).rename_columns(["key", "records", "sums", "newest"])
        )

    def _die_once(self) -> None:
        try:
            (Path(self.place) / "worker-died").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class Keep(kafka_tx.Committer, kafka_tx.BatchBolt):
    """Counts a batch into all maps of all databases, and writes it down."""

    def __init__(self, place: str, urls: list[str], mode: str, pause: Pause) -> None:
        self.place, self.urls, self.mode, self.pause = place, urls, mode, pause

    def prepare(self, context: kafka_tx.TaskContext, collector: Any) -> None:
        self.attempt = context.attempt
        self.batches: list[pa.RecordBatch] = []

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch.select(["key", *REDUCERS]))

    def finish_batch(self) -> None:
        rows = (
            pa.Table.from_batches(self.batches)
            if self.batches
            else pa.schema(
                [("key", pa.string()), *((name, pa.int64()) for name in REDUCERS)]
            ).empty_table()
        )
        file = Path(self.place) / f"batch-{self.attempt.txid}"
        file.write_bytes(pickle.dumps((self.attempt, rows)))
        keep(self.urls, self.mode, self.attempt, rows, self._reach)

    def _reach(self, point: str) -> None:
        self.pause.reach(point, self.attempt.txid)


def keep(
    urls: list[str],
    mode: str,
    attempt: kafka_tx.TransactionAttempt,
    rows: pa.Table,
    reach: Callable[[str], None] = lambda point: None,
) -> None:
    """Count one batch."""
    for url in urls:
        for name, state in maps_of(url, mode).items():
            with state.batch(attempt) as batch:
                values = pa.table({"key": rows["key"], "value": rows[name]})
                batch.update(values, REDUCERS[name])  # type: ignore[arg-type]
                if url is urls[-1] and name == "sums":
                    reach("in-transaction")
            state.close()
        if url is urls[0]:
            reach("between-databases")
    reach("after-state")


def topology(given: Any, place: str, pause: Pause) -> Any:
    kind = (
        kafka_tx.OpaqueTransactionalKafkaSpout
        if given.mode == "opaque"
        else kafka_tx.TransactionalKafkaSpout
    )
    spout = kind(
        {
            "kafka.bootstrap.servers": given.servers,
            "subscribe": given.topic,
            "maxOffsetsPerTrigger": "60",
        },
        scheme=kafka_tx.KeyValueScheme(),
    )
    builder = kafka_tx.TransactionalTopologyBuilder(
        f"state-{given.topic}", "spout", spout, TASKS
    )
    count = builder.set_bolt("count", Count(place), TASKS)
    count.fields_grouping("spout", ["key"])
    bolt = Keep(place, given.url, given.mode, pause)
    builder.set_bolt("keep", bolt).global_grouping("count")
    return builder.build()


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "topic", "point", "mode"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--txid", type=int, required=True)
    parser.add_argument("--url", action="append", required=True)
    return parser.parse_args(words)


def run(spark: SparkSession, given: argparse.Namespace) -> None:
    """Count what is there, or up to the pause."""
    pause = Pause(given.point, given.txid, f"{given.work}/reached")
    # a batch that pauses does not time out, however long others need for their pauses
    settings = {
        "tx.store": f"sqlite:///{given.work}/store.db",
        "tx.maxPending": 3,
        "tx.timeoutMs": 600_000,
    }
    handle = topology(given, given.work, pause).start(spark, settings)
    try:
        assert handle.process_all_available(400), handle.status
    finally:
        handle.stop()
