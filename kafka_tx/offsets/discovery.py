"""Which partitions exist: the one place where any door looks for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_tx.errors import KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import (
    Assigned,
    Broker,
    Subscription,
    TopicDescription,
    TopicPartition,
    Topics,
)

_log = event_log(__name__)

DELETED = ""
"""Instead of the id of a topic that was deleted: another one than it ever had."""


@dataclass(frozen=True, slots=True)
class Found:
    """One answer about the topics of a subscription.

    Attributes:
        topics: As the cluster describes them; absent ones are left out.
        partitions: What the subscription means, ascending, with or without a leader:
            all of these topics, or those of the assigned that exist.
    """

    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    partitions: tuple[TopicPartition, ...] = ()

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the answer names the partition, with or without a leader."""
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition in topic.leaders

    def leader(self, partition: TopicPartition) -> Broker | None:
        """Who leads it, if the answer says so."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.leaders.get(partition.partition)

    def topic_ids(self) -> dict[str, str]:
        """Ids of the topics whose broker tells them."""
        return {t.name: t.topic_id for t in self.topics.values() if t.topic_id}

    def recreated(self, former_ids: Mapping[str, str]) -> set[str]:
        """Topics that have another id than ``former_ids`` says."""
        return {
            name
            for name, topic in self.topics.items()
            if is_another(former_ids.get(name), topic.topic_id)
        }


def is_another(former_id: str | None, topic_id: str | None) -> bool:
    """Whether a topic was deleted and created again; not known: it was not."""
    return None not in (former_id, topic_id) and former_id != topic_id


def is_subscribed(wanted: Subscription, partition: TopicPartition) -> bool:
    """Whether a subscription means a partition, if it exists."""
    if isinstance(wanted, Assigned):
        return partition in wanted.partitions
    if isinstance(wanted, Topics):
        return partition.topic in wanted.names
    return re.fullmatch(wanted.pattern, partition.topic) is not None


class Discovery:
    """Looks the partitions of a subscription up; remembers nothing.

    What an answer means is decided by who asks: a coordinator waits before it gives a
    partition away, a source reports it as deleted.

    Args:
        describe: ``ClusterView.topics``, or the same from ZooKeeper: one batched
            question, however many partitions there are.
        wanted: What is read.
    """

    def __init__(
        self,
        describe: Callable[[Subscription], Mapping[str, TopicDescription]],
        wanted: Subscription,
    ) -> None:
        self._describe = describe
        self.wanted = wanted
        self._assigned = (
            frozenset(wanted.partitions) if isinstance(wanted, Assigned) else None
        )

    def look(self) -> Found:
        """Ask anew.

        Raises: what ``describe`` raises.
        """
        return self.found_in(self._describe(self.wanted))

    def found_in(self, topics: Mapping[str, TopicDescription]) -> Found:
        """What the subscription means in an answer about its topics."""
        found = (p for topic in topics.values() for p in topic.partitions)
        if self._assigned is not None:
            found = (p for p in found if p in self._assigned)
        return Found(topics, tuple(sorted(found)))


class FixedPartitions:
    """Partitions and leaders that are given; only the ids of their topics are asked.

    ``describe`` is for a ``Discovery``. While brokers do not answer, ids are unknown,
    and the partitions stay. A topic that an answer does not name is left out.

    Args:
        leaders: Of all partitions.
        describe: ``ClusterView.topics``.

    Source: Storm, StaticPartitionConnections (deviates: notices a topic that was
    deleted and created again).
    """

    def __init__(
        self,
        leaders: Mapping[TopicPartition, Broker],
        describe: Callable[[Subscription], Mapping[str, TopicDescription]],
    ) -> None:
        self._ask = describe
        self._leaders: dict[str, dict[int, Broker | None]] = {}
        for (topic, number), leader in leaders.items():
            self._leaders.setdefault(topic, {})[number] = leader

    def describe(self, wanted: Subscription) -> dict[str, TopicDescription]:
        """The given partitions.

        Raises: what asking raises, unless that is retryable.
        """
        try:
            reported = self._ask(wanted)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            _log.info("the ids of %s are not known now: %s", [*self._leaders], error)
            reported = {topic: TopicDescription(topic, {}) for topic in self._leaders}
        return {
            topic: TopicDescription(topic, leaders, reported[topic].topic_id)
            for topic, leaders in self._leaders.items()
            if topic in reported
        }
