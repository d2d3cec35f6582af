"""SIGKILL at each named point of a batch's life: nothing lost, nothing twice."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from integration.pausing import run_to_pause
from integration.pausing_job import POINTS
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.kafka.settings import client_settings
from kafka_tx.model import TopicPartition
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger import Ledger

RECORDS, PARTITIONS = 400, 3


class Job:
    """The pausing job, as a process tree of its own."""

    def __init__(self, work: Path, servers: str, topic: str, mode: str) -> None:
        self.work, self.servers, self.topic, self.mode = work, servers, topic, mode
        self.store = f"sqlite:///{work}/state.db"

    def run(self, point: str, checkpoint: str, *, attach: bool) -> None:
        """Run until it pauses at ``point`` (then kill it) or has finished."""
        run_to_pause(
            "integration.pausing_job",
            self.work,
            *("--servers", self.servers, "--topic", self.topic, "--store", self.store),
            *("--checkpoint", str(self.work / checkpoint), "--mode", self.mode),
            *("--point", point, "--txid", str(self.txid() + 1)),
            *(["--attach"] if attach else []),
        )

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
        (True, False, "transactional", POINTS),
        (False, True, "transactional", POINTS),
        (False, False, "opaque", ("after-plan", "in-task", "after-sink")),
    ],
    ids=["checkpoint kept", "checkpoint lost", "opaque, checkpoint lost"],
)
def test_a_kill_at_every_point_loses_and_repeats_nothing(
    kafka, topic, produce, tmp_path, checkpoint_is_kept, attach, mode, points
):
    name = topic(PARTITIONS)
    places = produce(name, [f"v{n}" for n in range(RECORDS)])
    job = Job(tmp_path, kafka.bootstrap_servers, name, mode)

    for n, point in enumerate(points):
        job.run(point, "kept" if checkpoint_is_kept else f"run{n}", attach=attach)
        assert (tmp_path / "reached").exists(), f"never came to {point}"
    job.run("none", "kept" if checkpoint_is_kept else "last", attach=attach)

    assert (tmp_path / "finished").exists()
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
