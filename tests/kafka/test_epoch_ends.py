"""Where leader epochs ended, as librdkafka tells it."""

from contextlib import closing

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.kafka import offset_requests
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.clients import new_consumer
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.kafka.offset_requests import BEYOND, named_end
from kafka_tx.model import TopicPartition
from kafka_tx.testing.mock import MockCluster

P0 = TopicPartition("orders", 0)
TRUNCATED = "Partition log truncation detected at offset 4611686018427387904"
NO_EPOCH = "No epoch found less or equal to offset 4611686018427387904"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (f"{TRUNCATED}: broker end offset is 20 (offset leader epoch 0).", 20),
        (f"{TRUNCATED}: broker end offset is 0 (offset leader epoch 0).", 0),
        (f"{NO_EPOCH}: broker end offset is -1 (offset leader epoch -1).", BEYOND),
        ("something else", BEYOND),
    ],
)
def test_offsets_alone_decide_where_no_epochs_are_told(text, end, caplog):
    """Old message formats have none: their partitions are read on."""
    assert named_end(P0, text) == end
    is_warned = "do not report where a leader epoch ended" in caplog.text
    assert is_warned == (end == BEYOND)


class KnowsTheLeader:
    """A consumer that learned of the leader before it was assigned anything.

    So librdkafka fetches what it is assigned, and does not look at the epoch.
    """

    def __init__(self, consumer):
        self._consumer = consumer

    def assign(self, partitions):
        self._consumer.list_topics(partitions[0].topic, timeout=10)
        self._consumer.assign(partitions)

    def __getattr__(self, name):
        return getattr(self._consumer, name)


class LosesTheEnd(KnowsTheLeader):
    """The log was cut when it was assigned, and it fetched before it could seek."""

    def assign(self, partitions):
        super().assign([ClientPartition(p.topic, p.partition, 9) for p in partitions])

    def seek(self, partition):
        raise KafkaException(ClientError(ClientError._STATE))


@pytest.fixture
def end_of(cluster, topic, monkeypatch):
    """The end of the first epoch of a topic with 5 records, as such consumers tell."""

    def ask(*kinds):
        makers = iter(kinds)
        monkeypatch.setattr(
            offset_requests,
            "new_consumer",
            lambda *given: next(makers)(new_consumer(*given)),
        )
        partition = TopicPartition(topic(*[b"v"] * 5), 0)
        with closing(KafkaClusterView(settings_of(cluster))) as view:
            ((told, end),) = view.epoch_ends({partition: 0}).items()
        assert told == partition
        return end

    return ask


def test_an_end_is_named_though_the_leader_is_known_already(end_of, caplog):
    assert end_of(KnowsTheLeader) == 5
    assert "do not report" not in caplog.text


def test_an_end_is_named_though_the_log_was_cut_meanwhile(end_of):
    assert end_of(LosesTheEnd, KnowsTheLeader) == 5


def test_brokers_that_never_tell_are_taken_at_their_offsets(end_of, caplog):
    assert end_of(LosesTheEnd, LosesTheEnd) == BEYOND
    assert caplog.text.count("do not report where a leader epoch ended") == 1


def test_leaders_that_do_not_answer_are_left_out():
    with MockCluster() as own:
        own.create_topic("t")
        settings = settings_of(own)
        own.stop_broker()
        with closing(KafkaClusterView(settings, timeout_ms=300, num_retries=0)) as view:
            assert view.epoch_ends({TopicPartition("t", 0): 0}) == {}


def settings_of(cluster):
    return client_settings(
        {"bootstrap.servers": cluster.bootstrap_servers}, purpose="consumer"
    )
