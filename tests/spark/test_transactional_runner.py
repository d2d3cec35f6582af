"""Topologies from start to end: the runner, its handle, attempts on threads.

Jobs are run in this process, one at a time, by the engine that tests of topologies use.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from asyncio import CancelledError
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kafka_tx import assembly
from kafka_tx.errors import (
    BrokerUnavailableError,
    ComponentError,
    ConfigError,
    FailedException,
    FencedError,
    OtherTopicsError,
    StateError,
    StateLostError,
    StateUnavailableError,
    TransactionError,
)
from kafka_tx.metrics.endpoint import Guest
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    BatchMetadata,
    LogBounds,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.options.topology import parse_settings
from kafka_tx.running.transactional.kafka_spouts import (
    OpaqueTransactionalKafkaSpout,
    TransactionalKafkaSpout,
)
from kafka_tx.spark.transactional import runner
from kafka_tx.spark.transactional import topology as topologies
from kafka_tx.spark.transactional.topology import (
    TopologyHandle,
    TransactionalTopologyBuilder,
    open_runner,
)
from kafka_tx.spark.versions.job_failures import JobLostError
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt, Committer
from kafka_tx.topology.declare.memory_spouts import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
)
from kafka_tx.topology.declare.spouts import TransactionalSpout
from kafka_tx.transactions.coordinator import coordinator
from kafka_tx.transactions.layout.batch_records import batch_record
from kafka_tx.transactions.layout.commit_stats import stats_in
from kafka_tx.transactions.layout.txid_layout import metadata_path
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from kafka_tx.transactions.ownership.memory import MemorySnapshot, MemoryStore
from kafka_tx.transactions.ownership.takeover import DraftingStore, taken_over
from tests.fake_cluster import FakeCluster
from tests.local_engine import LocalEngine

WITHIN_S = 60
SPOUTS = pytest.mark.parametrize(
    "kind", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout]
)


class ThreadEngine:
    """Runs jobs in the attempts' threads; can lose jobs, and hold them until told."""

    def __init__(self):
        self._local = LocalEngine()
        self.cancelled = set()
        self.lost: Counter[int] = Counter()
        self.held = {}

    def enter(self, attempt):
        self.attempt = attempt

    def cancel(self, attempt):
        self.cancelled.add(attempt)

    def close(self):
        pass

    def run_tasks(self, job):
        gate = self.held.get(job.attempt.txid)
        while gate is not None and not gate.wait(0.01):
            if job.attempt in self.cancelled:
                raise JobLostError("cancelled")
        if self.lost[job.attempt.txid] > 0:
            self.lost[job.attempt.txid] -= 1
            raise JobLostError("the executor is gone")
        return self._local.run_tasks(job)

    def run_frames(self, job):
        return self._local.run_frames(job)


class Table:
    """What committers wrote: (value, txid) for each key, and every call."""

    def __init__(self):
        self.values = {}
        self.calls = []
        self.trouble = {}

    def commit(self, attempt, counts):
        self.calls.append(attempt)
        for error in self.trouble.pop(attempt.txid, ()):
            raise error
        for key, count in counts.items():
            value, txid = self.values.get(key, (0, 0))
            if txid < attempt.txid:
                self.values[key] = (value + count, attempt.txid)

    def total(self):
        return sum(value for value, _ in self.values.values())


class Count(BatchBolt):
    fields = ("key", "count")

    def prepare(self, context, collector):
        self.collector = collector
        self.counts: Counter[str] = Counter()

    def execute(self, row):
        self.counts[row.key] += 1

    def finish_batch(self):
        for key, count in self.counts.items():
            self.collector.emit((key, count))


class Add(Committer, BatchBolt):
    def __init__(self, table):
        self.table = table

    def prepare(self, context, collector):
        self.attempt = context.attempt
        self.counts: Counter[str] = Counter()
        self.thread = threading.get_ident()

    def execute(self, row):
        self.counts[row.key] += row.count

    def finish_batch(self):
        assert threading.get_ident() == self.thread
        self.table.commit(self.attempt, self.counts)


class FailOn(BasicBolt):
    """Raises each of the errors once, at the first row that has the key."""

    fields = ("key",)

    def __init__(self, errors):
        self.errors = errors

    def execute(self, row, collector):
        for error in [self.errors.pop(row.key)] if row.key in self.errors else []:
            raise error
        collector.emit((row.key,))


def no_dumps(_):
    """Bolts here share objects with their tests: nothing is sent anywhere."""
    return b"N."


