"""A topology into maps of SQLite and PostgreSQL; it loses a Python worker, too."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from integration.cluster.records import Record
from integration.killed.interface import BETWEEN_DATABASES, World, in_each_mode
from integration.pausing import Life, run_to_end
from integration.sinks.state_job import urls_of
from integration.sizes import size
from integration.topologies.state_topology_job import POINTS, keep, maps_of
from kafka_tx.errors import FencedError, OutOfOrderError
from kafka_tx.model import TransactionAttempt

RECORDS, PARTITIONS, KEYS = size(300, 720), 3, 17
JOB = "integration.topologies.state_topology_job"


class StateTopologyJob:
    """The topology over a topic of its own."""

    def __init__(self, world: World, work: Path, *, mode: str) -> None:
        self.work, self.mode = work, mode
        self.urls = urls_of(self.work / "state.db", world.postgresql)
        name = world.topic(PARTITIONS)
        keys = (f"k{n % KEYS}" for n in range(RECORDS))
        world.produce(name, [Record(str(n), key=key) for n, key in enumerate(keys)])
        self.given = [
            *("--servers", world.kafka.bootstrap_servers, "--topic", name),
            *("--mode", mode),
            *(word for url in self.urls for word in ("--url", url)),
        ]
        self.txid = 1

    def to(self, point: str) -> Life:
        self.txid += 1
        place = ("--point", point, "--txid", str(self.txid))
        return Life(JOB, self.work, [*self.given, *place])

    def finish(self, spark: Any) -> None:
        run_to_end(JOB, spark, self.work, *self.given)

    def check(self) -> None:
        assert (self.work / "worker-died").exists()
        expected = recount()
        assert [dump(url, self.mode) for url in self.urls] == [expected, expected]
        self._replay_by_hand()
        assert [dump(url, self.mode) for url in self.urls] == [expected, expected]

    def _replay_by_hand(self) -> None:
        """Commit every batch again: as it was, and as an attempt of the last owner."""
        batches = [
            pickle.loads(file.read_bytes()) for file in self.work.glob("batch-*")
        ]
        last = max(attempt for attempt, _ in batches)
        assert last.txid >= RECORDS // 60
        for attempt, rows in batches:
            for attempt_id in (attempt.attempt_id, last.attempt_id + attempt.txid):
                replay = TransactionAttempt(attempt.txid, attempt_id)
                if replay.epoch < last.epoch:
                    with pytest.raises(FencedError):
                        keep(self.urls, self.mode, replay, rows)
                elif replay.txid < last.txid:
                    with pytest.raises(OutOfOrderError):
                        keep(self.urls, self.mode, replay, rows)
                else:
                    keep(self.urls, self.mode, replay, rows)


USUAL = in_each_mode("state topology", StateTopologyJob, BETWEEN_DATABASES)[1:]
"""Opaque; see ``state``."""
EVERY = in_each_mode("state topology", StateTopologyJob, POINTS)


def dump(url: str, mode: str) -> dict[str, dict[str, int]]:
    """All maps of a database."""
    found = {}
    for name, state in maps_of(url, mode).items():
        table = state.to_arrow()
        keys, values = table["key"].to_pylist(), table["value"].to_pylist()
        found[name] = dict(zip(keys, values, strict=True))
        state.close()
    return found


def recount() -> dict[str, dict[str, int]]:
    records: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    newest = {}
    for n in range(RECORDS):
        key = f"k{n % KEYS}"
        records[key] += 1
        sums[key] += n
        newest[key] = n
    return {"records": dict(records), "sums": dict(sums), "newest": newest}
