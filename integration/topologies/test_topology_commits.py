"""Commit phases on Spark's executors: none works beside another, or for a former owner.

The sink of these tests is a file that every call of a committer adds a line to, without
any rule of its own: whatever the topology lets through shows.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from integration.cluster.waiting import PATIENT_S, wait_until
from integration.promptness import TRIES
from integration.sizes import in_all
from integration.topologies.tally import ending
from kafka_tx import (
    BasicBolt,
    BatchBolt,
    Committer,
    MemoryTransactionalSpout,
    TransactionalTopologyBuilder,
)
from kafka_tx.errors import FencedError

ROWS = [(number,) for number in range(20)]
TIMEOUT_MS = 5_000


class Note(Committer, BatchBolt):
    """Adds a line for its task; the first try at one txid comes to it late."""

    def __init__(self, place, late_txid=None):
        self.place, self.late_txid = Path(place), late_txid

    def prepare(self, context, collector):
        self.context = context

    def execute(self, row):
        pass

    def finish_batch(self):
        attempt, task = self.context.attempt, self.context.task
        first = self.place / f"late-{task}"
        if attempt.txid == self.late_txid and not first.exists():
            first.touch()
            time.sleep(TIMEOUT_MS / 1000 + 1)  # well before Spark ends the worker
        line = f"{attempt.txid} {attempt.attempt_id} {task}\n".encode()
        handle = os.open(self.place / "notes", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(handle, line)
        os.close(handle)


class Wait(BasicBolt):
    """Hands rows on, where a file says so; the first owner waits for another one."""

    fields = "n bigint"

    def __init__(self, place):
        self.place = Path(place)

    def prepare(self, context):
        self.is_first = context.attempt.epoch == 1

    def execute(self, row, collector):
        if self.is_first:
            (self.place / "arrived").touch()
        while self.is_first and not (self.place / "go").exists():
            time.sleep(0.05)
        collector.emit((row.n,))


def notes(place):
    lines = (place / "notes").read_text().splitlines()
    return [tuple(map(int, line.split())) for line in lines]


def topology(place, late_txid=None, *, tasks=2, waits=False):
    builder = TransactionalTopologyBuilder(
        "notes", "spout", MemoryTransactionalSpout([ROWS], "n bigint", 5)
    )
    above = "spout"
    if waits:
        builder.set_bolt("wait", Wait(place)).shuffle_grouping("spout")
        above = "wait"
    note = builder.set_bolt("note", Note(str(place), late_txid), tasks)
    note.fields_grouping(above, ["n"]).on_executors()
    return builder.build()


def warm_up(spark, place, tasks):
    """Let Spark start its workers, which may take longer than the time-out."""
    place.mkdir()
    store = {"tx.store": f"sqlite:///{place}/state.db"}
    handle = topology(place, tasks=tasks).start(spark, store)
    with ending(handle):
        assert handle.process_all_available(PATIENT_S)
        handle.stop()


@pytest.mark.parametrize("tasks", [pytest.param(1, marks=pytest.mark.all), 2])
def test_what_outlives_its_time_out_writes_nothing_after_the_replay_began(
    spark, tmp_path, tasks
):
    """At one of three tries: where the driver halts, the late one comes in time."""
    warm_up(spark, tmp_path / "warm", tasks)

    assert any(late_one_is_ended(spark, tmp_path / str(n), tasks) for n in range(TRIES))


def late_one_is_ended(spark, place, tasks):
    """Whether it was ended before its line; lines of replays never come before it."""
    place.mkdir()
    handle = topology(place, 2, tasks=tasks).start(
        spark,
        {
            "tx.store": f"sqlite:///{place}/state.db",
            "tx.timeoutMs": TIMEOUT_MS,
            "tx.maxPending": 2,
        },
    )
    with ending(handle):
        assert handle.process_all_available(PATIENT_S)
        time.sleep(2)  # what comes too late would come now
        handle.stop()

    written = notes(place)
    attempts = [attempt for _, attempt, _ in written]
    assert attempts == sorted(attempts), written
    each_once = sorted([1, 2, 3, 4] * tasks)
    is_each_once = [txid for txid, *_ in written] == each_once
    return is_each_once and handle.status.replays >= 1


@pytest.mark.parametrize("tasks", [pytest.param(1, marks=pytest.mark.all), 2])
def test_a_former_owner_runs_no_commit_phase(spark, tmp_path, tasks):
    config = {"tx.store": f"sqlite:///{tmp_path}/state.db"}
    arrived, go = tmp_path / "arrived", tmp_path / "go"
    former = topology(tmp_path, tasks=tasks, waits=True).start(spark, config)
    with ending(former):
        wait_until("the first one works", arrived.exists, timeout_s=PATIENT_S)

        owner = topology(tmp_path, tasks=tasks, waits=True).start(spark, config)
        with ending(owner):
            assert owner.process_all_available(PATIENT_S)
            go.touch()

            with pytest.raises(FencedError):
                former.awaitTermination(PATIENT_S)
            owner.stop()
    assert [txid for txid, *_ in notes(tmp_path)] == sorted([1, 2, 3, 4] * tasks)
    assert {attempt // 10**12 for _, attempt, _ in notes(tmp_path)} == {2}


# --- Spark runs a task again ---


class Scatter(BatchBolt):
    """Sends each row to any task of the next bolt."""

    fields = "key bigint, n bigint"

    def prepare(self, context, collector):
        self.numbers, self.collector = [], collector

    def execute(self, row):
        self.numbers.append(row.n)

    def finish_batch(self):
        for n in self.numbers:
            self.collector.emit((random.randrange(1_000), n))


class ScatterAsCommitter(Committer, Scatter):
    """The same in the commit phase."""


class CountRows(BatchBolt):
    """Counts rows; its first task that ends removes rows which others still need."""

    fields = "rows bigint"

    def __init__(self, place, shuffles):
        self.place, self.shuffles = Path(place), Path(shuffles)

    def prepare(self, context, collector):
        self.rows, self.collector = 0, collector

    def execute(self, row):
        self.rows += 1

    def finish_batch(self):
        self.collector.emit((self.rows,))
        with suppress(FileExistsError):
            (self.place / "removed").mkdir()
            max(self.shuffles.rglob("shuffle_*_0.index"), key=number_of).unlink()


def number_of(shuffle):
    """Of the map task whose rows are in this file: the later, the higher."""
    return int(shuffle.name.split("_")[2])


class NoteTotal(Committer, BatchBolt):
    def __init__(self, place):
        self.place = place

    def prepare(self, context, collector):
        self.rows, self.txid = 0, context.attempt.txid

    def execute(self, row):
        self.rows += row.rows

    def finish_batch(self):
        with (self.place / "totals").open("a") as totals:
            totals.write(f"{self.txid} {self.rows}\n")


@pytest.mark.parametrize("scatter", [Scatter, *in_all(ScatterAsCommitter)])
def test_a_batch_holds_no_rows_of_two_runs_of_one_task(spark, tmp_path, scatter):
    """Bolts count; what they count comes in other portions from the second run."""
    jvm = spark.sparkContext._jvm
    blocks = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    shuffles = str(Path(blocks.localDirsString()[0]))
    spout = MemoryTransactionalSpout([[(n,) for n in range(3_000)]], "n bigint", 1_000)
    builder = TransactionalTopologyBuilder("runs-again", "spout", spout)
    bolt = builder.set_bolt("scatter", scatter, 2).shuffle_grouping("spout")
    bolt.on_executors()
    count = builder.set_bolt("count", CountRows(tmp_path, shuffles), 6)
    count.fields_grouping("scatter", ["key"]).on_executors()
    total = builder.set_bolt("total", NoteTotal(tmp_path))
    total.global_grouping("count").on_driver()

    store = {"tx.store": f"sqlite:///{tmp_path}/state.db", "tx.retryMs": 50}
    handle = builder.build().start(spark, store)
    with ending(handle):
        assert handle.process_all_available(PATIENT_S)
        handle.stop()

    lines = (tmp_path / "totals").read_text().split("\n")
    assert lines == ["1 1000", "2 1000", "3 1000", ""]
    assert handle.status.replays >= 1, "Spark ran no task again"
