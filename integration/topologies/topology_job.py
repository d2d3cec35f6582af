"""A topology whose state proves itself, with trouble in every component.

It tallies for each partition how many records were committed, and the sums of their
offsets and of the squares of these: a record that is lost or counted twice shows. Used
by tests in their own process, and run as a program that can be killed or sent to a
cluster: it needs nothing but ``kafka_tx``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kafka_tx
from kafka_tx import assembly

POINTS = (
    "before-metadata",
    "after-metadata",
    "in-task",
    "before-sink",
    "after-sink",
    "before-record",
    "after-record",
)
OPAQUE_POINTS = POINTS[2:]
"""An opaque batch has no metadata in the store before it is recorded."""

COMPONENTS = ("plan", "read", "pass", "tally-0", "tally-1", "commit", "committed")
"""Where ``Trouble.failing`` strikes; the last two around the write to the sink."""

TALLY = ("records", "offsets", "squares")


@dataclass(frozen=True)
class Trouble:
    """What goes wrong, and how often.

    Attributes:
        place: A directory that every process sees.
        failing: Probability that a component of an attempt raises FailedException; each
            one does at least once.
        only: The one component that fails; else all of them do.
        kills: How many Python workers kill themselves, at most, in the whole run.
        point: Where the process that reaches it waits to be killed.
        txid: From which batch on.
    """

    place: str
    failing: float = 0.0
    only: str = ""
    kills: int = 0
    point: str = ""
    txid: int = 1

    def visit(self, component: str, attempt: Any) -> None:
        """Perhaps fail, perhaps lose this worker: one surely, where any may die."""
        self.fail(component, attempt)
        chance = random.Random(f"worker of {component} {attempt}").random()
        dying = range(self.kills) if chance < 0.2 else range(min(1, self.kills))
        if any(self._is_first(f"killed{n}") for n in dying):
            os.kill(os.getpid(), signal.SIGKILL)

    def fail(self, component: str, attempt: Any) -> None:
        """Perhaps fail: surely once in the whole run, where it may fail at all."""
        if self.only not in ("", component):
            return
        chance = random.Random(f"{component} {attempt}").random()
        if chance < self.failing or (
            self.failing > 0
            and chance > 0.4
            and self._is_first(f"failed-{component.replace(' ', '-')}")
        ):
            raise kafka_tx.FailedException(f"trouble in {component}")

    def _is_first(self, name: str) -> bool:
        try:
            (Path(self.place) / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def reach(self, point: str, txid: int) -> None:
        if point == self.point and txid >= self.txid:
            (Path(self.place) / "reached").touch()
            time.sleep(600)  # until it is killed


@dataclass(frozen=True)
class TroubledBatch:
    """Reads like the real one, and fails or loses its worker half way."""

    batch: Any
    trouble: Trouble
    attempt: Any

    def read(self, task: int, tasks: int, facts: Any) -> Iterator[Any]:
        blocks = self.batch.read(task, tasks, facts)
        for number, block in enumerate(blocks):
            yield block
            if number == 0:
                self.trouble.visit("read", self.attempt)


class TroubledSpout:
    """Mixed into a spout: trouble in planning and in reading."""

    trouble: Trouble
    plans = 0

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        planned = super().initialize_transaction(txid, previous)  # type: ignore[misc]
        self.plans += 1
        self.trouble.fail("plan", self.plans)
        return planned

    def batch(self, attempt: Any, metadata: Any) -> Any:
        batch = super().batch(attempt, metadata)  # type: ignore[misc]
        return TroubledBatch(batch, self.trouble, attempt)


class Transactional(TroubledSpout, kafka_tx.TransactionalKafkaSpout):
    pass


class Opaque(TroubledSpout, kafka_tx.OpaqueTransactionalKafkaSpout):
    pass


class Pass(kafka_tx.BasicBolt):
    """Hands records on."""

    fields = "partition int, offset bigint"

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble

    def prepare(self, context: kafka_tx.TaskContext) -> None:
        self.attempt = context.attempt

    def execute_arrow(self, batch: Any, collector: Any) -> None:
        self.trouble.visit("pass", self.attempt)
        collector.emit_arrow(batch.select(["partition", "offset"]))


class Tally(kafka_tx.BatchBolt):
    """Adds up what reaches this task."""

    fields = "partition int, records bigint, offsets bigint, squares bigint"

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble

    def prepare(self, context: kafka_tx.TaskContext, collector: Any) -> None:
        self.context, self.collector = context, collector
        self.batches: list[Any] = []

    def execute_arrow(self, batch: Any) -> None:
        self.batches.append(batch)

    def finish_batch(self) -> None:
        attempt = self.context.attempt
        self.trouble.visit(f"tally {self.context.task}", attempt)
        self.trouble.reach("in-task", attempt.txid)
        if not self.batches:
            return
        table = pa.Table.from_batches(self.batches)
        offset = table.column("offset")
        table = table.append_column("square", pc.multiply(offset, offset))
        sums = table.group_by("partition").aggregate(
            [("offset", "count"), ("offset", "sum"), ("square", "sum")]
        )
        names = ("partition", *TALLY)
        kept = ("partition", "offset_count", "offset_sum", "square_sum")
        self.collector.emit_arrow(
            pa.table([sums.column(k) for k in kept], names=list(names))
        )


class Keep(kafka_tx.Committer, kafka_tx.BatchBolt):
    """Keeps (value, previous value, txid) of each partition in SQLite."""

    def __init__(self, trouble: Trouble, path: str, mode: str) -> None:
        self.trouble, self.path, self.mode = trouble, path, mode

    def prepare(self, context: kafka_tx.TaskContext, collector: Any) -> None:
        self.attempt = context.attempt
        self.sums: dict[int, list[int]] = {}

    def execute(self, row: Any) -> None:
        sums = self.sums.setdefault(row.partition, [0, 0, 0])
        for n, name in enumerate(TALLY):
            sums[n] += row._get(name)

    def finish_batch(self) -> None:
        attempt, trouble = self.attempt, self.trouble
        trouble.fail("commit", attempt)
        trouble.reach("before-sink", attempt.txid)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            keep(db, attempt, self.sums, is_opaque=self.mode == "opaque")
            db.execute("COMMIT")
        trouble.reach("after-sink", attempt.txid)
        trouble.fail("committed", attempt)


def keep(
    db: sqlite3.Connection, attempt: Any, sums: dict[int, list[int]], *, is_opaque: bool
) -> None:
    """Add a batch once; of an opaque one first take back what an earlier try added."""
    db.execute("CREATE TABLE IF NOT EXISTS last (txid INTEGER, attempt INTEGER)")
    db.execute(
        "CREATE TABLE IF NOT EXISTS tally (partition INTEGER PRIMARY KEY, txid INTEGER,"
        " records, offsets, squares, old_records, old_offsets, old_squares)"
    )
    last = db.execute("SELECT txid, attempt FROM last").fetchone() or (0, 0)
    txid = attempt.txid
    assert txid in (last[0], last[0] + 1), f"{txid} after {last[0]}"
    assert attempt.attempt_id > last[1], f"{attempt} after {last}"
    db.execute("DELETE FROM last")
    db.execute("INSERT INTO last VALUES (?, ?)", (txid, attempt.attempt_id))
    if txid == last[0] and not is_opaque:
        return
    db.execute(
        "UPDATE tally SET records = old_records, offsets = old_offsets,"
        " squares = old_squares WHERE txid = ?",
        (txid,),
    )
    for partition, added in sums.items():
        db.execute(
            "INSERT OR IGNORE INTO tally VALUES (?, 0, 0, 0, 0, 0, 0, 0)", (partition,)
        )
        db.execute(
            "UPDATE tally SET txid = ?, old_records = records, old_offsets = offsets,"
            " old_squares = squares, records = records + ?, offsets = offsets + ?,"
            " squares = squares + ? WHERE partition = ?",
            (txid, *added, partition),
        )


def kept(path: str | Path) -> dict[int, tuple[int, ...]]:
    """The tally by partition."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT partition, records, offsets, squares FROM tally")
        return {partition: tuple(sums) for partition, *sums in rows}


