"""What the brokers said last, and for how long that may be used."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_tx.model import (
    LogBounds,
    LogPosition,
    Subscription,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.discovery import Discovery, Found, is_another
from kafka_tx.planning import log_bounds
from kafka_tx.planning.log_bounds import Bounds, EpochEnds
from kafka_tx.protocols import Clock, ClusterView

_AT_MOST_MS = 1_000
_TIMES = 10


class CachedCluster:
    """Looks at topics and logs; an answer counts ten times as long as it took.

    So looking takes a tenth of the driver's time at most, however many partitions there
    are, and with few of them every batch sees the logs as they are. A second is the
    longest; ``forget`` ends it when something went wrong. An old answer loses nothing:
    the end of a log only grows, and bounds say of which topic they are.

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
        self._ends = EpochEnds(cluster)
        self._found = Found()
        self.forget()

    def forget(self) -> None:
        """Ask anew from now on."""
        self._bounds: Bounds = {}
        self._topics: set[tuple[str, str | None]] = set()
        """Names and ids of the topics whose bounds these are."""
        self._found_until_ms = self._bounds_until_ms = self._whole_at_ms = 0

    def found(self) -> Found:
        """The partitions there are.

        Raises: as ``ClusterView.topics``.
        """
        is_old = self._clock.monotonic_ms() >= self._found_until_ms
        return self.fresh_found() if is_old else self._found

    def last_found(self) -> Found:
        """The partitions as seen last, however long ago."""
        return self._found

    def fresh_found(self) -> Found:
        """The partitions there are now.

        Raises: as ``ClusterView.topics``.
        """
        began_ms = self._clock.monotonic_ms()
        self._found = self._discovery.look()
        self._found_until_ms = self._until_ms(began_ms)
        return self._found

    def survey(self) -> Found:
        """The partitions there are; ``bounds`` of those known before are asked, too.

        That costs less than one question after the other.

        Raises: as ``ClusterView.topics``.
        """
        known = self._found.partitions
        if known and self._clock.monotonic_ms() >= self._found_until_ms:
            self.fresh_bounds(known)
        return self.found()

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
        return self._looked(partitions, {})

    def bounds_beyond(self, positions: Mapping[TopicPartition, LogPosition]) -> Bounds:
        """What these logs hold now; of those read to their ends see ``log_bounds``.

        Now and then the starts of all are asked for, too.

        Args:
            positions: Up to where each is planned.

        Raises: as ``ClusterView.bounds``.
        """
        is_whole = self._clock.monotonic_ms() >= self._whole_at_ms
        if is_whole or self._is_anew():
            return self.completed(self.fresh_bounds(positions), positions)
        done = {
            partition: bounds
            for partition, at in positions.items()
            if isinstance(bounds := self._bounds.get(partition), LogBounds)
            and at.is_end_of(bounds)
        }
        return self.completed(self._looked(positions, done), positions)

    def completed(
        self, bounds: Bounds, positions: Mapping[TopicPartition, LogPosition]
    ) -> Bounds:
        """The bounds, with what must be known to judge positions by them.

        Raises: as ``ClusterView.epoch_ends``.
        """
        return self._ends.completed(bounds, positions)

    def _is_anew(self) -> bool:
        """Whether bounds are of other topics than those that are there now."""
        now = self._found.topic_ids()
        return any(is_another(id_, now.get(name)) for name, id_ in self._topics)

    def _looked(
        self,
        partitions: Collection[TopicPartition],
        done: Mapping[TopicPartition, LogBounds],
    ) -> Bounds:
        began_ms = self._clock.monotonic_ms()
        if not done:
            self._whole_at_ms = began_ms + log_bounds.WHOLE_POLL_MS
        found = log_bounds.unchanged(self._cluster, done)
        rest = [partition for partition in partitions if partition not in found]
        if rest:
            found |= self._surveyed(rest)
        self._bounds = found
        self._topics = {(p.topic, bounds.topic_id) for p, bounds in found.items()}
        self._bounds_until_ms = self._until_ms(began_ms)
        return found

    def _surveyed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, LogBounds | Unavailable]:
        began_ms = self._clock.monotonic_ms()
        topics, bounds = self._cluster.survey(self._discovery.wanted, partitions)
        self._found = self._discovery.found_in(topics)
        self._found_until_ms = self._until_ms(began_ms)
        return bounds

    def _until_ms(self, began_ms: int) -> int:
        took_ms = self._clock.monotonic_ms() - began_ms
        return began_ms + min(_TIMES * took_ms, _AT_MOST_MS)
