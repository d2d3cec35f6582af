"""Partitions that are out of reach at first, trimmed, added: what counts as lost.

A partition that the first batch knew starts at its earliest offset, whenever it is
reached first, also by another driver. One that was added later starts at 0.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from kafka_tx.model import LogBounds, OffsetRange, TopicPartition, Topics
from kafka_tx.offsets.loss import Losses
from kafka_tx.transactions.layout import batch_records, records
from tests.kafka_spouts import OpaqueKafkaBatchSpout, reads
from tests.properties.rounds import play_round
from tests.topology.conftest import Cluster

STORE = records.Place("meta", "memory:", "sim")
AT_MOST = 5
numbers = st.integers(0, AT_MOST - 1)

seen: Counter[str] = Counter()


class LatePartitions(RuleBasedStateMachine):
    """An opaque spout and its store, on a topic whose partitions come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.cluster.create("t", 2)
        self.partitions = [TopicPartition("t", number) for number in range(2)]
        cluster: Any = self.cluster
        config = reads(Topics(("t",)), max_records=4)
        self.spout = OpaqueKafkaBatchSpout(config, cluster, cluster, cluster.clock)
        self.planned: Any = None
        self.planned_among: set[TopicPartition] = set()
        self.stored = ""
        self.at_first: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.lost: dict[TopicPartition, int] = {}
        self.counted: dict[TopicPartition, int] = {}

    @rule(number=numbers, count=st.integers(1, 6))
    def write(self, number, count):
        partition = self.partitions[number % len(self.partitions)]
        self.cluster.append(partition, *[b"record"] * count)

    @rule(number=numbers, count=st.integers(1, 9))
    def trim(self, number, count):
        partition = self.partitions[number % len(self.partitions)]
        self.cluster.trim(partition, self.bounds(partition).log_start + count)

    @rule(number=numbers, is_lost=st.booleans())
    def lose_or_find_a_leader(self, number, is_lost):
        name = f"t-{number % len(self.partitions)}"
        self.cluster.lose(name, is_lost)

    @rule()
    def add(self):
        if len(self.partitions) < AT_MOST:
            self.partitions.append(TopicPartition("t", len(self.partitions)))
            self.cluster.add_partitions("t", len(self.partitions))

    @rule(number=numbers, count=st.integers(1, 6), is_new=st.booleans())
    def one_is_reached_late(self, number, count, is_new):
        """Other partitions are read, the log is trimmed, and the driver dies."""
        if is_new:
            self.add()
            number = len(self.partitions) - 1
        self.lose_or_find_a_leader(number, is_lost=True)
        self.write(number, count)
        self.write(number + 1, count)
        self.plan()
        self.commit()
        self.trim(number, count - 1)
        self.restart()
        self.lose_or_find_a_leader(number, is_lost=False)
        self.plan()
        self.commit()

    @rule()
    def plan(self):
        self.cluster.clock.advance(10_000)
        previous = read(self.stored)
        txid = previous.txid + 1 if previous else 1
        if self.planned is not None or self.spout.is_ready():
            self.planned = self.spout.initialize_transaction(txid, previous)
            self.planned_among = set(self.partitions)

    @rule()
    def commit(self):
        if self.planned is None or not all(map(self.can_read, self.planned.ranges)):
            return
        if not self.positions:
            self.at_first = self.planned_among
        before = dict(self.positions)
        for found in self.planned.ranges:
            at = found.topic_partition
            lost = found.start - before.get(at, 0)
            if at in before or at not in self.at_first:
                self.lost[at] = self.lost.get(at, 0) + lost
                seen["lost before it was reached"] += at not in before and lost
            else:
                seen["trimmed before it was reached"] += bool(before) and lost
            self.positions[at] = found.end
        for (at, _), count in self.planned.skipped.items():
            self.counted[at] = self.counted.get(at, 0) + count
        self.stored = batch_records.batch_record(self.planned)
        self.spout.committed(self.planned.txid, self.planned)
        self.planned = None
        assert self.counted == {at: n for at, n in self.lost.items() if n}

    @rule()
    def restart(self):
        self.spout.open()
        self.planned = None

    def can_read(self, wanted: OffsetRange) -> bool:
        if not len(wanted):
            return True
        bounds = self.cluster.bounds([wanted.topic_partition])[wanted.topic_partition]
        return isinstance(bounds, LogBounds) and bounds.log_start <= wanted.start

    def bounds(self, partition: TopicPartition) -> LogBounds:
        """As they are, also while nobody leads the partition."""
        found = self.cluster.bounds([partition])[partition]
        if isinstance(found, LogBounds):
            return found
        name = f"t-{partition.partition}"
        self.cluster.lose(name, lost=False)
        known = self.bounds(partition)
        self.cluster.lose(name)
        return known

    def teardown(self):
        """Heal everything; every offset is read, counted as lost, or of no concern."""
        for number in range(len(self.partitions)):
            self.cluster.lose(f"t-{number}", lost=False)
        for _ in range(60):
            self.plan()
            self.commit()
        assert self.spout.is_drained()
        ends = {at: self.bounds(at).end for at in self.partitions}
        assert not self.positions or self.positions == ends


def read(text: str) -> Any:
    """The metadata of the stored batch, as another driver reads it; None: of none."""
    if not text:
        return None
    return batch_records.read_batch(records.decode(text, "batch", STORE))


def walk(phases: tuple[Phase, ...] = tuple(Phase)) -> None:
    play_round(0, LatePartitions, steps=40, examples=60, phases=phases, is_known=True)


def test_what_a_partition_that_comes_late_has_lost_is_counted():
    walk()

    assert min(seen.values()) > 10, seen
    assert len(seen) == 2, seen


def test_the_simulation_notices_a_store_that_does_not_know_who_is_awaited(monkeypatch):
    stored = batch_records.read_batch

    def forgetful(payload):
        return replace(stored(payload), awaited=())

    monkeypatch.setattr(batch_records, "read_batch", forgetful)

    with pytest.raises(AssertionError):
        walk((Phase.generate,))


def test_the_simulation_notices_a_loss_that_nobody_counts(monkeypatch):
    monkeypatch.setattr(Losses, "added_late", lambda *_: None)

    with pytest.raises(AssertionError):
        walk((Phase.generate,))
