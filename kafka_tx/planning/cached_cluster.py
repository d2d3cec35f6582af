"""Caches the last answers of the brokers, for a limited time."""

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
from kafka_tx.planning.log_bounds import Bounds, LogPoller, counts_until_ms
from kafka_tx.protocols import Clock, ClusterView


class CachedCluster:
    """Polls topics and logs; caches each answer as ``counts_until_ms`` says.

    With few partitions every batch sees the current logs. ``forget`` invalidates the
    answers after a failure. An old answer loses nothing: the end of a log only grows,
    and bounds name the id of their topic. All methods raise as ``ClusterView.topics``.
    """

    def __init__(
        self, cluster: ClusterView, wanted: Subscription, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._discovery = Discovery(cluster.topics, wanted)
        self._clock = clock
        self.logs = LogPoller(cluster, clock)
        """Polls without a cache, and adds the ends of epochs."""
        self._found = Found()
        self.forget()

    def forget(self) -> None:
        """Invalidate all answers."""
        self._bounds: Bounds = {}
        self._topics: set[tuple[str, str | None]] = set()
        """Names and ids of the topics that the cached bounds belong to."""
        self._found_until_ms = self._bounds_until_ms = 0
        self.logs.forget()

    def found(self) -> Found:
        """The existing partitions."""
        is_old = self._clock.monotonic_ms() >= self._found_until_ms
        return self.fresh_found() if is_old else self._found

    def last_found(self) -> Found:
        """The last answer about partitions, however old."""
        return self._found

    def fresh_found(self) -> Found:
        """The existing partitions, from a new request."""
        began_ms = self._clock.monotonic_ms()
        self._found = self._discovery.find()
        self._found_until_ms = self._until_ms(began_ms)
        return self._found

    def survey(self) -> Found:
        """As ``found``, and asks for the ``bounds`` of known partitions, too.

        Both together cost less than one request after the other.
        """
        known = self._found.partitions
        if known and self._clock.monotonic_ms() >= self._found_until_ms:
            self.fresh_bounds(known)
        return self.found()

    def bounds(self, partitions: Collection[TopicPartition]) -> Bounds:
        """The bounds of these logs."""
        bounds = self.valid_bounds()
        if self._is_anew() or any(partition not in bounds for partition in partitions):
            bounds = self.fresh_bounds(partitions)
        return bounds

    def valid_bounds(self, grace_ms: int = 0) -> Bounds:
        """The cached bounds if they were valid ``grace_ms`` ago; otherwise empty."""
        is_old = self._clock.monotonic_ms() >= self._bounds_until_ms + grace_ms
        return {} if is_old else self._bounds

    def last_bounds(self) -> Bounds:
        """The last bounds, however old."""
        return self._bounds

    def fresh_bounds(self, partitions: Collection[TopicPartition]) -> Bounds:
        """The bounds of these logs, from a new request."""
        return self._fetch_bounds(partitions, {})

    def bounds_beyond(self, positions: Mapping[TopicPartition, LogPosition]) -> Bounds:
        """The current bounds; for logs that are read to their ends see ``log_bounds``.

        ``positions`` are the planned ends. At intervals the starts of all logs are
        asked for.
        """
        if self.logs.is_whole_due or self._is_anew():
            return self.logs.completed(self.fresh_bounds(positions), positions)
        done = {
            partition: bounds
            for partition, at in positions.items()
            if isinstance(bounds := self._bounds.get(partition), LogBounds)
            and at.is_end_of(bounds)
        }
        return self.logs.completed(self._fetch_bounds(positions, done), positions)

    def _is_anew(self) -> bool:
        """Whether bounds belong to other topics than the existing ones."""
        now = self._found.topic_ids()
        return any(is_another(id_, now.get(name)) for name, id_ in self._topics)

    def _fetch_bounds(
        self,
        partitions: Collection[TopicPartition],
        done: Mapping[TopicPartition, LogBounds],
    ) -> Bounds:
        began_ms = self._clock.monotonic_ms()
        found = self.logs.poll(partitions, done, self._survey_bounds)
        self._bounds = found
        self._topics = {(p.topic, bounds.topic_id) for p, bounds in found.items()}
        self._bounds_until_ms = self._until_ms(began_ms)
        return found

    def _survey_bounds(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, LogBounds | Unavailable]:
        began_ms = self._clock.monotonic_ms()
        topics, bounds = self._cluster.survey(self._discovery.wanted, partitions)
        self._found = self._discovery.found_in(topics)
        self._found_until_ms = self._until_ms(began_ms)
        return bounds

    def _until_ms(self, began_ms: int) -> int:
        return counts_until_ms(began_ms, self._clock.monotonic_ms())
