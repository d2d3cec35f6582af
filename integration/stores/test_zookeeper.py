"""A real ZooKeeper that fails, and a real Kafka that registers in it."""

import json
import sqlite3
import time
from contextlib import closing, contextmanager

import pytest
from kazoo.client import KazooClient
from typer.testing import CliRunner

from integration.cluster.running import running
from integration.cluster.topics import fresh_name, spread_topic
from integration.cluster.waiting import wait_until
from integration.sizes import size
from integration.stored import sets
from integration.stored.jobs import go_on
from integration.stored.sets import BEFORE, RELEASE
from kafka_tx import assembly
from kafka_tx.cli.main import app
from kafka_tx.cli.positions import each_id
from kafka_tx.errors import (
    FormatError,
    StateCorruptedError,
    StateError,
    StateUnavailableError,
)
from kafka_tx.model import Broker, CommittedOffset, TopicPartition, TopicPattern, Topics
from kafka_tx.zookeeper.brokers import ZooKeeperTopics
from kafka_tx.zookeeper.offsets import ZooKeeperOffsetStore
from kafka_tx.zookeeper.store import ZooKeeperStore
from tests.conformance.outage_suite import OutageSuite, again_while_unavailable

SHORT_SESSION = "session_timeout_ms=1000&connection_timeout_ms=8000"


@pytest.fixture
def open_store(zookeeper):
    stores = []

    def open_one(root, options=SHORT_SESSION):
        url = f"zookeeper://{zookeeper.hosts}/{root}?{options}"
        stores.append(ZooKeeperStore(url, "orders"))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


class TestOutage(OutageSuite):
    @pytest.fixture
    def open_store(self, open_store):
        return lambda: open_store(fresh_name("killed"))

    @pytest.fixture
    def outage(self, zookeeper):
        def kill_and_start():
            zookeeper.kill()
            zookeeper.restart()

        return kill_and_start


@pytest.mark.all
def test_jobs_of_the_release_go_on(zookeeper, tmp_path):
    root, sink = fresh_name("release"), sets.opened(RELEASE, tmp_path)
    with closing(sqlite3.connect(tmp_path / "store.db")) as database:
        database.execute("DROP TABLE kafka_tx_state")  # only the tables of the jobs
        database.commit()
    with session(zookeeper) as client:
        for path, text in json.loads((RELEASE / "zookeeper.json").read_text()).items():
            client.create(f"/{root}/{path}", text.encode(), makepath=True)

    go_on(RELEASE, f"zookeeper://{zookeeper.hosts}/{root}", sink)


def test_a_record_of_another_version_is_named(zookeeper):
    root = fresh_name("before")
    nodes = json.loads((BEFORE / "set.json").read_text())["nodes"]
    with session(zookeeper) as client:
        for name, text in nodes.items():
            client.create(f"/{root}/old/{name}", text.encode(), makepath=True)
        before = client.get_children(f"/{root}/old")
    url = f"zookeeper://{zookeeper.hosts}/{root}"
    with closing(ZooKeeperStore(url, "old")) as store:
        for read in (store.epoch, store.acquire, store.read):
            with pytest.raises(FormatError, match="A version before 0.3"):
                read()
    with closing(ZooKeeperOffsetStore(url, "old")) as offsets:
        with pytest.raises(FormatError, match="A version before 0.3"):
            offsets.acquire()
        with pytest.raises(FormatError, match="A version before 0.3"):
            offsets.load([TopicPartition("a", 0)])

    ((name, error),) = each_id(url)

    assert (name, type(error)) == ("old", FormatError)
    with session(zookeeper) as client:
        assert client.get_children(f"/{root}/old") == before


@contextmanager
def session(zookeeper):
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_a_session_that_expired_is_replaced(open_store, zookeeper):
    store = open_store("expired")
    epoch = again_while_unavailable(store.acquire)
    again_while_unavailable(lambda: store.write(epoch, {"a": "1"}))
    expired = store._client._client().client_id

    thief = KazooClient(zookeeper.hosts, client_id=expired)
    thief.start()
    thief.stop()
    thief.close()
    again_while_unavailable(lambda: store.write(epoch, {"a": "2"}))

    assert again_while_unavailable(lambda: store.get("a")) == "2"
    assert store._client._client().client_id != expired


def test_a_frozen_server_is_told_in_bounded_time(open_store, zookeeper):
    store = open_store("frozen", "session_timeout_ms=4000&connection_timeout_ms=1000")
    epoch = again_while_unavailable(store.acquire)
    zookeeper.pause()
    try:
        began = time.monotonic()

        with pytest.raises(StateUnavailableError, match=zookeeper.hosts):
            store.write(epoch, {"a": "1"})

        assert time.monotonic() - began < 30
    finally:
        zookeeper.unpause()
    again_while_unavailable(lambda: store.write(epoch, {"a": "2"}))
    assert again_while_unavailable(lambda: store.get("a")) == "2"