class World:
    """A topology over memory, its table, and how it is started again and again."""

    def __init__(self, kind=MemoryTransactionalSpout, rows=40, take=5, errors=None):
        keys = [(f"k{number % 7}",) for number in range(rows)]
        self.spout = kind({0: keys[::2], 1: keys[1::2]}, ("key",), take)
        self.table, self.engine = Table(), ThreadEngine()
        self.errors = {} if errors is None else errors
        self.store = f"memory:{uuid.uuid4().hex}"
        self.rows = rows
        self.handle = None

    def topology(self):
        builder = TransactionalTopologyBuilder("jobs", "spout", self.spout, 2)
        fail = builder.set_bolt("fail", partial(FailOn, self.errors))
        fail.shuffle_grouping("spout")
        builder.set_bolt("count", Count).shuffle_grouping("fail")
        add = builder.set_bolt("add", partial(Add, self.table))
        add.global_grouping("count")
        return builder.build(dumps=no_dumps)

    def open(self, topology, listeners=(), store=None, **config):
        names = {"pending": "tx.maxPending", "timeout_ms": "tx.timeoutMs"}
        given = {names[name]: value for name, value in config.items()}
        given |= {"tx.idlePauseMs": 10, "tx.retryMs": 20}
        self.registry = MetricsRegistry()
        rehearsed = DraftingStore(store or assembly.open_store(self.store, "jobs"))
        return open_runner(
            *(topology, topology.plan, self.engine, parse_settings(given), rehearsed),
            *(self.registry, listeners),
        )

    def start(self, listeners=(), store=None, **config):
        runner = self.open(self.topology(), listeners, store, **config)
        runner.start()
        self.handle = TopologyHandle(runner, Guest(runner.registry))
        return self.handle

    def end(self):
        if self.handle is not None and self.handle.isActive:
            self.handle.stop(finish=False, timeout_s=WITHIN_S)

    def sample(self, name, *labels):
        found = self.registry.samples()[name]
        return found.get(("jobs", *labels), (0.0,))[0]


@pytest.fixture
def world():
    made = []

    def make(*args, **more):
        made.append(World(*args, **more))
        return made[-1]

    before = set(threading.enumerate())
    yield make
    for each in made:
        each.end()
    wait_for(lambda: set(threading.enumerate()) <= before)


def wait_for(condition):
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


# --- what is committed ---


@SPOUTS
@pytest.mark.parametrize("pending", [1, 4])
def test_every_row_is_counted_once_and_txids_commit_in_order(world, kind, pending):
    jobs = world(kind)

    handle = jobs.start(pending=pending)
    assert handle.process_all_available(WITHIN_S)
    handle.stop()

    assert jobs.table.total() == jobs.rows
    assert [attempt.txid for attempt in jobs.table.calls] == [1, 2, 3, 4]
    assert handle.status.committed_txid == 4
    assert handle.status.in_flight == ()
    assert handle.exception() is None


@SPOUTS
def test_a_restart_goes_on_where_the_last_one_committed(world, kind):
    jobs = world(kind)
    jobs.start().process_all_available(WITHIN_S)
    jobs.handle.stop()
    jobs.spout.append(0, [("more",)] * 3)

    handle = jobs.start()
    handle.process_all_available(WITHIN_S)
    handle.stop()

    assert jobs.table.total() == jobs.rows + 3
    assert handle.lastProgress.txid == 5
    assert handle.lastProgress.attempt.attempt_id // 10**12 == 2


@SPOUTS
def test_what_a_batch_held_is_stored_and_shown_before_the_next_one(world, kind):
    jobs = world(kind)
    jobs.start().process_all_available(WITHIN_S)
    jobs.handle.stop()
    store = assembly.open_store(jobs.store, "jobs")
    *earlier, held = stats_in(store.read())
    store.close()

    assert [each.txid for each in earlier] == [1, 2, 3]
    assert (held.txid, held.epoch) == (4, 1)
    phases = {"planning", "processing", "waiting", "committing"}
    assert set(held.from_tasks.phases_ms) == phases
    assert held.from_tasks.records == jobs.handle.lastProgress.records
    assert held.committed_ms <= jobs.handle.lastProgress.committed_at_ms

    jobs.open(jobs.topology())._end()
    assert jobs.sample("kafka_tx_committed_txid") == 4
    shown = jobs.sample("kafka_tx_last_commit_timestamp_seconds")
    assert shown == held.committed_ms / 1000
    assert jobs.sample("kafka_tx_records_total") == 0


@SPOUTS
def test_a_batch_begins_before_the_spout_is_asked_for_the_next_one(world, kind):
    jobs, calls = world(kind), []

    def noted(name, call):
        def method(*given):
            calls.append(name)
            return call(*given)

        return method

    for name in ("is_ready", "initialize_transaction", "batch"):
        setattr(jobs.spout, name, noted(name, getattr(jobs.spout, name)))
    jobs.start(pending=4).process_all_available(WITHIN_S)

    after = [name for plan, name in pairwise(calls) if plan.startswith("init")]
    assert after == ["batch"] * 4


def test_rows_that_come_later_are_processed(world):
    jobs = world()
    handle = jobs.start()
    handle.process_all_available(WITHIN_S)

    jobs.spout.append(1, [("late",)])

    assert handle.process_all_available(WITHIN_S)
    assert jobs.table.values["late"] == (1, 5)


# --- replays ---


