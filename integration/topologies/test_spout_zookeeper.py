"""A spout that keeps its offsets in ZooKeeper and finds its partitions there."""

from __future__ import annotations

import uuid

import pytest
from kazoo.client import KazooClient

import kafka_tx
from integration.cluster.records import Produce
from integration.cluster.waiting import wait_until
from integration.killed.spout import committed
from integration.log_ends import log_ends
from integration.topologies.spout_job import Work, done, topology
from kafka_tx import assembly
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import LogBounds, TopicPartition
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.running.at_least_once.spout import Deployment

PARTITIONS = 2
SHORT = "session_timeout_ms=4000&connection_timeout_ms=2000&retry_interval_ms=100"


class Case:
    """A topology on ``zookeeper`` and its topic; ``places`` are all records so far."""

    def __init__(self, kafka, zookeeper, spark, work):
        self.kafka, self.zookeeper = kafka, zookeeper
        self.topic = f"spout-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(self.topic, PARTITIONS, replication=2)
        self.partitions = PARTITIONS
        self.work, self.places = work, set()
        # brokers ask ZooKeeper for each new producer's id
        self.send = Produce(kafka.bootstrap_servers)
        self.store = f"zookeeper://{zookeeper.hosts}/spouts?{SHORT}"
        config = kafka_tx.SpoutConfig(
            hosts=kafka_tx.ZkHosts(zookeeper.hosts, refresh_freq_secs=1),
            topic=self.topic,
            id=self.topic,
            scheme=kafka_tx.MetadataScheme(),
            store=self.store,
            state_update_interval_ms=200,
            retry_initial_delay_ms=50,
        )
        built = topology(config, Work(str(work), failing=0.02))
        self.handle = built.start(spark, {"tx.chunkRecords": 100})

    def produce(self, count):
        values = (f"v{n}" for n in range(count))
        self.places |= set(self.send(self.topic, values))

    def add_partition(self):
        self.partitions += 1
        self.kafka.add_partitions(self.topic, self.partitions)
        self.send = Produce(self.kafka.bootstrap_servers)

    def wait_until_done(self):
        wait_until("all records", lambda: done(self.work) == self.places, **self.soon)

    def wait_until_committed(self):
        wait_until("the commit", lambda: self.committed() == self.ends(), **self.soon)

    def process_during(self, trouble, its_end):
        """Records are processed while it lasts, and committed when it is over."""
        trouble()
        try:
            self.produce(200)
            self.wait_until_done()
        finally:
            its_end()
        self.wait_until_committed()

    @property
    def soon(self):
        return {"timeout_s": 90, "complain": self.handle.exception}

    def committed(self):
        given = (self.store, self.topic, self.kafka.bootstrap_servers)
        return committed(*given, self.topic, self.partitions)

    def ends(self):
        return log_ends(self.kafka.bootstrap_servers, self.topic, self.partitions)

    def lose_sessions(self):
        """End the sessions of store and coordinator, as if they had timed out."""
        poller = self.handle._runner.pollers["spout"].parts
        lookup = poller.coordinator._discovery._describe.__self__
        for owner in (poller.keeper._store._store, lookup):
            thief = KazooClient(
                self.zookeeper.hosts, client_id=owner._client._client().client_id
            )
            thief.start()
            thief.stop()
            thief.close()


@pytest.fixture
def case(kafka_zk, zookeeper, spark, tmp_path):
    made = Case(kafka_zk, zookeeper, spark, tmp_path)
    yield made
    if made.handle.isActive:
        made.handle.stop(finish=False)


@pytest.mark.all
def test_it_outlives_a_zookeeper_that_freezes_dies_and_forgets_it(case):
    case.produce(200)
    case.wait_until_done()
    case.wait_until_committed()
    before = case.committed()

    case.process_during(case.zookeeper.pause, case.zookeeper.unpause)
    assert case.committed() != before
    case.process_during(case.zookeeper.kill, case.zookeeper.restart)
    case.process_during(case.lose_sessions, case.add_partition)
    case.produce(300)
    case.wait_until_done()
    case.wait_until_committed()

    assert {partition for partition, _ in case.places} == set(range(3))
    assert case.handle.process_all_available(180)
    case.handle.stop()
    assert case.committed() == case.ends()
    assert case.handle.exception() is None


def begun(manager: PartitionManager | None) -> PartitionManager:
    """Ten records emitted; the first completed, the second failed."""
    assert manager is not None
    bounds = LogBounds(0, 10, manager.topic_id or None)
    plan = manager.plan(bounds, max_offsets=10, now_ms=0)
    assert plan.fresh is not None
    manager.emitted(plan.fresh, 0)
    manager.ack(0)
    manager.fail(1, 0)
    return manager


@pytest.mark.all
def test_a_moved_leader_keeps_what_a_partition_is_about(kafka_zk, zookeeper):
    servers, topic = kafka_zk.bootstrap_servers, f"moved-{uuid.uuid4().hex[:8]}"
    kafka_zk.create_topic(topic, 1, replication=2)
    Produce(servers)(topic, [f"v{n}" for n in range(10)])
    partition = TopicPartition(topic, 0)
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.ZkHosts(zookeeper.hosts, refresh_freq_secs=1),
        topic=topic,
        zk_servers=(zookeeper.hosts,),
        zk_root=f"/{topic}",
    )
    deployment = Deployment("moved", "moved", MetricsRegistry(), assembly.SystemClock())
    poller = kafka_tx.KafkaSpout(config).poller("spout", deployment)
    coordinator = poller.coordinator
    manager = begun(coordinator.manager(partition))
    former = manager.leader
    assert former is not None

    kafka_zk.kill(former.node_id)
    try:
        wait_until(
            "another leader",
            lambda: coordinator.my_managed_partitions() and manager.leader != former,
        )
        assert coordinator.manager(partition) is manager
        assert (manager.pending, manager.waiting, manager.emitted_to) == (9, 1, 10)
        coordinator.close()
        store = f"zookeeper://{zookeeper.hosts}/{topic}"
        assert committed(store, "moved", servers, topic, 1) == {0: 1}
    finally:
        kafka_zk.restart(former.node_id)
        poller.release(lambda: 5)
