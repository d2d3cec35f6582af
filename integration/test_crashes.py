"""SIGKILL at each named point of a batch's life: nothing lost, nothing twice."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from integration.pausing import run_to_end, run_to_pause
from integration.pausing_job import POINTS
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import TopicPartition
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger import Ledger

RECORDS, PARTITIONS = 400, 3
JOB = "integration.pausing_job"
DIFFERENT = ("in-task", "after-sink", "after-commit-log", "before-mirror")
"""Each leaves another thing behind: a plan, a sink that has it, Spark's entry, the
ledger's. Before the plan it is what the last point of the batch before left."""


class Job:
    """The pausing job, as a process tree of its own."""

    def __init__(self, work: Path, servers: str, topic: str, mode: str) -> None:
        self.work, self.servers, self.topic, self.mode = work, servers, topic, mode
        self.store = f"sqlite:///{work}/state.db"

    def kill_at(self, point: str, checkpoint: str, *, attach: bool) -> None:
        """Run until it pauses at ``point``, and kill it."""
        place = ("--point", point, "--txid", str(self.txid() + 1))
        given = self._given(checkpoint, attach=attach)
        assert not run_to_pause(JOB, self.work, *given, *place), f"not at {point}"

    def finish(self, spark, checkpoint: str, *, attach: bool) -> None:
        run_to_end(JOB, spark, self.work, *self._given(checkpoint, attach=attach))

    def _given(self, checkpoint: str, *, attach: bool) -> list[str]:
        return [
            *("--servers", self.servers, "--topic", self.topic, "--store", self.store),
            *("--checkpoint", str(self.work / checkpoint), "--mode", self.mode),
            *(["--attach"] if attach else []),
        ]

    def txid(self) -> int:
        ledger = Ledger(SqlStore(self.store, "crashes"))
        try:
            return ledger.load().txid
        finally:
            ledger.close()

    def rows(self) -> list[tuple[int, int, bytes]]:
        with sqlite3.connect(self.work / "sink.db") as db:
            return sorted(db.execute("SELECT part, offs, value FROM rows"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("checkpoint_is_kept", "attach", "mode", "points"),
    [
        pytest.param(True, False, "transactional", DIFFERENT, id="checkpoint kept"),
        pytest.param(
            *(False, True, "transactional"),
            ("after-plan", "after-sink", "before-mirror"),  # Spark's log goes anyhow
            id="checkpoint lost",
        ),
        pytest.param(
            *(False, False, "opaque", ("in-task", "after-sink")),
            id="opaque, checkpoint lost",
        ),
        pytest.param(
            *(True, False, "transactional", POINTS),
            id="checkpoint kept, every point",
            marks=pytest.mark.all,
        ),
        pytest.param(
            *(False, True, "transactional", POINTS),
            id="checkpoint lost, every point",
            marks=pytest.mark.all,
        ),
    ],
)
def test_a_kill_at_every_point_loses_and_repeats_nothing(
    spark, kafka, topic, produce, tmp_path, checkpoint_is_kept, attach, mode, points
):
    name = topic(PARTITIONS)
    places = produce(name, [f"v{n}" for n in range(RECORDS)])
    job = Job(tmp_path, kafka.bootstrap_servers, name, mode)

    for n, point in enumerate(points):
        job.kill_at(point, "kept" if checkpoint_is_kept else f"run{n}", attach=attach)
    job.finish(spark, "kept" if checkpoint_is_kept else "last", attach=attach)

    expected = sorted((p, o, f"v{n}".encode()) for n, (p, o) in enumerate(places))
    assert job.rows() == expected
    assert mirrored(kafka, name) == ends(places)


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
