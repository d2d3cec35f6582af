"""What the brokers said last, and for how long that may be used."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_tx.model import LogBounds, Subscription, TopicPartition
from kafka_tx.offsets.discovery import Discovery, Found
from kafka_tx.planning import quiet
from kafka_tx.planning.quiet import Bounds
from kafka_tx.protocols import Clock, ClusterView

_AT_MOST_MS = 1_000
_TIMES = 10


class CachedCluster:
    """Looks at topics and logs; an answer counts ten times as long as it took.

    So looking takes a tenth of the driver's time at most, however many partitions there
    are, and with few of them every batch sees the logs as they are. A second is the
    longest; ``forget`` ends it when something went wrong. An old answer loses nothing:
    the end of a log only grows.

    Args:
        cluster: What is asked.
        wanted: What is read.
        clock: Says how long an answer took.
    """

    def __init__(
        self, cluster: ClusterView, wanted: Subscription, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._discovery = Discovery(cluster.topics, wanted)
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Ask anew from now on."""
        self._found = Found()
        self._bounds: Bounds = {}
        self._ids: Mapping[str, str] = {}
        """Of the topics whose bounds these are; another id is another log."""
        self._found_until_ms = self._bounds_until_ms = 0

    def found(self) -> Found:
        """The partitions there are.

        Raises: as ``ClusterView.topics``.
        """
        is_old = self._clock.monotonic_ms() >= self._found_until_ms
        return self.fresh_found() if is_old else self._found

    def fresh_found(self) -> Found:
        """The partitions there are now.

        Raises: as ``ClusterView.topics``.
        """
        began_ms = self._clock.monotonic_ms()
        self._found = self._discovery.look()
        self._found_until_ms = self._until_ms(began_ms)
        return self._found

    def bounds(self, partitions: Collection[TopicPartition]) -> Bounds:
        """What these logs hold.

        Raises: as ``ClusterView.bounds``.
        """
        kept = self.kept_bounds()
        if self._is_anew() or any(partition not in kept for partition in partitions):
            kept = self.fresh_bounds(partitions)
        return kept

    def kept_bounds(self) -> Bounds:
        """What was seen, while it counts; else nothing."""
        is_old = self._clock.monotonic_ms() >= self._bounds_until_ms
        return {} if is_old else self._bounds

    def last_bounds(self) -> Bounds:
        """What was seen last, however long ago."""
        return self._bounds

    def fresh_bounds(self, partitions: Collection[TopicPartition]) -> Bounds:
        """What these logs hold now.

        Raises: as ``ClusterView.bounds``.
        """
        ids = self._found.topic_ids()
        bounds = self._looked(partitions, {})
        self._ids = ids
        return bounds

    def bounds_beyond(self, positions: Mapping[TopicPartition, int]) -> Bounds:
        """What these logs hold now; ``quiet.look`` where nothing was left to be read.

        Args:
            positions: Up to where each is planned.

        Raises: as ``ClusterView.bounds``.
        """
        if self._is_anew():
            return self.fresh_bounds(positions)
        done = {
            partition: bounds
            for partition, bounds in self._bounds.items()
            if isinstance(bounds, LogBounds) and bounds.end == positions.get(partition)
        }
        return self._looked(positions, done)

    def _is_anew(self) -> bool:
        """Whether the bounds are of other topics than those that are there now."""
        return self._found.topic_ids() != self._ids

    def _looked(
        self,
        partitions: Collection[TopicPartition],
        done: Mapping[TopicPartition, LogBounds],
    ) -> Bounds:
        began_ms = self._clock.monotonic_ms()
        self._bounds = quiet.look(self._cluster, partitions, done)
        self._bounds_until_ms = self._until_ms(began_ms)
        return self._bounds

    def _until_ms(self, began_ms: int) -> int:
        took_ms = self._clock.monotonic_ms() - began_ms
        return began_ms + min(_TIMES * took_ms, _AT_MOST_MS)
