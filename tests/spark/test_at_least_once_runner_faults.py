"""At-least-once topologies whose brokers, store, workers or user code fail."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from typer.testing import CliRunner

from kafka_tx.cli.main import app
from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ComponentError,
    DataLossError,
    DeliveryError,
    FencedError,
    RegistryError,
    StateCorruptedError,
    StateUnavailableError,
)
from kafka_tx.metrics import catalogue
from kafka_tx.metrics.metric import MetricKind
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.metrics.status import status
from kafka_tx.model import CommittedOffset, TopicPartition, TransactionAttempt
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.offsets.retry import BackOff
from kafka_tx.running.at_least_once import record_outcomes
from kafka_tx.running.last_run import open_stop_store, show_last_stop
from kafka_tx.spark.at_least_once import runner as at_least_once_runner
from kafka_tx.spark.versions.job_failures import SparkStoppedError
from kafka_tx.testing import MEMORY_BROKER
from kafka_tx.topology.declare.bolts import BasicBolt, RichBolt
from kafka_tx.topology.rows.schemes import MetadataScheme
from tests.local_engine import LocalEngine
from tests.spark.spout_case import (
    P0,
    P1,
    WITHIN_S,
    Broken,
    Letters,
    Slow,
    Work,
    tried,
    until,
)


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
    case.dead_letters = Letters()
    case.dead_letters.errors = [BrokerUnavailableError("down")]

    handle = case.start()
    until(lambda: case.store.at(P0) == [3])
    assert case.dead_letters.written == []
    assert handle.process_all_available(WITHIN_S)

    (dead_letter,) = case.dead_letters.written
    assert (
        dead_letter.records.start,
        dead_letter.records.end,
        dead_letter.attempts,
    ) == (3, 4, 2)
    assert dead_letter.error == "work: bad luck"
    assert case.store.at(P0) == [10]
    assert handle.status.dead_letters == 1
    assert case.metric("dead_letter_records_total") == 1


class HeldLetters(Letters):
    """Writes nothing until it is let go."""

    def __init__(self):
        super().__init__()
        self.held = []
        self.may_go = threading.Event()

    def write(self, dead_letter, answer):
        self.held.append(dead_letter)
        if self.may_go.is_set():
            super().write(dead_letter, answer)
        else:
            waits = threading.Thread(target=self._write, args=(dead_letter, answer))
            waits.start()

    def _write(self, dead_letter, answer):
        assert self.may_go.wait(WITHIN_S)
        super().write(dead_letter, answer)


def test_a_spout_with_many_unwritten_dead_letters_reads_no_more(case, monkeypatch):
    monkeypatch.setattr(record_outcomes, "MOST_UNWRITTEN", 2)
    tried.bad = dict.fromkeys(case.fill(8), 1_000)
    case.rules = {"back_off": BackOff(limit=0)}
    case.limits = replace(case.limits, chunk_records=1, chunks=1)
    case.dead_letters = HeldLetters()

    handle = case.start()
    until(lambda: len(case.dead_letters.held) == 3)
    assert not handle.process_all_available(0.5)
    assert len(case.engine.sizes) == 3
    case.dead_letters.may_go.set()
    assert handle.process_all_available(WITHIN_S)

    assert len(case.dead_letters.written) == 8


def test_a_dead_letter_that_is_refused_ends_the_topology(case):
    case.fill(1)
    tried.bad = {(P0, 0): 1_000}
    case.rules = {"back_off": BackOff(limit=0)}
    case.dead_letters = Letters()
    case.dead_letters.errors = [DeliveryError("too large", code="MSG_SIZE_TOO_LARGE")]

    with pytest.raises(DeliveryError, match="too large"):
        case.start().awaitTermination(WITHIN_S)

    assert case.store.at(P0) in ([], [0])


def test_a_fetch_that_failed_is_no_failure_of_its_records(case):
    everything = case.fill(10, 10)
    case.rules = {"back_off": BackOff(limit=0)}
    case.reader.failures = 2

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert tried.done == Counter(dict.fromkeys(everything, 1))
    assert handle.status.failed == 0


class AwayAtFirst:
    """A scheme whose schema registry does not answer for a while."""

    def __init__(self, failures):
        self.failures, self.inner = failures, MetadataScheme()
        self.fields = self.inner.fields

    def decode(self, batch):
        if self.failures:
            self.failures -= 1
            raise RegistryError("the registry is away")
        return self.inner.decode(batch)


def test_a_schema_registry_that_is_away_costs_no_record_a_try(case):
    everything = case.fill(10, 10)
    case.rules = {"back_off": BackOff(limit=0)}
    case.scheme = AwayAtFirst(3)

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == everything
    assert (handle.status.failed, handle.status.skipped) == (0, 0)


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


def test_a_record_that_is_compacted_before_its_retry_is_none_that_was_completed(case):
    case.fill(10)
    tried.bad = {(P0, 3): 1_000_000}
    case.rules = {"back_off": BackOff(initial_delay_ms=20)}
    handle = case.start()
    until(lambda: tried.failed[P0, 3] > 1)

    case.log.compact(P0, [3])

    assert handle.process_all_available(WITHIN_S)
    assert (handle.status.completed, handle.status.lost) == (9, 1)
    assert case.metric("lost_records_total", reason="compacted") == 1
    assert case.store.at(P0) == [10]


def test_a_topology_whose_thread_cannot_start_has_ended(case, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    case.fill(1)
    monkeypatch.setattr(InheritableThread, "start", start)

    with pytest.raises(RuntimeError, match="new thread"):
        case.start()

    (handle,) = case.handles
    assert not handle.isActive
    with pytest.raises(RuntimeError, match="new thread"):
        handle.awaitTermination(WITHIN_S)
    assert case.engine.is_closed


def test_a_topology_whose_session_ends_before_its_first_step_has_ended(
    case, monkeypatch
):
    """PySpark's part of a new thread fails; with a session, it asks the JVM there."""

    def run(thread):
        raise AssertionError

    case.fill(1)
    monkeypatch.setattr(InheritableThread, "run", run)

    handle = case.start()

    with pytest.raises(SparkStoppedError, match="with a new session") as stop:
        handle.awaitTermination(WITHIN_S)
    assert isinstance(stop.value.__cause__, AssertionError)
    assert not handle.isActive
    assert case.engine.is_closed


