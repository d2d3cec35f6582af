"""SIGKILL at each named point of a batch's life: nothing lost, nothing twice."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

from integration.pausing import Life, kill_when_paused, run_to_end
from integration.pausing_job import POINTS
from integration.sizes import size
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import TopicPartition
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger import Ledger

RECORDS, PARTITIONS = size(120, 400), 3
JOB = "integration.pausing_job"


@dataclass(frozen=True)
class Case:
    """One query, and the points at which its drivers die, one after the other."""

    name: str
    points: tuple[str, ...]
    keeps_checkpoint: bool = False
    attach: bool = False
    mode: str = "transactional"


USUAL = (
    Case("planned", ("in-task",), keeps_checkpoint=True),
    Case("written", ("after-sink",), keeps_checkpoint=True),
    Case("logged", ("after-commit-log",), keeps_checkpoint=True),
    Case("lost", ("after-sink",), attach=True),
    Case("recorded", ("before-mirror",), attach=True),
    Case("opaque", ("in-task",), mode="opaque"),
)
"""Each point leaves another thing behind: a plan, a sink that has it, Spark's entry,
the ledger's. Before the plan it is what the last point of the batch before left. They
die together, in one driver. The simulator, ``tests/properties/simulated_source.py``,
dies at all the others, and again and again."""
EVERY = (
    Case("kept", POINTS, keeps_checkpoint=True),
    Case("lost", POINTS, attach=True),
    Case("opaque", POINTS, mode="opaque"),
)


class Job:
    """A query over a topic, which drivers take up one after the other."""

    def __init__(self, case: Case, work: Path, servers: str, places: Places) -> None:
        self.case, self.work, self.servers, self.places = case, work, servers, places
        work.mkdir()
        self.store = f"sqlite:///{work}/state.db"
        self.lives = 0

    def to(self, point: str) -> Life:
        self.lives += 1
        place = ("--point", point, "--txid", str(max(2, self.txid() + 1)))
        return Life(JOB, self.work, [*self._given(), *place])

    def finish(self, spark) -> None:
        self.lives += 1
        run_to_end(JOB, spark, self.work, *self._given())

    def _given(self) -> list[str]:
        checkpoint = "kept" if self.case.keeps_checkpoint else f"run{self.lives}"
        return [
            *("--servers", self.servers, "--topic", self.places.topic),
            *("--store", self.store, "--mode", self.case.mode),
            *("--checkpoint", str(self.work / checkpoint)),
            *(["--attach"] if self.case.attach else []),
        ]

    def txid(self) -> int:
        ledger = Ledger(SqlStore(self.store, self.places.topic))
        try:
            return ledger.load().txid
        finally:
            ledger.close()

    def rows(self) -> list[tuple[int, int, bytes]]:
        with sqlite3.connect(self.work / "sink.db") as db:
            return sorted(db.execute("SELECT part, offs, value FROM rows"))


@dataclass(frozen=True)
class Places:
    """Where the records of a topic are."""

    topic: str
    of: list[tuple[int, int]]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(USUAL, id="what differs"),
        pytest.param(EVERY, id="every point", marks=pytest.mark.all),
    ],
)
def test_a_kill_at_every_point_loses_and_repeats_nothing(
    spark, python, kafka, topic, produce, tmp_path, cases
):
    jobs = []
    for case in cases:
        name = topic(PARTITIONS)
        places = Places(name, produce(name, [f"v{n}" for n in range(RECORDS)]))
        jobs.append(Job(case, tmp_path / case.name, kafka.bootstrap_servers, places))

    for points in zip_longest(*(case.points for case in cases)):
        paused = [(j, p) for j, p in zip(jobs, points, strict=True) if p]
        kill_when_paused([job.to(point) for job, point in paused], python)

    for job in jobs:
        job.finish(spark)
        found = job.places.of
        expected = sorted((p, o, f"v{n}".encode()) for n, (p, o) in enumerate(found))
        assert job.rows() == expected
        assert mirrored(kafka, job.places.topic) == ends(found)


def ends(places):
    found = dict.fromkeys(range(PARTITIONS), 0)
    for partition, offset in places:
        found[partition] = max(found[partition], offset + 1)
    return found


def mirrored(kafka, name):
    settings = client_settings(
        {"bootstrap.servers": kafka.bootstrap_servers}, purpose="admin"
    )
    mirror = GroupMirror(settings, f"{name}-group")
    try:
        wanted = [TopicPartition(name, n) for n in range(PARTITIONS)]
        return {p.partition: o for p, o in mirror.load(wanted).items()}
    finally:
        mirror.close()
