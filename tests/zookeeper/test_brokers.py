import json

import pytest

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    StateError,
    StateUnavailableError,
)
from kafka_tx.model import (
    Assigned,
    Broker,
    TopicDescription,
    TopicPartition,
    TopicPattern,
    Topics,
)
from kafka_tx.zookeeper.brokers import ZooKeeperTopics
from kafka_tx.zookeeper.client import Create
from tests.zookeeper.fake_zookeeper import FakeServer, FakeZooKeeper

ZERO = Broker("kafka0", 9091, 0)
ONE, TWO = Broker("kafka1", 9092, 1), Broker("kafka2", 9093, 2)


class Registry:
    """Registers as Kafka 3 does."""

    def __init__(self, chroot=""):
        self.server = FakeServer()
        self.path = f"{chroot}/brokers"
        parts = f"{self.path}/topics".split("/")
        for length in range(2, len(parts) + 1):
            self.server.apply([Create("/".join(parts[:length]))])
        self.put(f"{self.path}/ids", None)
        self.broker(0, host="kafka0", port=9091)
        self.broker(1, host="kafka1", port=9092)
        self.broker(2, host="kafka2", port=9093)

    def put(self, node, record):
        data = b"" if record is None else json.dumps(record).encode()
        self.server.apply([Create(node, data)])

    def broker(self, number, **record):
        self.put(f"{self.path}/ids/{number}", record)

    def topic(self, name, leaders, topic_id=None):
        """``leaders``: broker id per partition; None: no state is registered yet."""
        record = {"version": 3, "partitions": {str(n): [1, 2] for n in leaders}}
        if topic_id:
            record["topic_id"] = topic_id
        node = f"{self.path}/topics/{name}"
        self.put(node, record)
        self.put(f"{node}/partitions", None)
        for number, leader in leaders.items():
            if leader is None:
                continue
            self.put(f"{node}/partitions/{number}", None)
            state = {"leader": leader, "isr": [1], "leader_epoch": 3}
            self.put(f"{node}/partitions/{number}/state", state)

    def poll(self, connect="nowhere:2181"):
        client = FakeZooKeeper(self.server)
        return ZooKeeperTopics(connect, client=client)  # type: ignore[arg-type]


@pytest.fixture
def registry():
    return Registry()


def test_a_topic_has_its_partitions_leaders_and_id(registry):
    registry.topic("orders", {0: 1, 1: 2, 10: 0}, topic_id="aBcDeFgHiJkLmNoPqRsTuV")

    assert registry.poll().topics(Topics(("orders",))) == {
        "orders": TopicDescription(
            "orders", {0: ONE, 1: TWO, 10: ZERO}, "aBcDeFgHiJkLmNoPqRsTuV"
        )
    }


def test_absent_topics_are_left_out(registry):
    registry.topic("orders", {0: 1})

    assert list(registry.poll().topics(Topics(("orders", "quotes")))) == ["orders"]
    assert registry.poll().topics(Topics(("quotes",))) == {}


def test_a_pattern_must_match_the_whole_name(registry):
    for name in ("orders", "orders.eu", "my.orders"):
        registry.topic(name, {0: 1})

    assert list(registry.poll().topics(TopicPattern(r"orders(\..*)?"))) == [
        "orders",
        "orders.eu",
    ]


def test_a_pattern_never_means_topics_of_kafka_or_of_kafka_tx(registry):
    for name in ("orders", "__consumer_offsets", "kafka_tx.markers"):
        registry.topic(name, {0: 1})

    assert list(registry.poll().topics(TopicPattern(".*"))) == ["orders"]


def test_a_new_topic_that_matches_appears_with_the_next_request(registry):
    poll = registry.poll()
    assert poll.topics(TopicPattern("o.*")) == {}

    registry.topic("orders", {0: 1})

    assert list(poll.topics(TopicPattern("o.*"))) == ["orders"]


def test_assigned_partitions_bring_their_topics(registry):
    registry.topic("orders", {0: 1, 1: 1})
    registry.topic("quotes", {0: 1})

    wanted = Assigned((TopicPartition("orders", 1), TopicPartition("orders", 0)))

    assert list(registry.poll().topics(wanted)) == ["orders"]


@pytest.mark.parametrize("leader", [-1, 3, None])
def test_a_partition_without_a_usable_leader_is_there_without_one(registry, leader):
    registry.topic("orders", {0: 1, 1: leader})

    assert registry.poll().topics(Topics(("orders",)))["orders"].leaders == {
        0: ONE,
        1: None,
    }


def test_a_topic_that_is_still_being_made_is_left_out(registry):
    registry.put("/brokers/topics/orders", None)

    assert registry.poll().topics(Topics(("orders",))) == {}


def test_a_state_that_cannot_be_read_is_no_leader(registry, caplog):
    registry.topic("orders", {0: 1, 1: None})
    registry.put("/brokers/topics/orders/partitions/1", None)
    registry.server.apply(
        [Create("/brokers/topics/orders/partitions/1/state", b"{broken")]
    )

    assert registry.poll().topics(Topics(("orders",)))["orders"].leaders == {
        0: ONE,
        1: None,
    }
    assert "partitions/1/state is no JSON" in caplog.text


def test_a_broker_without_a_plaintext_listener_has_its_address_in_endpoints(registry):
    registry.broker(7, host=None, port=-1, endpoints=["SASL_SSL://kafka7.example:9094"])
    registry.topic("orders", {0: 7})

    topics = registry.poll().topics(Topics(("orders",)))

    assert topics["orders"].leaders == {0: Broker("kafka7.example", 9094, 7)}


def test_a_cluster_may_be_below_a_chroot():
    registry = Registry(chroot="/kafka/eu")
    registry.topic("orders", {0: 1})

    poll = registry.poll("nowhere:2181,other:2181/kafka/eu")

    assert list(poll.topics(Topics(("orders",)))) == ["orders"]


@pytest.mark.parametrize("wanted", [Topics(("orders",)), TopicPattern(".*")])
def test_a_wrong_chroot_is_named(registry, wanted):
    poll = registry.poll("nowhere:2181/elsewhere")

    with pytest.raises(ConfigError, match="there is no /elsewhere/brokers/topics"):
        poll.topics(wanted)


def test_it_takes_few_requests_whatever_the_number_of_partitions(registry):
    registry.topic("orders", dict.fromkeys(range(300), 1))
    registry.topic("quotes", dict.fromkeys(range(300), 2))
    poll = registry.poll()

    poll.topics(TopicPattern(".*"))

    assert poll._client.reads <= 5


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (StateUnavailableError("silence"), BrokerUnavailableError),
        (StateError("no"), AuthenticationError),
    ],
)
def test_errors_are_those_of_a_cluster_view(registry, inner, outer):
    poll = registry.poll()

    def fail(_paths):
        raise inner

    poll._client.nodes = fail

    with pytest.raises(outer, match=inner.message):
        poll.topics(Topics(("orders",)))
