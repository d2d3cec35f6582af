"""At-least-once topologies from start to end, in this process, on a log in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kafka_tx.model import TopicPartition
from kafka_tx.offsets.retry import BackOff
from kafka_tx.topology.at_least_once import pace
from kafka_tx.topology.at_least_once.pace import FIRST_RECORDS
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.rows.schemes import RecordScheme
from tests.spark.spout_case import P0, P1, WITHIN_S, Forgetful, tried, until


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


def test_no_more_records_are_in_flight_than_allowed(case):
    case.fill(100)
    case.limits = replace(case.limits, max_pending=7, chunk_records=50)

    assert case.start().process_all_available(WITHIN_S)

    assert max(case.engine.sizes) <= 7


class Quick(BasicBolt):
    def execute_arrow(self, batch, collector):
        pass


@pytest.mark.parametrize("is_on_driver", [False, True])
def test_quick_bolts_get_larger_chunks_unless_one_runs_on_the_driver(
    case, is_on_driver, monkeypatch
):
    monkeypatch.setattr(pace, "_WANTED_S", 1e9)  # every bolt is quick
    case.fill(35_000)
    case.bolt, case.is_on_driver = Quick, is_on_driver

    assert case.start().process_all_available(WITHIN_S)

    assert case.engine.sizes[0] == FIRST_RECORDS
    assert (max(case.engine.sizes) > FIRST_RECORDS) is not is_on_driver


def test_failed_records_near_each_other_are_one_fetch(case):
    case.fill(100)
    tried.bad = {(P0, n): 1 for n in range(0, 100, 10)}

    assert case.start().process_all_available(WITHIN_S)

    assert sum(case.reader.fetches.values()) <= 4


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

    assert handle.exception() is None
    assert handle.awaitTermination(0)
    assert not handle.status.is_active


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


def test_everything_about_a_partition_is_measured(case):
    case.fill(10)
    tried.bad = {(P0, 3): 1, (P0, 4): 1_000_000}
    case.rules = {"back_off": BackOff(limit=2)}
    assert case.start().process_all_available(WITHIN_S)
    found = case.registry.samples()

    def of(name, *labels):
        return found[f"kafka_tx_{name}"]["job", "t", "0", *labels][0]

    assert of("emitted_offset") == of("completed_offset") == 10
    assert of("committed_offset") == 10
    assert of("lag_records") == of("pending_records") == of("retry_records") == 0
    assert of("oldest_pending_age_seconds") == 0
    assert of("emitted_records_total") == 10
    assert of("completed_records_total") == 9
    assert of("failed_records_total", "failed") == 1 + 3
    assert of("retried_records_total") == 1 + 2
    assert of("ineligible_records_total") == 1
    assert of("lost_records_total", "retry_limit") == 1
    assert of("fetch_duration_seconds") > 0
