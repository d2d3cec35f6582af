"""Kafka spouts on a log that grows, loses its end, is trimmed, hidden and made anew.

Batches are planned as an opaque topology plans them: attempts fail and are planned
anew, possibly without a partition that was in them. Whatever happens, no record is in
two committed batches, and what is in the log in the end has been committed or counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kafka_tx.errors import BrokerUnavailableError, DataLossError, FetchError
from kafka_tx.model import (
    Earliest,
    Latest,
    LogBounds,
    LogPosition,
    OffsetRange,
    Topics,
    TransactionAttempt,
    Unavailable,
)
from kafka_tx.offsets import position_checks
from kafka_tx.offsets.position_checks import PositionCheck, check_position
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.topology.kafka import progress
from kafka_tx.topology.kafka.progress import PlanProgress
from kafka_tx.transactions.coordinator.uncommitted import MetadataChain
from tests.kafka_spouts import OpaqueKafkaBatchSpout, reads
from tests.properties.rounds import play_round
from tests.properties.simulated_log import Questions, surveyed
from tests.topology.conftest import Cluster, partition_of
from tests.transactions.drive import opened

PARTITIONS = 3
NAMES = [f"t-{number}" for number in range(PARTITIONS)]
ALL = [*NAMES, "guest-0"]
names = st.sampled_from(NAMES)


class Brokers(Cluster):
    """The topic may be made anew between any two questions; one may be hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = Questions()
        self.hidden = ""

    def topics(self, wanted):
        found = super().topics(wanted)
        return {name: topic for name, topic in found.items() if name != self.hidden}

    def topic_ids(self, names):
        return super().topic_ids(name for name in names if name != self.hidden)

    def bounds(self, partitions):
        return {
            p: Unavailable("hidden") if p.topic == self.hidden else bounds
            for p, bounds in super().bounds(partitions).items()
        }

    def survey(self, wanted, partitions):
        return surveyed(self, wanted, partitions)

    def _ask(self, request: str) -> None:
        self.questions.ask()
        super()._ask(request)


