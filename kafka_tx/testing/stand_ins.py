"""Stand-ins for the world outside: a clock, a store that crashes, a Kafka cluster."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from kafka_tx.errors import OffsetOutOfRangeError, UnknownTopicError
from kafka_tx.model import (
    Assigned,
    AtOffset,
    AtTime,
    Broker,
    Earliest,
    Latest,
    LogBounds,
    OffsetRange,
    Position,
    Retention,
    Subscription,
    TopicDescription,
    TopicPartition,
    TopicPattern,
    Topics,
    Unavailable,
)
from kafka_tx.planned_topic import of_planned_topic, replaced
from kafka_tx.protocols import Expected, Paths, Store, Survey, Texts
from kafka_tx.record_schema import arrow_schema
from kafka_tx.transactions.ownership.store_base import StoreAround

_T = TypeVar("_T")

MEMORY_BROKER = Broker("memory", 9092, 0)
_NO_LEADER = Unavailable("no leader")


class ManualClock:
    """A clock that a test moves. Sleeping moves it, too, and takes no time."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        """Wall clock, Unix epoch."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Never goes back."""
        return self._monotonic_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Let so much time pass."""
        self.advance(duration_ms)

    def advance(self, duration_ms: int) -> None:
        """Let so much time pass, 0 or more."""
        if duration_ms < 0:
            raise ValueError(f"time passes forward, not by {duration_ms} ms")
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, as people and NTP do; the monotonic one goes on."""
        self._now_ms = now_ms


class Crash(BaseException):
    """The simulated end of a process; nothing but a test should catch it."""


class CrashingStore(StoreAround):
    """A store whose owner dies at one write, before or after it landed.

    After a crash every use of it raises ``Crash``, as a dead process does nothing
    more; the store inside is unharmed, and a new owner opens that. Try every write, on
    both sides of it, and a protocol's crash points are complete.

    Args:
        inside: The store that keeps the state.
        at_write: Which write, from 1; 0: none.
        landed: Whether that write arrives before the end.
        error: Raised instead of ``Crash``, for this one write: an owner that gets an
            error, lives on, and cannot know whether the write arrived.
    """

    def __init__(
        self,
        inside: Store,
        *,
        at_write: int,
        landed: bool,
        error: Exception | None = None,
    ) -> None:
        super().__init__(inside)
        self.writes = 0
        self.is_dead = False
        self._at_write = at_write
        self._landed = landed
        self._error = error

    def _call(self, call: Callable[[Store], _T]) -> _T:
        if self.is_dead:
            raise Crash(f"dead since write {self.writes}")
        return call(self.inside)

    def write(
        self, epoch: int, put: Texts, delete: Paths = (), *, expect: Expected = None
    ) -> None:
        """Write, unless it is the one at which the owner dies.

        Raises:
            Crash: It is, or it has been.
        """
        self.writes += not self.is_dead
        is_last = self.writes == self._at_write and not self.is_dead
        if self._landed or not is_last:
            super().write(epoch, put, delete, expect=expect)
        if is_last:
            self.is_dead = self._error is None
            raise self._error or Crash(f"write {self.writes}, landed={self._landed}")

    def close(self) -> None:
        """Close the store inside, unless the owner is dead."""
        if not self.is_dead:
            self.inside.close()