@SPOUTS
def test_a_failed_exception_in_a_task_replays_the_batch(world, kind):
    jobs = world(kind, errors={"k3": FailedException("not now")})

    jobs.start(pending=3).process_all_available(WITHIN_S)

    assert jobs.table.total() == jobs.rows
    assert jobs.handle.status.replays >= 1
    assert jobs.sample("kafka_tx_replays_total") >= 1


@SPOUTS
def test_a_failed_exception_in_a_commit_replays_the_batch_and_later_ones(world, kind):
    jobs = world(kind)
    jobs.table.trouble[2] = [FailedException("busy")]

    jobs.start(pending=3).process_all_available(WITHIN_S)

    assert jobs.table.total() == jobs.rows
    assert [attempt.txid for attempt in jobs.table.calls] == [1, 2, 2, 3, 4]
    first, again = [a.attempt_id for a in jobs.table.calls if a.txid == 2]
    assert again > first


def test_a_lost_job_replays_the_batch(world):
    jobs = world()
    jobs.engine.lost[2] = 2

    jobs.start(pending=3).process_all_available(WITHIN_S)

    assert jobs.table.total() == jobs.rows
    assert jobs.handle.status.replays >= 2


def test_a_batch_that_takes_too_long_is_cancelled_and_replayed(world):
    jobs = world(rows=10)
    gate = jobs.engine.held[1] = threading.Event()

    jobs.start(timeout_ms=50)
    wait_for(lambda: jobs.handle.status.replays)
    gate.set()

    assert jobs.handle.process_all_available(WITHIN_S)
    assert jobs.table.total() == jobs.rows
    assert jobs.engine.cancelled
    outcome = partial(jobs.sample, "kafka_tx_batches_total")
    assert outcome("timed_out") >= 1
    assert outcome("failed") == 0


def test_a_batch_that_goes_with_an_earlier_one_counts_as_cancelled(world):
    jobs = world()
    jobs.engine.lost[1] = 1
    gate = jobs.engine.held[2] = threading.Event()

    jobs.start(pending=2)
    wait_for(lambda: jobs.handle.status.replays)
    gate.set()
    jobs.handle.process_all_available(WITHIN_S)

    outcome = partial(jobs.sample, "kafka_tx_batches_total")
    assert outcome("failed") == 1
    assert outcome("cancelled") <= 1
    assert jobs.handle.status.replays == 1 + outcome("cancelled")


# --- errors ---


@pytest.mark.parametrize("where", ["a task", "a commit"])
def test_any_other_error_stops_the_topology_and_a_restart_continues(world, where):
    jobs = world(errors={"k3": ValueError("a bug")} if where == "a task" else {})
    if where == "a commit":
        jobs.table.trouble[1] = [ValueError("a bug")]
    second = jobs.engine.held[2] = threading.Event()  # it has the same keys

    handle = jobs.start(pending=2)
    with pytest.raises(ComponentError, match="ValueError: a bug") as raised:
        handle.awaitTermination(WITHIN_S)
    second.set()
    jobs.start().process_all_available(WITHIN_S)

    assert raised.value.component == ("fail" if where == "a task" else "add")
    assert raised.value.txid == 1
    assert raised.value.attempt_id > 0
    assert handle.exception() is raised.value
    assert jobs.table.total() == jobs.rows


@pytest.mark.parametrize("where", ["a task", "a commit", "a plan"])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, CancelledError])
def test_what_is_no_exception_stops_the_topology_as_an_error_does(world, where, kind):
    jobs = world(errors={"k3": kind("now")} if where == "a task" else {})
    if where == "a commit":
        jobs.table.trouble[1] = [kind("now")]
    if where == "a plan":
        jobs.spout.initialize_transaction = partial(fail_with, kind("now"))
    jobs.engine.held[2] = threading.Event()  # it has the same keys

    handle = jobs.start(pending=2)

    with pytest.raises(ComponentError, match=kind.__name__) as raised:
        handle.awaitTermination(WITHIN_S)
    component = {"a task": "fail", "a commit": "add", "a plan": "spout"}[where]
    assert (raised.value.component, raised.value.txid) == (component, 1)
    assert raised.value.attempt_id > 0


def fail_with(error, *_):
    raise error


def test_threads_that_hang_in_user_code_do_not_pile_up_for_ever(world):
    jobs = world(rows=10)
    may_end, hanging = threading.Event(), []

    def hang(_):
        hanging.append(threading.current_thread())
        may_end.wait(WITHIN_S)

    jobs.engine.run_tasks = hang
    handle = jobs.start(timeout_ms=1)
    wait_for(lambda: handle._runner._is_over)
    may_end.set()

    with pytest.raises(TransactionError, match="still runs, each on a thread"):
        handle.awaitTermination(WITHIN_S)
    assert len(hanging) <= 20


def test_a_listener_may_stop_the_topology(world):
    jobs, stopped = world(), threading.Event()

    def stop(_):
        jobs.handle.stop()
        stopped.set()

    gate = jobs.engine.held[1] = threading.Event()
    handle = jobs.start(listeners=[stop])
    gate.set()

    assert stopped.wait(WITHIN_S)
    assert handle.awaitTermination(WITHIN_S)


