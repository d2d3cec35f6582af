"""The tally of a topic by a topology, with its state in SQLite or ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from integration.killed.interface import Case, World
from integration.pausing import Life, run_to_end
from integration.sizes import size
from integration.topologies import tally
from integration.topologies.tally import MODES, PARTITIONS, STORES
from integration.topologies.topology_job import OPAQUE_POINTS, POINTS, kept, recount
from kafka_tx import assembly

JOB = "integration.topologies.topology_job"
RECORDS = size(600, 2_000)


class TopologyJob:
    """The topology over a topic of its own."""

    def __init__(self, world: World, work: Path, *, mode: str, store: str) -> None:
        self.work = work
        self.store = tally.store_url(store, world.zookeeper, work)
        name = world.topic(PARTITIONS)
        self.ends = tally.even(world.produce, name, RECORDS)
        self.given = [
            *("--servers", world.kafka.bootstrap_servers, "--topic", name),
            *("--mode", mode, "--store", self.store),
        ]

    def to(self, point: str) -> Life:
        place = ("--point", point, "--txid", str(self._committed() + 2))
        return Life(JOB, self.work, [*self.given, *place])

    def finish(self, spark: Any) -> None:
        run_to_end(JOB, spark, self.work, *self.given)

    def check(self) -> None:
        assert kept(self.work / "sink.db") == recount(self.ends)
        assert self._committed() >= RECORDS // 100

    def _committed(self) -> int:
        store = assembly.open_store(self.store, "tally")
        try:
            text = store.get("currtx")
        finally:
            store.close()
        return 0 if text is None else int(json.loads(text)["data"]) - 1


def case(mode: str, store: str, points: Sequence[str]) -> Case:
    job = partial(TopologyJob, mode=mode, store=store)
    return Case(f"topology {mode} {store}", points, job)


USUAL = (case("transactional", "zookeeper", ("after-record",)),)
"""A record of the metadata, and no more. All other points leave what the simulator,
``tests/properties/simulated_topology.py``, leaves there, with any store."""
EVERY = tuple(
    case(mode, store, OPAQUE_POINTS if mode == "opaque" else POINTS)
    for mode, store in product(MODES, STORES)
)
