"""A cluster that is a dict."""

from __future__ import annotations

from kafka_tx.model import (
    AtOffset,
    AtTime,
    Broker,
    Latest,
    LogBounds,
    Retention,
    TopicDescription,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.discovery import is_subscribed
from kafka_tx.testing import ManualClock

LEADER = Broker("b", 9092, 1)


class FakeCluster:
    """A ClusterView over what a test sets: ``logs[partition] = (start, end)``.

    ``down`` partitions have no leader; ``ids`` are topic ids; ``later`` are logs that
    ``clock`` brings. ``epochs`` are leader epochs by partition, and ``ended`` where
    older ones ended; ``epochs_asked`` is what was asked of those. ``kept`` is what
    limits topics.
    """

    def __init__(self):
        self.logs: dict[TopicPartition, tuple[int, int]] = {}
        self.down: set[TopicPartition] = set()
        self.ids: dict[str, str] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.ended: dict[tuple[TopicPartition, int], int] = {}
        self.epochs_asked: list[dict[TopicPartition, int]] = []
        self.polls = 0
        self.answers: list[dict[TopicPartition, tuple[int, int]]] = []
        self.later: list[tuple[int, dict[TopicPartition, tuple[int, int]]]] = []
        self.clock: ManualClock | None = None
        self.is_closed = False
        self.kept: dict[str, Retention] = {}

    def set(self, partition: int, start: int, end: int, topic: str = "t"):
        self.logs[TopicPartition(topic, partition)] = (start, end)

    def topics(self, wanted):
        self.polls += 1
        now_ms = self.clock.monotonic_ms() if self.clock else 0
        while self.later and now_ms >= self.later[0][0]:
            self.logs.update(self.later.pop(0)[1])
        logs = self.answers.pop(0) if self.answers else self.logs
        names = {p.topic for p in logs if is_subscribed(wanted, p)}
        return {
            name: TopicDescription(
                name,
                {
                    p.partition: None if p in self.down else LEADER
                    for p in logs
                    if p.topic == name
                },
                self.ids.get(name),
            )
            for name in names
        }

    def bounds(self, partitions):
        return {
            p: Unavailable("no leader")
            if p in self.down or p not in self.logs
            else LogBounds(*self.logs[p], self.ids.get(p.topic), self.epochs.get(p))
            for p in partitions
        }

    def ends(self, partitions):
        return {
            p: (bounds.end, bounds.leader_epoch)
            for p, bounds in self.bounds(partitions).items()
            if isinstance(bounds, LogBounds)
        }

    def retentions(self, names):
        return {name: self.kept[name] for name in names if name in self.kept}

    def epoch_ends(self, wanted):
        self.epochs_asked.append(dict(wanted))
        ends = {p: self.ended.get((p, epoch)) for p, epoch in wanted.items()}
        return {p: end for p, end in ends.items() if end is not None}

    def survey(self, wanted, partitions):
        return self.topics(wanted), self.bounds(partitions)

    def topic_ids(self, names):
        there = {p.topic for p in self.logs}
        return {
            name: self.ids[name] if name in there else None
            for name in names
            if name not in there or name in self.ids
        }

    def offsets(self, wanted):
        return {p: self._at(p, position) for p, position in wanted.items()}

    def _at(self, partition, position):
        if partition in self.down:
            return Unavailable("no leader")
        start, end = self.logs[partition]
        if isinstance(position, AtOffset):
            return position.offset
        if position in (Latest(), AtTime(-1)):
            return end
        if isinstance(position, AtTime):  # record n was written at n milliseconds
            found = max(start, position.timestamp_ms)
            return found if found < end else None
        return start

    def close(self):
        self.is_closed = True