def test_a_spout_that_is_always_ready_and_has_nothing_is_idle_and_gets_slower(world):
    class Nothing(MemoryTransactionalSpout):
        def is_ready(self):
            return True

    jobs = world()
    jobs.spout = Nothing({0: []}, ("key",), 5)
    handle = jobs.start()

    assert handle.process_all_available(WITHIN_S)
    assert handle.status.committed_txid <= 12  # pauses of 10, 20, 40, … ms


def test_an_empty_batch_of_a_spout_that_is_not_drained_is_no_idleness(world):
    class Silent(MemoryTransactionalSpout):
        """Its only partition does not answer."""

        answers = threading.Event()

        def is_empty(self, metadata):
            return True

        def is_ready(self):
            return True

        def is_drained(self):
            return self.answers.is_set()

    jobs = world()
    jobs.spout = Silent({0: []}, ("key",), 5)
    handle = jobs.start()

    assert not handle.process_all_available(0.5)
    assert handle.status.committed_txid >= 2
    Silent.answers.set()
    assert handle.process_all_available(WITHIN_S)


def test_a_spout_that_is_not_ready_may_have_something_left(world):
    class Shy(MemoryTransactionalSpout):
        is_bold = False

        def is_ready(self):
            return self.is_bold and super().is_ready()

        def is_drained(self):
            self.is_bold = self.is_bold or may_look.is_set()
            return self.is_exhausted

    may_look = threading.Event()
    jobs = world()
    jobs.spout = Shy({0: [("a",)] * 7}, ("key",), 5)
    handle = jobs.start()

    assert not handle.process_all_available(0.2)
    may_look.set()
    assert handle.process_all_available(WITHIN_S)
    assert jobs.table.total() == 7


class Waiting(threading.Thread):
    """Waits in ``process_all_available``; started once it does."""

    answer = None

    def __init__(self, handle):
        super().__init__(daemon=True)
        self.handle = handle
        before = handle._loop._waiters._count
        self.start()
        wait_for(lambda: handle._loop._waiters._count > before)

    def run(self):
        self.answer = self.handle.process_all_available(WITHIN_S)


def test_rows_that_came_while_an_empty_batch_was_planned_are_waited_for(world):
    class Slow(MemoryTransactionalSpout):
        """Always ready, as other spouts are by default; its second answer is late."""

        def is_ready(self):
            return True

        def initialize_transaction(self, txid, previous):
            metadata = super().initialize_transaction(txid, previous)
            if txid == 2:
                has_planned.set()
                may_answer.wait(WITHIN_S)
            return metadata

    has_planned, may_answer = threading.Event(), threading.Event()
    jobs = world()
    jobs.spout = Slow({0: []}, ("key",), 5)
    gates = [threading.Event(), threading.Event()]
    jobs.engine.held = {1: gates[0], 3: gates[1]}
    handle = jobs.start(pending=2)
    assert has_planned.wait(WITHIN_S)

    jobs.spout.append(0, [("a",)])
    waiting = Waiting(handle)
    gates[0].set()
    wait_for(lambda: handle.status.committed_txid == 1)
    may_answer.set()
    waiting.join(0.3)
    assert waiting.is_alive()
    gates[1].set()
    waiting.join(WITHIN_S)

    assert waiting.answer
    assert jobs.table.total() == 1


def test_an_answer_to_an_earlier_question_says_nothing_of_later_rows(world):
    """Of two waiters, the second has rows that came after the question of the first."""

    class Shy(MemoryTransactionalSpout):
        is_bold = False

        def is_ready(self):
            return self.is_bold

        def is_drained(self):
            if not has_answered.is_set():
                time.sleep(0.2)  # longer than the topology's thread waits for it
                has_answered.set()
                self.is_bold = True
            return True

        def initialize_transaction(self, txid, previous):
            self.is_bold = False
            return super().initialize_transaction(txid, previous)

    has_answered = threading.Event()
    jobs = world()
    jobs.spout = Shy({0: []}, ("key",), 5)
    gate = jobs.engine.held[1] = threading.Event()
    handle = jobs.start()
    Waiting(handle)
    wait_for(lambda: handle.status.in_flight)

    jobs.spout.append(0, [("a",)])
    second = Waiting(handle)
    jobs.spout.is_drained = lambda: jobs.spout.is_exhausted
    gate.set()
    second.join(0.3)
    assert second.is_alive()
    jobs.spout.is_bold = True
    second.join(WITHIN_S)

    assert second.answer
    assert jobs.table.total() == 1


def test_who_waits_hears_that_it_was_stopped_before_all_was_done(world):
    jobs = world()
    jobs.engine.held[1] = threading.Event()
    handle = jobs.start()
    waiting = Waiting(handle)

    handle.stop(finish=False)
    waiting.join(WITHIN_S)

    assert waiting.answer is False
    assert jobs.table.total() == 0


