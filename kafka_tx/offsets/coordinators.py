"""Assigns partitions to tasks, and opens and closes their managers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import Broker, TopicDescription, TopicPartition, few
from kafka_tx.offsets.discovery import Discovery, Found, is_another
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.protocols import Clock


class ManagerSource(Protocol):
    """Opens and closes the partition managers of a coordinator (driver)."""

    def prepare(
        self, partitions: Iterable[TopicPartition], share: Iterable[TopicPartition] = ()
    ) -> None:
        """Fetch everything needed to open these, in one step.

        ``share``: what this task owns once all partitions have a leader. A stored
        offset there tells that an earlier run has read the topic.

        Called on the thread of ``poll``, never while another call is under way; may
        block on brokers and store. After a retryable error nothing is opened before the
        next poll; any other error is raised.
        """

    def open(
        self,
        partition: TopicPartition,
        leader: Broker | None,
        *,
        is_new: bool,
        is_awaited: bool,
    ) -> PartitionManager:
        """Create the manager of a partition from its stored progress.

        ``is_new``: the partition appeared during the run. Without a stored offset it
        starts at the earliest, since its first records were never read. Offsets below
        are lost, unless the partition only had no leader at first (``is_awaited``). A
        retryable error leaves the partition without a manager until the next refresh;
        any other error is raised.
        """

    def close(self, managers: Sequence[PartitionManager]) -> None:
        """Commit all completed records of these managers, and close them.

        A retryable error is logged: the next owner emits uncommitted records again. Any
        other error is raised.
        """


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task's share of the partitions, ascending; log ``warning``."""

    partitions: tuple[TopicPartition, ...]
    warning: str | None = None


def assign(
    partitions: Iterable[TopicPartition], task_index: int, total_tasks: int
) -> Assignment:
    """Give task i of n every n-th partition, beginning with the i-th.

    The order is topic name, then number: all tasks agree without messages. Partitions
    added to the last topic move no other. Partitions added to an earlier topic may move
    others: their tasks close these before other tasks go on from the committed offsets.

    Source: Storm, KafkaUtils.calculatePartitionsForTask.

    Raises:
        ConfigError: ``task_index`` is not within ``0 … total_tasks - 1``.
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
    """The changes of one answer for one task; each ascending.

    Attributes:
        lost: Close (= commit) these before any of ``gained`` is opened.
        gone: Those of ``lost`` whose topic was deleted, or deleted and created again.
        new: Those of ``gained`` that had no leader in the first answer, or did not
            exist, and had no owner: without a stored offset they start at the earliest.
        kept: Owned before and now; includes ``recreated``.
        recreated: The topic was deleted and created again: the log is a new one.
        warning: Text to log.
    """

    lost: tuple[TopicPartition, ...] = ()
    gone: tuple[TopicPartition, ...] = ()
    gained: tuple[TopicPartition, ...] = ()
    new: tuple[TopicPartition, ...] = ()
    kept: tuple[TopicPartition, ...] = ()
    recreated: tuple[TopicPartition, ...] = ()
    warning: str | None = None


@dataclass(slots=True)
class _KnownTopic:
    topic_id: str | None = None
    leaders: dict[int, Broker] = field(default_factory=dict)
    former_ids: set[str] = field(default_factory=set)


class Ownership:
    """One task's partitions, updated by metadata answers that may be outdated.

    A broker that was just started, or is cut off, gives an empty or outdated answer. So
    an answer may add partitions, and rarely removes any:

    * An absent topic stays, as it may be hidden. It is removed once brokers, asked by
      name, report ``gone_after`` times in a row that it does not exist. Its stored
      offsets stay: if the topic comes back, they count again.
    * Fewer partitions than known: outdated; a topic never loses partitions.
    * A partition without a leader: a known one keeps its former leader; a new one is
      ignored for now.
    * Another topic id: created again; an answer with a former id is outdated.
    """

    def __init__(
        self, task_index: int, total_tasks: int, *, gone_after: int = 3
    ) -> None:
        assign((), task_index, total_tasks)  # checks the index
        self._task = (task_index, total_tasks)
        self._gone_after = gone_after
        self._topics: dict[str, _KnownTopic] = {}
        self.partitions: tuple[TopicPartition, ...] = ()
        """This task's partitions, ascending."""
        self._denials: dict[str, int] = {}
        self._has_answer = False
        self._has_led = False  # an answer named a leader
        self.leaderless: tuple[TopicPartition, ...] = ()
        """Partitions of any task without a known leader; they may hold records."""
        self.awaited: set[TopicPartition] = set()
        """Partitions of any task that had no leader in the first answer, or came when
        none had."""

    def leader(self, partition: TopicPartition) -> Broker | None:
        """The last known leader; None for an unknown partition."""
        known = self._topics.get(partition.topic)
        return None if known is None else known.leaders.get(partition.partition)

    def absent_from(
        self, answer: Mapping[str, TopicDescription]
    ) -> dict[str, str | None]:
        """Known topics that a metadata answer does not name, with their ids."""
        known = self._topics.items()
        return {name: t.topic_id for name, t in known if name not in answer}

    def refresh(
        self, answer: Mapping[str, TopicDescription], deleted: Collection[str] = ()
    ) -> OwnershipChange:
        """Apply an answer; ``deleted``: topics that brokers, asked, do not find."""
        before = self._leaders()
        recreated = {name for name, topic in answer.items() if self._learn(name, topic)}
        self._remove(deleted)
        now = self._leaders()
        self.leaderless = tuple(
            sorted(p for t in answer.values() for p in t.partitions if p not in now)
        )
        share = assign(now, *self._task)
        gained = sorted(set(share.partitions) - set(self.partitions))
        lost = sorted(set(self.partitions) - set(share.partitions))
        stay = sorted(set(share.partitions) & set(self.partitions))
        change = OwnershipChange(
            lost=tuple(lost),
            gone=tuple(p for p in lost if p.topic in recreated.union(deleted)),
            gained=tuple(gained),
            new=tuple(p for p in gained if self._has_answer and p not in before),
            kept=tuple(stay),
            recreated=tuple(p for p in stay if p.topic in recreated),
            warning=share.warning,
        )
        self.partitions = share.partitions
        if not self._has_led:  # that answer may have come from a broker just started
            self.awaited |= {*self.leaderless, *(now if self._has_answer else ())}
        self._has_answer, self._has_led = True, self._has_led or bool(now)
        return change

    def _learn(self, name: str, seen: TopicDescription) -> bool:
        """Apply the answer about one topic; return whether it was created again."""
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

    def _remove(self, deleted: Collection[str]) -> None:
        self._denials = {name: self._denials.get(name, 0) + 1 for name in deleted}
        for name, times in self._denials.items():
            if times >= self._gone_after:
                self._topics.pop(name, None)

    def _leaders(self) -> dict[TopicPartition, Broker]:
        return {
            TopicPartition(name, number): leader
            for name, known in self._topics.items()
            for number, leader in known.leaders.items()
        }