def test_a_chunk_whose_thread_has_no_session_is_emitted_again(case, monkeypatch):
    """PySpark's part of its thread fails: a call of the JVM had no answer."""
    run = InheritableThread.run
    failed: list[str] = []

    def fails_once(thread):
        if ":" in thread.name and not failed:
            failed.append(thread.name)
            raise Py4JError("no answer")
        run(thread)

    case.fill(10)
    monkeypatch.setattr(InheritableThread, "run", fails_once)

    handle = case.start()

    assert handle.process_all_available(WITHIN_S)
    assert len(failed) == 1
    assert handle.status.completed == 10


def test_a_topology_that_cannot_watch_its_session_has_ended(case):
    class Watch(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="new thread"):
        case.start(Watch())

    (handle,) = case.handles
    assert not handle.isActive
    assert case.engine.is_closed


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
        handle.awaitTermination(WITHIN_S)

    assert isinstance(handle.exception(), StateCorruptedError)
    assert not handle.isActive
    assert case.metric("stops_total", reason="state") == 1


@pytest.mark.parametrize("spout_id", ["job", "job-orders"])
def test_a_fenced_topology_leaves_every_id_of_it_to_the_newer_owner(case, spout_id):
    case.spout_id = spout_id
    case.registry.record_start(spout_id)
    case.fill(10)
    handle = case.start()
    assert handle.process_all_available(WITHIN_S)
    case.store.errors = [FencedError("another owner")] * 9
    case.fill(10)

    with pytest.raises(FencedError):
        handle.awaitTermination(WITHIN_S)

    gauges = [m.name for m in catalogue.ALL if m.kind is MetricKind.GAUGE]
    samples = case.registry.samples()
    left = {name for name in gauges for key in samples[name] if spout_id in key}
    assert left == {catalogue.LAST_STOP.name}
    assert case.metric("stops_total", id=spout_id, reason="fenced") == 1
    shown = status([case.registry], now_ms=0)["ids"]
    assert {each["state"] for each in shown} == {"fenced"}


def test_a_bolt_that_cannot_begin_ends_the_topology(case):
    case.fill(1)
    case.bolt = Broken

    with pytest.raises(ComponentError, match="no such setting"):
        case.start().awaitTermination(WITHIN_S)


def test_a_refused_login_ends_the_topology(case):
    case.fill(1)

    def refused(partitions):
        raise AuthenticationError("wrong password")

    handle = case.start()
    case.log.bounds = refused
    with pytest.raises(AuthenticationError):
        handle.awaitTermination(WITHIN_S)


