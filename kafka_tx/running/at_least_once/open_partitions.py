"""The open partitions of an at-least-once spout, and which of them are awake."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafka_tx.model import LogBounds, TopicPartition
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.planning.log_bounds import Bounds


class OpenPartitions:
    """Managers, and what the logs hold; the topology's thread only.

    A partition sleeps from when all that its log holds is completed and stored, to when
    a look sees its log change. Nothing is asked of it meanwhile.

    Attributes:
        managers: In assignment order.
        bounds: What the logs hold, when last looked at.
    """

    def __init__(self) -> None:
        self.managers: Sequence[PartitionManager] = ()
        self.bounds: dict[TopicPartition, LogBounds] = {}
        self._by_partition: dict[TopicPartition, PartitionManager] = {}
        self._awake: dict[PartitionManager, None] = {}
        self._touched: set[PartitionManager] = set()

    @property
    def names(self) -> Collection[TopicPartition]:
        """All of them."""
        return self._by_partition.keys()

    @property
    def awake(self) -> Collection[PartitionManager]:
        """Those that may have something to do."""
        return self._awake.keys()

    def take_touched(self) -> Collection[PartitionManager]:
        """Those that were awake since the last call."""
        touched, self._touched = self._touched, set(self._awake)
        return touched

    def replace(self, managers: Sequence[PartitionManager]) -> bool:
        """Partitions may have come, gone, or be others of the same name.

        Returns:
            Whether one woke that slept, or was not there before.
        """
        former = set(self.managers)
        self.managers = managers
        self._by_partition = {m.topic_partition: m for m in managers}
        asleep = former - self._awake.keys()
        stay = {m: None for m in managers if m in self._awake}
        wake = {m: None for m in managers if m not in stay and self._wakes(m, asleep)}
        self._awake = stay | wake
        self._touched |= self._awake.keys()
        return bool(wake)

    def _wakes(
        self, manager: PartitionManager, asleep: Collection[PartitionManager]
    ) -> bool:
        return manager not in asleep or not self.is_done(manager)

    def seen(self, bounds: Bounds) -> bool:
        """Take in a look, and wake the partitions whose log changed.

        Returns:
            Whether one did.
        """
        former = self.bounds
        self.bounds = {p: b for p, b in bounds.items() if isinstance(b, LogBounds)}
        news = [p for p, b in self.bounds.items() if former.get(p) != b]
        woken = [m for p in news if (m := self._by_partition.get(p)) is not None]
        self._awake |= dict.fromkeys(woken)
        self._touched.update(woken)
        return bool(news)

    def asleep(self) -> Mapping[TopicPartition, LogBounds]:
        """What the logs hold in which nothing was left to be done."""
        awake = {manager.topic_partition for manager in self._awake}
        return {p: b for p, b in self.bounds.items() if p not in awake}

    def put_to_sleep(self) -> None:
        """Let those sleep that have nothing left to do."""
        self._awake = {m: None for m in self._awake if not self.is_done(m)}

    def is_done(self, manager: PartitionManager) -> bool:
        """Whether all that its log is known to hold is completed and stored."""
        bounds = self.bounds.get(manager.topic_partition)
        return (
            bounds is not None
            and not manager.is_recreated
            and manager.pending == 0
            and manager.position.is_end_of(bounds)
            and manager.next_to_commit() is None
        )
