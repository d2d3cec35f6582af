"""At-least-once topologies from start to end, in this process, on a log in memory."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from kafka_tx.assembly import SystemClock
from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ComponentError,
    DeliveryError,
    FailedException,
    FetchError,
    OffsetOutOfRangeError,
    StateCorruptedError,
    StateUnavailableError,
)
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import CommittedOffset, OffsetRange, TopicPartition, Topics
from kafka_tx.offsets.coordinators import RefreshingCoordinator
from kafka_tx.offsets.discovery import Discovery
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.offsets.retry import BackOff
from kafka_tx.offsets.rules import PartitionRules
from kafka_tx.offsets.start import StartRules
from kafka_tx.spark.engine_failures import JobLostError
from kafka_tx.spark.offset_keeper import OffsetKeeper
from kafka_tx.spark.record_handle import RecordTopologyHandle
from kafka_tx.spark.spout_jobs import RunnerLimits, SpoutRunnerParts
from kafka_tx.spark.spout_managers import SpoutManagers
from kafka_tx.spark.spout_parts import DeskParts
from kafka_tx.spark.spout_reads import ChunkRecords
from kafka_tx.spark.spout_runner import SpoutRunner
from kafka_tx.testing import MEMORY_BROKER, MemoryLog
from kafka_tx.topology.bolts import BasicBolt, RichBolt
from kafka_tx.topology.builder import TopologyBuilder
from kafka_tx.topology.local import LocalEngine
from kafka_tx.topology.schemes import MetadataScheme, RecordScheme
from kafka_tx.transactions.memory import MemoryOffsetStore

WITHIN_S = 10
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Engine:
    """Runs jobs in the chunks' threads; loses those that hold a deadly record."""

    def __init__(self):
        self._local = LocalEngine()
        self._mine = threading.local()
        self.cancelled = set()
        self.deadly = set()
        self.sizes = []

    def enter(self, attempt):
        self._mine.attempt = attempt

    def cancel(self, attempt):
        self.cancelled.add(attempt)

    def run_tasks(self, job):
        ranges = [
            numbered.range
            for source in job.records.values()
            for read in source.reads
            for numbered in read.ranges
        ]
        self.sizes.append(sum(map(len, ranges)))
        held = {(r.topic_partition, o) for r in ranges for o in range(r.start, r.end)}
        if held & self.deadly:
            raise JobLostError("the worker died")
        return self._local.run_tasks(job)

    def run_frames(self, job):
        raise AssertionError(job)


class Reader:
    """A MemoryLog that cannot be read at times; counts fetches."""

    def __init__(self, log):
        self.log, self.failures = log, 0
        self.fetches: Counter[OffsetRange] = Counter()

    def read(self, wanted):
        self.fetches[wanted] += 1
        if self.failures:
            self.failures -= 1
            raise FetchError("the broker is silent")
        yield from self.log.read(wanted)


class Letters:
    """Keeps letters; fails as told."""

    def __init__(self):
        self.written, self.errors = [], []

    def write(self, letter, answer):
        if self.errors:
            answer(0, self.errors.pop(0))
        else:
            self.written.append(letter)
            answer(len(letter.records), None)

    def close(self, timeout_s):
        return True


class Offsets(MemoryOffsetStore):
    """Fails as told."""

    def __init__(self):
        super().__init__()
        self.errors = []

    def store(self, offsets):
        if self.errors:
            raise self.errors.pop(0)
        super().store(offsets)

    def at(self, *partitions):
        return [o.offset for o in self.load(partitions).values()]


