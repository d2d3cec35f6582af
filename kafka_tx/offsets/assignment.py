"""Which partitions exist, and which of them are a task's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_tx.errors import ConfigError
from kafka_tx.model import Broker, TopicDescription, TopicPartition
from kafka_tx.offsets.discovery import is_another


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task's share of the partitions, ascending; ``warning`` is to be logged."""

    partitions: tuple[TopicPartition, ...]
    warning: str | None = None


def assign(
    partitions: Iterable[TopicPartition], task_index: int, total_tasks: int
) -> Assignment:
    """Task i of n takes every n-th partition, beginning with the i-th.

    The order is topic name, then number. It depends on nothing but the partitions, so
    all tasks agree without talking; each partition is one task's. Partitions added to
    the last topic move no other. Those added to an earlier topic may: their tasks close
    them before others go on from what was committed.

    Raises:
        ConfigError: ``task_index`` is not within ``0 … total_tasks - 1``.

    Source: Storm, KafkaUtils.calculatePartitionsForTask.
    """
    if not 0 <= task_index < total_tasks:
        raise ConfigError.illegal(
            "task_index", task_index, f"0 to {total_tasks - 1} (total_tasks - 1)"
        )
    ordered = sorted(set(partitions))
    warning = None
    if total_tasks > len(ordered):
        warning = (
            f"there are {total_tasks} tasks and only {len(ordered)} partitions:"
            f" {total_tasks - len(ordered)} tasks have nothing to read"
        )
    return Assignment(tuple(ordered[task_index::total_tasks]), warning)


@dataclass(frozen=True, slots=True)
class OwnershipChange:
    """What one look at the cluster changed for one task; each ascending.

    Attributes:
        lost: To be closed (= committed) before anything of ``gained`` is opened.
        gained: To be opened.
        new: Those of ``gained`` that nobody owned before, as they were not there at the
            first look: without a stored offset they start at the earliest.
        kept: Owned before and now; those below among them.
        leader_moved: Another broker leads; nothing else changed.
        recreated: The topic was deleted and created again: the log is another one.
        warning: To be logged.
    """

    lost: tuple[TopicPartition, ...] = ()
    gained: tuple[TopicPartition, ...] = ()
    new: tuple[TopicPartition, ...] = ()
    kept: tuple[TopicPartition, ...] = ()
    leader_moved: tuple[TopicPartition, ...] = ()
    recreated: tuple[TopicPartition, ...] = ()
    warning: str | None = None


@dataclass(slots=True)
class _KnownTopic:
    """What is believed of one topic, put together from all answers so far."""

    topic_id: str | None = None
    leaders: dict[int, Broker] = field(default_factory=dict)
    former_ids: set[str] = field(default_factory=set)
    absent: int = 0


class Ownership:
    """One task's partitions, kept up to date by metadata answers that may be wrong.

    A broker that was just started, or is cut off, answers with nothing or with what was
    true a while ago. So an answer may add, and hardly ever takes away:

    * No topics at all: nothing changes. A topic that is absent from ``gone_after``
      answers in a row, each with some other topic, is gone.
    * Fewer partitions than known: older; partitions are never taken away from a topic.
    * A partition without a leader: known, it keeps its former leader; new, it is not
      there yet.
    * Another topic id: created again; an answer with a former id is older.
    """

    def __init__(
        self, task_index: int, total_tasks: int, *, gone_after: int = 3
    ) -> None:
        assign((), task_index, total_tasks)  # refuses an index outside
        self._task = (task_index, total_tasks)
        self._gone_after = gone_after
        self._topics: dict[str, _KnownTopic] = {}
        self._mine: tuple[TopicPartition, ...] = ()
        self._has_looked = False
        self.leaderless: tuple[TopicPartition, ...] = ()
        """Of the last answer: not there yet, but they may hold records; of any task."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """This task's partitions, ascending."""
        return self._mine

    def leader(self, partition: TopicPartition) -> Broker | None:
        """The last known leader; None for a partition that is not known."""
        known = self._topics.get(partition.topic)
        return None if known is None else known.leaders.get(partition.partition)

    def refresh(self, answer: Mapping[str, TopicDescription]) -> OwnershipChange:
        """Take a metadata answer in; returns what it changed for this task."""
        before = self._leaders()
        recreated = {name for name, topic in answer.items() if self._learn(name, topic)}
        if answer:
            self._age(answer)
        now = self._leaders()
        self.leaderless = tuple(
            sorted(p for t in answer.values() for p in t.partitions if p not in now)
        )
        share = assign(now, *self._task)
        gained = sorted(set(share.partitions) - set(self._mine))
        kept = sorted(set(share.partitions) & set(self._mine))
        change = OwnershipChange(
            lost=tuple(sorted(set(self._mine) - set(share.partitions))),
            gained=tuple(gained),
            new=tuple(p for p in gained if self._has_looked and p not in before),
            kept=tuple(kept),
            leader_moved=tuple(p for p in kept if before[p] != now[p]),
            recreated=tuple(p for p in kept if p.topic in recreated),
            warning=share.warning,
        )
        self._mine = share.partitions
        self._has_looked = self._has_looked or bool(now)
        return change

    def _learn(self, name: str, seen: TopicDescription) -> bool:
        """Take in one topic; returns whether it was created again."""
        known = self._topics.get(name, _KnownTopic(seen.topic_id))
        if seen.topic_id in known.former_ids:
            return False
        leaders = {p: leader for p, leader in seen.leaders.items() if leader}
        recreated = is_another(known.topic_id, seen.topic_id)
        if recreated:
            former = {*known.former_ids, str(known.topic_id)}
            known = _KnownTopic(seen.topic_id, {}, former)
        known.topic_id = seen.topic_id or known.topic_id
        known.leaders.update(leaders)
        if known.leaders:
            self._topics[name] = known
        return recreated

    def _age(self, answer: Mapping[str, TopicDescription]) -> None:
        for name, known in list(self._topics.items()):
            known.absent = 0 if name in answer else known.absent + 1
            if known.absent >= self._gone_after:
                del self._topics[name]

    def _leaders(self) -> dict[TopicPartition, Broker]:
        return {
            TopicPartition(name, number): leader
            for name, known in self._topics.items()
            for number, leader in known.leaders.items()
        }
