import itertools

import pytest

from kafka_tx.errors import StateLostError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.group_offsets import KafkaGroupOffsetStore
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.testing.mock import MockCluster
from kafka_tx.transactions.ownership.memory import MemoryOffsetStore
from tests.conformance.offset_store_suite import OffsetStoreSuite
from tests.conformance.rewinding import Rewound

names = itertools.count()


class TestMemoryOffsetStore(OffsetStoreSuite):
    shared = False
    fences = False

    @pytest.fixture
    def open_offsets(self):
        return MemoryOffsetStore


class TestSqliteOffsetStore(OffsetStoreSuite):
    @pytest.fixture
    def open_offsets(self, tmp_path):
        opened = []

        def open_one(id_="orders"):
            opened.append(SqlOffsetStore(f"sqlite:///{tmp_path}/state.db", id_))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()

    @pytest.fixture
    def rewound(self, tmp_path):
        rewound = Rewound(f"sqlite:///{tmp_path}/state.db")
        yield rewound
        rewound.close()

    def test_ids_and_topics_do_not_see_each_other(self, open_offsets):
        one, two = TopicPartition("orders", 0), TopicPartition("Orders", 0)
        open_offsets().store({one: CommittedOffset(1), two: CommittedOffset(2)})

        assert open_offsets("other").load([one]) == {}
        assert open_offsets().load([two]) == {two: CommittedOffset(2)}


@pytest.fixture(scope="module")
def mock_cluster():
    with MockCluster() as cluster:
        yield cluster


class TestKafkaGroupOffsetStore(OffsetStoreSuite):
    """On the mock cluster, which has its limits; ``integration/`` has the real one."""

    keeps_broker = False
    topics_of_an_id = 0
    fences = False
    keeps_time = False
    bare_epoch = 0
    many = 100

    @pytest.fixture
    def topic(self, mock_cluster):
        def make(name, partitions=3):
            fresh = f"{name}-{next(names)}"
            mock_cluster.create_topic(fresh, partitions)
            return fresh

        return make

    @pytest.fixture
    def open_offsets(self, mock_cluster):
        group = f"group-{next(names)}"
        options = {"bootstrap.servers": mock_cluster.bootstrap_servers}
        opened = []

        def open_one():
            settings = client_settings(options, purpose="admin")
            opened.append(KafkaGroupOffsetStore(settings, group, timeout_ms=10_000))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()

    def test_offsets_that_others_wrote_are_left_alone(self, open_offsets, topic):
        one, two = (TopicPartition(topic("orders"), n) for n in (0, 1))
        spout, other = open_offsets(), open_offsets()
        spout.store({one: CommittedOffset(5), two: CommittedOffset(5)})
        other.store({one: CommittedOffset(2)})

        with pytest.raises(StateLostError, match="another live spout"):
            spout.store({one: CommittedOffset(6), two: CommittedOffset(6)})

        assert {p: c.offset for p, c in other.load([one, two]).items()} == {
            one: 2,
            two: 5,
        }
        spout.store({two: CommittedOffset(6)})