def test_a_spout_that_cannot_plan_is_named(world):
    class Broken(TransactionalSpout):
        fields = ("key",)

        def initialize_transaction(self, txid, previous):
            raise KeyError("no such table")

    jobs = world()
    jobs.spout = Broken()

    handle = jobs.start()

    with pytest.raises(ComponentError, match="no such table") as raised:
        handle.awaitTermination(WITHIN_S)
    assert (raised.value.component, raised.value.txid) == ("spout", 1)


def test_a_spout_that_cannot_plan_yet_is_asked_again(world):
    jobs = world(rows=4)
    plan, refusals = jobs.spout.initialize_transaction, [1, 2]

    def refuse(txid, previous):
        if refusals:
            raise FailedException(f"refusal {refusals.pop()}")
        return plan(txid, previous)

    jobs.spout.initialize_transaction = refuse

    jobs.start().process_all_available(WITHIN_S)

    assert refusals == []
    assert jobs.table.total() == jobs.rows


@SPOUTS
def test_a_first_batch_that_cannot_be_planned_is_in_flight_since_its_first_plan(
    world, kind
):
    """Until there is a plan; also between two tries."""
    jobs, tried_s, shown = world(kind), [], set()
    plan = jobs.spout.initialize_transaction

    def refuse(txid, previous):
        tried_s.append(time.time())
        raise FailedException("no broker answers")

    def look():
        shown.add((since(), jobs.sample("kafka_tx_in_flight_batches", "planning")))
        return len(tried_s) >= 5

    jobs.spout.initialize_transaction = refuse
    since = partial(jobs.sample, "kafka_tx_in_flight_since_timestamp_seconds")
    jobs.start()
    wait_for(lambda: since() > 0)
    wait_for(look)

    assert all(0 < at_s <= tried_s[0] + 0.01 for at_s, _ in shown)
    assert {planning for _, planning in shown} == {1}
    jobs.spout.initialize_transaction = plan
    assert jobs.handle.process_all_available(WITHIN_S)
    wait_for(lambda: since() == 0)
    assert jobs.sample("kafka_tx_in_flight_batches", "planning") == 0


@SPOUTS
@pytest.mark.parametrize("pending", [1, 4])
def test_rows_that_the_spout_takes_for_planned_are_planned_again_if_the_plan_fails(
    world, kind, pending
):
    """As of a spout whose last rows have a plan that raises after all was done."""
    jobs, fails = world(kind), {1, 4}
    plan = jobs.spout.initialize_transaction

    def planned(txid, previous):
        metadata = plan(txid, previous)
        if txid in fails:
            fails.remove(txid)
            raise FailedException("trouble")
        return metadata

    jobs.spout.initialize_transaction = planned
    handle = jobs.start(pending=pending)

    assert handle.process_all_available(WITHIN_S)
    assert not fails
    assert jobs.table.total() == jobs.rows


def test_a_batch_whose_commit_takes_long_and_fails_again_is_replayed_after_a_pause(
    world,
):
    jobs, began_s, failed_s = world(rows=5), list[float](), list[float]()
    commit = jobs.table.commit

    def refuse(attempt, counts):
        began_s.append(time.monotonic())
        if len(began_s) < 4:
            time.sleep(0.25)  # longer than the pauses
            failed_s.append(time.monotonic())
            raise FailedException("the database is away")
        commit(attempt, counts)

    jobs.table.commit = refuse
    assert jobs.start().process_all_available(WITHIN_S)

    pauses_s = [
        later - former for former, later in zip(failed_s, began_s[1:], strict=True)
    ]
    assert len(pauses_s) == 3
    assert pauses_s[1] > 0.098
    assert pauses_s[2] > 0.198
    assert jobs.table.total() == jobs.rows


def test_a_newer_owner_fences_the_older_one_off(world):
    jobs = world()
    gate = jobs.engine.held[1] = threading.Event()
    handle = jobs.start()
    wait_for(lambda: handle.status.in_flight)

    assembly.open_store(jobs.store, "jobs").acquire()
    gate.set()

    with pytest.raises(FencedError):
        handle.awaitTermination(WITHIN_S)
    assert jobs.table.calls == []


class Stumbling:
    """A store whose first writes of batches fail, half of them although they landed."""

    def __init__(self, store, failures):
        self._store, self._failures = store, failures

    def __getattr__(self, name):
        return getattr(self._store, name)

    def write(self, *args, **more):
        if not (self._failures and more.get("expect")):
            self._store.write(*args, **more)
            return
        if self._failures.pop() % 2:
            self._store.write(*args, **more)
        raise StateUnavailableError("try later")


@SPOUTS
def test_a_store_that_does_not_answer_is_asked_again(world, kind):
    jobs = world(kind)
    failures = [1, 2, 3]
    store = Stumbling(assembly.open_store(jobs.store, "jobs"), failures)
    jobs.start(store=store).process_all_available(WITHIN_S)

    assert failures == []
    assert jobs.table.total() == jobs.rows


