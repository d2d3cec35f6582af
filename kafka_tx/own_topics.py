"""Names of topics that no subscription reads: kafka_tx's own, and Kafka's own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_tx.errors import ConfigError

MARKER_TOPIC = "kafka_tx.markers"
"""The default of ``tx.markerTopic``."""
RESERVED = "_kafka_tx"
"""A member of the JSON of offsets, where all other members are topics."""

MARKERS = "the markers of exactly-once sinks"
_INSIDE_KAFKA = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
_own = {MARKER_TOPIC: MARKERS}
_letters: set[str] = set()


def add_own(topic: str, holds: str) -> None:
    """Let no subscription of this process read a topic that kafka_tx itself writes.

    Call it once the topic is known to be meant: no other topic may get lost in a
    pattern. ``holds`` completes "keeps …" in errors.
    """
    _own[topic] = holds


def add_letters(topic: str) -> None:
    """Let no pattern of this process match a dead-letter topic of a job in it.

    Who reads dead letters names their topic.
    """
    _letters.add(topic)


def is_left_out(topic: str) -> bool:
    """Whether patterns never match the topic. See ``check_not_reserved``, too."""
    return is_internal(topic) or topic in _letters


def is_internal(topic: str) -> bool:
    """Whether only kafka_tx itself or Kafka writes the topic."""
    return topic in _own or topic in _INSIDE_KAFKA


def may_meet(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether clients with these settings may reach the same brokers."""
    first, second = (
        {each.strip() for each in kafka.get("bootstrap.servers", "").split(",")}
        for kafka in (one, other)
    )
    return not first.isdisjoint(second)


def leaves_out(topic: str) -> str:
    """What a pattern may begin with, so that it does not match the topic."""
    return f"^(?!{re.escape(topic)}$)"


def check_not_own(option: str, topic: str) -> None:
    """Refuse a topic of ours, or of a reserved name, in an option: ConfigError."""
    check_not_reserved(option, topic)
    if topic in _own:
        raise ConfigError.illegal(
            option,
            topic,
            "topics of your own",
            f"'{topic}' keeps {_own[topic]}: kafka_tx writes it with each batch, and"
            " only kafka_tx reads it. Name another topic.",
        )


def check_not_reserved(option: str, topic: str) -> None:
    """Refuse the name that offsets cannot hold: ConfigError."""
    if topic == RESERVED:
        raise ConfigError.illegal(
            option,
            topic,
            "any other topic",
            f"'{RESERVED}' is a reserved name in kafka_tx's offsets. Copy the topic's"
            " records to a topic of another name. A pattern leaves the topic out with"
            f" {leaves_out(RESERVED)} at its beginning, as in {leaves_out(RESERVED)}.*",
        )
