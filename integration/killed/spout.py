"""An at-least-once topology; ``test_spout`` kills brokers in ``make test-all``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from integration.killed.interface import Case, World
from integration.log_ends import log_ends
from integration.pausing import Life
from integration.topologies import spout_job
from integration.topologies.spout_job import done, failures
from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.model import Assigned, Earliest, TopicPartition

JOB = "integration.topologies.spout_job"
RECORDS, PARTITIONS = 1_200, 4
HELD = "held"
WITHIN_S = 240


class SpoutJob:
    """The topology over a topic of its own."""

    def __init__(self, world: World, work: Path) -> None:
        self.work, self.servers = work, world.kafka.bootstrap_servers
        self.topic = world.topic(PARTITIONS)
        self.places = world.produce(self.topic, [f"v{n}" for n in range(RECORDS)])
        self.given: dict[str, Any] = {
            "topic": self.topic,
            "servers": self.servers,
            "store": f"sqlite:///{self.work}/offsets.db",
            "failing": 0.01,
            "chunk": 100,
            "within_s": WITHIN_S,
        }

    def to(self, point: str) -> Life:
        assert point == HELD
        given = {**self.given, "holds_at": RECORDS // PARTITIONS // 3}
        return Life(JOB, self.work, ["--given", json.dumps(given)])

    def finish(self, spark: Any) -> None:
        handle = spout_job.start(spark, self.work, self.given)
        try:
            assert handle.process_all_available(WITHIN_S), handle.status
        finally:
            handle.stop()

    def check(self) -> None:
        check(self.work, self.servers, self.topic, self.given["store"], self.places)


USUAL = (Case("spout", (HELD,), SpoutJob),)
"""Offsets above what is stored are done already. The simulator,
``tests/properties/simulated_spout.py``, dies at every step."""
EVERY = USUAL


def check(
    work: Path, servers: str, topic: str, store: str, places: Iterable[tuple[int, int]]
) -> None:
    """Every record was completed, and all of them are committed."""
    assert done(work) == set(places)
    assert failures(work), "nothing was tried again"
    stored = committed(store, "spout-job", servers, topic, PARTITIONS)
    assert stored == log_ends(servers, topic, PARTITIONS)


def source(servers: str, topic: str) -> SourceConfig:
    return SourceConfig(
        subscription=Assigned((TopicPartition(topic, 0),)),
        kafka={"bootstrap.servers": servers},
        start=Earliest(),
    )


def committed(
    store: str, consumer: str, servers: str, topic: str, partitions: int
) -> dict[int, int]:
    offsets = assembly.offset_store(store, consumer, source(servers, topic))
    try:
        wanted = [TopicPartition(topic, n) for n in range(partitions)]
        return {p.partition: o.offset for p, o in offsets.load(wanted).items()}
    finally:
        offsets.close()