class Tried:
    """What bolts did: they run in this process."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.done: Counter[tuple[TopicPartition, int]] = Counter()
        self.failed: Counter[tuple[TopicPartition, int]] = Counter()
        self.bad: dict[tuple[TopicPartition, int], int] = {}


tried = Tried()


class Work(BasicBolt):
    def execute(self, row, collector):
        at = (TopicPartition(row.topic, row.partition), row.offset)
        if tried.bad.get(at, 0) > tried.failed[at]:
            tried.failed[at] += 1
            raise FailedException("bad luck")
        tried.done[at] += 1


class Forgetful(RichBolt):
    """Never acks the records it is told to forget."""

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, row):
        at = (TopicPartition(row.topic, row.partition), row.offset)
        if tried.bad.get(at, 0) > tried.failed[at]:
            tried.failed[at] += 1
            return
        tried.done[at] += 1
        self.collector.ack(row)


class Broken(BasicBolt):
    def prepare(self, context):
        raise ValueError("no such setting")

    def execute(self, row, collector):
        raise AssertionError


@pytest.fixture(autouse=True)
def fresh_tries():
    tried.clear()


class Case:
    """A topology over a log in memory, and everything it is made of."""

    def __init__(self):
        self.log = MemoryLog({"t": 2})
        self.reader, self.store = Reader(self.log), Offsets()
        self.engine, self.letters = Engine(), None
        self.rules, self.bolt = {}, Work
        self.scheme = MetadataScheme()
        self.limits = RunnerLimits(metrics_ms=10)
        self.registry = MetricsRegistry()
        self.handles = []

    def fill(self, *counts):
        for partition, count in zip((P0, P1), counts, strict=False):
            self.log.append(partition, *(b"v" for _ in range(count)))
        return {
            (partition, offset)
            for partition, count in zip((P0, P1), counts, strict=False)
            for offset in range(count)
        }

    def start(self):
        builder = TopologyBuilder("job")
        builder.set_spout("spout", Spout(self), 2)
        builder.set_bolt("work", self.bolt, 2).shuffle_grouping("spout")
        plan = builder.build().plan
        clock = SystemClock()
        keeper = OffsetKeeper("job", self.store, self.registry, clock)
        managers = SpoutManagers(
            PartitionRules(**self.rules),
            StartRules(out_of_range=PartitionRules(**self.rules).out_of_range),
            self.log,
            keeper,
            self.registry,
        )
        coordinator = RefreshingCoordinator(
            Discovery(lambda wanted: self.log.topics(wanted), Topics(("t",))),
            0,
            1,
            refresh_interval_ms=50,
            clock=clock,
            managers=managers,
        )
        coordinator.my_managed_partitions()
        desk = DeskParts(
            "spout",
            coordinator,
            self.log,
            keeper,
            self.reader,
            self.scheme,
            self.letters,
            50,
            self.registry,
            clock,
        )
        runner = SpoutRunner(
            SpoutRunnerParts(
                "job",
                plan,
                self.engine,
                {"spout": desk},
                self.limits,
                self.registry,
                clock,
            )
        )
        handle = RecordTopologyHandle("job", runner, self.registry, None)
        self.handles.append(handle)
        runner.start()
        return handle

    def metric(self, name, **labels):
        found = self.registry.samples()[f"kafka_tx_{name}"]
        wanted = set(labels.values())
        return sum(v[0] for key, v in found.items() if wanted <= set(key))


class Spout:
    def __init__(self, case):
        self._case = case

    @property
    def fields(self):
        return self._case.scheme.fields

    def empty_chunk(self):
        return ChunkRecords((), self._case.log, self._case.scheme)


@pytest.fixture
def case():
    made = Case()
    yield made
    for handle in made.handles:
        if handle.is_active:
            handle.stop(finish=False, timeout_s=WITHIN_S)


def until(claim):
    deadline = time.monotonic() + WITHIN_S
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_all_records_are_completed_and_their_ends_are_stored(case):
    everything = case.fill(50, 30)

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == everything
    assert case.store.at(P0, P1) == [50, 30]
    status = handle.status
    assert (status.emitted, status.completed, status.pending) == (80, 80, 0)
    assert status.lag == 0
    assert case.metric("completed_records_total") == 80
    assert case.metric("fetch_duration_seconds") > 0


def test_records_that_come_later_are_found(case):
    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    case.fill(5)
    case.log.add_partitions("t", 3)
    case.log.append(TopicPartition("t", 2), b"v")
    until(lambda: tried.done.total() == 6)
    assert handle.process_all_available(WITHIN_S)

    assert case.store.at(P0) == [5]
    assert case.store.at(TopicPartition("t", 2)) == [1]


def test_a_failed_record_is_tried_again_and_no_other(case):
    everything = case.fill(20, 20)
    tried.bad = {(P0, 3): 2, (P1, 0): 1}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert tried.done == Counter(dict.fromkeys(everything, 1))
    assert handle.status.failed == handle.status.retried == 3
    assert case.metric("failed_records_total", reason="failed") == 3


def test_poison_holds_back_the_commit_and_nothing_else(case):
    everything = case.fill(20, 20)
    tried.bad = {(P0, 3): 1_000_000}
    case.rules = {"back_off": BackOff(initial_delay_ms=20)}

    handle = case.start()
    until(lambda: set(tried.done) == everything - {(P0, 3)})
    until(lambda: case.store.at(P0, P1) == [3, 20])
    until(lambda: tried.failed[P0, 3] > 3)
    tried.bad = {}
    assert handle.process_all_available(WITHIN_S)

    assert case.store.at(P0, P1) == [20, 20]
    assert tried.done == Counter(dict.fromkeys(everything, 1))


def test_a_restart_goes_on_where_it_was_committed_run_by_run(case):
    everything = case.fill(20)
    tried.bad = {(P0, 3): 1_000_000}
    case.rules = {"back_off": BackOff(initial_delay_ms=60_000)}
    first = case.start()
    until(lambda: set(tried.done) == everything - {(P0, 3)})
    first.stop()
    tried.bad = {}

    assert case.start().process_all_available(WITHIN_S)

    assert tried.done == Counter(dict.fromkeys(everything, 1))


def test_without_a_dead_letter_topic_a_hopeless_record_is_skipped_and_counted(case):
    case.fill(10)
    tried.bad = {(P0, 3): 1_000}
    case.rules = {"back_off": BackOff(limit=2)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert tried.failed[P0, 3] == 3
    assert case.store.at(P0) == [10]
    assert handle.status.skipped == 1
    assert case.metric("lost_records_total", reason="retry_limit") == 1
    assert case.metric("ineligible_records_total") == 1
    assert case.metric("completed_records_total") == 9


def test_a_dead_letter_is_written_before_its_record_is_committed(case):
    case.fill(10)
    tried.bad = {(P0, 3): 1_000}
    case.rules = {"back_off": BackOff(limit=1)}
    case.letters = Letters()
    case.letters.errors = [BrokerUnavailableError("down")]

    handle = case.start()
    until(lambda: case.store.at(P0) == [3])
    assert case.letters.written == []
    assert handle.process_all_available(WITHIN_S)

    (letter,) = case.letters.written
    assert (letter.records.start, letter.records.end, letter.attempts) == (3, 4, 2)
    assert letter.error == "work: bad luck"
    assert case.store.at(P0) == [10]
    assert handle.status.dead_letters == 1
    assert case.metric("dead_letter_records_total") == 1


def test_a_dead_letter_that_is_refused_ends_the_topology(case):
    case.fill(1)
    tried.bad = {(P0, 0): 1_000}
    case.rules = {"back_off": BackOff(limit=0)}
    case.letters = Letters()
    case.letters.errors = [DeliveryError("too large", code="MSG_SIZE_TOO_LARGE")]

    with pytest.raises(DeliveryError, match="too large"):
        case.start().await_termination(WITHIN_S)

    assert case.store.at(P0) in ([], [0])


def test_a_record_nobody_acks_times_out_and_is_replayed(case):
    everything = case.fill(10)
    case.bolt = Forgetful
    tried.bad = {(P0, 3): 1}
    case.limits = replace(case.limits, timeout_ms=200)

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert tried.done == Counter(dict.fromkeys(everything, 1))
    assert handle.status.failed == 1
    assert case.metric("failed_records_total", reason="timed_out") == 1


def test_a_fetch_that_failed_is_no_failure_of_its_records(case):
    everything = case.fill(10, 10)
    case.rules = {"back_off": BackOff(limit=0)}
    case.reader.failures = 2

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert tried.done == Counter(dict.fromkeys(everything, 1))
    assert handle.status.failed == 0


def test_a_record_that_kills_its_worker_is_found_and_the_others_go_on(case):
    everything = case.fill(40)
    case.engine.deadly = {(P0, 13)}
    case.rules = {"back_off": BackOff(limit=1)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == everything - {(P0, 13)}
    assert handle.status.skipped == 1
    assert case.engine.sizes.count(1) >= 2
    assert case.store.at(P0) == [40]


def row_of(record):
    return (
        [(record.topic, record.partition, record.offset)] if int(record.value) else []
    )


def test_a_record_that_its_scheme_cannot_read_fails_alone(case):
    case.log.append(P0, b"1", b"x", b"3")
    case.scheme = RecordScheme(row_of, "topic string, partition int, offset bigint")
    case.rules = {"back_off": BackOff(limit=1)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == {(P0, 0), (P0, 2)}
    assert (handle.status.failed, handle.status.skipped) == (2, 1)


def test_tombstones_and_holes_complete_by_themselves(case):
    case.log.append(P0, b"v", None, b"v")
    case.log.append_hole(P0, 3)
    case.log.append(P0, b"v")

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == {(P0, 0), (P0, 2), (P0, 6)}
    assert case.store.at(P0) == [7]
    status = handle.status
    assert (status.emitted, status.completed, status.pending) == (7, 4, 0)
    assert case.metric("completed_records_total") == 4


def test_a_record_that_is_compacted_before_its_retry_is_none_that_was_completed(case):
    case.fill(10)
    tried.bad = {(P0, 3): 1_000_000}
    case.rules = {"back_off": BackOff(initial_delay_ms=20)}
    handle = case.start()
    until(lambda: tried.failed[P0, 3] > 1)

    case.log.compact(P0, [3])

    assert handle.process_all_available(WITHIN_S)
    assert handle.status.completed == 9
    assert case.store.at(P0) == [10]


def test_no_more_records_are_in_flight_than_allowed(case):
    case.fill(100)
    case.limits = replace(case.limits, max_pending=7, chunk_records=50)

    assert case.start().process_all_available(WITHIN_S)

    assert max(case.engine.sizes) <= 7


def test_failed_records_near_each_other_are_one_fetch(case):
    case.fill(100)
    tried.bad = {(P0, n): 1 for n in range(0, 100, 10)}

    assert case.start().process_all_available(WITHIN_S)

    assert sum(case.reader.fetches.values()) <= 4


def test_a_store_that_is_away_is_written_later(case):
    case.fill(10)
    case.store.errors = [StateUnavailableError("away"), StateUnavailableError("away")]

    assert case.start().process_all_available(WITHIN_S)

    assert case.store.at(P0) == [10]


def test_a_store_that_refuses_ends_the_topology(case):
    case.fill(10)
    case.store.errors = [StateCorruptedError("no")]

    handle = case.start()
    with pytest.raises(StateCorruptedError):
        handle.await_termination(WITHIN_S)

    assert isinstance(handle.exception, StateCorruptedError)
    assert not handle.is_active
    assert case.metric("stops_total", reason="state") == 1


def test_a_bolt_that_cannot_begin_ends_the_topology(case):
    case.fill(1)
    case.bolt = Broken

    with pytest.raises(ComponentError, match="no such setting"):
        case.start().await_termination(WITHIN_S)


def test_a_refused_login_ends_the_topology(case):
    case.fill(1)

    def refused(partitions):
        raise AuthenticationError("wrong password")

    handle = case.start()
    case.log.bounds = refused
    with pytest.raises(AuthenticationError):
        handle.await_termination(WITHIN_S)


def test_an_offset_that_was_trimmed_may_end_the_topology(case):
    case.fill(10)
    case.log.trim(P0, 5)
    case.rules = {"out_of_range": OutOfRange.FAIL}
    case.store.store({P0: CommittedOffset(2)})

    with pytest.raises(OffsetOutOfRangeError):
        case.start()


def test_paused_it_emits_nothing_and_goes_on_afterwards(case):
    handle = case.start()
    handle.pause()
    case.fill(10)
    assert not handle.process_all_available(0.3)
    assert not tried.done

    handle.activate()
    assert handle.process_all_available(WITHIN_S)
    assert tried.done.total() == 10


def test_stopping_twice_is_harmless_and_leaves_no_error(case):
    case.fill(10)
    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    handle.stop()
    handle.stop()

    assert handle.exception is None
    assert handle.await_termination(0)
    assert not handle.status.is_active


class Hanging:
    """Holds a function up until it is let go."""

    def __init__(self, function):
        self._function = function
        self.is_held, self.may_go = threading.Event(), threading.Event()

    def __call__(self, *given):
        self.is_held.set()
        assert self.may_go.wait(WITHIN_S)
        return self._function(*given)


def test_a_look_for_partitions_that_hangs_holds_up_no_record_and_no_commit(case):
    handle = case.start()
    hanging = case.log.topics = Hanging(case.log.topics)
    assert hanging.is_held.wait(WITHIN_S)

    everything = case.fill(50, 30)
    tried.bad = {(P0, 3): 2}
    assert handle.process_all_available(WITHIN_S)

    assert not hanging.may_go.is_set()
    assert set(tried.done) == everything
    assert case.store.at(P0, P1) == [50, 30]
    hanging.may_go.set()


def test_a_store_that_hangs_for_a_new_partition_holds_up_no_record(case):
    handle = case.start()
    case.log.add_partitions("t", 3)
    hanging = case.store.load = Hanging(case.store.load)
    assert hanging.is_held.wait(WITHIN_S)

    everything = case.fill(5, 5)
    until(lambda: set(tried.done) == everything)
    hanging.may_go.set()
    case.log.append(TopicPartition("t", 2), b"v")
    until(lambda: tried.done.total() == 11)

    assert handle.process_all_available(WITHIN_S)


def test_a_look_that_fails_for_good_ends_the_topology(case):
    handle = case.start()

    def refused(wanted):
        raise AuthenticationError("wrong password")

    case.log.topics = refused
    with pytest.raises(AuthenticationError):
        handle.await_termination(WITHIN_S)


def test_it_is_not_idle_while_a_partition_cannot_be_opened(case):
    case.fill(5)
    case.log.set_leader(P1, None)
    handle = case.start()
    case.log.set_leader(P1, MEMORY_BROKER)
    case.log.append(P1, b"v")

    assert handle.process_all_available(WITHIN_S)

    assert case.store.at(P0, P1) == [5, 1]


def test_without_retries_a_record_that_fails_once_is_given_up_at_once(case):
    case.fill(10)
    tried.bad = {(P0, 3): 1}
    case.rules = {"back_off": BackOff(limit=0)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert tried.failed[P0, 3] == 1
    assert tried.done[P0, 3] == 0
    status = handle.status
    assert (status.skipped, status.failed, status.retried) == (1, 1, 0)
    assert case.store.at(P0) == [10]


def test_no_record_is_emitted_further_beyond_the_commit_than_allowed(case):
    everything = case.fill(50, 5)
    tried.bad = {(P0, 2): 1_000_000}
    case.rules = {
        "max_uncommitted_offsets": 10,
        "back_off": BackOff(initial_delay_ms=10),
    }

    handle = case.start()
    until(lambda: tried.failed[P0, 2] > 20)

    reached = {offset for partition, offset in tried.done if partition == P0}
    assert reached == {0, 1, *range(3, 12)}
    assert len(tried.done) == 11 + 5, "the other partition goes on"
    tried.bad = {}
    assert handle.process_all_available(WITHIN_S)
    assert set(tried.done) == everything


def test_a_store_without_room_for_more_runs_gets_no_more_new_records(case):
    case.fill(20)
    tried.bad = {(P0, offset): 1_000_000 for offset in range(1, 20, 2)}
    case.rules = {"back_off": BackOff(initial_delay_ms=10)}
    case.store.fitting = lambda committed: min(3, len(committed.completed))
    handle = case.start()
    until(lambda: case.store.at(P0) == [1])

    case.fill(30)
    tries = tried.failed[P0, 1]
    until(lambda: tried.failed[P0, 1] > tries + 20)
    assert max(offset for _, offset in tried.done) < 20
    tried.bad = {}

    assert handle.process_all_available(WITHIN_S)
    assert case.store.at(P0) == [50]
