"""Ranges of a batch read whose ends are resolved when a job runs.

Spark plans a Python source once for each ``load()``, and reuses this plan for every
action, view and join. So open positions of the options (earliest, latest, a time) stay
open in the plan, and each task resolves them when it runs. Source: Spark,
KafkaSourceRDD.resolveRange (deviates: with ``minPartitions`` the cuts between tasks are
those of the first plan, and only the outer ends move).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from kafka_tx.config import PerPartition, SourceConfig
from kafka_tx.model import (
    Assigned,
    AtOffset,
    OffsetRange,
    Position,
    TopicPartition,
    TopicPattern,
    Topics,
)
from kafka_tx.offsets.discovery import Discovery
from kafka_tx.planning.start_positions import (
    assigned_partitions,
    first_offsets,
    positions_of,
    ranges_between,
    resolve,
)
from kafka_tx.protocols import ClusterView

Positions = Mapping[TopicPartition, Position]


@dataclass(frozen=True, slots=True)
class OpenRange:
    """The range of one task: a part of a partition between two positions.

    Attributes:
        first: Start of the task's part; None: at ``start``.
        until: End of the task's part; None: at ``end``.
        topic_id: Id of the topic whose offsets the plan holds. None: the plan holds
            none, or brokers report no ids.
    """

    topic_partition: TopicPartition
    start: Position
    end: Position
    first: int | None = None
    until: int | None = None
    topic_id: str | None = None

    def __str__(self) -> str:
        first = self.start if self.first is None else self.first
        until = self.end if self.until is None else self.until
        return f"{self.topic_partition} [{first}, {until})"

    @property
    def is_fixed(self) -> bool:
        """Whether the range needs no lookup, as both ends are offsets."""
        return isinstance(self.start, AtOffset) and isinstance(self.end, AtOffset)

    def given(self) -> OffsetRange:
        """The offsets of a fixed range."""
        assert isinstance(self.start, AtOffset)
        assert isinstance(self.end, AtOffset)
        return self.within(self.start.offset, self.end.offset)

    def within(self, start: int, end: int) -> OffsetRange:
        """The task's part if the two positions resolve to ``[start, end)``."""
        first = start if self.first is None else max(start, self.first)
        until = end if self.until is None else min(end, self.until)
        return OffsetRange(
            self.topic_partition, first, max(first, until), self.topic_id
        )


def open_ranges(
    starts: Positions,
    ends: Positions,
    pieces: Iterable[OffsetRange],
    topic_ids: Mapping[str, str],
) -> list[OpenRange]:
    """A range for each partition, or for each of its pieces.

    ``pieces`` are the positions resolved now, contiguous and in order. The cuts between
    pieces are fixed; the outer ends stay open if the positions are. A partition without
    a piece is not cut, and is left out if it is fixed.
    """
    cut = {
        partition: list(found)
        for partition, found in groupby(pieces, key=lambda piece: piece.topic_partition)
    }
    return [
        task
        for partition, start in sorted(starts.items())
        for task in _cut(
            OpenRange(partition, start, ends[partition]),
            cut.get(partition, []),
            topic_ids.get(partition.topic),
        )
    ]


def _cut(
    whole: OpenRange, pieces: list[OffsetRange], topic_id: str | None
) -> list[OpenRange]:
    inner = [piece.start for piece in pieces[1:]]
    if inner or any(isinstance(at, AtOffset) for at in (whole.start, whole.end)):
        whole = replace(whole, topic_id=topic_id)
    if whole.is_fixed:
        return [replace(whole, first=piece.start, until=piece.end) for piece in pieces]
    return [
        replace(whole, first=first, until=until)
        for first, until in zip([None, *inner], [*inner, None], strict=True)
    ]


def ranges_of(
    config: SourceConfig, view: ClusterView, starts: Positions, ends: Positions
) -> list[OffsetRange]:
    """The ranges that the positions resolve to now.

    Raises:
        OffsetsError: No record matches a start time, or a start lies beyond its end.
        BrokerUnavailableError: A partition does not answer.
    """
    first, last = PerPartition(positions=starts), PerPartition(positions=ends)
    return ranges_between(
        resolve(config, view, starts, first, starting=True),
        resolve(config, view, starts, last, starting=False),
    )


def bound(config: SourceConfig, view: ClusterView, task: OpenRange) -> OffsetRange:
    """The range that a task reads now, from the topic that exists now.

    Raises:
        UnknownTopicError: A topic or partition named by the user does not exist any
            more.
        OffsetsError, BrokerUnavailableError: As ``ranges_of``.
    """
    partition = task.topic_partition
    found = Discovery(view.topics, Topics((partition.topic,))).find()
    if not isinstance(config.subscription, TopicPattern):  # a named one must exist
        named = replace(config, subscription=Assigned((partition,)))
        assigned_partitions(named, found)
    if not found.exists(partition):
        return OffsetRange(partition, 0, 0)
    starts, ends = {partition: task.start}, {partition: task.end}
    (whole,) = ranges_of(config, view, starts, ends)
    wanted = task.within(whole.start, whole.end)
    return wanted.of_topic(task.topic_id or found.topic_ids().get(partition.topic))


def came_since(
    config: SourceConfig, view: ClusterView, planned: frozenset[TopicPartition]
) -> list[OffsetRange]:
    """Ranges of partitions that did not exist when the batch was planned.

    Raises:
        OffsetsError: As ``ranges_of``; or the options name positions by partition, and
            none for these.
        BrokerUnavailableError: A partition does not answer.
    """
    answer = Discovery(view.topics, config.subscription).find()
    found, ids = answer.partitions, answer.topic_ids()
    fresh = [partition for partition in found if partition not in planned]
    if not fresh:
        return []
    if isinstance(config.start, PerPartition):
        positions_of(list(found), config.start, starting=True)
    starts = first_offsets(config, view, fresh, None)
    positions_of(list(found), config.end, starting=False)
    ends = resolve(config, view, fresh, config.end, starting=False)
    return [
        wanted.of_topic(ids.get(wanted.topic_partition.topic))
        for wanted in ranges_between(starts, ends)
    ]
