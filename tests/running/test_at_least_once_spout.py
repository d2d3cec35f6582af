"""The spout's parts on the driver, made by the kind of hosts."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from kafka_tx import assembly
from kafka_tx.assembly import SystemClock
from kafka_tx.errors import ConfigError, FencedError, OtherTopicsError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TopicPartition
from kafka_tx.offsets.coordinators import RefreshingCoordinator
from kafka_tx.running.at_least_once.spout import Deployment, KafkaSpout
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.testing.mock import MockCluster
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.declare.spout_config import SpoutConfig
from kafka_tx.topology.declare.spout_hosts import BrokerHosts, StaticHosts, ZkHosts

P0, P1, P2 = (TopicPartition("orders", n) for n in range(3))


@pytest.fixture(scope="module")
def cluster():
    with MockCluster() as made:
        made.create_topic("orders", 3)
        made.create_topic("clicks", 1)
        for n in range(5):
            made.produce("orders", b"v", partition=n % 3)
        made.flush()
        yield made


@pytest.fixture
def poller():
    made = []

    def make(hosts, spouts=1, **more):
        config = SpoutConfig(hosts=hosts, topic="orders", store="memory:", **more)
        deployment = Deployment(
            "job", "job", MetricsRegistry(), SystemClock(), spouts=spouts
        )
        made.append(KafkaSpout(config).poller("spout", deployment))
        return made[-1]

    yield make
    for each in made:
        assert each.release(lambda: 60)


def test_brokers_are_asked_for_the_partitions(poller, cluster):
    made = poller(BrokerHosts(cluster.bootstrap_servers))

    assert isinstance(made.coordinator, RefreshingCoordinator)
    assert made.coordinator.my_managed_partitions() == (P0, P1, P2)
    manager = made.coordinator.manager(P0)
    assert manager is not None
    assert str(manager.leader) == cluster.bootstrap_servers


def test_static_hosts_are_believed(poller, cluster):
    made = poller(StaticHosts({0: cluster.bootstrap_servers}))

    assert made.coordinator.my_managed_partitions() == (P0,)
    assert made.coordinator.manager(P0) is not None


def test_jobs_share_the_partitions(poller, cluster):
    hosts = BrokerHosts(cluster.bootstrap_servers)
    shares = [
        poller(hosts, task_index=n, total_tasks=2).coordinator.my_managed_partitions()
        for n in range(2)
    ]

    assert shares == [(P0, P2), (P1,)]


def test_topics_are_matched_by_their_whole_names(poller, cluster):
    config = SpoutConfig(
        hosts=BrokerHosts(cluster.bootstrap_servers),
        topic="ord.*s",
        is_pattern=True,
        store="memory:",
    )
    deployment = Deployment("job", "job", MetricsRegistry(), SystemClock())

    made = KafkaSpout(config).poller("spout", deployment)

    assert made.coordinator.my_managed_partitions() == (P0, P1, P2)
    assert made.release(lambda: 60)


def test_offsets_are_named_by_the_config_else_the_topology_else_the_spout(
    poller, cluster
):
    hosts = BrokerHosts(cluster.bootstrap_servers)

    assert poller(hosts, id="mine").keeper.id == "mine"
    assert poller(hosts).keeper.id == "job"
    assert poller(hosts, spouts=2).keeper.id == "job.spout"


def test_letters_go_where_the_config_says(poller, cluster):
    hosts = BrokerHosts(cluster.bootstrap_servers)

    assert poller(hosts).dead_letters is None
    with pytest.raises(ConfigError, match="dead_letter_topic"):
        poller(hosts, dead_letter_topic="dead")
    cluster.create_topic("dead", 1)
    dead_letters = poller(hosts, dead_letter_topic="dead").dead_letters
    assert dead_letters is not None


def test_a_store_that_cannot_be_used_is_refused(cluster):
    config = SpoutConfig(
        hosts=BrokerHosts(cluster.bootstrap_servers), topic="orders", store="offsets"
    )
    deployment = Deployment("job", "job", MetricsRegistry(), SystemClock())

    with pytest.raises(ConfigError, match="zookeeper://"):
        KafkaSpout(config).poller("spout", deployment)


class Bolt(BasicBolt):
    def execute(self, row, collector):
        raise AssertionError


def test_a_topology_is_built_of_it_and_shows_its_fields():
    config = SpoutConfig(hosts=BrokerHosts("nowhere:9092"), topic="orders")
    builder = TopologyBuilder("job")
    builder.set_spout("orders", KafkaSpout(config), 2)
    builder.set_bolt("bolt", Bolt).shuffle_grouping("orders")

    built = builder.build()

    assert built.graph.fields("orders").names == ("bytes",)
    with pytest.raises(ConfigError, match="SparkSession"):
        built.start(object())


def test_a_start_that_is_refused_does_not_fence_the_owner(cluster, tmp_path):
    hosts = BrokerHosts(cluster.bootstrap_servers)
    given = SpoutConfig(hosts=hosts, topic="orders", store=f"sqlite:///{tmp_path}/o.db")
    deployment = Deployment("job", "job", MetricsRegistry(), SystemClock())
    owner = KafkaSpout(given).poller("spout", deployment)
    refused = KafkaSpout(replace(given, dead_letter_topic="absent"))

    with pytest.raises(ConfigError, match="absent"):
        refused.judge("spout", deployment)
    KafkaSpout(given).judge("spout", deployment)

    owner.keeper.store_now({})
    assert owner.release(lambda: 60)


@pytest.mark.parametrize("start", [KafkaSpout.judge, KafkaSpout.poller])
def test_a_start_that_is_refused_leaves_no_thread_and_no_session(
    cluster, monkeypatch, start
):
    sessions = []

    class Registered:
        """What ZooKeeper knows of the cluster; its session is open until it ends."""

        def __init__(self, *_):
            sessions.append(self)
            self.view = assembly.cluster_view(spout._source(cluster.bootstrap_servers))

        def topics(self, subscription):
            return self.view.topics(subscription)

        def close(self):
            self.view.close()
            sessions.remove(self)

    monkeypatch.setattr(assembly, "zookeeper_topics", Registered)
    servers = cluster.bootstrap_servers
    spout = KafkaSpout(
        SpoutConfig(
            hosts=ZkHosts("nowhere:2181", bootstrap_servers=servers),
            topic="orders",
            store="memory:",
            dead_letter_topic="absent",
        )
    )
    deployment = Deployment("job", "job", MetricsRegistry(), SystemClock())
    before = {thread.name for thread in threading.enumerate()}

    with pytest.raises(ConfigError, match="absent"):
        start(spout, "spout", deployment)

    assert not sessions
    left = {thread.name for thread in threading.enumerate()} - before
    assert not [name for name in left if name.startswith("kafka-tx")]


def test_a_former_owner_of_the_same_id_stores_nothing_more(cluster, tmp_path):
    config = SpoutConfig(
        hosts=BrokerHosts(cluster.bootstrap_servers),
        topic="orders",
        store=f"sqlite:///{tmp_path}/offsets.db",
    )
    deployment = Deployment("job", "job", MetricsRegistry(), SystemClock())
    former, owner = (KafkaSpout(config).poller("spout", deployment) for _ in range(2))

    def offers(poller):
        manager = poller.coordinator.manager(P0)
        return {manager: manager.next_to_commit()}

    owner.keeper.store_now(offers(owner))
    with pytest.raises(FencedError, match="another owner took over"):
        former.keeper.store_now(offers(former))
    assert former.release(lambda: 60)
    assert owner.release(lambda: 60)


def test_a_job_on_other_topics_is_refused_before_it_takes_over(cluster, tmp_path):
    given = SpoutConfig(
        hosts=BrokerHosts(cluster.bootstrap_servers),
        topic="orders",
        id="job",
        store=f"sqlite:///{tmp_path}/offsets.db",
    )
    deployment = Deployment("job", "job", MetricsRegistry(), SystemClock())
    owner = KafkaSpout(given).poller("spout", deployment)
    manager = owner.coordinator.manager(P0)
    assert manager is not None
    offer = manager.next_to_commit()
    assert offer is not None
    offers = {manager: offer}
    owner.keeper.store_now(offers)
    other = replace(given, topic="clicks")

    for start in (KafkaSpout(other).judge, KafkaSpout(other).poller):
        with pytest.raises(OtherTopicsError, match="offsets of orders") as caught:
            start("spout", deployment)
        assert "nobody was fenced" in str(caught.value)
    owner.keeper.store_now(offers)

    own = KafkaSpout(replace(other, id="clicks")).poller("spout", deployment)
    assert own.coordinator.my_managed_partitions() == (TopicPartition("clicks", 0),)
    both = replace(given, topic="orders|clicks", is_pattern=True)
    KafkaSpout(both).judge("spout", deployment)
    owner.keeper.store_now(offers)
    assert own.release(lambda: 60)
    assert owner.release(lambda: 60)
