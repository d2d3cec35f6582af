"""Which partitions a subscription means, from one answer of the cluster."""

import pytest

from kafka_tx.errors import BrokerUnavailableError, ConfigError
from kafka_tx.model import (
    Assigned,
    Broker,
    TopicDescription,
    TopicPartition,
    TopicPattern,
    Topics,
)
from kafka_tx.offsets.discovery import Discovery, is_another, subscribed

LEADER = Broker("b", 9092, 1)
A0, A1, B0, B1 = (TopicPartition(t, n) for t in "ab" for n in range(2))


class Cluster:
    def __init__(self, *topics):
        self.answer = {topic.name: topic for topic in topics}
        self.asked = []

    def topics(self, wanted):
        self.asked.append(wanted)
        return self.answer


def topic(name, *numbers, topic_id=None, down=()):
    leaders = {n: None if n in down else LEADER for n in numbers}
    return TopicDescription(name, leaders, topic_id)


@pytest.fixture
def cluster():
    return Cluster(topic("b", 1, 0), topic("a", 0, 1, topic_id="i", down=(1,)))


@pytest.mark.parametrize("wanted", [Topics(("a", "b")), TopicPattern("a|b")])
def test_topics_mean_all_of_their_partitions_in_order(cluster, wanted):
    found = Discovery(cluster.topics, wanted).find()

    assert found.partitions == (A0, A1, B0, B1)
    assert cluster.asked == [wanted]


def test_a_reserved_name_that_a_pattern_matches_is_refused():
    cluster = Cluster(topic("a", 0), topic("_kafka_tx", 0))

    with pytest.raises(ConfigError, match=r"'_kafka_tx'.*\^\(\?!_kafka_tx\$\)"):
        Discovery(cluster.topics, TopicPattern(".*")).find()


def test_assigned_partitions_mean_those_of_them_that_exist(cluster):
    wanted = Assigned((B1, A1, TopicPartition("a", 7)))

    found = Discovery(cluster.topics, wanted).find()

    assert found.partitions == (A1, B1)


def test_a_partition_without_a_leader_exists(cluster):
    found = Discovery(cluster.topics, Topics(("a", "b"))).find()

    assert found.exists(A1)
    assert not found.exists(TopicPartition("a", 2))
    assert not found.exists(TopicPartition("c", 0))


def test_each_call_sends_a_request_and_remembers_nothing(cluster):
    discovery = Discovery(cluster.topics, Topics(("a", "b")))
    discovery.find()
    cluster.answer = {}

    assert discovery.find().partitions == ()
    assert len(cluster.asked) == 2


def test_a_topic_with_another_id_is_another_topic(cluster):
    found = Discovery(cluster.topics, Topics(("a", "b"))).find()

    assert found.topic_ids() == {"a": "i"}
    assert found.recreated({"a": "h", "b": "h"}) == {"a"}
    assert found.recreated({"a": "i"}) == set()
    assert found.recreated({}) == set()


def test_without_both_ids_a_topic_is_the_same():
    assert is_another("h", "i")
    assert not any(is_another(*ids) for ids in [("i", "i"), (None, "i"), ("i", None)])


def test_what_the_cluster_raises_goes_up():
    def fails(wanted):
        raise BrokerUnavailableError("down")

    with pytest.raises(BrokerUnavailableError):
        Discovery(fails, Topics(("a",))).find()


@pytest.mark.parametrize(
    ("wanted", "read"),
    [
        (Topics(("a", "c")), [A0]),
        (TopicPattern("a|__.*"), [A0, TopicPartition("__consumer_offsets", 0)]),
        (Assigned((A1, B1)), [B1]),
    ],
)
def test_what_an_id_has_read_is_read_on_where_the_run_subscribes_to_it(wanted, read):
    known = dict.fromkeys([A0, B1, TopicPartition("__consumer_offsets", 0)], 5)

    assert list(subscribed(wanted, known)) == read