def store_of(jobs):
    return MemoryStore(jobs.store.removeprefix("memory:"), "jobs")


def copied(jobs):
    """What the store and the sink hold now, as one database would keep both."""
    return store_of(jobs).snapshot(), dict(jobs.table.values)


def put_back(jobs, copy):
    snapshot, jobs.table.values = copy
    store_of(jobs).restore(snapshot)


@pytest.mark.parametrize("pending", [1, 3])
@SPOUTS
def test_a_database_that_went_back_stops_the_topology_and_a_restart_loses_nothing(
    world, kind, pending
):
    jobs = world(kind, rows=100)
    early, gate = (jobs.engine.held.setdefault(n, threading.Event()) for n in (3, 6))
    handle = jobs.start(pending=pending)
    wait_for(lambda: handle.status.committed_txid == 2)
    copy = copied(jobs)
    early.set()
    wait_for(lambda: handle.status.committed_txid == 5)

    put_back(jobs, copy)
    gate.set()

    wait_for(lambda: not handle.isActive)
    error = handle.exception()
    assert isinstance(error, StateLostError), error
    assert "continues from there when you start it again" in str(error)
    assert max(txid for _, txid in jobs.table.values.values()) == 2
    jobs.start(pending=pending).process_all_available(WITHIN_S)
    assert jobs.table.total() == jobs.rows


def test_a_store_that_is_emptied_is_noticed_while_nothing_happens(world, monkeypatch):
    monkeypatch.setattr(coordinator, "POLL_MS", 50)
    jobs = world()
    handle = jobs.start()
    handle.process_all_available(WITHIN_S)

    store_of(jobs).restore(MemorySnapshot(1, {}))

    wait_for(lambda: not handle.isActive)
    assert isinstance(handle.exception(), StateLostError)


# --- stopping ---


def test_a_stop_that_finishes_commits_what_is_in_flight(world):
    jobs = world()
    gate = jobs.engine.held[1] = threading.Event()
    handle = jobs.start(pending=2)
    wait_for(lambda: len(handle.status.in_flight) == 2)

    stopping = threading.Thread(target=handle.stop)
    stopping.start()
    gate.set()
    stopping.join(WITHIN_S)

    assert not handle.isActive
    assert [attempt.txid for attempt in jobs.table.calls] == [1, 2]


def test_a_stop_that_does_not_finish_cancels_what_is_in_flight(world):
    jobs = world()
    jobs.engine.held[1] = threading.Event()
    handle = jobs.start(pending=2)
    wait_for(lambda: len(handle.status.in_flight) == 2)

    handle.stop(finish=False, timeout_s=WITHIN_S)

    assert jobs.table.calls == []
    assert {attempt.txid for attempt in jobs.engine.cancelled} == {1, 2}
    assert handle.status.replays == 0
    assert handle.awaitTermination()


def test_what_does_not_finish_in_time_is_cut_off_with_an_error(world):
    jobs = world()
    jobs.engine.held[1] = threading.Event()
    handle = jobs.start()
    wait_for(lambda: handle.status.in_flight)

    with pytest.raises(TransactionError, match=r"not finished within 0\.1 s"):
        handle.stop(timeout_s=0.1)

    assert not handle.isActive
    handle.stop()  # harmless
    jobs.engine.held.clear()
    again = jobs.start()  # as the error says
    assert again.process_all_available(WITHIN_S)
    again.stop()
    assert jobs.table.total() == jobs.rows


def test_pausing_starts_nothing_new(world):
    jobs = world(rows=0)
    handle = jobs.start()
    handle.process_all_available(WITHIN_S)

    handle.pause()
    jobs.spout.append(0, [("k",)])
    assert not handle.process_all_available(0.2)
    handle.activate()

    assert handle.process_all_available(WITHIN_S)
    assert jobs.table.total() == 1


# --- what is told ---


def test_listeners_are_told_of_each_batch_in_order_and_may_fail(world, caplog):
    jobs, heard = world(), []

    def listen(batch):
        heard.append((batch.txid, batch.records))
        if batch.txid == 2:
            raise RuntimeError("a listener's own trouble")

    with caplog.at_level(logging.ERROR):
        jobs.start(listeners=[listen]).process_all_available(WITHIN_S)
        jobs.handle.stop()

    assert heard == [(1, 10), (2, 10), (3, 10), (4, 10)]
    assert "a listener's own trouble" in caplog.text


def test_a_committed_batch_tells_its_phases_and_rows(world):
    jobs = world(rows=10)

    jobs.start().process_all_available(WITHIN_S)

    batch = jobs.handle.lastProgress
    assert batch.emitted == {"spout": 10, "fail": 10, "count": 10, "add": 0}
    assert batch.metadata == {"0": [0, 5], "1": [0, 5]}
    assert set(batch.phases_ms) == {"planning", "processing", "waiting", "committing"}
    assert sum(batch.phases_ms.values()) == batch.duration_ms


