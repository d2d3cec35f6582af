"""A task's look at its own partition, with the client that reads it afterwards.

Importing confluent-kafka takes 80 ms of a new worker, and another client another
connection: neither is needed to ask for the two ends of a log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kafka_tx.model import (
    AtOffset,
    Broker,
    Earliest,
    Latest,
    LogBounds,
    Position,
    Subscription,
    TopicDescription,
    TopicPartition,
    Topics,
    Unavailable,
)
from kafka_tx.native.reader import NativeRangeReader
from kafka_tx.planned_topic import known_id
from kafka_tx.protocols import ClusterView, Survey

_ANSWER_MS = 1_500
"""Then the other view asks, which is told at once why there is no answer."""


class NativeLook:
    """A ``ClusterView`` for one task; whatever goes wrong is asked of another view.

    Args:
        reader: Whose client is used, and then kept for its next range.
        thorough: Makes the other view, which knows every question and every error.
    """

    def __init__(
        self, reader: NativeRangeReader, thorough: Callable[[], ClusterView]
    ) -> None:
        self._client = reader.client()
        self._reader = reader
        self._make = thorough
        self._thorough: ClusterView | None = None
        self._bounds: dict[TopicPartition, LogBounds] = {}

    def topics(self, wanted: Subscription) -> dict[str, TopicDescription]:
        """The topics that exist now; see ``protocols.ClusterView``."""
        if isinstance(wanted, Topics):
            found = {name: self._described(name) for name in wanted.names}
            described = {name: topic for name, topic in found.items() if topic}
            if len(described) == len(found):
                return described
        return self._other().topics(wanted)

    def _described(self, name: str) -> TopicDescription | None:
        leaders = self._client.leaders(name, _ANSWER_MS)
        if leaders is None:
            return None
        return TopicDescription(
            name,
            {
                partition: None if leader < 0 else Broker("", node_id=leader)
                for partition, leader in leaders.items()
            },
            known_id(self._client.topic_id(name, _ANSWER_MS)),
        )

    def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogBounds | Unavailable]:
        """Log starts and ends; each partition is asked once."""
        asked = list(partitions)
        for partition in asked:
            if partition not in self._bounds:
                found = self._client.bounds(*partition, _ANSWER_MS)
                if found is None:
                    return self._other().bounds(asked)
                self._bounds[partition] = LogBounds(*found)
        return {partition: self._bounds[partition] for partition in asked}

    def survey(
        self, wanted: Subscription, partitions: Collection[TopicPartition]
    ) -> Survey:
        """Topics and bounds; bounds come without ids."""
        return self.topics(wanted), self.bounds(partitions)

    def topic_ids(self, names: Iterable[str]) -> dict[str, str | None]:
        """Ids of topics by name; asked of the other view."""
        return self._other().topic_ids(names)

    def offsets(
        self, wanted: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Positions as next offsets; times are for the other view."""
        found: dict[TopicPartition, int | Unavailable | None] = {}
        for partition, position in wanted.items():
            if isinstance(position, AtOffset):
                found[partition] = position.offset
                continue
            if not isinstance(position, Earliest | Latest):
                return self._other().offsets(wanted)
            (bounds,) = self.bounds([partition]).values()
            if isinstance(bounds, Unavailable):
                return self._other().offsets(wanted)
            is_start = isinstance(position, Earliest)
            found[partition] = bounds.log_start if is_start else bounds.end
        return found

    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int | None]]:
        """Where logs end, and under which leader; asked of the other view."""
        return self._other().ends(partitions)

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Where leader epochs ended; tasks have no positions of former leaders."""
        return self._other().epoch_ends(wanted)

    def _other(self) -> ClusterView:
        if self._thorough is None:
            self._thorough = self._make()
        return self._thorough

    def close(self) -> None:
        """Leave the client to the reader."""
        self._reader.keep(self._client)
        if self._thorough is not None:
            self._thorough.close()