class MemoryRecord(NamedTuple):
    """One record of a ``MemoryLog``."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(slots=True)
class _Partition:
    """``[log_start, end)``, of which only ``records`` (ascending) can be read."""

    leader: Broker | None
    log_start: int = 0
    end: int = 0
    records: list[MemoryRecord] = field(default_factory=list)
    epochs: list[int] = field(default_factory=lambda: [0])
    """Where each leader epoch began."""

    def end_of(self, epoch: int) -> int:
        return self.epochs[epoch + 1] if epoch + 1 < len(self.epochs) else self.end

    def keep(self, low: int, high: int) -> None:
        self.records = self.between(low, high)

    def between(self, low: int, high: int) -> list[MemoryRecord]:
        offset = attrgetter("offset")
        start = bisect_left(self.records, low, key=offset)
        return self.records[start : bisect_left(self.records, high, key=offset)]


class MemoryLog:
    """A Kafka cluster in memory.

    Args:
        topics: Names and numbers of partitions; all empty, all with a leader.
    """

    def __init__(self, topics: Mapping[str, int]) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._ids: dict[str, str] = {}
        self._made = 0
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    # --- what happens to it ---------------------------------------------------------

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic, or create it again: with another id and empty."""
        self.delete(topic)
        self._made += 1
        self._ids[topic] = f"id-{self._made}"
        self.add_partitions(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic, if it exists."""
        self._ids.pop(topic, None)
        for partition in [p for p in self._partitions if p.topic == topic]:
            del self._partitions[partition]

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have ``total`` partitions; those it has are left as they are."""
        for number in range(total):
            partition = TopicPartition(topic, number)
            self._partitions.setdefault(partition, _Partition(MEMORY_BROKER))

    def append(
        self,
        partition: TopicPartition,
        *values: bytes | None,
        key: bytes | None = None,
        timestamp_ms: int = 0,
    ) -> int:
        """Append records; returns the offset after the last one."""
        log = self._log(partition)
        for value in values:
            log.records.append(MemoryRecord(log.end, key, value, timestamp_ms))
            log.end += 1
        return log.end

    def append_hole(self, partition: TopicPartition, offsets: int = 1) -> int:
        """Use up offsets without a record, as markers and aborted records do."""
        self._log(partition).end += offsets
        return self._log(partition).end

    def compact(self, partition: TopicPartition, offsets: Iterable[int]) -> None:
        """Remove single records; their offsets become holes."""
        log, gone = self._log(partition), set(offsets)
        log.records = [record for record in log.records if record.offset not in gone]

    def trim(self, partition: TopicPartition, log_start: int) -> None:
        """Remove what is below ``log_start``, as retention does."""
        log = self._log(partition)
        log.log_start = min(max(log.log_start, log_start), log.end)
        log.keep(log.log_start, log.end)

    def cut(self, partition: TopicPartition, end: int) -> None:
        """Remove ``end`` and all above; the leader stays. See ``elect``."""
        log = self._log(partition)
        log.end = min(log.end, max(end, log.log_start))
        log.keep(log.log_start, log.end)

    def elect(self, partition: TopicPartition, end: int | None = None) -> None:
        """Give a partition a new leader, with its leader epoch.

        With ``end``: an unclean election, of a leader whose log ends there. What is
        appended next takes the offsets of other records.
        """
        log = self._log(partition)
        if end is not None:
            self.cut(partition, end)
        log.epochs = [min(began, log.end) for began in log.epochs] + [log.end]

    def set_leader(self, partition: TopicPartition, leader: Broker | None) -> None:
        """Move a partition to another leader, or leave it without one."""
        self._log(partition).leader = leader

    # --- ClusterView ----------------------------------------------------------------

    def topics(self, wanted: Subscription) -> dict[str, TopicDescription]:
        """The topics that exist and are wanted."""
        return {
            topic: TopicDescription(
                topic,
                {
                    partition.partition: log.leader
                    for partition, log in self._partitions.items()
                    if partition.topic == topic
                },
                topic_id,
            )
            for topic, topic_id in self._ids.items()
            if _is_wanted(topic, wanted)
        }

    def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogBounds | Unavailable]:
        """Log start and end; unavailable without a leader, or when it is absent."""
        found: dict[TopicPartition, LogBounds | Unavailable] = {}
        for partition in partitions:
            log = self._partitions.get(partition)
            if log is None:
                found[partition] = Unavailable("unknown topic or partition")
            elif log.leader is None:
                found[partition] = _NO_LEADER
            else:
                id_, epoch = self._ids.get(partition.topic), len(log.epochs) - 1
                found[partition] = LogBounds(log.log_start, log.end, id_, epoch)
        return found

    def survey(
        self, wanted: Subscription, partitions: Collection[TopicPartition]
    ) -> Survey:
        """Topics, and bounds of these partitions of them."""
        return self.topics(wanted), self.bounds(partitions)

    def topic_ids(self, names: Iterable[str]) -> dict[str, str | None]:
        """Ids of these topics; None: it does not exist."""
        return {name: self._ids.get(name) for name in names}

    def offsets(
        self, wanted: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Positions as next offsets; None where no record is that late."""
        found: dict[TopicPartition, int | Unavailable | None] = {}
        for partition, bounds in self.bounds(wanted).items():
            if isinstance(bounds, Unavailable):
                found[partition] = bounds
                continue
            match wanted[partition]:
                case Earliest():
                    found[partition] = bounds.log_start
                case Latest():
                    found[partition] = bounds.end
                case AtOffset(offset):
                    found[partition] = offset
                case AtTime(timestamp_ms):
                    found[partition] = self._at(partition, timestamp_ms)
        return found

    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int | None]]:
        """Where logs end, and under which leader."""
        return {
            partition: (bounds.end, bounds.leader_epoch)
            for partition, bounds in self.bounds(partitions).items()
            if isinstance(bounds, LogBounds)
        }

    def retentions(self, names: Iterable[str]) -> dict[str, Retention]:  # noqa: ARG002 - none has limits
        """The stand-in shows no settings."""
        return {}

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Where leader epochs ended; without a leader no answer."""
        return {
            partition: self._partitions[partition].end_of(epoch)
            for partition, epoch in wanted.items()
            if isinstance(self.bounds([partition])[partition], LogBounds)
        }

    def close(self) -> None:
        """Nothing to release."""

    # --- RangeReader ----------------------------------------------------------------

    def records(self, wanted: OffsetRange) -> list[MemoryRecord]:
        """The records of a range, in offset order.

        Raises:
            OffsetOutOfRangeError: It begins below the log start or ends beyond the end,
                or has records of a later leader epoch than it was planned under.
            UnknownTopicError: There is no such partition.
        """
        log = self._log(wanted.topic_partition)
        if wanted.start < log.log_start or wanted.end > log.end:
            raise OffsetOutOfRangeError(
                f"{wanted} is not within the log [{log.log_start}, {log.end})",
                topic=wanted.topic_partition.topic,
                partition=wanted.topic_partition.partition,
                wanted=wanted.start,
                log_start=log.log_start,
                log_end=log.end,
            )
        records = log.between(wanted.start, wanted.end)
        epoch = wanted.leader_epoch
        common_end = log.end if epoch is None else log.end_of(epoch)
        for record in records[-1:]:
            if record.offset >= common_end:
                others = log.between(common_end, wanted.end)
                raise replaced(wanted, others[0].offset)
        return records

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The records of a range as one Arrow batch; none when it holds no record.

        Raises: as ``records``; and OtherTopicError: the range was planned of another
            topic than is there.
        """
        return of_planned_topic(
            self._batches(wanted),
            wanted,
            lambda _: self._ids.get(wanted.topic_partition.topic, ""),
            0,
        )

    def _batches(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        records, partition = self.records(wanted), wanted.topic_partition
        count = len(records)
        if not count:
            return
        columns: list[list[Any]] = [
            [record.key for record in records],
            [record.value for record in records],
            [partition.topic] * count,
            [partition.partition] * count,
            [record.offset for record in records],
            [record.timestamp_ms * 1_000 for record in records],
            [0] * count,
        ]
        schema = arrow_schema(include_headers=False)
        typed = zip(columns, schema, strict=True)
        arrays = [pa.array(column, kind.type) for column, kind in typed]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        for record in self._log(partition).records:
            if record.timestamp_ms >= timestamp_ms:
                return record.offset
        return None

    def _log(self, partition: TopicPartition) -> _Partition:
        try:
            return self._partitions[partition]
        except KeyError:
            raise UnknownTopicError(f"the memory log has no {partition}") from None


def _is_wanted(topic: str, wanted: Subscription) -> bool:
    match wanted:
        case Topics(names):
            return topic in names
        case TopicPattern():
            return bool(wanted.matching([topic]))
        case Assigned(partitions):
            return any(partition.topic == topic for partition in partitions)