_log = event_log(__name__)

_OPEN_AGAIN_MS = 5_000
"""Pause before partitions are polled that could not be opened or have no leader."""


class RefreshingCoordinator:
    """A task's partitions, polled at intervals.

    If only the leader moves, a partition keeps its manager, with all pending records.
    Managers of removed partitions are closed (= committed) before new ones are opened.
    A failed poll changes nothing. Driver only, one thread; ``poll`` may be called on
    another thread, so that this one need not wait for brokers.

    Source: Storm, ZkCoordinator and StaticCoordinator (deviates: keyed by topic and
    partition only; an answer may be empty or outdated).

    Args:
        discovery: By brokers, ZooKeeper, or ``FixedPartitions``.
        task_index: This task, from 0.
        total_tasks: All tasks of the spout.
        refresh_interval_ms: Largest age of an answer before the next poll.
        clock: Gives the monotonic time.
        deleted: Asks brokers by name which of these topics do not exist under these
            ids, as ``DeletedTopics.now``.
        managers: Opens and closes managers.
        gone_after: See ``Ownership``.

    Raises:
        ConfigError: ``task_index`` is not within ``0 … total_tasks - 1``.
    """

    def __init__(
        self,
        discovery: Discovery,
        task_index: int,
        total_tasks: int,
        *,
        refresh_interval_ms: int,
        clock: Clock,
        deleted: Callable[[Mapping[str, str | None]], set[str]],
        managers: ManagerSource,
        gone_after: int = 3,
    ) -> None:
        self._discovery = discovery
        self._deleted = deleted
        self._task = (task_index, total_tasks)
        self._interval_ms = refresh_interval_ms
        self._clock = clock
        self._ownership = Ownership(task_index, total_tasks, gone_after=gone_after)
        self._source = managers
        self._managers: dict[TopicPartition, PartitionManager] = {}
        self._new: set[TopicPartition] = set()  # not opened yet
        self._polled_ms: int | None = None
        self._warned: str | None = None
        self.is_complete = False
        """Whether the last poll succeeded, and all its partitions can be read: no
        records can exist that no manager knows of."""
        self._is_empty = False

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """This task's partitions in the last answer, in assignment order."""
        return self._ownership.partitions

    def my_managed_partitions(self) -> Sequence[TopicPartition]:
        """This task's partitions, in assignment order, after a ``refresh`` if due."""
        if self.is_due():
            self.refresh()
        return self._ownership.partitions

    def is_due(self) -> bool:
        """Whether the last answer has reached its largest age."""
        if self._polled_ms is None:
            return True
        waited_ms = self._clock.monotonic_ms() - self._polled_ms
        if waited_ms >= min(self._interval_ms, _OPEN_AGAIN_MS):
            is_pressing = self._is_empty or not self.is_complete
            return is_pressing or waited_ms >= self._interval_ms
        return False

    def manager(self, partition: TopicPartition) -> PartitionManager | None:
        """A partition's manager; None: another task's partition, or not open yet."""
        return self._managers.get(partition)

    def leader(self, partition: TopicPartition) -> Broker | None:
        """The last known leader; None for an unknown partition."""
        return self._ownership.leader(partition)

    def refresh(self) -> None:
        """Poll now: also called after a failed fetch, since a leader may have moved.

        A retryable error of the poll is logged and changes nothing, except in the first
        poll, which raises it.

        Raises:
            KafkaTxError: Any other error of the poll or the managers.
        """
        self.poll()()

    def poll(self) -> Callable[[], None]:
        """The part of ``refresh`` that may block, and its errors; changes nothing here.

        May be called on another thread, one call at a time. Call the result, which
        applies the answer, on the coordinator's thread, before the next ``poll``.
        """
        try:
            found = self._discovery.find()
            deleted = self._deleted(self._ownership.absent_from(found.topics))
        except KafkaTxError as error:
            if self._polled_ms is None or not error.retryable:
                raise
            _log.warning("partitions stay as they were: %s", error)
            return self._not_answered
        is_led = (p for p in found.partitions if found.leader(p))
        now = assign(is_led, *self._task).partitions
        share = assign(found.partitions, *self._task).partitions
        is_prepared = self._prepare({*now, *self._ownership.partitions}, share)
        return lambda: self._take(found, deleted, may_open=is_prepared)

    def _prepare(
        self, partitions: Iterable[TopicPartition], share: Iterable[TopicPartition]
    ) -> bool:
        missing = sorted(p for p in partitions if p not in self._managers)
        try:
            if missing:
                self._source.prepare(missing, share)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            _log.warning("%s cannot be opened yet: %s", few(missing), error)
            return False
        return True

    def _not_answered(self) -> None:
        self._polled_ms = self._clock.monotonic_ms()
        self.is_complete = False

    def _take(self, found: Found, deleted: set[str], *, may_open: bool) -> None:
        self._polled_ms = self._clock.monotonic_ms()
        self._is_empty = not found.partitions
        change = self._ownership.refresh(found.topics, deleted)
        if change.lost or change.gained:
            _log.info("lost %s, gained %s", few(change.lost), few(change.gained))
        gone = [self._managers[p] for p in change.gone if p in self._managers]
        if change.warning and change.warning != self._warned:
            _log.warning("%s", change.warning)
        self._warned = change.warning
        self._new = (self._new | set(change.new)) - set(change.lost)
        self._close(change.lost)
        for manager in gone:
            manager.deleted()
        for partition in self._managers.keys() & set(change.kept):
            manager = self._managers[partition]
            manager.leader = self._ownership.leader(partition)
            if partition in change.recreated:
                manager.saw_topic(found.topic_ids()[partition.topic])
        mine = self._ownership.partitions
        if may_open:
            self._open([p for p in mine if p not in self._managers])
        has_all = self._managers.keys() >= set(mine)
        self.is_complete = has_all and not self._ownership.leaderless

    def _open(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            try:
                manager = self._source.open(
                    partition,
                    self._ownership.leader(partition),
                    is_new=partition in self._new,
                    is_awaited=partition in self._ownership.awaited,
                )
            except KafkaTxError as error:
                if not error.retryable:
                    raise
                _log.warning("%s cannot be opened yet: %s", partition, error)
                continue
            self._managers[partition] = manager
            self._new.discard(partition)

    def close(self) -> None:
        """Close (= commit) every manager."""
        self._close(list(self._managers))

    def _close(self, partitions: Iterable[TopicPartition]) -> None:
        found = {p: self._managers.pop(p, None) for p in sorted(partitions)}
        managers = [manager for manager in found.values() if manager is not None]
        try:
            if managers:
                self._source.close(managers)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            _log.warning("%s were closed without a commit: %s", few(list(found)), error)
