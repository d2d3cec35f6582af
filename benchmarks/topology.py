"""Topologies: batches/s against Structured Streaming doing the same work.

A partial count by key in Python, then a commit that adds the counts to a SQLite table
with the txid. The baseline is Spark's own connector with ``foreachBatch`` and the same
Python functions (``…-vs-jvm``: with an aggregate in the JVM instead). The systems
alternate in one session; batches of the warm-up do not count. ``planning-…``: see
``benchmarks.topology_planning``.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks import topology_planning
from benchmarks.report import Case, print_report
from benchmarks.servers import PARTITIONS, broker, fill, session
from integration.cluster.interface import KafkaCluster
from kafka_tx import (
    BatchBolt,
    Committer,
    KeyValueScheme,
    TransactionalKafkaSpout,
    TransactionalTopologyBuilder,
)

SIZES = {"small": (1_000, 60, 12), "large": (100_000, 16, 4)}
"""Records of a batch, batches, and how many of them are warm-up."""

WAIT_S = 0.1
COUNTS = pa.schema([("key", pa.binary()), ("count", pa.int64())])


# --- the work, the same for all -------------------------------------------------------


def count_keys(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Counts by key of what reaches one task."""
    counts: Counter[bytes] = Counter()
    for batch in batches:
        counts.update(batch.column("key").to_pylist())
    return pa.RecordBatch.from_pydict(
        {"key": list(counts), "count": list(counts.values())}, schema=COUNTS
    )


def add_counts(path: str, txid: int, counts: Iterable[tuple[bytes, int]]) -> None:
    """Add a batch to the table, unless its txid is there already."""
    total: Counter[bytes] = Counter()
    for key, count in counts:
        total[key] += count
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS counts (key PRIMARY KEY, count, txid)")
        db.executemany(
            "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET count = count + excluded.count, txid = excluded.txid"
            " WHERE txid < excluded.txid",
            [(key, count, txid) for key, count in total.items()],
        )