class SimulatedLog(RuleBasedStateMachine):
    """An opaque spout, and every record that was ever written by a name of its own."""

    start: Any = Earliest()

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Brokers()
        config = reads(Topics(("t", "guest")), self.start, max_records=5)
        cluster: Any = self.cluster
        self.spout = OpaqueKafkaBatchSpout(config, cluster, cluster, cluster.clock)
        self.txid = 1
        self.previous: Any = None
        self.planned: Any = None
        self.written = 0
        self.done: set[bytes] = set()
        self.before: set[bytes] = set()
        """Records below the start."""
        self.begins: dict[Any, int] = {}
        """Where the first plan of txid 1 started, by partition and topic id."""
        self.is_there = self.guest_is_there = False
        self.has_lost = self.has_begun = False

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

    @rule(count=st.integers(0, 7))
    def another_topic_comes_or_goes(self, count):
        if self.guest_is_there:
            self.cluster.delete("guest")
            self.has_lost = True
        else:
            self.cluster.create("guest", 1)
        self.guest_is_there = not self.guest_is_there
        for _ in range(count if self.guest_is_there else 0):
            self.written += 1
            value = f"record {self.written}".encode()
            self.cluster.append(partition_of("guest-0"), value)

    @rule(is_hidden=st.booleans())
    def hide_or_show_it(self, is_hidden):
        self.cluster.hidden = "guest" if is_hidden else ""

    @rule(count=st.integers(1, 5), is_hidden=st.booleans())
    def it_stays_away_for_long(self, count, is_hidden):
        """Deleted, its partitions leave the batches; hidden, they do not."""
        self.heal()
        self.write("guest-0", count)
        self.go_on(count)
        if is_hidden:
            self.hide_or_show_it(is_hidden=True)
        else:
            self.another_topic_comes_or_goes(0)
        for _ in range(4):
            self.go_on(count)
        self.heal()
        self.go_on(count)

    def go_on(self, count):
        self.write("t-0", count)
        self.time_passes(30_000)
        self.plan()
        self.commit()

    @rule(name=names, is_lost=st.booleans())
    def lose_or_find_a_leader(self, name, is_lost):
        if self.is_there:
            self.cluster.lose(name, is_lost)

    @rule(name=names, end=st.integers(0, 30), others=st.integers(0, 9))
    def lose_the_end(self, name, end, others):
        """An unclean election; other records may take the offsets at once."""
        if self.is_there:
            self.cluster.elect(partition_of(name), end)
            self.has_lost = True
            self.write(name, others)

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
        except (BrokerUnavailableError, FetchError):
            return
        if not self.has_begun and self.planned is not None:
            self.begin()

    def begin(self):
        """The first plan is stored, as the coordinator does it."""
        chain: Any = MetadataChain("opaque", *opened({}))
        chain.apply(chain.keep(TransactionAttempt(1, 1), self.planned))
        self.previous, self.has_begun = chain.start, True
        planned = self.planned.ranges
        self.begins = {(r.topic_partition, r.topic_id): r.start for r in planned}
        for at in self.planned.ranges:
            log = self.cluster.bounds([at.topic_partition])[at.topic_partition]
            if isinstance(log, LogBounds) and log.topic_id == at.topic_id:
                below = replace(at, start=log.log_start, end=at.start)
                found = self.cluster.records(below) if len(below) else ()
                self.before |= {r.value or b"" for r in found}

    @rule(ms=st.sampled_from([0, 5_000]))
    def poll_for_metrics(self, ms):
        """Whatever the spout does: before its first plan, and while a batch is read."""
        self.time_passes(ms)
        try:
            self.spout.bounds()
        except BrokerUnavailableError:
            assert not self.is_up()

    @rule()
    def commit(self):
        if self.planned is None:
            return
        found = self.read(self.planned)
        if found is None:
            return
        assert not found & self.done, "committed twice"
        for wanted in self.planned.ranges if self.txid == 1 else ():
            begins = self.begins.get((wanted.topic_partition, wanted.topic_id), 0)
            assert wanted.start <= begins, "records after the start are left over"
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

    @rule(name=names, restarts=st.booleans())
    def fail_once(self, name, restarts):
        """A batch, perhaps the first one, is planned again after records came."""
        self.heal()
        self.time_passes(5_000)
        self.plan()
        if restarts:
            self.restart()
        self.write(name, 2)
        self.time_passes(5_000)
        self.plan()
        self.commit()

    @rule(name=names, cut=st.integers(1, 4), others=st.integers(0, 9))
    def read_on_after_a_lost_end(self, name, cut, others):
        """The end of a log is lost for good; what comes then is read, nothing else."""
        self.heal()
        self.write(name, 3)
        for _ in range(3):
            self.time_passes(5_000)
            self.plan()
            self.commit()
        end = self.cluster.bounds([partition_of(name)])[partition_of(name)].end
        self.lose_the_end(name, max(end - cut, 0), others)
        for _ in range(4):
            self.time_passes(12_000)
            self.plan()
            self.commit()

    def is_left(self, name):
        """Whether the partition holds what no batch does, and nothing is in its way."""
        if self.planned is not None or self.previous is None or not self.is_up():
            return False
        bounds = self.cluster.bounds([partition_of(name)])[partition_of(name)]
        known = self.previous.positions().get(partition_of(name))
        if known is None or isinstance(bounds, Unavailable):
            return False
        return known.topic_id == bounds.topic_id and bounds.end > known.offset

    def read(self, planned):
        """What the batch holds; None if it cannot be read as it was planned."""
        found: set[bytes] = set()
        for wanted in planned.ranges:
            if not len(wanted):
                continue
            logs = self.cluster.bounds([wanted.topic_partition]) if self.is_up() else {}
            log = logs.get(wanted.topic_partition)
            if not isinstance(log, LogBounds) or log.topic_id != wanted.topic_id:
                return None
            try:
                found |= {r.value or b"" for r in self.cluster.records(wanted)}
            except DataLossError:
                return None
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
        self.cluster.hidden = ""
        self.create()
        if not self.guest_is_there:
            self.another_topic_comes_or_goes(0)
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
        assert (self.previous.ends() if self.previous else {}) == {
            p: bounds.end
            for p, bounds in self.cluster.bounds(
                [partition_of(name) for name in ALL]
            ).items()
            if self.previous is not None
        }
        left = self.there() - self.done - self.before
        assert not left, f"records were left over: {left}"
        if not self.has_lost:
            both = len(self.done | self.before)
            assert both == self.written, "records were left over"

    def there(self):
        """All records of the topics as they are now."""
        found: set[bytes] = set()
        for partition in map(partition_of, ALL):
            bounds = self.cluster.bounds([partition])[partition]
            assert isinstance(bounds, LogBounds)
            everything = OffsetRange(partition, bounds.log_start, bounds.end)
            found |= {r.value or b"" for r in self.cluster.records(everything)}
        return found


