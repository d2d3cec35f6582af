"""Asks brokers what a topic takes; a missing answer stops nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin._config import ConfigResource

from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.errors import is_absent
from kafka_tx.logs import event_log
from kafka_tx.model import Retention
from kafka_tx.sinks.letter_topic import LARGEST, TopicFacts

logger = event_log(__name__)

_WITHIN_MS = 5_000
_LIMITS = ("max.message.bytes", "segment.bytes")
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
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        answer = admin.settings_of(resource, Deadline(_WITHIN_MS))
    except (KafkaTxError, KafkaException) as error:
        answer = error
    if isinstance(answer, (Exception, ClientError)):
        logger.debug("the settings of topic '%s' are not known: %s", topic, answer)
        return {}
    texts = {name: entry.value for name, entry in answer.items()}
    either = _number(texts, _EITHER, LARGEST)
    limits = [int(texts[name]) for name in _LIMITS if texts.get(name)]
    return {
        "is_known": True,
        "policy": texts.get("cleanup.policy") or "delete",
        "stamps": texts.get("message.timestamp.type") == "LogAppendTime",
        "before_ms": _number(texts, "message.timestamp.before.max.ms", either),
        "after_ms": _number(texts, "message.timestamp.after.max.ms", either),
        "retention_ms": _number(texts, "retention.ms", -1),
        "largest": min(limits, default=None),
    }


def retentions_of(admin: AdminConnection, names: Sequence[str]) -> dict[str, Retention]:
    """What limits the logs of topics, as far as brokers show their settings."""
    deadline = Deadline(_WITHIN_MS)
    found: dict[str, Retention] = {}
    try:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, each) for each in names]
        asked = admin.client.describe_configs(
            resources, request_timeout=deadline.rest_s()
        )
    except (KafkaTxError, KafkaException) as error:
        logger.debug("the retention of topics is not known: %s", error)
        return {}
    for resource, future in asked.items():
        try:
            answer: Any = admin.wait(future, deadline)
        except (KafkaTxError, KafkaException) as error:
            answer = error
        if isinstance(answer, (Exception, ClientError)):
            logger.debug("the retention of %s is not known: %s", resource.name, answer)
        else:
            texts = {name: entry.value for name, entry in answer.items()}
            found[resource.name] = _retention(texts)
    return found


def _retention(texts: Mapping[str, str | None]) -> Retention:
    if "delete" not in (texts.get("cleanup.policy") or "delete"):
        return Retention(None, is_by_size=False)
    kept_ms = _number(texts, "retention.ms", -1)
    is_by_size = _number(texts, "retention.bytes", -1) >= 0
    return Retention(kept_ms if kept_ms >= 0 else None, is_by_size)


def _number(texts: Mapping[str, str | None], name: str, absent: int) -> int:
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
