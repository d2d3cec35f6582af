"""Kafka spouts on a log that grows, loses its end, is trimmed, hidden and made anew.

Batches are planned as an opaque topology plans them: attempts fail and are planned
anew, possibly without a partition that was in them. Whatever happens, no record is in
two committed batches, and what is in the log in the end has been committed or counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.model import LogBounds, LogPosition, OffsetRange, Topics, Unavailable
from kafka_tx.planning.limits import BatchLimits
from kafka_tx.planning.standing import Standing, stand
from kafka_tx.topology.kafka import kafka_progress
from kafka_tx.topology.kafka.kafka_batch_spout import OpaqueKafkaBatchSpout
from kafka_tx.topology.kafka.kafka_batches import KafkaBatches
from kafka_tx.topology.kafka.kafka_progress import PlanProgress
from kafka_tx.topology.kafka.kafka_reading import partition_of
from kafka_tx.topology.rows.schemes import StringScheme
from tests.properties.simulated_log import Questions, surveyed
from tests.topology.conftest import Cluster

PARTITIONS = 3
names = st.sampled_from([f"t-{number}" for number in range(PARTITIONS)])


class Brokers(Cluster):
    """The topic may be made anew between any two questions."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = Questions()

    def survey(self, wanted, partitions):
        return surveyed(self, wanted, partitions)

    def _ask(self, request: str) -> None:
        self.questions.ask()
        super()._ask(request)


