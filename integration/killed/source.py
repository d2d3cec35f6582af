"""A query from Kafka into SQLite, with rows and txid in one transaction."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from integration.killed.interface import Case, World
from integration.pausing import Life, run_to_end
from integration.sizes import size
from integration.source.pausing_job import POINTS
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import TopicPartition
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Ledger

RECORDS, PARTITIONS = size(120, 400), 3
JOB = "integration.source.pausing_job"


class QueryJob:
    """The query over a topic of its own."""

    def __init__(
        self,
        world: World,
        work: Path,
        *,
        keeps_checkpoint: bool = False,
        attach: bool = False,
        mode: str = "transactional",
        if_owned: str = "fence",
    ) -> None:
        self.work, self.servers = work, world.kafka.bootstrap_servers
        self.keeps_checkpoint, self.attach, self.mode = keeps_checkpoint, attach, mode
        self.if_owned = if_owned
        self.topic = world.topic(PARTITIONS)
        self.places = world.produce(self.topic, [f"v{n}" for n in range(RECORDS)])
        self.store = f"sqlite:///{self.work}/state.db"
        self.lives = 0

    def to(self, point: str) -> Life:
        self.lives += 1
        place = ("--point", point, "--txid", str(max(2, self._txid() + 1)))
        return Life(JOB, self.work, [*self._given(), *place])

    def finish(self, spark: Any) -> None:
        self.lives += 1
        run_to_end(JOB, spark, self.work, *self._given())

    def check(self) -> None:
        found = sorted((p, o, f"v{n}".encode()) for n, (p, o) in enumerate(self.places))
        assert self._rows() == found
        assert self._mirrored() == self._ends()

    def _given(self) -> list[str]:
        checkpoint = "kept" if self.keeps_checkpoint else f"run{self.lives}"
        return [
            *("--servers", self.servers, "--topic", self.topic),
            *("--store", self.store, "--mode", self.mode),
            *("--if-owned", self.if_owned),
            *("--checkpoint", str(self.work / checkpoint)),
            *(["--attach"] if self.attach else []),
        ]

    def _txid(self) -> int:
        ledger = Ledger(SqlStore(self.store, self.topic))
        try:
            return ledger.load().txid
        finally:
            ledger.close()

    def _rows(self) -> list[tuple[int, int, bytes]]:
        with sqlite3.connect(self.work / "sink.db") as db:
            return sorted(db.execute("SELECT part, offs, value FROM rows"))

    def _ends(self) -> dict[int, int]:
        found = dict.fromkeys(range(PARTITIONS), 0)
        for partition, offset in self.places:
            found[partition] = max(found[partition], offset + 1)
        return found

    def _mirrored(self) -> dict[int, int]:
        settings = client_settings({"bootstrap.servers": self.servers}, purpose="admin")
        mirror = GroupMirror(settings, f"{self.topic}-group")
        try:
            wanted = [TopicPartition(self.topic, n) for n in range(PARTITIONS)]
            return {p.partition: at.offset for p, at in mirror.load(wanted).items()}
        finally:
            mirror.close()


KEPT = partial(QueryJob, keeps_checkpoint=True)
LOST = partial(QueryJob, attach=True)
WAITS = partial(KEPT, if_owned="refuse")
"""As bounded runs of users do, until the one that was killed is silent for long. The
others take over at once: what they find is the same."""
OPAQUE = partial(QueryJob, mode="opaque")
OPAQUE_KEPT = partial(OPAQUE, keeps_checkpoint=True)
USUAL = (
    Case("source lost", ("after-sink",), LOST),
    Case("source opaque", ("in-task",), OPAQUE_KEPT),
)
"""A sink that has the batch beside a lost checkpoint, and a plan beside a kept one.
Other points leave what an error leaves there, which ``test_guarantees`` raises. The
simulator, ``tests/properties/simulated_source.py``, dies at all of them, and again and
again."""
EVERY = (
    Case("source kept", POINTS, KEPT),
    Case("source lost", POINTS, LOST),
    Case("source opaque", POINTS, OPAQUE),
    Case("source waits", ("after-commit-log",), WAITS),
)
