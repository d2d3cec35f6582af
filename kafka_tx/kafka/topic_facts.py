"""Asks brokers what a topic takes; a missing answer stops nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection

from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka.admin import AdminConnection, Deadline, Settings
from kafka_tx.kafka.errors import is_absent
from kafka_tx.logs import event_log
from kafka_tx.model import Retention
from kafka_tx.sinks.letter_topic import LARGEST, TopicFacts

logger = event_log(__name__)

_WITHIN_MS = 5_000
_LIMITS = ("max.message.bytes", "segment.bytes")
"""A topic's settings that its batches must not exceed; brokers' defaults included."""
_EITHER = "message.timestamp.difference.max.ms"
"""Of brokers before 3.6, for both directions."""


def facts_of(topic: str, settings: Mapping[str, str]) -> TopicFacts:
    """The facts about a topic. ``settings``: from ``client_settings(…, "admin")``.

    Raises:
        AuthenticationError: The brokers refuse the user, or hide the topic.
        BrokerUnavailableError: No broker answered in time.
        KafkaError: A broker answered with another error.
    """
    admin = AdminConnection(settings)
    deadline = Deadline(_WITHIN_MS)
    metadata = admin.metadata(deadline, topic)
    found = metadata.topics[topic]
    if found.error is not None and is_absent(found.error):
        return TopicFacts(topic, 0)
    if found.error is not None and not found.partitions:
        raise admin.failed(found.error, f"topic '{topic}'")
    leaderless = (n for n, p in found.partitions.items() if p.leader < 0)
    given: dict[str, Any] = {}
    if metadata.controller_id in metadata.brokers:  # else nobody answers
        given = _settings(admin, topic) | {"rights": _rights(admin, topic)}
    return TopicFacts(topic, len(found.partitions), frozenset(leaderless), **given)


def _settings(admin: AdminConnection, topic: str) -> dict[str, Any]:
    texts = _known_settings(admin, [topic]).get(topic)
    if texts is None:
        return {}
    either, kept_ms = _number(texts, _EITHER, LARGEST), _retention(texts).ms
    return {
        "is_known": True,
        "policy": texts.get("cleanup.policy") or "delete",
        "stamps": texts.get("message.timestamp.type") == "LogAppendTime",
        "before_ms": _number(texts, "message.timestamp.before.max.ms", either),
        "after_ms": _number(texts, "message.timestamp.after.max.ms", either),
        "retention_ms": -1 if kept_ms is None else kept_ms,
        "largest": largest_batch(texts),
    }


def retentions_of(admin: AdminConnection, names: Sequence[str]) -> dict[str, Retention]:
    """What limits the logs of topics, as far as brokers show their settings."""
    return {
        name: _retention(texts) for name, texts in _known_settings(admin, names).items()
    }


def largest_batch(texts: Settings) -> int | None:
    """The largest batch that a topic with these settings takes; None: not known."""
    return min(
        (int(text) for name in _LIMITS if (text := texts.get(name))), default=None
    )


def _known_settings(
    admin: AdminConnection, names: Sequence[str]
) -> dict[str, Settings]:
    try:
        answers = admin.settings_of(names, Deadline(_WITHIN_MS))
    except (KafkaTxError, KafkaException) as error:
        logger.debug("the settings of topics are not known: %s", error)
        return {}
    known: dict[str, Settings] = {}
    for name, answer in answers.items():
        if isinstance(answer, ClientError):
            logger.debug("the settings of topic '%s' are not known: %s", name, answer)
        else:
            known[name] = answer
    return known


def _retention(texts: Settings) -> Retention:
    if "delete" not in (texts.get("cleanup.policy") or "delete"):
        return Retention(None, is_by_size=False)
    kept_ms = _number(texts, "retention.ms", -1)
    is_by_size = _number(texts, "retention.bytes", -1) >= 0
    return Retention(kept_ms if kept_ms >= 0 else None, is_by_size)


def _number(texts: Settings, name: str, absent: int) -> int:
    text = texts.get(name)
    return int(text) if text else absent


def _rights(admin: AdminConnection, topic: str) -> frozenset[str]:
    try:
        (future,) = admin.client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True
        ).values()
        answer: Any = admin.wait(future, Deadline(_WITHIN_MS))
    except (KafkaTxError, KafkaException) as error:
        answer = error
    if isinstance(answer, (Exception, ClientError)):
        logger.debug("the rights on topic '%s' are not known: %s", topic, answer)
        return frozenset()
    return frozenset(each.name for each in answer.authorized_operations or ())