def test_an_offset_that_was_trimmed_may_end_the_topology(case):
    case.fill(10)
    case.log.trim(P0, 5)
    case.rules = {"out_of_range": OutOfRange.FAIL}
    case.store.store({P0: CommittedOffset(2)})

    with pytest.raises(DataLossError):
        case.start()


def test_bolts_that_need_longer_than_the_time_out_for_a_chunk_do_their_work(case):
    everything = case.fill(300, 300)
    case.bolt = Slow
    case.limits = replace(case.limits, timeout_ms=600, silent_timeouts=0)
    case.rules = {"back_off": BackOff(limit=0)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == everything
    assert (handle.status.failed, handle.status.skipped) == (0, 0)
    assert case.store.at(P0, P1) == [300, 300]


def test_a_record_that_takes_for_ever_is_found_and_no_other_fails(case):
    everything = case.fill(40)
    case.bolt = Slow
    tried.bad = {(P0, 17): 1_000_000}
    case.limits = replace(case.limits, timeout_ms=250, silent_timeouts=0)
    case.rules = {"back_off": BackOff(limit=1)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == everything - {(P0, 17)}
    assert handle.status.skipped == 1
    assert case.metric("failed_records_total", reason="timed_out") == 2


def test_a_record_that_a_bolt_does_not_give_back_fails_at_once_and_no_other(case):
    everything = case.fill(40)
    held = Hanging(case.engine.run_tasks)
    case.engine.run_tasks = held
    case.limits = replace(case.limits, chunks=1)
    case.rules = {"back_off": BackOff(limit=0)}
    handle = case.start()
    assert held.is_held.wait(WITHIN_S)

    case.engine.tell(TransactionAttempt(1, 1), "work", np.array([17]))
    until(lambda: handle.status.skipped == 1)
    held.may_go.set()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == everything
    assert handle.status.failed == 1


class Fans(BasicBolt):
    """Makes a hundred rows of each record."""

    fields = "n int, long boolean"

    def execute(self, row, collector):
        for n in range(100):
            collector.emit((n, (P0, row.offset) in tried.bad))


class Takes(BasicBolt):
    """Takes its time, by a clock of its own."""

    now_s = 0.0

    def execute(self, row, collector):
        Takes.now_s += 3 if row.long else 0.12
        tried.done[P0, row.n] += 1


def test_one_record_may_use_the_whole_time_out_and_one_that_needs_more_fails(
    case, replace_in
):
    replace_in(at_least_once_runner, "time", monotonic=lambda: Takes.now_s)
    case.fill(3)
    tried.bad = {(P0, 1): 1}
    case.bolt, case.then = Fans, Takes
    case.limits = replace(case.limits, timeout_ms=60_000, chunks=1)
    case.rules = {"back_off": BackOff(limit=0)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert (handle.status.failed, handle.status.skipped) == (1, 1)
    assert case.metric("failed_records_total", reason="timed_out") == 1
    assert case.metric("completed_records_total") == 2


class FailsWhileCleaningUp(BasicBolt):
    """Its cleanup raises as often as it is told, if it was given the record."""

    def prepare(self, context):
        self.given = []

    def execute(self, row, collector):
        self.given.append((TopicPartition(row.topic, row.partition), row.offset))

    def cleanup(self):
        for at in self.given:
            if tried.bad.get(at, 0) > tried.failed[at]:
                tried.failed[at] += 1
                raise OSError("connection reset while closing")
        tried.done.update(self.given)


@pytest.mark.parametrize(("times", "skipped"), [(1, 0), (1_000, 1)])
def test_a_cleanup_that_raises_costs_at_most_the_record_that_leads_to_it(
    case, times, skipped
):
    everything = case.fill(40)
    tried.bad = {(P0, 13): times}
    case.bolt = FailsWhileCleaningUp
    case.rules = {"back_off": BackOff(limit=1)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    lost = {(P0, 13)} if skipped else set()
    assert set(tried.done) == everything - lost
    assert handle.status.skipped == skipped


class OneWay(Exception):  # noqa: N818 - what users write
    """As ``Exception`` pickles it, it cannot be read back."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class EmitsOneWay(BasicBolt):
    fields = ("n", "problem")

    def execute(self, row, collector):
        at = (TopicPartition(row.topic, row.partition), row.offset)
        collector.emit((row.offset, OneWay(1, "") if at in tried.bad else None))


class Keeps(BasicBolt):
    def execute(self, row, collector):
        tried.done[P0, row.n] += 1


def test_a_row_that_cannot_be_unpickled_costs_its_record_alone(case):
    everything = case.fill(40)
    tried.bad = {(P0, 13): 1_000}
    case.bolt, case.then = EmitsOneWay, Keeps
    case.engine._local = LocalEngine(travels=True)
    case.rules = {"back_off": BackOff(limit=0)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == everything - {(P0, 13)}
    assert (handle.status.failed, handle.status.skipped) == (1, 1)


class PreparesLater(Work):
    def prepare(self, context):
        tried.failed[P0, -1] += 1
        if tried.failed[P0, -1] <= 2:
            raise OSError("no connection yet")


def test_a_bolt_that_can_be_prepared_a_little_later_costs_no_record_a_try(case):
    everything = case.fill(40)
    case.bolt = PreparesLater
    case.rules = {"back_off": BackOff(limit=0)}

    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    assert set(tried.done) == everything
    assert (handle.status.failed, handle.status.skipped) == (0, 0)


class Stuck(Work):
    """Never ends for bad records, on the driver."""

    def execute(self, row, collector):
        at = (TopicPartition(row.topic, row.partition), row.offset)
        if tried.bad.get(at, 0) > tried.failed[at]:
            tried.failed[at] += 1
            assert may_go.wait(WITHIN_S)
            return
        super().execute(row, collector)


may_go = threading.Event()


def test_a_bolt_on_the_driver_that_hangs_gives_its_place_to_others(case, monkeypatch):
    monkeypatch.setattr(at_least_once_runner, "_ENDS_WITHIN_MS", 50)
    may_go.clear()
    everything = case.fill(20)
    tried.bad = {(P0, 5): 1, (P0, 9): 1}
    case.bolt, case.is_on_driver = Stuck, True
    case.engine.timeout_s = 0.3
    case.limits = replace(case.limits, timeout_ms=300, silent_timeouts=0)
    case.rules = {"back_off": BackOff(limit=1, initial_delay_ms=10)}
    handle = case.start()
    try:
        assert handle.process_all_available(WITHIN_S)
    finally:
        may_go.set()

    assert set(tried.done) == everything
    assert handle.status.skipped == 0


class WithoutAnchors(RichBolt):
    fields = ("n",)

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, row):
        self.collector.emit((row.offset,))
        self.collector.ack(row)


class StuckLater(BasicBolt):
    def execute(self, row, collector):
        if (P0, row.n) in tried.bad:
            assert may_go.wait(WITHIN_S)
        tried.done[P0, row.n] += 1


def test_a_row_without_anchors_that_hangs_costs_its_record_alone(case, monkeypatch):
    monkeypatch.setattr(at_least_once_runner, "_ENDS_WITHIN_MS", 50)
    may_go.clear()
    everything = case.fill(20)
    tried.bad = {(P0, 5): 1}
    case.bolt, case.then = WithoutAnchors, StuckLater
    case.engine.timeout_s = 1.0
    case.limits = replace(case.limits, timeout_ms=1_000, silent_timeouts=100)
    case.rules = {"back_off": BackOff(limit=0)}
    handle = case.start()
    try:
        assert handle.process_all_available(WITHIN_S)
    finally:
        may_go.set()

    assert set(tried.done) >= everything - {(P0, 5)}
    assert (handle.status.failed, handle.status.skipped) == (1, 1)


def test_a_stop_without_a_time_out_leaves_time_for_the_last_commit(case, monkeypatch):
    monkeypatch.setattr(at_least_once_runner, "END_WITHIN_S", 1.0)
    may_go.clear()
    tried.bad = dict.fromkeys(case.fill(1), 1)
    case.bolt = Stuck
    store = case.store.store

    def slowly(offsets):
        time.sleep(1.0)
        store(offsets)

    handle = case.start()
    until(lambda: tried.failed[P0, 0] == 1)
    case.store.store = slowly

    def go():
        monkeypatch.setattr(at_least_once_runner, "END_WITHIN_S", 60.0)
        may_go.set()

    threading.Timer(1.5, go).start()
    handle.stop(timeout_s=None)

    assert case.store.at(P0) == [1]


class Hanging:
    """Holds a function up until it is let go."""

    def __init__(self, function):
        self._function = function
        self.is_held, self.may_go = threading.Event(), threading.Event()

    def __call__(self, *given):
        self.is_held.set()
        assert self.may_go.wait(WITHIN_S)
        return self._function(*given)


def test_a_discovery_that_hangs_holds_up_no_record_and_no_commit(case):
    handle = case.start()
    hanging = case.log.topics = Hanging(case.log.topics)
    assert hanging.is_held.wait(WITHIN_S)

    everything = case.fill(50, 30)
    tried.bad = {(P0, 3): 2}
    until(lambda: case.store.at(P0, P1) == [50, 30])

    assert set(tried.done) == everything
    assert not handle.process_all_available(0.2)  # who knows what partitions there are
    hanging.may_go.set()
    assert handle.process_all_available(WITHIN_S)


def test_a_store_that_hangs_for_a_new_partition_holds_up_no_record(case):
    handle = case.start()
    hanging = case.store.load = Hanging(case.store.load)
    case.log.add_partitions("t", 3)
    assert hanging.is_held.wait(WITHIN_S)

    everything = case.fill(5, 5)
    until(lambda: set(tried.done) == everything)
    hanging.may_go.set()
    case.log.append(TopicPartition("t", 2), b"v")
    until(lambda: tried.done.total() == 11)

    assert handle.process_all_available(WITHIN_S)


def test_the_end_waits_for_a_silent_store_once_and_not_for_each_partition(case):
    case.log.add_partitions("t", 30)
    handle = case.start()
    assert handle.process_all_available(WITHIN_S)
    for number in range(30):
        case.log.append(TopicPartition("t", number), b"v")
    hanging = case.store.store = Hanging(case.store.store)
    until(lambda: tried.done.total() == 30)

    began_s = time.monotonic()
    handle.stop(timeout_s=3)

    assert time.monotonic() - began_s < 20
    assert handle.exception() is None
    hanging.may_go.set()


def test_a_discovery_that_fails_for_good_ends_the_topology(case):
    handle = case.start()

    def refused(wanted):
        raise AuthenticationError("wrong password")

    case.log.topics = refused
    with pytest.raises(AuthenticationError):
        handle.awaitTermination(WITHIN_S)


def test_it_is_not_idle_while_a_partition_has_no_leader_yet(case):
    case.fill(5)
    case.log.set_leader(P1, None)
    handle = case.start()
    until(lambda: case.store.at(P0) == [5])
    assert not handle.process_all_available(0.3)

    case.log.set_leader(P1, MEMORY_BROKER)
    case.log.append(P1, b"v")
    assert handle.process_all_available(WITHIN_S)

    assert case.store.at(P0, P1) == [5, 1]


def test_it_is_not_idle_while_a_leader_is_lost(case):
    case.fill(5, 5)
    handle = case.start()
    assert handle.process_all_available(WITHIN_S)

    case.log.append(P1, b"v")
    case.log.set_leader(P1, None)
    until(lambda: case.store.at(P1) == [6] or not handle.process_all_available(0.3))
    case.log.set_leader(P1, MEMORY_BROKER)
    assert handle.process_all_available(WITHIN_S)

    assert case.store.at(P0, P1) == [5, 6]


def test_who_waits_for_everything_waits_for_new_partitions_too(case):
    case.refresh_ms = 60_000
    case.fill(5)
    handle = case.start()
    until(lambda: case.store.at(P0) == [5])
    case.log.add_partitions("t", 3)
    case.log.append(TopicPartition("t", 2), b"v")

    assert handle.process_all_available(WITHIN_S)

    assert case.store.at(P0, P1, TopicPartition("t", 2)) == [5, 0, 1]


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


def test_what_ended_it_is_kept_for_status_and_the_next_process(case, tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    case.fill(3)
    case.bolt, case.notes = Broken, open_stop_store(url, "job")

    with pytest.raises(ComponentError):
        case.start().awaitTermination(WITHIN_S)

    result = CliRunner().invoke(app, ["status", "--store", url])
    assert "job.at-least-once" in result.stdout
    assert "no such setting" in result.stdout
    later, notes = MetricsRegistry(), open_stop_store(url, "job")
    assert notes is not None
    show_last_stop(later, notes, "job")
    notes.close()
    assert ("job", "user") in later.samples()["kafka_tx_last_stop_timestamp_seconds"]


@pytest.mark.parametrize("url", ["kafka:", "memory:", "sqlite:////no/such/place.db"])
def test_where_nothing_can_be_kept_it_works_all_the_same(url):
    assert open_stop_store(url, "job") is None
