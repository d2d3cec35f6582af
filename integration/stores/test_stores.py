"""The suites of ``tests/conformance`` on real servers."""

import itertools
import uuid
from dataclasses import replace

import pytest

from integration.cluster.running import running
from integration.cluster.settings import STEADY
from integration.sizes import size
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.group_offsets import KafkaGroupOffsetStore
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.zookeeper import store as zookeeper_store
from kafka_tx.zookeeper.offsets import ZooKeeperOffsetStore
from kafka_tx.zookeeper.store import ZooKeeperStore
from tests.conformance.crash_suite import CrashSuite
from tests.conformance.offset_store_suite import OffsetStoreSuite
from tests.conformance.rewinding import Rewound
from tests.conformance.store_suite import StoreSuite

names = itertools.count()


def opened(make):
    """A fixture that makes stores as often as it is called, and closes them all."""
    stores = []

    def open_one(*arguments):
        stores.append(make(*arguments))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


class TestZooKeeperStore(StoreSuite):
    large, paths = 150_000, 1_500  # one request holds less than a megabyte
    many_paths_s = 15.0

    @pytest.fixture
    def open_store(self, zookeeper):
        url = f"zookeeper://{zookeeper.hosts}/conformance/{next(names)}"
        yield from opened(lambda id_="orders": ZooKeeperStore(url, id_))


@pytest.mark.all
class TestZooKeeperStoreOfManyWrites(TestZooKeeperStore):
    """Its node would soon count below zero: it is made anew again and again."""

    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch):
        monkeypatch.setattr(zookeeper_store, "_BEGUN_ANEW_AT", 2)

    # A version that comes again after two writes says nothing to one that waited.
    test_concurrent_owners_never_mix = None  # type: ignore[assignment]
    test_no_step_is_lost_between_writers_that_expect = None  # type: ignore[assignment]


class TestZooKeeperStoreInSeveralProcesses(CrashSuite):
    @pytest.fixture
    def store_url(self, zookeeper):
        return f"zookeeper://{zookeeper.hosts}/crashes/{next(names)}"


@pytest.mark.all
class TestZooKeeperWritesOfAlmostARequest(CrashSuite):
    repeat = 1_500
    kills = size(2, 4)  # ZooKeeper keeps its last 500 requests in memory, however large

    @pytest.fixture
    def store_url(self, zookeeper):
        return f"zookeeper://{zookeeper.hosts}/large/{next(names)}"


class TestPostgresStore(StoreSuite):
    @pytest.fixture
    def open_store(self, postgresql):
        yield from opened(lambda id_="orders": SqlStore(postgresql, id_))


@pytest.mark.all
class TestPostgresStoreInSeveralProcesses(CrashSuite):
    @pytest.fixture
    def store_url(self, postgresql):
        return postgresql


class TestPostgresOffsetStore(OffsetStoreSuite):
    @pytest.fixture
    def open_offsets(self, postgresql):
        yield from opened(lambda: SqlOffsetStore(postgresql, "orders"))

    @pytest.fixture
    def rewound(self, postgresql):
        rewound = Rewound(postgresql)
        yield rewound
        rewound.close()


class ZooKeeperOffsets(OffsetStoreSuite):
    keeps_runs = False
    topics_of_an_id = 1
    many_s = 30.0
    by_topic = False

    @pytest.fixture
    def open_offsets(self, zookeeper):
        url = f"zookeeper://{zookeeper.hosts}/offsets/{next(names)}"
        yield from opened(
            lambda: ZooKeeperOffsetStore(url, "spout", by_topic=self.by_topic)
        )


class TestZooKeeperOffsetStore(ZooKeeperOffsets):
    many = size(1_000, ZooKeeperOffsets.many)  # a node of each partition


@pytest.mark.all
class TestZooKeeperOffsetStoreByTopic(ZooKeeperOffsets):
    by_topic = True
    topics_of_an_id = 2


class TestKafkaGroupOffsetStore(OffsetStoreSuite):
    keeps_broker = False
    topics_of_an_id = 0
    fences = False
    keeps_time = False
    many = 1_000

    @pytest.fixture
    def topic(self, topic):
        return lambda name, partitions=3: topic(partitions, name)

    @pytest.fixture
    def open_offsets(self, kafka):
        group = f"group-{uuid.uuid4()}"
        options = {"bootstrap.servers": kafka.bootstrap_servers}
        settings = client_settings(options, purpose="admin")
        yield from opened(lambda: KafkaGroupOffsetStore(settings, group))

    @pytest.mark.all
    def test_as_many_runs_as_fit_are_taken_by_a_broker(self, open_offsets, topic):
        name = topic("orders", 300)
        runs = tuple((n * n + n, n * n + n + 1) for n in range(1, 50_000))
        committed = CommittedOffset(0, runs, "deployment-7", "orders")
        offsets = {TopicPartition(name, n): committed for n in range(300)}
        store = open_offsets()

        store.store(offsets)

        room = store.fitting(committed)
        assert 500 < room < len(runs)
        assert open_offsets().load(offsets) == {
            p: replace(committed, completed=runs[:room]) for p in offsets
        }


@pytest.mark.all
def test_a_group_can_be_read_where_there_never_was_one(servers):
    """The coordinator is made by the first request; librdkafka's own one crashes."""
    with running(servers.kafka(settings=STEADY)) as cluster:
        cluster.create_topic("orders", 3)
        options = {"bootstrap.servers": cluster.bootstrap_servers}
        settings = client_settings(options, purpose="admin")
        store = KafkaGroupOffsetStore(settings, "never-used")

        assert store.load([TopicPartition("orders", n) for n in range(3)]) == {}
        store.close()
