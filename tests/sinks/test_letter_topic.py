"""Which records a topic takes, and which time a dead letter gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_tx.kafka import topic_facts
from kafka_tx.kafka.dead_letter_form import TIME, timed
from kafka_tx.sinks.letter_topic import HOUR_MS, TopicFacts, unfit

NOW = 1_800_000_000_000
DAY = 24 * HOUR_MS
TOPIC = TopicFacts("dead", 1, is_known=True)
WEEK = TopicFacts("dead", 1, is_known=True, retention_ms=7 * DAY)
STAMPED = TopicFacts("dead", 1, is_known=True, stamps=True)
STRICT = TopicFacts("dead", 1, is_known=True, before_ms=DAY)


@pytest.mark.parametrize(
    ("topic", "time_ms"),
    [
        (TOPIC, NOW),
        (TOPIC, 1),
        (TOPIC, -1_500),
        (TOPIC, NOW + HOUR_MS),
        (WEEK, NOW - 3 * DAY),
        (STRICT, NOW - DAY),
    ],
)
def test_a_dead_letter_has_the_time_of_its_record(topic, time_ms):
    assert timed(time_ms, topic.letter_times(NOW)) == (time_ms, [])


@pytest.mark.parametrize(
    ("topic", "time_ms"),
    [
        (TOPIC, 0),
        (TOPIC, NOW + HOUR_MS + 1),
        (TOPIC, NOW * 1_000),
        (TOPIC, -(2**62)),
        (WEEK, NOW - 4 * DAY),
        (STRICT, NOW - DAY - 1),
        (STAMPED, NOW),
    ],
)
def test_a_time_that_would_be_refused_or_removed_stands_in_a_header(topic, time_ms):
    header = (TIME, str(time_ms).encode())
    assert timed(time_ms, topic.letter_times(NOW)) == (None, [header])


@pytest.mark.parametrize(
    ("policy", "kept_ms"), [("delete", DAY), ("compact,delete", DAY), ("compact", -1)]
)
def test_a_topic_that_is_only_compacted_removes_nothing_for_its_age(policy, kept_ms):
    """Brokers report the age that they do not look at, too."""
    settings = {"cleanup.policy": policy, "retention.ms": str(DAY)}
    admin: Any = SimpleNamespace(
        settings_of=lambda names, _: dict.fromkeys(names, settings)
    )
    facts = TopicFacts("t", 1, **topic_facts._settings(admin, "t"))

    assert facts.retention_ms == kept_ms
    oldest_ms = NOW - 30 * DAY
    is_kept = kept_ms < 0
    assert (timed(oldest_ms, facts.record_times(NOW))[0] == oldest_ms) is is_kept


def test_no_time_is_the_present_one():
    assert timed(None, TOPIC.letter_times(NOW)) == (None, [])


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"policy": "compact"}, "cleanup.policy=delete"),
        ({"policy": "compact,delete"}, "compact,delete"),
        ({"rights": frozenset({"READ"})}, "Grant WRITE"),
        ({"largest": 1_000}, "max.message.bytes"),
    ],
)
def test_a_topic_that_cannot_take_dead_letters_is_told_with_the_next_step(facts, says):
    assert says in str(unfit(TopicFacts("dead", 1, **facts)))


def test_a_topic_of_which_nothing_is_known_can():
    assert unfit(TopicFacts("dead", 1)) is None
    assert unfit(TopicFacts("dead", 1, rights=frozenset({"WRITE"}))) is None


@pytest.mark.parametrize(
    ("facts", "partition", "key", "lasts"),
    [
        ({"partitions": 0}, 0, b"k", True),
        ({}, 1, b"k", True),
        ({"leaderless": frozenset({0})}, 0, b"k", False),
        ({"rights": frozenset({"READ"})}, 0, b"k", False),
        ({"policy": "compact"}, 0, None, True),
    ],
)
def test_a_record_that_a_topic_does_not_take_is_told(facts, partition, key, lasts):
    topic = TopicFacts("orders", **{"partitions": 1, **facts})

    refusal = topic.refusal(partition, key)
    assert refusal is not None
    assert refusal[1] is lasts
    assert "orders" in refusal[0]


def test_a_record_that_a_topic_takes_is_not_refused():
    topic = TopicFacts("orders", 1, policy="compact")
    assert topic.refusal(0, b"k") is None
    assert TopicFacts("orders", 1).refusal(0, None) is None


@pytest.mark.parametrize(
    ("topic", "time_ms", "is_restored"),
    [
        (WEEK, NOW - 6 * DAY, True),
        (WEEK, NOW - 8 * DAY, False),
        (TOPIC, NOW + 2 * HOUR_MS, False),
        (STAMPED, NOW - 9 * DAY, True),
        (STRICT, NOW - 2 * DAY, False),
    ],
)
def test_a_record_is_sent_back_with_its_time_if_its_topic_keeps_it(
    topic, time_ms, is_restored
):
    written, late = timed(time_ms, topic.record_times(NOW))

    assert (written == time_ms, not late) == (is_restored, is_restored)
