"""Ranges of a batch read whose ends are bound when a job runs.

Spark plans a Python source once for each ``load()``, and keeps that plan for every
action, view and join on it. So what the options leave open (earliest, latest, a time)
stays open in the plan, and each task looks up what it means now.
Source: Spark, KafkaSourceRDD.resolveRange (deviates: with ``minPartitions`` the cuts
between tasks are those of the first plan, and only the outer ends move).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from kafka_tx.config import FromCommitted, PerPartition, SourceConfig
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
    committed_or,
    positions_of,
    ranges_between,
    resolve,
)
from kafka_tx.protocols import ClusterView

Positions = Mapping[TopicPartition, Position]


@dataclass(frozen=True, slots=True)
class OpenRange:
    """What one task reads: a part of a partition between two positions.

    Attributes:
        first: Where the task's part begins; None: wherever ``start`` is.
        until: Where it ends; None: wherever ``end`` is.
    """

    topic_partition: TopicPartition
    start: Position
    end: Position
    first: int | None = None
    until: int | None = None

    def __str__(self) -> str:
        first = self.start if self.first is None else self.first
        until = self.end if self.until is None else self.until
        return f"{self.topic_partition} [{first}, {until})"

    @property
    def is_fixed(self) -> bool:
        """Whether it means the same whenever it is asked."""
        return isinstance(self.start, AtOffset) and isinstance(self.end, AtOffset)

    def given(self) -> OffsetRange:
        """The range of one that is fixed."""
        assert isinstance(self.start, AtOffset)
        assert isinstance(self.end, AtOffset)
        return self.within(self.start.offset, self.end.offset)

    def within(self, start: int, end: int) -> OffsetRange:
        """The task's part where the two positions mean ``[start, end)``."""
        first = start if self.first is None else max(start, self.first)
        until = end if self.until is None else min(end, self.until)
        return OffsetRange(self.topic_partition, first, max(first, until))


def open_ranges(
    starts: Positions, ends: Positions, pieces: Iterable[OffsetRange]
) -> list[OpenRange]:
    """A range for each partition, or for each piece that it was cut into.

    ``pieces`` are what the positions mean now, contiguous and in order. Between two of
    them the cut holds; the outer ends stay open where the positions are. A partition
    without one is not cut, and left out where it is fixed.
    """
    cut = {
        partition: list(found)
        for partition, found in groupby(pieces, key=lambda piece: piece.topic_partition)
    }
    return [
        task
        for partition, start in sorted(starts.items())
        for task in _cut(OpenRange(partition, start, ends[partition]), cut)
    ]


def _cut(
    whole: OpenRange, cut: Mapping[TopicPartition, list[OffsetRange]]
) -> list[OpenRange]:
    pieces = cut.get(whole.topic_partition, [])
    if whole.is_fixed:  # and what is gone below the first piece was looked at
        return [replace(whole, first=piece.start, until=piece.end) for piece in pieces]
    inner = [piece.start for piece in pieces[1:]]
    return [
        replace(whole, first=first, until=until)
        for first, until in zip([None, *inner], [*inner, None], strict=True)
    ]


def ranges_of(
    config: SourceConfig, view: ClusterView, starts: Positions, ends: Positions
) -> list[OffsetRange]:
    """What the positions mean now.

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
    """What a task reads now.

    Raises:
        UnknownTopicError: A topic or partition named by the user does not exist any
            more.
        OffsetsError: As ``ranges_of``.
        BrokerUnavailableError: The partition does not answer.
    """
    partition = task.topic_partition
    if not _exists(config, view, partition):
        return OffsetRange(partition, 0, 0)
    starts, ends = {partition: task.start}, {partition: task.end}
    (whole,) = ranges_of(config, view, starts, ends)
    return task.within(whole.start, whole.end)


def _exists(config: SourceConfig, view: ClusterView, partition: TopicPartition) -> bool:
    """Whether it does; that one which the user named does not is an error."""
    found = Discovery(view.topics, Topics((partition.topic,))).look()
    if not isinstance(config.subscription, TopicPattern):
        named = replace(config, subscription=Assigned((partition,)))
        assigned_partitions(named, found)
    return found.exists(partition)


def came_since(
    config: SourceConfig, view: ClusterView, planned: frozenset[TopicPartition]
) -> list[OffsetRange]:
    """What is to be read of partitions that did not exist when the batch was planned.

    Raises:
        OffsetsError: As ``ranges_of``; or the options have a position for each
            partition, and none for these.
        BrokerUnavailableError: A partition does not answer.
    """
    found = Discovery(view.topics, config.subscription).look().partitions
    fresh = [partition for partition in found if partition not in planned]
    if not fresh:
        return []
    if isinstance(config.start, FromCommitted):
        starts = committed_or(config, view, fresh, config.start, {})
    else:
        positions_of(list(found), config.start, starting=True)
        starts = resolve(config, view, fresh, config.start, starting=True)
    positions_of(list(found), config.end, starting=False)
    return ranges_between(
        starts, resolve(config, view, fresh, config.end, starting=False)
    )
