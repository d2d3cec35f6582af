"""Who owns which partition, and the managers that go with it.

Where partitions are looked up is a ``Discovery`` that the edges pass in: brokers,
ZooKeeper, or ``FixedPartitions``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import Broker, TopicPartition
from kafka_tx.offsets.assignment import Ownership, assign
from kafka_tx.offsets.discovery import Discovery, Found
from kafka_tx.offsets.managed import Managed, ManagerSource, names_of
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.protocols import Clock

_log = logging.getLogger(__name__)

_OPEN_AGAIN_MS = 5_000
"""Before partitions are looked for again that could not be opened, or are not there."""


class RefreshingCoordinator:
    """Partitions as they are discovered, looked at again from time to time.

    When only the leader moves, a partition's manager stays, with all that is pending.
    Managers of partitions that are gone are closed (= committed) before new ones are
    opened. A look that fails changes nothing. Driver only, one thread; it may have
    ``look`` called on another one, so that it need not wait for brokers.

    Source: Storm, ZkCoordinator and StaticCoordinator (deviates: keyed by topic and
    partition alone; an answer may be empty or old).

    Args:
        discovery: Asks for the partitions that exist now.
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
        discovery: Discovery,
        task_index: int,
        total_tasks: int,
        *,
        refresh_interval_ms: int,
        clock: Clock,
        managers: ManagerSource | None = None,
        gone_after: int = 3,
    ) -> None:
        self._discovery = discovery
        self._task = (task_index, total_tasks)
        self._interval_ms = refresh_interval_ms
        self._clock = clock
        self._ownership = Ownership(task_index, total_tasks, gone_after=gone_after)
        self._managed = Managed(managers)
        self._looked_ms: int | None = None
        self._warned: str | None = None
        self._is_complete = False
        self._is_empty = False

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """This task's partitions as last seen, in assignment order."""
        return self._ownership.partitions

    def my_managed_partitions(self) -> Sequence[TopicPartition]:
        """This task's partitions, in assignment order; looks first when it is time.

        Raises:
            KafkaTxError: as ``refresh``.
        """
        if self.is_due():
            self.refresh()
        return self._ownership.partitions

    def is_due(self) -> bool:
        """Whether the last answer is as old as it may be."""
        if self._looked_ms is None:
            return True
        waited_ms = self._clock.monotonic_ms() - self._looked_ms
        if waited_ms >= min(self._interval_ms, _OPEN_AGAIN_MS):
            is_pressing = self._is_empty or not self._is_complete
            return is_pressing or waited_ms >= self._interval_ms
        return False

    @property
    def is_complete(self) -> bool:
        """Whether the last look was answered, and all that it named can be read.

        Else there may be records that no manager knows of.
        """
        return self._is_complete

    def manager(self, partition: TopicPartition) -> PartitionManager | None:
        """Its manager; None when it is not this task's, or cannot be opened yet."""
        return self._managed.get(partition)

    def leader(self, partition: TopicPartition) -> Broker | None:
        """The last known leader; None for a partition that is not known."""
        return self._ownership.leader(partition)

    def refresh(self) -> None:
        """Look now: also called when a fetch failed, since a leader may have moved.

        A retryable error of the look is logged and changes nothing, except in the very
        first look.

        Raises:
            KafkaTxError: Any other error of the look or the managers.
        """
        self.look()()

    def look(self) -> Callable[[], None]:
        """The part of ``refresh`` that waits for others; changes nothing here.

        May be called on another thread, one call at a time.

        Returns:
            The part that takes the answer in: for the coordinator's thread, before the
            next look.

        Raises:
            KafkaTxError: as ``refresh``.
        """
        try:
            found = self._discovery.look()
        except KafkaTxError as error:
            if self._looked_ms is None or not error.retryable:
                raise
            _log.warning("partitions stay as they were: %s", error)
            return self._not_answered
        is_led = (p for p in found.partitions if found.leader(p))
        share = assign(is_led, *self._task).partitions
        is_prepared = self._managed.prepare({*share, *self._ownership.partitions})
        return lambda: self._take(found, may_open=is_prepared)

    def _not_answered(self) -> None:
        self._looked_ms = self._clock.monotonic_ms()
        self._is_complete = False

    def _take(self, found: Found, *, may_open: bool) -> None:
        self._looked_ms = self._clock.monotonic_ms()
        self._is_empty = not found.partitions
        change = self._ownership.refresh(found.topics)
        if change.lost or change.gained:
            _log.info(
                "lost %s, gained %s", names_of(change.lost), names_of(change.gained)
            )
        if change.warning and change.warning != self._warned:
            _log.warning("%s", change.warning)
        self._warned = change.warning
        self._managed.new = (self._managed.new | set(change.new)) - set(change.lost)
        self._managed.close(change.lost)
        for partition in change.kept:
            manager = self._managed.get(partition)
            if manager is not None:
                manager.leader = self._ownership.leader(partition)
                if partition in change.recreated:
                    manager.saw_topic(found.topic_ids()[partition.topic])
        for partition in self._ownership.partitions if may_open else ():
            leader = self._ownership.leader(partition)
            self._managed.open(partition, leader)
        is_missing = self._managed.is_missing(self._ownership.partitions)
        self._is_complete = not is_missing and not self._ownership.leaderless

    def close(self) -> None:
        """Close (= commit) every manager."""
        self._managed.close_all()
