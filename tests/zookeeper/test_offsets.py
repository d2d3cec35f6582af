import json

import pytest

from kafka_tx.errors import ConfigError, StateCorruptedError, StateUnavailableError
from kafka_tx.model import Broker, CommittedOffset, TopicPartition
from kafka_tx.zookeeper.client import Create, Delete, Set
from kafka_tx.zookeeper.offsets import ZooKeeperOffsetStore
from tests.conformance.offset_store_suite import OffsetStoreSuite
from tests.zookeeper.fake_zookeeper import FakeServer, FakeZooKeeper

URL = "zookeeper://nowhere:2181/storm"
ORDERS_3 = TopicPartition("orders", 3)
NODE = "/storm/spout/partition_3"

OF_STORM = {
    "topology": {"id": "orders-12-1700000000", "name": "orders"},
    "offset": 4711,
    "partition": 3,
    "broker": {"host": "kafka1.example", "port": 9092},
    "topic": "orders",
}


@pytest.fixture
def server():
    return FakeServer()


@pytest.fixture
def open_with(server):
    def open_one(fail=lambda _number: None, **options):
        client = FakeZooKeeper(server, fail)
        return ZooKeeperOffsetStore(URL, "spout", client=client, **options)  # type: ignore[arg-type]

    return open_one


class OnAFakeZooKeeper(OffsetStoreSuite):
    keeps_runs = False
    topics_of_an_id = 1

    @pytest.fixture
    def rewound(self, server):
        return server


class TestOnAFakeZooKeeper(OnAFakeZooKeeper):
    @pytest.fixture
    def open_offsets(self, open_with):
        return open_with


class TestByTopicOnAFakeZooKeeper(OnAFakeZooKeeper):
    topics_of_an_id = 2

    @pytest.fixture
    def open_offsets(self, open_with):
        return lambda: open_with(by_topic=True)


def put(server, data, node=NODE):
    parts = node.split("/")
    for length in range(2, len(parts)):
        above = "/".join(parts[:length])
        if server.node(above) is None:
            server.apply([Create(above)])
    server.apply([Create(node, data)])


def test_a_record_has_storm_kafkas_members_and_place(open_with, server):
    committed = CommittedOffset(
        4711,
        completed=((5000, 5001),),
        topology_id="orders-12-1700000000",
        topology_name="orders",
        broker=Broker("kafka1.example", 9092),
    )

    open_with().store({ORDERS_3: committed})

    assert json.loads(server.data[NODE]) == OF_STORM


def test_topics_of_a_pattern_have_folders_of_their_own(open_with, server):
    open_with(by_topic=True).store({ORDERS_3: CommittedOffset(7)})

    assert "/storm/spout/orders/partition_3" in server.data


@pytest.mark.parametrize("topic", ["orders", "partition_3", "partition_0"])
@pytest.mark.parametrize("by_topic", [True, False])
def test_a_topology_goes_on_when_its_topic_becomes_a_pattern_and_back(
    open_with, by_topic, topic
):
    partition, other = TopicPartition(topic, 3), TopicPartition(f"{topic}s", 3)
    open_with(by_topic=not by_topic).store({partition: CommittedOffset(500)})

    gone_over = open_with(by_topic=by_topic)
    assert gone_over.topics() == {topic}
    assert gone_over.load([partition]) == {partition: CommittedOffset(500)}
    if by_topic:
        assert gone_over.load([other]) == {}
    gone_over.store({partition: CommittedOffset(600)})
    assert gone_over.load([partition]) == {partition: CommittedOffset(600)}

    gone_back = open_with(by_topic=not by_topic)
    assert gone_back.load([partition]) == {partition: CommittedOffset(600)}
    gone_back.store({partition: CommittedOffset(700)})
    assert open_with().load([partition]) == {partition: CommittedOffset(700)}


def test_a_node_of_the_other_form_that_cannot_be_read_is_named(open_with, server):
    put(server, b"{")

    with pytest.raises(StateCorruptedError, match=NODE):
        open_with(by_topic=True).load([ORDERS_3])


def test_a_node_where_another_topic_was_is_no_topics_though_the_pattern_wrote_later(
    open_with, server
):
    """Offsets of both topics stay: it would be overwritten by those of the other."""
    first, second = TopicPartition("a", 0), TopicPartition("b", 0)
    open_with().store({first: CommittedOffset(500)})
    pattern = open_with(by_topic=True)
    pattern.store({first: CommittedOffset(600), second: CommittedOffset(70)})
    before = dict(server.data)

    with pytest.raises(StateCorruptedError, match=r"it is of a-0, expected b-0") as e:
        open_with().load([second])

    assert e.value.fields["path"] == "/storm/spout/partition_0"
    assert "and node /storm/spout/b/partition_0, too, if" in str(e.value)
    assert server.data == before
    assert pattern.load([first, second]) == {
        first: CommittedOffset(600),
        second: CommittedOffset(70),
    }


@pytest.mark.parametrize("broken", ["own", "other"])
@pytest.mark.parametrize("by_topic", [True, False])
def test_a_broken_node_is_deleted_with_that_of_the_other_form_to_begin_anew(
    open_with, server, by_topic, broken
):
    """Without the other one the topology would go on at its offset."""
    deep = "/storm/spout/orders/partition_3"
    places = {True: deep, False: NODE}
    own_form = by_topic if broken == "own" else not by_topic
    open_with(by_topic=not own_form).store({ORDERS_3: CommittedOffset(500)})
    put(server, b"{", places[own_form])

    with pytest.raises(StateCorruptedError, match="Nothing was changed") as e:
        open_with(by_topic=by_topic).load([ORDERS_3])
    said = f"delete it, and node {places[not own_form]}, too, if it has an offset of"
    assert e.value.fields["path"] == places[own_form]
    assert said in str(e.value)

    server.apply([Delete(deep), Delete(NODE)])
    assert open_with(by_topic=by_topic).load([ORDERS_3]) == {}


