"""Committed offsets as those of a consumer group."""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import AuthenticationError, BrokerUnavailableError, KafkaError
from kafka_tx.kafka.client_settings import ClientSettings, client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import TopicPartition
from kafka_tx.testing.mock import MockCluster
from tests.prompt_errors import prompt_error

MakeTopic = Callable[..., str]


@pytest.fixture
def mirror(admin_settings: ClientSettings) -> Iterator[GroupMirror]:
    mirror = GroupMirror(admin_settings, "mirrored", timeout_ms=5_000)
    yield mirror
    mirror.close()


def test_what_was_stored_is_loaded_and_the_rest_is_left_out(
    mirror: GroupMirror, topic: MakeTopic
) -> None:
    name = topic(partitions=3)
    zero, one, two = (TopicPartition(name, number) for number in range(3))

    mirror.store({zero: 5, one: 0})
    mirror.store({zero: 6})

    assert mirror.load([zero, one, two]) == {zero: 6, one: 0}


OFFSET_COMMIT, NOT_COORDINATOR, INVALID_GROUP_ID = 8, 16, 24


def refuse(cluster: MockCluster, *codes: int) -> None:
    """Answer the next commits with these errors."""
    cluster._library.rd_kafka_mock_push_request_errors(
        ctypes.c_void_p(cluster._cluster), OFFSET_COMMIT, len(codes), *codes
    )


def test_a_coordinator_that_is_only_being_made_is_asked_again(
    mirror: GroupMirror, topic: MakeTopic, cluster: MockCluster
) -> None:
    one = TopicPartition(topic(), 0)
    refuse(cluster, NOT_COORDINATOR, NOT_COORDINATOR)

    mirror.store({one: 5})

    assert mirror.load([one]) == {one: 5}


def test_a_coordinator_that_does_not_come_is_unavailable(
    admin_settings: ClientSettings, topic: MakeTopic, cluster: MockCluster
) -> None:
    mirror = GroupMirror(admin_settings, "mirrored", timeout_ms=300)
    refuse(cluster, *[NOT_COORDINATOR] * 3)

    with pytest.raises(BrokerUnavailableError, match="group 'mirrored'"):
        mirror.store({TopicPartition(topic(), 0): 5})

    mirror.close()


def test_a_refusal_for_good_is_not_asked_again(
    mirror: GroupMirror, topic: MakeTopic, cluster: MockCluster
) -> None:
    one = TopicPartition(topic(), 0)
    refuse(cluster, INVALID_GROUP_ID)

    with pytest.raises(KafkaError, match="did not take the offsets of 1 of 1"):
        mirror.store({one: 5})

    assert mirror.load([one]) == {}


def test_other_consumers_of_the_group_see_the_offsets(
    mirror: GroupMirror, topic: MakeTopic, cluster: MockCluster
) -> None:
    name = topic(b"a", b"b")

    mirror.store({TopicPartition(name, 0): 1})

    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "mirrored"}
    )
    (committed,) = consumer.committed([ClientPartition(name, 0)], timeout=5)
    consumer.close()
    assert committed.offset == 1


def test_a_group_nobody_wrote_has_no_offsets(
    admin_settings: ClientSettings, topic: MakeTopic
) -> None:
    mirror = GroupMirror(admin_settings, "never-written", timeout_ms=5_000)

    assert mirror.load([TopicPartition(topic(), 0)]) == {}
    mirror.close()


def test_nothing_to_do_asks_no_broker() -> None:
    settings = client_settings({"bootstrap.servers": "127.0.0.1:1"}, purpose="admin")
    mirror = GroupMirror(settings, "g", timeout_ms=100)

    mirror.store({})

    assert mirror.load([]) == {}


@pytest.mark.parametrize(
    "act",
    [
        lambda mirror: mirror.store({TopicPartition("t", 0): 1}),
        lambda mirror: mirror.load([TopicPartition("t", 0)]),
    ],
    ids=["store", "load"],
)
def test_a_cluster_that_is_away_is_named_within_the_time_out(
    act: Callable[[GroupMirror], object],
) -> None:
    settings = client_settings({"bootstrap.servers": "127.0.0.1:1"}, purpose="admin")
    mirror = GroupMirror(settings, "g", timeout_ms=500)

    named = r"127\.0\.0\.1:1.*group 'g'"
    prompt_error(lambda: act(mirror), 4, BrokerUnavailableError, named)


def test_a_refused_log_in_is_told_long_before_the_time_out(
    login_options: dict[str, str],
) -> None:
    mirror = GroupMirror(client_settings(login_options, purpose="admin"), "g")

    partition = TopicPartition("t", 0)
    prompt_error(lambda: mirror.load([partition]), 5, AuthenticationError, "SASL")


def test_it_is_pickled_without_its_client(
    mirror: GroupMirror, topic: MakeTopic
) -> None:
    partition = TopicPartition(topic(), 0)
    mirror.store({partition: 3})

    copy = pickle.loads(pickle.dumps(mirror))

    assert copy.load([partition]) == {partition: 3}
    copy.close()
    copy.close()