def test_nodes_made_with_auth_are_closed_to_others(open_store):
    owner = open_store("closed", "auth=digest:me:s3cret")
    owner.write(owner.acquire(), {"a": "1"})

    for options in ("", "auth=digest:me:wrong"):
        other = open_store("closed", options)
        for step in (other.read, other.acquire):
            with pytest.raises(StateError, match="refuses access") as caught:
                step()
            assert "s3cret" not in str(caught.value)

    assert open_store("closed", "auth=digest:me:s3cret").read() == {"a": "1"}


# --- the registry of Kafka 3 ----------------------------------------------------------


@pytest.fixture(scope="module")
def kafka_zk(servers, zookeeper):
    """One broker; the test in which one dies is for all tests."""
    made = servers.kafka_on_zookeeper(zookeeper, brokers=size(1, 2))
    with running(made) as cluster:
        yield cluster


@pytest.fixture
def registry(zookeeper):
    registry = ZooKeeperTopics(zookeeper.hosts)
    yield registry
    registry.close()


def broker(cluster, number):
    host, port = cluster.address(number).split(":")
    return Broker(host, int(port), number)


def test_kafkas_topics_partitions_leaders_and_addresses_are_seen(registry, kafka_zk):
    name = fresh_name("orders")
    kafka_zk.create_topic(name, 4, replication=len(kafka_zk.brokers))
    kafka_zk.create_topic(f"{name}.eu", 1)

    found = registry.topics(TopicPattern(f"{name}.*"))

    assert sorted(found) == [name, f"{name}.eu"]
    assert found[name].leaders == {
        n: broker(kafka_zk, kafka_zk.leader(name, n)) for n in range(4)
    }
    assert found[name].topic_id

    kafka_zk.add_partitions(name, 6)
    assert len(registry.topics(Topics((name,)))[name].partitions) == 6


def test_a_topic_made_again_has_another_id(registry, kafka_zk):
    name = fresh_name("again")
    kafka_zk.create_topic(name, 1)
    before = registry.topics(Topics((name,)))[name].topic_id

    kafka_zk.delete_topic(name)
    wait_until("its nodes are gone", lambda: registry.topics(Topics((name,))) == {})
    kafka_zk.create_topic(name, 1)

    assert registry.topics(Topics((name,)))[name].topic_id != before


@pytest.mark.all
def test_when_a_broker_dies_its_partitions_move_or_stay_without_leader(
    registry, kafka_zk
):
    both = fresh_name("both")
    kafka_zk.create_topic(both, 2, replication=2)
    single = spread_topic(kafka_zk)
    dead = 2
    alive = broker(kafka_zk, 1)

    kafka_zk.kill(dead)
    try:
        wait_until(
            "the leaders moved",
            lambda: (
                set(registry.topics(Topics((both,)))[both].leaders.values()) == {alive}
            ),
        )
        found = registry.topics(Topics((single,)))[single]
        assert sorted(found.leaders) == [0, 1]
        assert set(found.leaders.values()) == {alive, None}
    finally:
        kafka_zk.restart(dead)
    wait_until(
        "every partition has a leader",
        lambda: None not in registry.topics(Topics((single,)))[single].leaders.values(),
    )


@pytest.mark.parametrize("by_topic", [False, True])
def test_what_at_least_once_topologies_keep_is_listed(zookeeper, by_topic):
    url = f"zookeeper://{zookeeper.hosts}/{fresh_name('listed')}"
    with closing(ZooKeeperOffsetStore(url, "clicks", by_topic=by_topic)) as offsets:
        offsets.acquire()
        offset = CommittedOffset(40, topic_id="id-1")
        offsets.store({TopicPartition("orders", 3): offset})

    assert assembly.stored_ids(url) == ["clicks"]
    found = assembly.stored_states(url)
    assert list(found) == ["clicks"]
    epoch, stored = found["clicks"].at_least_once()
    assert (epoch, stored) == (1, {TopicPartition("orders", 3): offset})
    assert assembly.stored_states(url, ["others"]) == {}


def test_a_foreign_node_hides_no_id(zookeeper):
    root = fresh_name("foreign")
    url = f"zookeeper://{zookeeper.hosts}/{root}"
    with closing(ZooKeeperOffsetStore(url, "clicks")) as offsets:
        offsets.acquire()
        offsets.store({TopicPartition("orders", 3): CommittedOffset(40)})
    foreign = {
        "no id": {"~owner": b"x", "more": b"y"},
        "owner": {"~owner": b"\xff\x00", "more": b""},
        "partition": {"partition_0": b"[1"},
        "deep": {"orders/partition_0": b"{}"},
        "empty": {},
    }
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        for name, nodes in foreign.items():
            client.ensure_path(f"/{root}/{name}")
            for path, data in nodes.items():
                client.create(f"/{root}/{name}/{path}", data, makepath=True)
    finally:
        client.stop()
        client.close()

    shown = CliRunner().invoke(app, ["status", "--store", url])
    found = dict(each_id(url))

    clicks = found.pop("clicks")
    assert not isinstance(clicks, StateError)
    committed = clicks[0].state.committed
    assert committed is not None
    assert committed.offsets == {TopicPartition("orders", 3): 40}
    assert found
    assert all(isinstance(each, StateCorruptedError) for each in found.values()), found
    assert "orders-3  40" in shown.stdout
    assert shown.stdout.count("unreadable") == len(found)
