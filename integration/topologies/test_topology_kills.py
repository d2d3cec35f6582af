"""A broker is killed and comes back: a topology goes on, and counts nothing twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from integration.cluster.records import Produce
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.topologies import tally, topology_job
from integration.topologies.tally import (
    MODES,
    PARTITIONS,
    STORES,
    Leftovers,
    committed_past,
)
from integration.topologies.topology_job import Trouble, kept, recount

RECORDS = 4_000
HELD = 4
"""The batch that ends after the kill, and so all after the next one begin then."""


class Held(Trouble):
    """Holds a batch before its commit until it is let go."""

    def reach(self, point: str, txid: int) -> None:
        while point == "before-sink" and txid == HELD and not self._go.exists():
            time.sleep(0.05)

    def let_go(self) -> None:
        self._go.touch()

    @property
    def _go(self) -> Path:
        return Path(self.place) / "go"


@pytest.mark.all  # test_kafka_spouts loses and finds leaders
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("mode", MODES)
def test_a_broker_that_goes_and_comes_back_costs_no_record(
    zookeeper, spark, kafka_pair, tmp_path, mode, store
):
    leftovers = Leftovers(spark)
    name = fresh_name(f"broker-{mode}-{store}")
    kafka_pair.create_topic(name, PARTITIONS, replication=1)
    ends = tally.even(Produce(kafka_pair.bootstrap_servers), name, RECORDS)
    trouble = Held(str(tmp_path))
    built = topology_job.topology(
        kafka_pair.bootstrap_servers,
        name,
        mode,
        str(tmp_path / "sink.db"),
        trouble,
        batch=200,
        **{"kafkaConsumer.pollTimeoutMs": "3000"},
    )
    url = tally.store_url(store, zookeeper, tmp_path)
    handle = built.start(spark, {"tx.store": url, "topology.max.spout.pending": 2})
    try:
        committed_past(handle, HELD - 1)
        kafka_pair.kill(2)
        trouble.let_go()
        if mode == "opaque":
            committed_past(handle, HELD + 2)
        else:
            missed(handle)
        kafka_pair.restart(2)
        deadline = time.monotonic() + 240
        while recount(ends) != kept(tmp_path / "sink.db"):
            assert time.monotonic() < deadline, (kept(tmp_path / "sink.db"), ends)
            assert handle.isActive, handle.exception()
            time.sleep(0.2)
    finally:
        trouble.let_go()
        kafka_pair.heal()
        handle.stop()
    assert leftovers.none()


def missed(handle):
    """Wait until a transactional batch could not be read, or is planned without it."""
    wait_until(
        "the broker is missed",
        lambda: handle.status.replays or handle.status.committed_txid > HELD + 2,
        complain=lambda: str(handle.exception()) if handle.exception() else None,
    )
