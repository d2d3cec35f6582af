"""Partition coordinators: who owns which partition, and the managers that go with it.

One implementation for all: where partitions are looked up is a function that the edges
pass in (brokers, ZooKeeper), or a fixed map.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import Broker, TopicDescription, TopicPartition
from kafka_tx.offsets.assignment import Ownership, assign
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.protocols import Clock

_log = logging.getLogger(__name__)


class ManagerSource(Protocol):
    """Opens and closes the partition managers of a coordinator (driver)."""

    def open(
        self, partition: TopicPartition, leader: Broker | None, *, is_new: bool
    ) -> PartitionManager:
        """Make the manager of a partition from what is stored.

        ``is_new``: it appeared while the coordinator was running, so that without a
        stored offset it starts at the earliest: nobody has seen its first records.
        A retryable error leaves the partition without a manager until the next
        refresh; any other one goes up.
        """
        ...

    def close(self, manager: PartitionManager) -> None:
        """Commit what is completed, and let go.

        A retryable error is logged: what was not committed is emitted again by the
        next owner. Any other one goes up.
        """
        ...


class _Managed:
    """The managers of a coordinator's partitions; without a source there are none."""

    def __init__(self, source: ManagerSource | None) -> None:
        self._source = source
        self._managers: dict[TopicPartition, PartitionManager] = {}
        self.new: set[TopicPartition] = set()  # not opened yet

    def get(self, partition: TopicPartition) -> PartitionManager | None:
        return self._managers.get(partition)

    def close(self, partition: TopicPartition) -> None:
        manager = self._managers.pop(partition, None)
        if manager is None or self._source is None:
            return
        try:
            self._source.close(manager)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            _log.warning("%s was closed without a commit: %s", partition, error)

    def open(self, partition: TopicPartition, leader: Broker | None) -> None:
        if self._source is None or partition in self._managers:
            return
        try:
            manager = self._source.open(partition, leader, is_new=partition in self.new)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            _log.warning("%s cannot be opened yet: %s", partition, error)
            return
        self._managers[partition] = manager
        self.new.discard(partition)

    def close_all(self) -> None:
        for partition in sorted(self._managers):
            self.close(partition)


class StaticCoordinator:
    """Fixed partitions with fixed leaders; a refresh opens what could not be opened.

    Raises:
        ConfigError: ``task_index`` is not within ``0 … total_tasks - 1``.

    Source: Storm, StaticCoordinator.
    """

    def __init__(
        self,
        leaders: Mapping[TopicPartition, Broker],
        task_index: int,
        total_tasks: int,
        managers: ManagerSource | None = None,
    ) -> None:
        share = assign(leaders, task_index, total_tasks)
        if share.warning:
            _log.warning("%s", share.warning)
        self._leaders = dict(leaders)
        self._mine = share.partitions
        self._managed = _Managed(managers)
        self.refresh()

    def my_managed_partitions(self) -> Sequence[TopicPartition]:
        """This task's partitions, in assignment order."""
        return self._mine

    def manager(self, partition: TopicPartition) -> PartitionManager | None:
        """Its manager; None when it is not this task's, or cannot be opened yet."""
        return self._managed.get(partition)

    def refresh(self) -> None:
        """Look again: there is nothing to see, but a store may answer by now."""
        for partition in self._mine:
            self._managed.open(partition, self._leaders[partition])

    def close(self) -> None:
        """Close (= commit) every manager."""
        self._managed.close_all()


class RefreshingCoordinator:
    """Partitions as ``describe`` tells them, looked at again from time to time.

    When only the leader moves, a partition's manager stays, with all that is pending.
    Managers of partitions that are gone are closed (= committed) before new ones are
    opened. A look that fails changes nothing. Driver only, one thread.

    Source: Storm, ZkCoordinator (deviates: keyed by topic and partition alone; an
    answer may be empty or old).

    Args:
        describe: Asks for the topics that exist now; absent ones are left out.
        task_index: This task, from 0.
        total_tasks: All tasks of the spout.
        refresh_interval_ms: How old an answer may be when partitions are asked for.
        clock: Its monotonic time is used.
        managers: Opens and closes managers; None where only discovery is wanted.
        gone_after: See ``Ownership``.

    Raises:
        ConfigError: ``task_index`` is not within ``0 … total_tasks - 1``.
    """

    def __init__(
        self,
        describe: Callable[[], Mapping[str, TopicDescription]],
        task_index: int,
        total_tasks: int,
        *,
        refresh_interval_ms: int,
        clock: Clock,
        managers: ManagerSource | None = None,
        gone_after: int = 3,
    ) -> None:
        self._describe = describe
        self._interval_ms = refresh_interval_ms
        self._clock = clock
        self._ownership = Ownership(task_index, total_tasks, gone_after=gone_after)
        self._managed = _Managed(managers)
        self._looked_ms: int | None = None
        self._warned: str | None = None

    def my_managed_partitions(self) -> Sequence[TopicPartition]:
        """This task's partitions, in assignment order; looks first when it is time.

        Raises:
            KafkaTxError: What ``describe`` or the managers raise and ``refresh`` does
                not swallow.
        """
        now_ms = self._clock.monotonic_ms()
        if self._looked_ms is None or now_ms - self._looked_ms >= self._interval_ms:
            self.refresh()
        return self._ownership.partitions

    def manager(self, partition: TopicPartition) -> PartitionManager | None:
        """Its manager; None when it is not this task's, or cannot be opened yet."""
        return self._managed.get(partition)

    def leader(self, partition: TopicPartition) -> Broker | None:
        """The last known leader; None for a partition that is not known."""
        return self._ownership.leader(partition)

    def refresh(self) -> None:
        """Look now: also called when a fetch failed, since a leader may have moved.

        A retryable error of ``describe`` is logged and changes nothing, except in the
        very first look.

        Raises:
            KafkaTxError: Any other error of ``describe`` or the managers.
        """
        is_first = self._looked_ms is None
        try:
            answer = self._describe()
        except KafkaTxError as error:
            if is_first or not error.retryable:
                raise
            self._looked_ms = self._clock.monotonic_ms()
            _log.warning("partitions stay as they were: %s", error)
            return
        self._looked_ms = self._clock.monotonic_ms()
        self._apply(answer)

    def _apply(self, answer: Mapping[str, TopicDescription]) -> None:
        change = self._ownership.refresh(answer)
        if change.lost or change.gained:
            _log.info("lost %s, gained %s", _names(change.lost), _names(change.gained))
        if change.warning and change.warning != self._warned:
            _log.warning("%s", change.warning)
        self._warned = change.warning
        self._managed.new = (self._managed.new | set(change.new)) - set(change.lost)
        for partition in change.lost:
            self._managed.close(partition)
        for partition in change.kept:
            manager = self._managed.get(partition)
            if manager is not None:
                manager.leader = self._ownership.leader(partition)
                if partition in change.recreated:
                    manager.topic_recreated()
        for partition in self._ownership.partitions:
            self._managed.open(partition, self._ownership.leader(partition))

    def close(self) -> None:
        """Close (= commit) every manager."""
        self._managed.close_all()


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions)) or "none"
