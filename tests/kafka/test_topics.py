"""Which topics a subscription means, and when an answer is not to be believed."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from kafka_tx import own_topics
from kafka_tx.config import check_topic
from kafka_tx.errors import ConfigError
from kafka_tx.kafka import topics
from kafka_tx.kafka.topics import names_of, shrunk
from kafka_tx.model import (
    Assigned,
    Broker,
    TopicDescription,
    TopicPartition,
    TopicPattern,
    Topics,
)

LEADER = Broker("one", 9092, 1)


def described(
    partitions: int, topic_id: str | None = None
) -> dict[str, TopicDescription]:
    leaders = dict.fromkeys(range(partitions), LEADER)
    return {"orders": TopicDescription("orders", leaders, topic_id)}


def test_a_pattern_matches_whole_names() -> None:
    names = ["orders", "new-orders-2", "payments"]

    assert TopicPattern("orders").matching(names) == ["orders"]
    assert TopicPattern(".*orders.*").matching(names) == ["orders", "new-orders-2"]


def test_a_pattern_never_means_kafka_s_own_topics() -> None:
    names = ["__consumer_offsets", "__transaction_state", "__mine"]

    assert TopicPattern(".*").matching(names) == ["__mine"]


def test_a_pattern_never_means_topics_that_kafka_tx_writes_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_topics, "_own", dict(own_topics._own))
    names = ["kafka_tx.markers", "team.markers", "orders"]
    assert TopicPattern(".*").matching(names) == ["team.markers", "orders"]

    own_topics.add_own("team.markers", own_topics.MARKERS)

    assert TopicPattern(".*").matching(names) == ["orders"]
    assert TopicPattern("team.markers").matching(names) == []


def test_a_bad_pattern_is_told() -> None:
    with pytest.raises(ConfigError, match="regular expression"):
        TopicPattern("(orders").matching(["orders"])


def test_the_names_of_a_subscription_are_named_once() -> None:
    partitions = (
        TopicPartition("b", 1),
        TopicPartition("a", 0),
        TopicPartition("b", 0),
    )

    assert names_of(Topics(("b", "a", "b"))) == ["a", "b"]
    assert names_of(Assigned(partitions)) == ["a", "b"]
    assert names_of(TopicPattern(".*")) is None


@pytest.mark.parametrize(
    ("before", "now", "is_shrunk"),
    [
        ({}, described(2), False),
        (described(2), described(2), False),
        (described(2), described(3), False),
        (described(2), described(1), True),
        (described(2), {}, True),
        (described(2, "id-1"), described(1, "id-1"), True),
        (described(2, "id-1"), described(1, "id-2"), False),
    ],
)
def test_an_answer_with_less_than_before_is_told_from_a_new_topic(
    before: dict[str, TopicDescription],
    now: dict[str, TopicDescription],
    is_shrunk: bool,
) -> None:
    assert shrunk(before, now, ["orders"]) is is_shrunk
    assert shrunk(before, now, None) is is_shrunk


def test_topics_that_are_not_asked_for_are_not_missed() -> None:
    assert not shrunk(described(2), {}, ["payments"])


def test_a_dead_letter_topic_is_left_out_of_patterns_only(monkeypatch):
    """Who reads dead letters names their topic, and sends dead letters of it back."""
    monkeypatch.setattr(own_topics, "_letters", set())
    own_topics.add_letters("orders-dead")

    assert TopicPattern("orders.*").matching(["orders", "orders-dead"]) == ["orders"]
    assert check_topic("topic", "orders-dead") == "orders-dead"
    assert not own_topics.is_internal("orders-dead")


def test_the_version_of_the_client_is_asked_of_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To look for metadata, each process of Spark would read the index of a jar."""
    installed = version("confluent-kafka")
    monkeypatch.setattr("importlib.metadata.distribution", pytest.fail)
    topics._version.cache_clear()

    assert ".".join(map(str, topics._version())) == installed
