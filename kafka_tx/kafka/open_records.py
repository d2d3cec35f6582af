"""Whether a transaction that nobody has ended holds readers of a topic up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.model import LogBounds, TopicPartition, Topics


def holds_readers_up(topic: str, settings: Mapping[str, str]) -> bool:
    """Whether readers of committed records see less of some partition than others do.

    Args:
        topic: Which one.
        settings: From ``client_settings(…, purpose="consumer")``.

    Raises:
        AuthenticationError, BrokerUnavailableError, KafkaError: They cannot be asked.
    """
    return _ends(topic, settings, "read_committed") != _ends(
        topic, settings, "read_uncommitted"
    )


def _ends(
    topic: str, settings: Mapping[str, str], level: str
) -> dict[TopicPartition, int]:
    with closing(KafkaClusterView({**settings, "isolation.level": level})) as view:
        found = view.topics(Topics((topic,))).get(topic)
        if found is None:
            return {}
        answers = view.bounds(found.partitions)
        return {p: b.end for p, b in answers.items() if isinstance(b, LogBounds)}