def test_metrics_show_batches_in_flight_by_phase(world):
    jobs = world(rows=20)
    gate = jobs.engine.held[1] = threading.Event()
    handle = jobs.start(pending=2)
    flying = partial(jobs.sample, "kafka_tx_in_flight_batches")

    wait_for(lambda: flying("processing") == 1 and flying("waiting") == 1)
    gate.set()
    handle.process_all_available(WITHIN_S)

    for phase in ("planning", "processing", "waiting", "committing"):
        assert flying(phase) == 0
    assert jobs.sample("kafka_tx_committed_txid") == 2
    assert jobs.sample("kafka_tx_records_total") == 20


def test_a_start_that_is_refused_does_not_fence_the_owner(world):
    made = world(MemoryTransactionalSpout)
    source = Ledger(assembly.open_store(made.store, "jobs"))
    epoch = source.acquire()
    source.adopt(epoch, Committed(0, {}))

    with pytest.raises(StateError, match="that of a source"):
        made.start()

    source.check(epoch)


def test_a_spout_that_cannot_be_opened_fences_no_owner_and_is_closed(world):
    class Closed(TransactionalSpout):
        fields, is_closed = ("key",), False

        def open(self):
            raise ConnectionError("nobody there")

        def close(self):
            self.is_closed = True

    made = world()
    made.start()
    former, made.spout = made.handle, Closed()

    with pytest.raises(ConnectionError, match="nobody there"):
        made.start()

    assert made.spout.is_closed
    assert former.process_all_available(WITHIN_S)
    assert assembly.open_store(made.store, "jobs").epoch() == 1


@pytest.mark.parametrize("what", ["show_committed", "TransactionalRunner"])
def test_a_start_that_fails_behind_the_take_over_frees_the_spout_object(
    world, monkeypatch, what
):
    def fail(*_, **__):
        raise RuntimeError("can't start new thread")

    made = world()
    with monkeypatch.context() as patched:
        patched.setattr(topologies, what, fail)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            made.start()

    assert made.start().process_all_available(WITHIN_S)


@pytest.mark.parametrize("id_", ["jobs", "other"])
def test_a_spout_object_serves_one_run_at_a_time(world, id_):
    """Its plans are of one numbering; also a later run of the same id is refused."""
    made, opens = world(), list[str]()
    made.spout.open = partial(opens.append, "opened")
    former = made.start()
    topology = replace(made.topology(), id=id_)

    with pytest.raises(ConfigError, match="topology 'jobs' still reads this spout"):
        made.open(topology)

    assert opens == ["opened"]
    assert former.process_all_available(WITHIN_S)
    former.stop()
    made.start().process_all_available(WITHIN_S)
    assert made.table.total() == made.rows


class Group:
    """Takes offsets as a Kafka group does."""

    def __init__(self):
        self.offsets: list[dict[TopicPartition, int]] = []
        self.is_closed = False

    def __call__(self, committed):
        assert not self.is_closed
        self.offsets.append({p: at.offset for p, at in committed().items()})

    def close(self):
        self.is_closed = True


def plan_as_kafka(spout, partition):
    """Let txid n hold offset n of a partition, for whoever sees the plans."""
    plan, read = spout.initialize_transaction, spout.batch
    plans: dict[int, Any] = {0: {}}

    def planned(txid, previous):
        plans[txid] = plan(txid, plans[txid - 1] or None)
        return BatchMetadata(txid, (OffsetRange(partition, txid, txid + 1),))

    spout.initialize_transaction = planned
    spout.batch = lambda attempt, _: read(attempt, plans[attempt.txid])
    spout.is_empty = lambda _: False
    spout.observed = spout.committed = lambda *_: None


def test_ends_of_committed_kafka_batches_go_to_the_group_in_order(world, monkeypatch):
    jobs, group, partition = world(rows=40), Group(), TopicPartition("orders", 0)
    plan_as_kafka(jobs.spout, partition)
    monkeypatch.setattr(topologies, "_mirror", lambda *_: group)
    jobs.start(pending=1)

    wait_for(lambda: len(group.offsets) >= 4)
    jobs.handle.stop(timeout_s=WITHIN_S)

    assert [{}, {partition: 2}, {partition: 3}, {partition: 4}] == group.offsets[:4]
    assert group.is_closed


# --- the logs ---


class Logs:
    """What a spout's ``bounds`` finds: one log, which a test lets grow."""

    partition = TopicPartition("orders", 0)

    def __init__(self):
        self.end = 1
        self.problem: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = 0

    def bounds(self):
        self.asked += 1
        assert self.may_answer.wait(WITHIN_S)
        if self.problem:
            raise self.problem
        return {self.partition: LogBounds(0, self.end)}


@pytest.fixture
def logs(monkeypatch):
    monkeypatch.setattr(runner, "POLL_EVERY_MS", 20)
    found = Logs()
    yield found
    found.may_answer.set()


def start_on(logs, jobs, **config):
    """Start, and hold the very first batch: it has offset 1 of the log."""
    plan_as_kafka(jobs.spout, logs.partition)
    jobs.spout.bounds = logs.bounds
    jobs.engine.held[1] = threading.Event()
    handle = jobs.start(**config)
    wait_for(lambda: handle.status.in_flight)
    return handle


