"""The tally of a topic by a topology, with its state in SQLite or ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from integration import topologies
from integration.killed.interface import World
from integration.pausing import Life, run_to_end
from integration.sizes import size
from integration.topologies import MODES, PARTITIONS, STORES
from integration.topology_job import OPAQUE_POINTS, POINTS, kept, recount
from kafka_tx import assembly

JOB = "integration.topology_job"
RECORDS = size(600, 2_000)


@dataclass(frozen=True)
class TopologyCase:
    """A topology, and the points at which its drivers die, one after the other."""

    mode: str
    store: str
    points: Sequence[str]

    @property
    def name(self) -> str:
        return f"topology {self.mode} {self.store}"

    def on(self, world: World) -> TopologyJob:
        return TopologyJob(self, world)


USUAL = (
    TopologyCase("transactional", "sqlite", ("in-task",)),
    TopologyCase("transactional", "zookeeper", ("after-record",)),
    TopologyCase("opaque", "sqlite", ("after-sink",)),
)
"""Each leaves another thing behind: metadata, a record of it, a sink that has it. The
others (see ``tests/properties/simulated_topology.py``) leave one of these."""
EVERY = tuple(
    TopologyCase(mode, store, OPAQUE_POINTS if mode == "opaque" else POINTS)
    for mode, store in product(MODES, STORES)
)


class TopologyJob:
    """The topology over a topic of its own."""

    def __init__(self, case: TopologyCase, world: World) -> None:
        # a store in ZooKeeper is named like the directory
        self.work = world.place(f"{world.work.name}-{case.mode}-{case.store}")
        self.store = topologies.store_url(case.store, world.request, self.work)
        name = world.topic(PARTITIONS)
        self.ends = topologies.even(world.produce, name, RECORDS)
        self.given = [
            *("--servers", world.kafka.bootstrap_servers, "--topic", name),
            *("--mode", case.mode, "--store", self.store),
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