def test_what_storm_kafka_wrote_is_continued(open_with, server):
    put(server, json.dumps(OF_STORM).encode())

    assert open_with().load([ORDERS_3]) == {
        ORDERS_3: CommittedOffset(
            4711,
            topology_id="orders-12-1700000000",
            topology_name="orders",
            broker=Broker("kafka1.example", 9092),
        )
    }


def test_a_record_that_names_no_topology_or_broker_is_of_an_unknown_one(
    open_with, server
):
    put(server, b'{"offset":0}')

    assert open_with().load([ORDERS_3]) == {ORDERS_3: CommittedOffset(0)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"4711",
        b"null",
        b"{}",
        b'{"offset":-5}',
        b'{"offset":"4711"}',
        b'{"offset":true}',
        b'{"offset":47.11}',
        b'{"offset":1,"topology":"orders"}',
        b'{"offset":1,"broker":{"host":"h","port":"x"}}',
        b'{"offset":1,"topic":"others","partition":3}',
        b'{"offset":1,"topic":"orders","partition":4}',
    ],
)
def test_a_node_that_is_no_such_record_is_named_and_left_alone(open_with, server, data):
    put(server, data)

    with pytest.raises(StateCorruptedError, match=NODE) as caught:
        open_with().load([ORDERS_3])

    assert caught.value.fields["path"] == NODE
    assert server.data[NODE] == data


def test_a_commit_of_many_partitions_is_one_step(open_with, server):
    offsets = {TopicPartition("orders", n): CommittedOffset(n) for n in range(1_500)}
    store = open_with()
    store.load(offsets)

    store.store(offsets)

    assert store._client.changes == 1


def test_a_node_that_went_away_is_made_again(open_with, server):
    store = open_with()
    store.store({ORDERS_3: CommittedOffset(1)})
    server.apply([Delete(NODE), Delete("/storm/spout")])

    store.store({ORDERS_3: CommittedOffset(2)})

    assert store.load([ORDERS_3]) == {ORDERS_3: CommittedOffset(2)}


@pytest.mark.parametrize("way", ["deleted", "written"])
def test_a_record_that_cannot_be_read_is_deleted_or_written_by_hand(
    open_with, server, way
):
    put(server, b"{}")
    with pytest.raises(StateCorruptedError, match="delete it .* or write the right"):
        open_with().load([ORDERS_3])

    by_hand = {"offset": 7, "topic": "orders", "partition": 3}
    right = Set(NODE, json.dumps(by_hand).encode())
    server.apply([Delete(NODE) if way == "deleted" else right])

    store = open_with()
    loaded = store.load([ORDERS_3])
    assert [at.offset for at in loaded.values()] == ([] if way == "deleted" else [7])
    store.store({ORDERS_3: CommittedOffset(9)})
    assert store.load([ORDERS_3])[ORDERS_3].offset == 9


@pytest.mark.parametrize("fault", ["lost", "landed"])
def test_a_lost_answer_is_written_again(open_with, fault):
    store = open_with(lambda number: fault if number == 1 else None)

    store.store({ORDERS_3: CommittedOffset(1)})

    assert store.load([ORDERS_3]) == {ORDERS_3: CommittedOffset(1)}


def test_a_zookeeper_that_never_answers_is_given_up(open_with):
    store = open_with(lambda _number: "lost")

    with pytest.raises(StateUnavailableError):
        store.store({ORDERS_3: CommittedOffset(1)})


def test_an_id_of_storm_may_have_parts(server):
    client = FakeZooKeeper(server)
    store = ZooKeeperOffsetStore(URL, "spouts/orders:1", client=client)  # type: ignore[arg-type]

    store.store({ORDERS_3: CommittedOffset(1)})

    assert "/storm/spouts/orders:1/partition_3" in server.data


@pytest.mark.parametrize("wrong", ["", "/a", "a b", "..", "a~b"])
def test_an_id_that_is_no_node_is_refused(wrong):
    with pytest.raises(ConfigError, match="option 'id'"):
        ZooKeeperOffsetStore(URL, wrong)


def test_data_of_an_existing_record_is_replaced_whole(open_with, server):
    put(server, json.dumps({**OF_STORM, "more": "members"}).encode())
    server.apply([Set(NODE, json.dumps(OF_STORM).encode())])

    open_with().store({ORDERS_3: CommittedOffset(5000)})

    assert json.loads(server.data[NODE])["offset"] == 5000


def test_the_owners_stand_beside_the_records_of_storm(open_with, server):
    store = open_with()
    store.acquire()
    store.store({ORDERS_3: CommittedOffset(5)})

    assert server.names("/storm/spout") == ["partition_3", "~owners"]
    assert json.loads(server.node(NODE).data).keys() == OF_STORM.keys()


@pytest.mark.parametrize("fault", ["lost", "landed"])
def test_a_claim_whose_answer_is_lost_is_made_again(open_with, fault):
    store = open_with(fail=lambda number: fault if number == 1 else None)

    store.acquire()

    store.store({ORDERS_3: CommittedOffset(5)})
    assert store.load([ORDERS_3]) == {ORDERS_3: CommittedOffset(5)}


def test_owners_that_make_no_sense_stop_the_writer(open_with, server):
    store = open_with()
    store.acquire()
    server.apply([Set("/storm/spout/~owners", b"7")])

    with pytest.raises(StateCorruptedError, match="~owners"):
        store.store({ORDERS_3: CommittedOffset(5)})
