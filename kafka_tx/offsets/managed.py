"""The partition managers of a coordinator: opened, closed, and tried again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import Broker, TopicPartition, few
from kafka_tx.offsets.manager import PartitionManager

_log = logging.getLogger(__name__)


class ManagerSource(Protocol):
    """Opens and closes the partition managers of a coordinator (driver)."""

    def prepare(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask for all that is needed to open these, at once.

        Called on the thread of ``look``, never while another call is under way; may
        take as long as brokers and store do. After a retryable error nothing is opened
        before the next look; any other one goes up.
        """
        ...

    def open(
        self,
        partition: TopicPartition,
        leader: Broker | None,
        *,
        is_new: bool,
    ) -> PartitionManager:
        """Make the manager of a partition from what is stored.

        ``is_new``: it appeared while the coordinator was running, so that without a
        stored offset it starts at the earliest: nobody has seen its first records.
        A retryable error leaves the partition without a manager until the next
        refresh; any other one goes up.
        """
        ...

    def close(self, managers: Sequence[PartitionManager]) -> None:
        """Commit what is completed in all of these, at once, and let go.

        A retryable error is logged: what was not committed is emitted again by the
        next owner. Any other one goes up.
        """
        ...


class Managed:
    """The managers of a coordinator's partitions; without a source there are none."""

    def __init__(self, source: ManagerSource | None) -> None:
        self._source = source
        self._managers: dict[TopicPartition, PartitionManager] = {}
        self.new: set[TopicPartition] = set()  # not opened yet

    def prepare(self, partitions: Iterable[TopicPartition]) -> bool:
        """Have the opening of these prepared; False when it must wait."""
        missing = sorted(p for p in partitions if p not in self._managers)
        if self._source is None or not missing:
            return True
        try:
            self._source.prepare(missing)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            _log.warning("%s cannot be opened yet: %s", few(missing), error)
            return False
        return True

    def get(self, partition: TopicPartition) -> PartitionManager | None:
        """Of an open partition."""
        return self._managers.get(partition)

    def close(self, partitions: Iterable[TopicPartition]) -> None:
        """Close some, all at once; harmless for those that are not open."""
        found = {p: self._managers.pop(p, None) for p in sorted(partitions)}
        managers = [manager for manager in found.values() if manager is not None]
        if not managers or self._source is None:
            return
        try:
            self._source.close(managers)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            _log.warning("%s were closed without a commit: %s", few(list(found)), error)

    def open(self, partition: TopicPartition, leader: Broker | None) -> None:
        """Open one that is not; a retryable error leaves it for the next time."""
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

    def is_missing(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether one of these should have a manager and has none."""
        return self._source is not None and any(
            partition not in self._managers for partition in partitions
        )

    def close_all(self) -> None:
        """Close every one."""
        self.close(list(self._managers))