def recount(ends: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """What the tally must be of logs without holes that end there."""
    return {
        partition: (end, sum(range(end)), sum(n * n for n in range(end)))
        for partition, end in ends.items()
        if end
    }


class PausingStore:
    """A store that waits to be killed around its writes."""

    def __init__(self, store: Any, trouble: Trouble) -> None:
        self._store, self._trouble = store, trouble

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, epoch: int, put: Any, *args: Any, **more: Any) -> None:
        is_record = "currtx" in put
        what = "record" if is_record else "metadata"
        txid = max(int(p.rpartition("/")[2]) for p in _metadata_paths(put, args))
        self._trouble.reach(f"before-{what}", txid)
        self._store.write(epoch, put, *args, **more)
        self._trouble.reach(f"after-{what}", txid)


def _metadata_paths(put: Any, args: Any) -> Iterator[str]:
    yield "none/0"
    for path in (*put, *(path for paths in args for path in paths)):
        if path.startswith("meta/"):
            yield path


def topology(
    servers: str, topic: str, mode: str, sink: str, trouble: Trouble, **more: Any
) -> Any:
    """The topology over a topic."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "maxOffsetsPerTrigger": more.pop("batch", 100),
        "kafkaConsumer.pollTimeoutMs": "10000",
        **more,
    }
    kind = Opaque if mode == "opaque" else Transactional
    spout = kind(options, scheme=kafka_tx.MetadataScheme(), refresh_ms=500)
    spout.trouble = trouble
    builder = kafka_tx.TransactionalTopologyBuilder("tally", "spout", spout, 2)
    builder.set_bolt("pass", Pass(trouble)).shuffle_grouping("spout")
    tally = builder.set_bolt("tally", Tally(trouble), 2)
    tally.fields_grouping("pass", ["partition"])
    builder.set_bolt("keep", Keep(trouble, sink, mode)).global_grouping("tally")
    return builder.build()


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "topic", "mode", "store"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--point", default="")
    parser.add_argument("--txid", type=int, default=1)
    return parser.parse_args(words)


def run(spark: Any, given: argparse.Namespace) -> None:
    """Tally what is there, or up to the point of the trouble."""
    trouble = Trouble(given.work, point=given.point, txid=given.txid)
    pauses_in_store(given.store, trouble)
    sink = str(Path(given.work) / "sink.db")
    built = topology(given.servers, given.topic, given.mode, sink, trouble)
    # a batch that pauses does not time out, however long others need for their pauses
    settings = {"tx.store": given.store, "tx.maxPending": 3, "tx.timeoutMs": 600_000}
    handle = built.start(spark, settings)
    try:
        assert handle.process_all_available(400)
    finally:
        handle.stop()


def pauses_in_store(url: str, trouble: Trouble) -> None:
    """Let what is opened there from now on wait at the point of the trouble."""
    opened = assembly.open_store

    def opening(*args: Any) -> Any:
        store = opened(*args)
        return PausingStore(store, trouble) if args[0] == url else store

    if "-metadata" in trouble.point or "-record" in trouble.point:
        assembly.open_store = opening  # type: ignore[assignment]


def main() -> None:
    """On a cluster, where nothing is known but this file."""
    from pyspark.sql import SparkSession

    given = arguments()
    spark = SparkSession.builder.getOrCreate()
    run(spark, given)
    spark.stop()
    (Path(given.work) / "finished").touch()


if __name__ == "__main__":
    main()
