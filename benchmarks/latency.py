"""Latency: from a record that is produced to its commit in SQLite, one at a time.

One record every 20 ms, in turn to four partitions. Its value is the time at which it
was produced; the sink notes the time after each of its commits. A short first run of
each system does not count, nor does the first third of each run. Every system commits
each batch with its number, and once:

* ``topology-pending1``, ``-pending4``: a transactional topology, ``tx.idlePauseMs=5``
* ``source``: kafka_tx with ``tx.id`` in ``for_each_transaction``
* ``nothing``: a source in Python that makes its records up (``benchmarks.nothing``)
* ``spark``, ``spark-wait10``: Spark's source in ``foreachBatch``, with its defaults and
  with ``kafka.fetch.max.wait.ms=10``

The baseline of all is ``spark-wait10``. Of the slowest record the report says which
batch it was in, how many records that held, and how long after the one before it was
committed. For sources it shows where the time of a micro-batch goes
(``benchmarks.waterfall``).
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from benchmarks import nothing
from benchmarks.nothing import EVERY_S
from benchmarks.report import Case, print_report
from benchmarks.servers import PARTITIONS, broker, session
from benchmarks.waterfall import Steps, Watch, table, watched
from integration.cluster.interface import KafkaCluster
from integration.cluster.waiting import wait_until
from kafka_tx import (
    BatchBolt,
    Committer,
    KeyValueScheme,
    TransactionalKafkaSpout,
    TransactionalTopologyBuilder,
)

FROM_THE_FIRST = {"startingOffsets": "earliest"}
"""A query may begin after the first records: topics are new."""
WAIT = {"kafka.fetch.max.wait.ms": "10"}
BASELINE = "spark-wait10"

Stop = Callable[[], list[Steps]]
"""Ends a run; gives the steps of its micro-batches."""


# --- the sink, the same for all -------------------------------------------------------


def make_sink(path: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE batches (number PRIMARY KEY)")
        db.execute("CREATE TABLE records (produced_ns)")
        db.execute("CREATE TABLE latencies (batch, produced_ns, committed_ns)")


def commit(path: str, batch: int, produced: Iterable[int]) -> None:
    """Store a batch unless it is there; then note when that was done."""
    records = list(produced)
    with closing(sqlite3.connect(path, timeout=30)) as db:
        db.execute("PRAGMA synchronous=NORMAL")
        with db:
            given = db.execute("INSERT OR IGNORE INTO batches VALUES (?)", (batch,))
            if not given.rowcount:
                return
            db.executemany("INSERT INTO records VALUES (?)", [(t,) for t in records])
        now_ns = time.time_ns()
        with db:
            rows = [(batch, produced_ns, now_ns) for produced_ns in records]
            db.executemany("INSERT INTO latencies VALUES (?, ?, ?)", rows)


@dataclass(frozen=True)
class Latencies:
    """What a run measured, in milliseconds, ascending."""

    ms: list[float]
    slowest: str

    @classmethod
    def of(cls, path: str, since_ns: int) -> Latencies:
        """Of records that were produced since."""
        with closing(sqlite3.connect(path)) as db:
            rows = db.execute(
                "SELECT committed_ns - produced_ns, batch FROM latencies"
                " WHERE produced_ns >= ? ORDER BY 1",
                (since_ns,),
            ).fetchall()
            commits = db.execute(
                "SELECT batch, max(committed_ns), count(*), min(produced_ns)"
                " FROM latencies GROUP BY batch ORDER BY 2"
            ).fetchall()
        longest_ns, batch = rows[-1]
        at = next(n for n, commit in enumerate(commits) if commit[0] == batch)
        gap_ms = (commits[at][1] - commits[max(at - 1, 0)][1]) / 1e6
        slowest = (
            f"{longest_ns / 1e6:.0f} ms in batch {batch} of {commits[at][2]} records,"
            f" committed {gap_ms:.0f} ms after the one before"
        )
        return cls([taken / 1e6 for taken, _ in rows], slowest)


# --- the systems ----------------------------------------------------------------------


class Parse(BatchBolt):
    fields = "produced_ns bigint"

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, row: Any) -> None:
        self.collector.emit((int(row.value),))

    def finish_batch(self) -> None:
        pass


class Save(Committer, BatchBolt):
    def __init__(self, path: str) -> None:
        self.path = path

    def prepare(self, context: Any, collector: Any) -> None:
        self.txid = context.attempt.txid
        self.produced: list[int] = []

    def execute(self, row: Any) -> None:
        self.produced.append(row.produced_ns)

    def finish_batch(self) -> None:
        commit(self.path, self.txid, self.produced)


def topology(pending: int, run: Run) -> Stop:
    spout = TransactionalKafkaSpout(
        {
            "kafka.bootstrap.servers": run.servers,
            "subscribe": run.topic,
            **FROM_THE_FIRST,
        },
        scheme=KeyValueScheme(),
    )
    builder = TransactionalTopologyBuilder(run.topic, "spout", spout, PARTITIONS)
    builder.set_bolt("parse", Parse, 2).shuffle_grouping("spout")
    builder.set_committer_bolt("save", Save(run.sink)).global_grouping("parse")
    handle = builder.build().start(
        run.spark,
        {
            "tx.store": f"sqlite:///{run.work}/store.db",
            "tx.maxPending": pending,
            "tx.idlePauseMs": 5,
        },
    )

    def stop() -> list[Steps]:
        handle.stop()
        return []

    return stop


def produced_of(df: DataFrame) -> list[int]:
    return [int(row.value) for row in df.select("value").collect()]


def source(run: Run) -> Stop:
    options = {
        "kafka.bootstrap.servers": run.servers,
        "subscribe": run.topic,
        **FROM_THE_FIRST,
        "tx.id": run.topic,
        "tx.store": f"sqlite:///{run.work}/store.db",
    }
    watch = Watch()
    sink = kafka_tx.for_each_transaction(
        lambda df, attempt: save(run, watch, df, attempt.txid)
    )
    return stream("kafka_tx", options, sink, run, watch)


def spark_source(options: Mapping[str, str], run: Run) -> Stop:
    given = {
        "kafka.bootstrap.servers": run.servers,
        "subscribe": run.topic,
        **FROM_THE_FIRST,
        **options,
    }
    watch = Watch()
    return stream("kafka", given, partial(save, run, watch), run, watch)


def no_source(run: Run) -> Stop:
    watch = Watch()
    options = {"since_ns": str(time.time_ns())}
    return stream("nothing", options, partial(save, run, watch), run, watch)


def save(run: Run, watch: Watch, df: DataFrame, number: int) -> None:
    """Commit the records of a micro-batch (in ``foreachBatch``)."""
    with watch.step("job"):
        produced = produced_of(df)
    with watch.step("sink"):
        commit(run.sink, number, produced)


def stream(
    name: str,
    options: Mapping[str, str],
    sink: Callable[[DataFrame, int], None],
    run: Run,
    watch: Watch,
) -> Stop:
    query = (
        run.spark.readStream.format(name)
        .options(**options)
        .load()
        .writeStream.foreachBatch(watch.around(sink))
        .option("checkpointLocation", f"{run.work}/checkpoint")
        .start()
    )

    def stop() -> list[Steps]:
        steps = watched(query, watch)
        query.stop()
        return steps

    return stop


SYSTEMS: dict[str, Callable[[Run], Stop]] = {
    "topology-pending1": partial(topology, 1),
    "topology-pending4": partial(topology, 4),
    "source": source,
    "nothing": no_source,
    "spark": partial(spark_source, {}),
    BASELINE: partial(spark_source, WAIT),
}


# --- runs -----------------------------------------------------------------------------


@dataclass
class Run:
    """One system, with a topic, a store and a sink of its own."""

    spark: SparkSession
    servers: str
    topic: str
    work: str
    sink: str = field(init=False)

    def __post_init__(self) -> None:
        self.sink = f"{self.work}/sink.db"
        make_sink(self.sink)


def produce(run: Run, seconds: float) -> None:
    """Produce one record after the other; returns when the last one is committed.

    Beside ``nothing`` too, which does not read them, so that all bear the same load.
    """
    producer = Producer({"bootstrap.servers": run.servers, "linger.ms": 0})
    produced_ns = 0
    for number in range(int(seconds / EVERY_S)):
        produced_ns = time.time_ns()
        value = str(produced_ns).encode()
        producer.produce(run.topic, value, partition=number % PARTITIONS)
        producer.poll(0)
        time.sleep(EVERY_S)
    assert producer.flush(30) == 0
    wait_until(
        "the last record is committed", lambda: last_committed(run.sink) >= produced_ns
    )


def last_committed(path: str) -> int:
    """When the last record that is committed was produced; 0: none is."""
    with closing(sqlite3.connect(path, timeout=30)) as db:
        (found,) = db.execute("SELECT max(produced_ns) FROM latencies").fetchone()
    return int(found or 0)


def measure(
    spark: SparkSession, cluster: KafkaCluster, name: str, topic: str, seconds: float
) -> tuple[Latencies, list[Steps]]:
    cluster.create_topic(topic, PARTITIONS)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        run = Run(spark, cluster.bootstrap_servers, topic, work)
        stop = SYSTEMS[name](run)
        produce(run, seconds / 2)
        since_ns = time.time_ns()
        produce(run, seconds)
        steps = stop()
        return Latencies.of(str(Path(run.sink)), since_ns), steps


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks latency")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=1, help="runs of each system")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of a run, after half of it"
    )
    parser.add_argument(
        "--only", choices=SYSTEMS, action="append", help="only these systems"
    )
    given = parser.parse_args(arguments)
    names = given.only or list(SYSTEMS)
    measured: dict[str, list[Latencies]] = defaultdict(list)
    steps: dict[str, list[Steps]] = defaultdict(list)
    with broker() as cluster, session() as spark:
        nothing.register(spark)
        for name in names:  # Java compiles what it runs often
            measure(spark, cluster, name, f"{name}-first", given.seconds / 4)
        for run in range(given.runs):
            for name in names[:: -1 if run % 2 else 1]:
                topic = f"{name}-{run}"
                found = measure(spark, cluster, name, topic, given.seconds)
                measured[name].append(found[0])
                steps[name] += found[1]
    for name, runs in measured.items():
        for latencies in runs:
            print(f"slowest of {name}: {latencies.slowest}")
    print(*table({name: each for name, each in steps.items() if each}), sep="\n")
    figures = {name: figures_of(runs) for name, runs in measured.items()}
    baseline = figures.get(BASELINE, {})
    cases = [
        Case(f"{name} {figure}", ms, baseline.get(figure, ms), "ms")
        for name, of_name in figures.items()
        for figure, ms in of_name.items()
    ]
    print_report("latency", f"Spark's source with {WAIT}", cases, as_json=given.json)


def figures_of(runs: list[Latencies]) -> dict[str, float]:
    """Percentiles of all records of all runs."""
    ms = [each for latencies in runs for each in latencies.ms]
    cuts = quantiles(ms, n=100)
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(ms)}
