"""Finds the existing partitions, for all doors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kafka_tx.errors import KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import (
    Assigned,
    Broker,
    Subscription,
    TopicDescription,
    TopicPartition,
    TopicPattern,
    Topics,
    few,
)
from kafka_tx.own_topics import check_not_reserved, is_left_out

_log = event_log(__name__)
_T = TypeVar("_T")

DELETED = ""
"""Stands for the id of a deleted topic: differs from every real id."""


@dataclass(frozen=True, slots=True)
class Found:
    """One answer about the topics of a subscription; absent topics are left out.

    Attributes:
        partitions: Partitions of the subscription, ascending, with or without a leader:
            all of these topics, or the assigned ones that exist.
    """

    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    partitions: tuple[TopicPartition, ...] = ()

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the answer names the partition, with or without a leader."""
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition in topic.leaders

    def leader(self, partition: TopicPartition) -> Broker | None:
        """The leader of a partition; None if the answer has none."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.leaders.get(partition.partition)

    def topic_ids(self) -> dict[str, str]:
        """Ids of the topics, as far as brokers report them."""
        return {t.name: t.topic_id for t in self.topics.values() if t.topic_id}

    def recreated(self, former_ids: Mapping[str, str]) -> set[str]:
        """Topics that have another id than ``former_ids`` says."""
        return {
            name
            for name, topic in self.topics.items()
            if is_another(former_ids.get(name), topic.topic_id)
        }


def is_another(former_id: str | None, topic_id: str | None) -> bool:
    """Whether a topic was deleted and created again; False if an id is unknown."""
    return None not in (former_id, topic_id) and former_id != topic_id


def is_subscribed(wanted: Subscription, partition: TopicPartition) -> bool:
    """Whether a subscription includes a partition, if it exists."""
    if isinstance(wanted, Assigned):
        return partition in wanted.partitions
    if isinstance(wanted, Topics):
        return partition.topic in wanted.names
    return bool(wanted.matching([partition.topic]))


def subscribed(
    wanted: Subscription, known: Mapping[TopicPartition, _T]
) -> dict[TopicPartition, _T]:
    """Of partitions that an id has read, those that a run reads.

    A pattern matches reserved names: see ``Discovery.know``.
    """
    if isinstance(wanted, Assigned):
        assigned = frozenset(wanted.partitions)
        return {p: each for p, each in known.items() if p in assigned}
    topics = {p.topic for p in known}
    if isinstance(wanted, TopicPattern):
        wanted = replace(wanted, also=wanted.also | topics)
        topics = {*wanted.matching(topics)}
    else:
        topics &= {*wanted.names}
    return {p: each for p, each in known.items() if p.topic in topics}


class Discovery:
    """Fetches the partitions of a subscription; caches nothing.

    The caller decides on missing partitions: a coordinator waits before it removes
    them, a source reports them as deleted. ``describe`` is ``ClusterView.topics``, or
    the same from ZooKeeper: one batched request for any number of partitions.
    """

    def __init__(
        self,
        describe: Callable[[Subscription], Mapping[str, TopicDescription]],
        wanted: Subscription,
    ) -> None:
        self._describe = describe
        self.wanted: Subscription = wanted
        self._assigned = (
            frozenset(wanted.partitions) if isinstance(wanted, Assigned) else None
        )
        self._last = Found()

    def know(self, partitions: Iterable[TopicPartition]) -> None:
        """Let a pattern match topics of reserved names that the job has positions of.

        An earlier version may have read topics of markers. If these were left out, the
        job would count them as lost.
        """
        if not isinstance(self.wanted, TopicPattern):
            return
        named = {p.topic for p in partitions if is_left_out(p.topic)}
        if named <= self.wanted.also:
            return
        _log.warning(
            "the job has read %s and goes on with it; no new job reads it by a pattern",
            few(sorted(named)),
        )
        self.wanted = replace(self.wanted, also=self.wanted.also | named)

    def find(self) -> Found:
        """Fetch the partitions now. Raises: as ``describe`` and ``found_in``."""
        return self.found_in(self._describe(self.wanted))

    def found_in(self, topics: Mapping[str, TopicDescription]) -> Found:
        """The subscription's partitions in an answer about its topics.

        Raises:
            ConfigError: A pattern matches a topic of a reserved name.
        """
        if topics is self._last.topics:
            return self._last
        for topic in topics:
            check_not_reserved("topics", topic)
        found = (p for topic in topics.values() for p in topic.partitions)
        if self._assigned is not None:
            found = (p for p in found if p in self._assigned)
        self._last = Found(topics, tuple(sorted(found)))
        return self._last


class FixedPartitions:
    """Fixed partitions and leaders; brokers are asked only for topic ids.

    ``describe`` is for a ``Discovery``, and asks ``ClusterView.topics``. While brokers
    do not answer, ids are unknown, and the partitions stay. A topic that is missing in
    an answer is left out.

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
        """Describe the fixed partitions; raises only errors that are not retryable."""
        try:
            described = self._ask(wanted)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            _log.info("the ids of %s are not known now: %s", [*self._leaders], error)
            described = {topic: TopicDescription(topic, {}) for topic in self._leaders}
        return {
            topic: TopicDescription(topic, leaders, described[topic].topic_id)
            for topic, leaders in self._leaders.items()
            if topic in described
        }