class SimulatedLog(RuleBasedStateMachine):
    """An opaque spout, and every record that was ever written by a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Brokers()
        batches = KafkaBatches(
            subscription=Topics(("t",)),
            limits=BatchLimits(max_records=5),
            scheme=StringScheme(),
        )
        cluster: Any = self.cluster
        self.spout = OpaqueKafkaBatchSpout(batches, cluster, cluster, cluster.clock)
        self.txid = 1
        self.previous: Any = None
        self.planned: Any = None
        self.written = 0
        self.done: set[bytes] = set()
        self.is_there = False
        self.has_lost = self.has_lost_its_end = False

    # --- the log ---

    @rule()
    def create(self):
        if not self.is_there:
            self.cluster.create("t", PARTITIONS)
            self.is_there = True

    @rule(name=names, count=st.integers(1, 8))
    def write(self, name, count):
        for _ in range(count if self.is_there else 0):
            self.written += 1
            value = f"record {self.written}".encode()
            self.cluster.append(partition_of(name), value)

    @rule(counts=st.lists(st.integers(0, 9), min_size=PARTITIONS, max_size=PARTITIONS))
    def make_anew(self, counts):
        """Delete the topic and create it with fewer, as many or more records."""
        if not self.is_there:
            return
        self.cluster.create("t", PARTITIONS)
        for number, count in enumerate(counts):
            self.write(f"t-{number}", count)
        self.has_lost = True

    @rule(
        counts=st.lists(st.integers(0, 9), min_size=PARTITIONS, max_size=PARTITIONS),
        questions=st.integers(1, 4),
    )
    def make_anew_between_questions(self, counts, questions):
        self.cluster.questions.before(questions, lambda: self.make_anew(counts))

    @rule(name=names, is_lost=st.booleans())
    def lose_or_find_a_leader(self, name, is_lost):
        if self.is_there:
            self.cluster.lose(name, is_lost)

    @rule(name=names, end=st.integers(0, 30))
    def lose_the_end(self, name, end):
        if self.is_there:
            self.cluster.cut(partition_of(name), end)
            self.has_lost = self.has_lost_its_end = True

    @rule(is_down=st.booleans())
    def lose_or_find_all_brokers(self, is_down):
        self.cluster.is_down = is_down

    @rule(ms=st.sampled_from([10, 100, 1_000, 5_000, 12_000]))
    def time_passes(self, ms):
        self.cluster.clock.advance(ms)

    # --- the topology ---

    @rule()
    def plan(self):
        """Plan a batch if the spout is ready, or the last plan failed."""
        try:
            if self.planned is not None or self.spout.is_ready():
                self.planned = self.spout.initialize_transaction(
                    self.txid, self.previous
                )
        except BrokerUnavailableError:
            pass

    @rule()
    def commit(self):
        if self.planned is None:
            return
        found = self.read(self.planned)
        if found is None:
            return
        assert not found & self.done, "committed twice"
        self.done |= found
        self.spout.committed(self.txid, self.planned)
        self.txid, self.previous, self.planned = self.txid + 1, self.planned, None

    @rule(name=names)
    def plan_anew_without(self, name):
        """A batch fails because a leader is lost, and commits without it.

        What the void plan held is read once the leader is back, without other traffic.
        """
        self.heal()
        self.write(name, 2)
        self.time_passes(5_000)
        self.plan()
        self.lose_or_find_a_leader(name, is_lost=True)
        self.plan()
        self.commit()
        self.lose_or_find_a_leader(name, is_lost=False)
        self.time_passes(5_000)
        is_left = self.is_left(name)
        assert not (is_left and self.spout.is_drained()), "drained with records left"
        assert self.spout.is_ready() or not is_left, "left until others move"

    @rule(name=names, cut=st.integers(1, 4))
    def read_on_after_a_lost_end(self, name, cut):
        """The end of a log is lost for good; what comes then is read, nothing else."""
        self.heal()
        self.write(name, 3)
        for _ in range(3):
            self.time_passes(5_000)
            self.plan()
            self.commit()
        end = self.cluster.bounds([partition_of(name)])[partition_of(name)].end
        self.lose_the_end(name, max(end - cut, 0))
        for _ in range(4):
            self.time_passes(12_000)
            self.plan()
            self.commit()

    def is_left(self, name):
        """Whether the partition holds what no batch does, and nothing is in its way."""
        if self.planned is not None or self.previous is None or not self.is_up():
            return False
        bounds = self.cluster.bounds([partition_of(name)])[partition_of(name)]
        known = self.previous.get(name)
        if known is None or isinstance(bounds, Unavailable):
            return False
        is_same = known.get("id") == bounds.topic_id
        return is_same and bounds.end > known["end"]

    def read(self, planned):
        """What the batch holds; None if it cannot be read as it was planned."""
        found: set[bytes] = set()
        for name, part in planned.items():
            wanted = OffsetRange(partition_of(name), part["start"], part["end"])
            if not len(wanted):
                continue
            logs = self.cluster.bounds([wanted.topic_partition]) if self.is_up() else {}
            log = logs.get(wanted.topic_partition)
            if not isinstance(log, LogBounds) or log.topic_id != part["id"]:
                return None
            if log.end < wanted.end:
                return None
            found |= {r.value or b"" for r in self.cluster.records(wanted)}
        return found

    def is_up(self):
        return not self.cluster.is_down

    @rule()
    def restart(self):
        self.spout.open()
        self.planned = None

    def heal(self):
        """There is a topic, brokers answer, partitions have leaders, nobody acts."""
        self.cluster.questions.settle()
        self.cluster.is_down = False
        self.create()
        for number in range(PARTITIONS):
            self.cluster.lose(f"t-{number}", lost=False)

    def teardown(self):
        """Heal everything; then all that is in the log must get committed."""
        self.heal()
        for _ in range(200):
            self.cluster.clock.advance(5_000)
            self.plan()
            self.commit()
        assert self.planned is None
        assert not self.spout.is_ready()
        assert self.spout.is_drained()
        assert {name: part["end"] for name, part in (self.previous or {}).items()} == {
            str(p): bounds.end
            for p, bounds in self.cluster.bounds(
                [partition_of(f"t-{n}") for n in range(PARTITIONS)]
            ).items()
            if self.previous is not None
        }
        if not self.has_lost_its_end:
            left = self.there() - self.done
            assert not left, f"records were left over: {left}"
        if not self.has_lost:
            assert len(self.done) == self.written, "records were left over"

    def there(self):
        """All records of the topic as it is now."""
        found: set[bytes] = set()
        for number in range(PARTITIONS):
            partition = partition_of(f"t-{number}")
            bounds = self.cluster.bounds([partition])[partition]
            assert isinstance(bounds, LogBounds)
            everything = OffsetRange(partition, bounds.log_start, bounds.end)
            found |= {r.value or b"" for r in self.cluster.records(everything)}
        return found


def walk(phases: Sequence[Phase] = tuple(Phase)) -> None:
    run_state_machine_as_test(
        SimulatedLog,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            phases=phases,
        ),
    )


def test_no_record_is_committed_twice_and_none_is_left_over():
    walk()


def test_the_simulation_notices_a_spout_that_keeps_void_plans(monkeypatch):
    planned = PlanProgress.planned

    def keep_void_plans(self, lasts, ends):
        former = dict(self.to)
        planned(self, lasts, ends)
        self.to = former | ends

    monkeypatch.setattr(PlanProgress, "planned", keep_void_plans)

    with pytest.raises(AssertionError):
        walk([Phase.generate])


def test_the_simulation_notices_a_spout_that_reads_a_shortened_log_again(monkeypatch):
    start_over = property(lambda self: self.bounds.log_start if self.bounds else 0)
    monkeypatch.setattr(Standing, "next_offset", start_over)
    monkeypatch.setattr(Standing, "cut", 0)

    with pytest.raises(AssertionError, match="committed twice"):
        walk([Phase.generate])


def test_the_simulation_notices_a_spout_that_waits_by_length_alone(monkeypatch):
    def by_length(position, bounds):
        return stand(LogPosition(position.offset, None), bounds)

    monkeypatch.setattr(kafka_progress, "stand", by_length)

    with pytest.raises(AssertionError):
        walk([Phase.generate])
