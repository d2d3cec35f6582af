"""A poller of two partitions whose thread is the test's own."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    CommittedOffset,
    LogBounds,
    OffsetRange,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper
from kafka_tx.running.at_least_once.poller import PollerParts, SpoutPoller
from kafka_tx.testing import ManualClock
from kafka_tx.topology.rows.schemes import RawScheme
from kafka_tx.transactions.ownership.memory import MemoryOffsetStore

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COMMIT_MS = 2_000
WITHIN_S = 60


class Cluster:
    """Answers what it is told to; may hold its answers back."""

    def __init__(self):
        self.logs: dict[TopicPartition, LogBounds | Unavailable] = {
            P0: LogBounds(0, 10),
            P1: LogBounds(0, 10),
        }
        self.problem: Exception | None = None
        self.asked: list[list[TopicPartition]] = []
        self.ends_asked = 0
        self.epoch_ended: dict[TopicPartition, int] = {}

    def epoch_ends(self, wanted):
        return {p: self.epoch_ended[p] for p in wanted}

    def bounds(self, partitions):
        self.asked.append(list(partitions))
        if self.problem:
            raise self.problem
        return {p: self.logs[p] for p in partitions}

    def ends(self, partitions):
        self.ends_asked += 1
        found = {p: self.logs[p] for p in partitions}
        return {
            p: (b.end, b.leader_epoch)
            for p, b in found.items()
            if isinstance(b, LogBounds)
        }

    def retentions(self, names):
        return {}

    def close(self):
        pass


class Coordinator:
    """Two open partitions; notes looks, and when an answer is taken in."""

    def __init__(self):
        self.partitions = (P0, P1)
        self.managers = {p: manager(p) for p in self.partitions}
        self.due = False
        self.problem: Exception | None = None
        self.polls = self.taken = 0

    def manager(self, partition):
        return self.managers.get(partition)

    @property
    def is_complete(self):
        return all(p in self.managers for p in self.partitions)

    def is_due(self):
        return self.due

    def poll(self):
        self.polls += 1
        if self.problem:
            raise self.problem
        return self._take

    def _take(self):
        self.taken += 1

    def close(self):
        pass


class Offsets(MemoryOffsetStore):
    def __init__(self):
        super().__init__()
        self.error: Exception | None = None
        self.stores = 0

    def store(self, offsets):
        self.stores += 1
        if self.error:
            raise self.error
        super().store(offsets)


def manager(partition):
    return PartitionManager(
        partition, PartitionRules(), CommittedOffset(0), stored=CommittedOffset(0)
    )


class Case:
    def __init__(self):
        self.cluster, self.coordinator = Cluster(), Coordinator()
        self.store, self.clock = Offsets(), ManualClock()
        self.registry = MetricsRegistry()
        self.events: SimpleQueue[Any] = SimpleQueue()
        keeper = OffsetKeeper("job", self.store, self.registry, self.clock)
        fakes: dict[str, Any] = {
            "coordinator": self.coordinator,
            "cluster": self.cluster,
            "reader": None,
        }
        parts = PollerParts(
            name="spout",
            keeper=keeper,
            scheme=RawScheme(),
            dead_letters=None,
            commit_interval_ms=COMMIT_MS,
            registry=self.registry,
            clock=self.clock,
            **fakes,
        )
        self.poller = SpoutPoller(parts, self.events.put)

    def take(self):
        """Do what came back from the poller's threads."""
        self.events.get(timeout=WITHIN_S)()

    def poll(self):
        self.poller.poll_if_due()
        self.take()

    def answered_poll(self):
        """A poll of the logs; also takes what comes before its answer."""
        wanted = self.poller.next_polls().logs
        self.poller.poll_if_due()
        while self.poller.ended_polls().logs < wanted:
            self.take()

    def emit(self, room=100):
        return [str(emission.range) for emission in self.poller.chunk(room)]


def acked(case, partition=P0):
    case.poll()
    case.emit()
    case.coordinator.managers[partition].ack(0)


def complete_all(case):
    """Both logs are emitted, completed and stored."""
    case.poll()
    case.emit()
    for each in case.poller.partitions.managers:
        each.ack(OffsetRange(each.topic_partition, 0, 10))
    case.poller.commit_if_due(at_once=True)
    case.take()
    case.poller.commit_if_due(at_once=True)
    assert not case.poller.partitions.awake


def since_s(registry):
    """Since when something is in flight, Unix time; 0: nothing is."""
    ((value,),) = registry.samples()[
        "kafka_tx_in_flight_since_timestamp_seconds"
    ].values()
    return value
