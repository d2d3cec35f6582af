"""Topics that lose their ends and beginnings, go away, and come back as others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_tx.kafka.cluster import bounds_of
from kafka_tx.kafka.offset_requests import ListedOffset
from kafka_tx.model import (
    AtOffset,
    Broker,
    Earliest,
    LogBounds,
    Subscription,
    TopicDescription,
    TopicPartition,
    Topics,
    Unavailable,
)

LEADER = Broker("b", 9092, 1)


class Questions:
    """Lets something happen between two questions to brokers."""

    def __init__(self) -> None:
        self._left = 0
        self._event: Callable[[], object] | None = None

    def before(self, questions: int, event: Callable[[], object]) -> None:
        """Let something happen before the question of this number from now; 1: next."""
        self._left, self._event = questions, event

    def settle(self) -> None:
        """Nothing happens between questions from now on."""
        self._event = None

    def ask(self) -> None:
        """One is asked."""
        self._left -= 1
        if self._left <= 0 and self._event is not None:
            event, self._event = self._event, None
            event()


def surveyed(brokers: Any, wanted: Any, partitions: Any) -> Any:
    """What a survey answers: bounds were asked first, topics after that."""
    bounds = brokers.bounds(partitions) if partitions else {}
    topics = brokers.topics(wanted)
    now = {name: topic.topic_id for name, topic in topics.items()}
    return topics, {p: _of_one_topic(p, found, now) for p, found in bounds.items()}


def _of_one_topic(
    partition: TopicPartition,
    found: LogBounds | Unavailable,
    now: dict[str, str | None],
) -> LogBounds | Unavailable:
    if isinstance(found, Unavailable):
        return replace(found, topic_id=now.get(partition.topic))
    listed = (
        ListedOffset(found.log_start, None),
        ListedOffset(found.end, found.leader_epoch),
    )
    return bounds_of(partition, listed, {partition.topic: found.topic_id}, now)


@dataclass
class Log:
    """One partition: records are numbers that no other record has."""

    start: int = 0
    records: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=lambda: [0])
    """Where each leader epoch began."""

    def end_of(self, epoch: int) -> int:
        return self.epochs[epoch + 1] if epoch + 1 < len(self.epochs) else self.end

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def numbered(self) -> Iterator[tuple[int, int]]:
        """Each record with its offset."""
        return enumerate(self.records, self.start)

    def read(self, start: int, end: int) -> list[int]:
        assert self.start <= start <= end <= self.end, (self, start, end)
        return self.records[start - self.start : end - self.start]


@dataclass
class Topic:
    topic_id: str
    logs: list[Log]
    is_hidden: bool = False
    has_leaders: bool = True


class Brokers:
    """A ClusterView; ``gone`` are records that nobody can read any more."""

    def __init__(self) -> None:
        self._ids = map(str, itertools.count(1))
        self._records = itertools.count()
        self.topics_: dict[str, Topic] = {}
        self.gone: set[int] = set()
        self.produced: list[int] = []
        self.left_out = 0  # ranges of topics that were others by then
        self.before_reading: list[Callable[[], None]] = []
        self.questions = Questions()
        for name in ("a", "b"):
            self.make(name)

    # --- what happens to them ---

    def make(self, name: str, partitions: int = 1) -> None:
        """Make a topic, or make it anew."""
        former = self.topics_.get(name)
        for log in former.logs if former else []:
            self.gone.update(log.records)
        self.topics_[name] = Topic(next(self._ids), [Log() for _ in range(partitions)])

    def delete(self, name: str) -> None:
        """Nobody sees it any more until it is made anew."""
        topic = self.topics_[name]
        for log in topic.logs:
            self.gone.update(log.records)
        topic.logs = []

    def append(self, partition: TopicPartition, count: int) -> list[int]:
        new = list(itertools.islice(self._records, count))
        self.log(partition).records += new
        self.produced += new
        return new

    def trim(self, partition: TopicPartition, count: int) -> None:
        log = self.log(partition)
        count = min(count, len(log.records))
        self.gone.update(log.records[:count])
        log.records = log.records[count:]
        log.start += count

    def cut(self, partition: TopicPartition, count: int) -> None:
        log = self.log(partition)
        kept = max(0, len(log.records) - count)
        self.gone.update(log.records[kept:])
        log.records = log.records[:kept]

    def elect(self, partition: TopicPartition, cut: int = 0) -> None:
        """Give a partition another leader, one that lacks the last records."""
        if cut:
            self.cut(partition, cut)
        log = self.log(partition)
        log.epochs = [min(began, log.end) for began in log.epochs] + [log.end]

    # --- who asks ---

    def be_read(self) -> None:
        """Tasks are about to read what was planned."""
        while self.before_reading:
            self.before_reading.pop()()

    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(name, number)
            for name, topic in sorted(self.topics_.items())
            for number in range(len(topic.logs))
        ]

    def exists(self, name: str) -> bool:
        return bool(self.topics_[name].logs)

    def log(self, partition: TopicPartition) -> Log:
        return self.topics_[partition.topic].logs[partition.partition]

    def topics(self, wanted):
        self.questions.ask()
        return {
            name: _described(name, topic)
            for name, topic in self.topics_.items()
            if topic.logs and not topic.is_hidden and wanted_name(wanted, name)
        }

    def bounds(self, partitions):
        self.questions.ask()
        return {p: self._bounds(p) for p in partitions}

    def survey(self, wanted, partitions):
        return surveyed(self, wanted, partitions)

    def topic_ids(self, names):
        self.questions.ask()
        return {
            name: topic.topic_id if topic and topic.logs else None
            for name in names
            if not ((topic := self.topics_.get(name)) and topic.is_hidden)
        }

    def offsets(self, wanted):
        self.questions.ask()
        return {p: self._offset(p, position) for p, position in wanted.items()}

    def ends(self, partitions):
        self.questions.ask()
        return {
            p: (bounds.end, bounds.leader_epoch)
            for p in partitions
            if isinstance(bounds := self._bounds(p), LogBounds)
        }

    def epoch_ends(self, wanted):
        self.questions.ask()
        return {
            p: self.log(p).end_of(epoch)
            for p, epoch in wanted.items()
            if isinstance(self._bounds(p), LogBounds)
        }

    def retentions(self, names):
        return {}

    def close(self):
        pass

    def _bounds(self, partition):
        topic = self.topics_[partition.topic]
        is_there = partition.partition < len(topic.logs)
        if topic.is_hidden or not topic.has_leaders or not is_there:
            return Unavailable("no leader")
        if partition.partition >= len(topic.logs):
            return Unavailable("no such partition", topic.topic_id)
        log = self.log(partition)
        return LogBounds(log.start, log.end, topic.topic_id, len(log.epochs) - 1)

    def _offset(self, partition, position):
        bounds = self._bounds(partition)
        if isinstance(bounds, Unavailable) or isinstance(position, AtOffset):
            return position.offset if isinstance(position, AtOffset) else bounds
        return bounds.log_start if isinstance(position, Earliest) else bounds.end


def wanted_name(wanted: Subscription, name: str) -> bool:
    """Whether a subscription by name has it; others have all there is."""
    return not isinstance(wanted, Topics) or name in wanted.names


def _described(name: str, topic: Topic) -> TopicDescription:
    leader = LEADER if topic.has_leaders else None
    leaders = dict.fromkeys(range(len(topic.logs)), leader)
    return TopicDescription(name, leaders, topic.topic_id)