@SPOUTS
def test_the_lag_of_a_batch_that_hangs_grows_with_the_log(world, kind, logs):
    """Also of the very first one, and while the topology is paused."""
    jobs = world(kind)
    handle = start_on(logs, jobs)

    logs.end = 500
    wait_for(lambda: jobs.registry.lag_of("jobs") == 499)
    handle.pause()
    logs.end = 900
    wait_for(lambda: jobs.registry.lag_of("jobs") == 899)
    assert handle.status.committed_txid is None


def test_the_lag_of_a_batch_that_fails_again_and_again_grows_with_the_log(world, logs):
    jobs = world()
    jobs.engine.lost[1] = 1_000_000
    handle = start_on(logs, jobs)
    jobs.engine.held.pop(1).set()
    wait_for(lambda: handle.status.replays)

    logs.end = 500

    wait_for(lambda: jobs.registry.lag_of("jobs") == 499)
    assert handle.status.committed_txid is None


def test_a_batch_that_hangs_waits_for_brokers_if_none_answers(world, logs):
    jobs = world()
    start_on(logs, jobs)
    wait_for(lambda: jobs.registry.lag_of("jobs") is not None)

    logs.problem = BrokerUnavailableError("away")
    wait_for(lambda: jobs.registry.waits_for_brokers("jobs"))

    logs.problem = None
    wait_for(lambda: not jobs.registry.waits_for_brokers("jobs"))


def test_a_poll_of_the_logs_that_takes_long_holds_up_no_commit(world, logs):
    jobs = world()
    handle = start_on(logs, jobs)
    logs.may_answer.clear()
    asked = logs.asked
    wait_for(lambda: logs.asked > asked)

    jobs.engine.held[1].set()

    wait_for(lambda: handle.status.committed_txid == 1)
    assert not logs.may_answer.is_set()


# --- other topics ---


@pytest.fixture
def two_topics(monkeypatch):
    cluster = FakeCluster()
    for topic in "tu":
        cluster.set(0, 0, 4, topic=topic)
    monkeypatch.setattr(assembly, "cluster_view", lambda _: cluster)
    return MemoryStore(uuid.uuid4().hex, "jobs")


def opened(store, topics, kind=TransactionalKafkaSpout, start="earliest"):
    """The spout and the coordinator of a topology that starts; its store is a draft."""
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": topics}
    spout, rehearsed = kind({**options, "startingOffsets": start}), DraftingStore(store)
    builder = TransactionalTopologyBuilder("jobs", "spout", spout)
    built, settings = builder.build(dumps=no_dumps), parse_settings({})
    started, _ = taken_over(
        rehearsed,
        lambda: topologies._opened(built, settings, rehearsed, MetricsRegistry()),
    )
    return spout, started


def test_a_topology_that_reads_none_of_the_ids_topics_is_refused_and_fences_nobody(
    two_topics,
):
    batch = opened(two_topics, "t")[0].initialize_transaction(1, None)
    two_topics.write(1, {metadata_path(1): batch_record(batch)})
    before = two_topics.snapshot()
    with pytest.raises(OtherTopicsError, match="start it with both: subscribe=t,u"):
        opened(two_topics, "u")

    assert two_topics.snapshot() == before
    opened(two_topics, "t,u")
    assert two_topics.epoch() == 2


def test_a_start_without_a_group_forgets_the_group_of_a_former_start(
    two_topics, monkeypatch
):
    monkeypatch.setattr(assembly, "check_group", lambda _: None)
    monkeypatch.setattr(assembly, "group_mirror", lambda *_: None)
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
    spout = TransactionalKafkaSpout(options)
    built = TransactionalTopologyBuilder("jobs", "spout", spout).build(dumps=no_dumps)

    groups = []
    for group in ("g", None):
        topologies._mirror(built, group, MetricsRegistry())
        assert spout.config.transactions is not None
        groups.append(spout.config.transactions.commit_group_id)

    assert groups == ["g", None]


def test_an_opaque_topology_may_read_other_topics_before_its_first_commit(two_topics):
    """What its first plan stored is nobody's: the new plan takes its place."""
    kind = OpaqueTransactionalKafkaSpout
    batch = opened(two_topics, "t", kind)[0].initialize_transaction(1, None)
    two_topics.write(1, {metadata_path(1): batch_record(batch)})
    with pytest.raises(OtherTopicsError):
        opened(two_topics, "u")  # a transactional one would replay it

    spout, started = opened(two_topics, "u", kind, "latest")
    chain = started._chain
    plan = spout.initialize_transaction(1, chain.start)
    chain.apply(chain.keep(TransactionAttempt(1, 1), plan))

    assert [str(each) for each in plan.ranges] == ["u-0 [4, 4)"]
    assert [str(each.topic_partition) for each in chain.start.ranges] == ["u-0"]