class StartedLate(SimulatedLog):
    """A spout that starts at the ends of the logs, of which one may have no leader."""

    start = Latest()

    @initialize(name=names, fails=st.booleans(), restarts=st.booleans())
    def begin_perhaps_with_a_failure(self, name, fails, restarts):
        if fails:
            self.create()
            self.write(name, 3)
            self.fail_once(name, restarts)


def walk(phases: tuple[Phase, ...] = tuple(Phase), kind: Any = SimulatedLog) -> None:
    play_round(0, kind, steps=40, examples=60, phases=phases, is_known=True)


@pytest.mark.parametrize("kind", [SimulatedLog, StartedLate])
def test_no_record_is_committed_twice_and_none_is_left_over(kind):
    walk(kind=kind)


def test_the_simulation_notices_a_spout_that_forgets_its_start(monkeypatch):
    monkeypatch.setattr(MetadataChain, "start", None)

    with pytest.raises(AssertionError, match="left over"):
        walk((Phase.generate,), StartedLate)


def test_the_simulation_notices_a_spout_that_keeps_void_plans(monkeypatch):
    planned = PlanProgress.planned

    def keep_void_plans(self, lasts, ends, known):
        former = dict(self.to)
        planned(self, lasts, ends, known)
        self.to = former | ends

    monkeypatch.setattr(PlanProgress, "planned", keep_void_plans)

    with pytest.raises(AssertionError):
        walk((Phase.generate,))


def test_the_simulation_notices_a_spout_that_reads_a_shortened_log_again(monkeypatch):
    start_over = property(lambda self: self.bounds.log_start if self.bounds else 0)
    monkeypatch.setattr(PositionCheck, "next_offset", start_over)
    monkeypatch.setattr(PositionCheck, "cut", 0)

    with pytest.raises(AssertionError, match="committed twice"):
        walk((Phase.generate,))


def test_the_simulation_notices_a_spout_that_waits_by_length_alone(monkeypatch):
    def by_length(position, bounds):
        return check_position(LogPosition(position.offset, None), bounds)

    monkeypatch.setattr(progress, "check_position", by_length)

    with pytest.raises(AssertionError):
        walk((Phase.generate,))


def test_the_simulation_notices_a_spout_that_takes_hidden_topics_for_deleted(
    monkeypatch,
):
    monkeypatch.setattr(
        DeletedTopics, "for_good", lambda self, missing, found: set(missing)
    )

    with pytest.raises(AssertionError, match="committed twice"):
        walk((Phase.generate,))


def test_the_simulation_notices_a_spout_that_believes_a_new_leader(monkeypatch):
    monkeypatch.setattr(
        position_checks, "is_of_other_leader", lambda position, bounds: False
    )

    with pytest.raises(AssertionError, match="left over"):
        walk((Phase.generate,))
