"""The driver is killed, or a broker: a topology goes on, and counts nothing twice."""

from __future__ import annotations

import json
import time
from itertools import product, zip_longest

import pytest

from integration import topologies, topology_job
from integration.cluster.records import Produce
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.pausing import Life, kill_when_paused, run_to_end
from integration.sizes import size
from integration.topologies import (
    MODES,
    MODES_WITH_STORES,
    PARTITIONS,
    STORES,
    WITHIN_S,
    Leftovers,
    committed_past,
)
from integration.topology_job import OPAQUE_POINTS, POINTS, Trouble, kept, recount
from kafka_tx import assembly

JOB = "integration.topology_job"
RECORDS = size(1_000, 2_000)


class Job:
    """The tally of a topic, which drivers take up one after the other."""

    def __init__(self, work, servers, topic, mode, store, points):
        self.work, self.topic, self.store, self.points = work, topic, store, points
        self.given = [
            *("--servers", servers, "--topic", topic),
            *("--mode", mode, "--store", store),
        ]

    def to(self, point):
        place = ("--point", point, "--txid", str(self.committed() + 2))
        return Life(JOB, self.work, [*self.given, *place])

    def finish(self, spark):
        run_to_end(JOB, spark, self.work, *self.given)

    def committed(self):
        store = assembly.open_store(self.store, "tally")
        try:
            text = store.get("currtx")
        finally:
            store.close()
        return 0 if text is None else json.loads(text)["data"] - 1


DIFFERENT = {
    ("transactional", "sqlite"): ("in-task",),
    ("transactional", "zookeeper"): ("after-record",),
    ("opaque", "sqlite"): ("after-sink",),
}
"""Each leaves another thing behind: metadata, a record of it, a sink that has it. The
others (see ``tests/properties/simulated_topology.py``) leave one of these."""
EVERY = {
    (mode, store): OPAQUE_POINTS if mode == "opaque" else POINTS
    for mode, store in product(MODES, STORES)
}


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(DIFFERENT, id="what differs"),
        pytest.param(EVERY, id="every point", marks=pytest.mark.all),
    ],
)
def test_a_kill_at_every_point_loses_and_repeats_nothing(
    request, spark, kafka, topic, produce, tmp_path, kills
):
    jobs, ends = [], dict[int, int]()
    for (mode, store), points in kills.items():
        name, work = topic(PARTITIONS), tmp_path / f"{tmp_path.name}-{mode}-{store}"
        work.mkdir()
        ends |= topologies.even(produce, name, RECORDS)
        url = topologies.store_url(store, request, work)
        jobs.append(Job(work, kafka.bootstrap_servers, name, mode, url, points))

    for points in zip_longest(*(job.points for job in jobs)):
        paused = [(j, p) for j, p in zip(jobs, points, strict=True) if p]
        kill_when_paused([job.to(point) for job, point in paused])

    for job in jobs:
        job.finish(spark)
        assert kept(job.work / "sink.db") == recount(ends)
        assert job.committed() >= RECORDS // 100


# --- brokers ---


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize(("mode", "store"), MODES_WITH_STORES)
def test_a_broker_that_goes_and_comes_back_costs_no_record(
    request, spark, kafka_pair, tmp_path, mode, store
):
    leftovers = Leftovers(spark)
    name = fresh_name(f"broker-{mode}-{store}")
    kafka_pair.create_topic(name, PARTITIONS, replication=1)
    ends = topologies.even(Produce(kafka_pair.bootstrap_servers), name, 4000)
    built = topology_job.topology(
        kafka_pair.bootstrap_servers,
        name,
        mode,
        str(tmp_path / "sink.db"),
        Trouble(str(tmp_path)),
        batch=200,
        **{"kafkaConsumer.pollTimeoutMs": "3000"},
    )
    url = topologies.store_url(store, request, tmp_path)
    handle = built.start(spark, {"tx.store": url, "topology.max.spout.pending": 2})
    try:
        committed_past(handle, 3)
        kafka_pair.kill(2)
        if mode == "opaque":
            committed_past(handle, handle.status.committed_txid + 3)
        else:
            missed(handle)
        kafka_pair.restart(2)
        deadline = time.monotonic() + 240
        while recount(ends) != kept(tmp_path / "sink.db"):
            assert time.monotonic() < deadline, (kept(tmp_path / "sink.db"), ends)
            assert handle.isActive, handle.exception()
            time.sleep(0.2)
    finally:
        handle.stop()
    assert leftovers.none()


def missed(handle):
    """Wait until a transactional batch could not be read, or is planned without it."""
    last = handle.status.committed_txid
    wait_until(
        "the broker is missed",
        lambda: handle.status.replays or handle.status.committed_txid > last + 3,
        complain=lambda: str(handle.exception()) if handle.exception() else None,
    )