def total_of(path: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT sum(count) FROM counts").fetchone()[0])


# --- as a topology --------------------------------------------------------------------


class PartialCount(BatchBolt):
    fields = "key binary, count bigint"

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector, self.batches = collector, []

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def finish_batch(self) -> None:
        self.collector.emit_arrow(count_keys(self.batches))


class Ask(BatchBolt):
    """Waits on an outside service, once for each batch."""

    fields = "key binary, count bigint"

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        self.collector.emit_arrow(batch)

    def finish_batch(self) -> None:
        time.sleep(WAIT_S)


class Add(Committer, BatchBolt):
    def __init__(self, path: str) -> None:
        self.path = path

    def prepare(self, context: Any, collector: Any) -> None:
        self.txid, self.counts = context.attempt.txid, []

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        columns = (batch.column(name).to_pylist() for name in ("key", "count"))
        self.counts += zip(*columns, strict=True)

    def finish_batch(self) -> None:
        add_counts(self.path, self.txid, self.counts)


@dataclass
class Bench:
    """One session, one broker, one topic."""

    spark: SparkSession
    servers: str
    topic: str
    batch: int
    batches: int
    warm_up: int
    tasks: int
    rates: dict[str, list[float]] = field(default_factory=dict)

    def run(self, system: str) -> None:
        """Run one system over the whole topic and note its batches/s."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
            sink = str(Path(work) / "sink.db")
            commits = list(self._commits(system, work, sink))
            assert total_of(sink) == self.batch * self.batches
        assert len(commits) == self.batches, f"{system}: {len(commits)} batches"
        seconds = commits[-1] - commits[self.warm_up - 1]
        rate = (self.batches - self.warm_up) / seconds
        self.rates.setdefault(system, []).append(rate)

    def rate(self, system: str) -> float:
        return median(self.rates[system])

    def _commits(self, system: str, work: str, sink: str) -> Iterator[float]:
        if system in ("python", "jvm"):
            return iter(self._stream(system, work, sink))
        kind, _, pending = system.partition("-")
        return iter(self._topology(kind, int(pending), work, sink))

    def _topology(self, kind: str, pending: int, work: str, sink: str) -> list[float]:
        spout = TransactionalKafkaSpout(
            {
                "kafka.bootstrap.servers": self.servers,
                "subscribe": self.topic,
                "maxOffsetsPerTrigger": self.batch,
            },
            scheme=KeyValueScheme(text=False),
        )
        builder = TransactionalTopologyBuilder("bench", "spout", spout, self.tasks)
        builder.set_bolt("partial", PartialCount).shuffle_grouping("spout")
        if kind == "waiting":
            builder.set_bolt("ask", Ask).global_grouping("partial")
        last = "ask" if kind == "waiting" else "partial"
        builder.set_bolt("add", partial(Add, sink)).global_grouping(last)
        commits: list[float] = []
        handle = builder.build().start(
            self.spark,
            {"tx.store": f"sqlite:///{work}/state.db", "tx.maxPending": pending},
            listeners=[lambda _: commits.append(time.monotonic())],
        )
        handle.process_all_available()
        handle.stop()
        return commits

    def _stream(self, system: str, work: str, sink: str) -> list[float]:
        commits: list[float] = []

        def commit(df: DataFrame, batch_id: int) -> None:
            add_counts(sink, batch_id + 1, map(tuple, counted(df).collect()))
            commits.append(time.monotonic())

        counted = in_python if system == "python" else in_jvm
        query = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(self.batch))
            .load()
            .writeStream.foreachBatch(commit)
            .option("checkpointLocation", f"{work}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return commits


def in_python(df: DataFrame) -> DataFrame:
    return df.select("key").mapInArrow(
        lambda batches: iter([count_keys(batches)]), "key binary, count bigint"
    )


def in_jvm(df: DataFrame) -> DataFrame:
    return df.groupBy("key").count()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks topology")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=3, help="runs of each system")
    parser.add_argument("--tasks", type=int, default=PARTITIONS, help="of the spout")
    parser.add_argument(
        "--size", choices=(*SIZES, "planning"), action="append", help="only these"
    )
    given = parser.parse_args(arguments)
    sizes = given.size or [*SIZES, "planning"]
    cases = []
    with broker() as cluster:
        if set(sizes) & SIZES.keys():
            cases += throughput(cluster, given, sizes)
        if "planning" in sizes:
            cases += topology_planning.cases(cluster, given.runs)
    print_report(
        "topology", "Spark's connector or a plain way", cases, as_json=given.json
    )


def throughput(
    cluster: KafkaCluster, given: argparse.Namespace, sizes: list[str]
) -> list[Case]:
    cases = []
    with session() as spark:
        for size in (size for size in sizes if size in SIZES):
            batch, batches, warm_up = SIZES[size]
            topic = f"topology-{size}"
            fill(cluster, topic, batch * batches, 100)
            servers = cluster.bootstrap_servers
            bench = Bench(spark, servers, topic, batch, batches, warm_up, given.tasks)
            systems = ["counting-4", "counting-1", "python", "jvm"]
            if size == "small":
                systems += ["waiting-4", "waiting-1"]
            for run in range(given.runs):
                for system in systems if run % 2 else reversed(systems):
                    bench.run(system)
            cases += cases_of(size, bench)
    return cases


def cases_of(size: str, bench: Bench) -> list[Case]:
    compared = {
        f"{size}-pending4": ("counting-4", "python"),
        f"{size}-pending1": ("counting-1", "python"),
        f"{size}-pending4-vs-jvm": ("counting-4", "jvm"),
    }
    if size == "small":
        compared["waiting-pending4"] = ("waiting-4", "waiting-1")
    return [
        Case(
            name,
            bench.rate(ours),
            bench.rate(theirs),
            "batches/s",
            less_is_better=False,
        )
        for name, (ours, theirs) in compared.items()
    ]
