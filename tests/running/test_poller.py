"""When a poller looks, refreshes and emits."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    DamagedRecordsError,
)
from kafka_tx.model import LogBounds, OffsetRange, Unavailable
from kafka_tx.offsets.loss import LossReason
from kafka_tx.planned_topic import damaged
from kafka_tx.planning.log_bounds import BUSY_POLL_MS, POLL_MS, SOON_MS
from kafka_tx.running.at_least_once.poller import HOLD_MS, REFRESH_MS
from tests.running.polling import P0, P1


def test_nothing_is_emitted_before_the_logs_were_polled(case):
    assert case.emit() == []

    case.poll()

    assert sorted(case.emit()) == ["t-0 [0, 10)", "t-1 [0, 10)"]
    assert case.cluster.asked == [[P0, P1]]


def test_no_poll_is_begun_while_one_is_under_way(case):
    case.poller.poll_if_due()
    case.clock.advance(60_000)
    case.poller.poll_if_due()

    assert case.poller.next_polls().logs - 1 == 1
    case.take()
    assert case.poller.ended_polls().logs == 1


def test_it_polls_often_while_there_is_nothing_and_seldom_while_there_is(case):
    case.poll()
    case.clock.advance(SOON_MS - 1)
    case.poller.poll_if_due()
    assert case.poller.next_polls().logs - 1 == 1
    case.clock.advance(1)
    case.poll()
    assert case.poller.next_polls().logs - 1 == 2

    assert case.emit()
    case.clock.advance(POLL_MS)
    case.poller.poll_if_due()
    assert case.poller.next_polls().logs - 1 == 2
    case.clock.advance(BUSY_POLL_MS - POLL_MS)
    case.poll()
    assert case.poller.next_polls().logs - 1 == 3


def test_a_partition_that_does_not_answer_is_refreshed_and_the_others_go_on(case):
    case.cluster.logs[P0] = Unavailable("no leader")

    case.poll()
    case.take()

    assert case.coordinator.taken == 1
    assert case.emit() == ["t-1 [0, 10)"]


def test_brokers_that_are_away_change_nothing(case):
    case.poll()
    case.cluster.problem = BrokerUnavailableError("down")
    case.clock.advance(POLL_MS)

    case.poll()
    case.take()

    assert case.coordinator.taken == 1
    assert case.poller.partitions.bounds == case.cluster.logs
    assert case.poller.ended_polls().logs == 1


def test_a_refused_poll_is_raised_on_the_topologys_thread(case):
    case.cluster.problem = AuthenticationError("wrong password")
    case.poller.poll_if_due()

    with pytest.raises(AuthenticationError):
        case.take()


def test_partitions_are_discovered_when_the_coordinator_says_so(case):
    case.poller.refresh_if_due()
    assert case.coordinator.polls == 0
    case.coordinator.due = True

    case.poller.refresh_if_due()
    case.poller.refresh_if_due()
    case.take()
    assert (case.coordinator.polls, case.coordinator.taken) == (1, 1)

    case.clock.advance(REFRESH_MS - 1)
    case.poller.refresh_if_due()
    assert case.coordinator.polls == 1
    case.clock.advance(1)
    case.poller.refresh_if_due()
    case.take()
    assert case.coordinator.polls == 2


def test_a_discovery_runs_on_another_thread_and_ends_on_this_one(case):
    threads = []

    def poll():
        threads.append(threading.current_thread())
        return lambda: threads.append(threading.current_thread())

    case.coordinator.poll = poll
    case.coordinator.due = True
    case.poller.refresh_if_due()
    case.take()

    assert threads[0] is not threads[1]
    assert threads[1] is threading.current_thread()


def test_a_refused_discovery_is_raised_on_the_topologys_thread(case):
    case.coordinator.due = True
    case.coordinator.problem = AuthenticationError("wrong password")
    case.poller.refresh_if_due()

    with pytest.raises(AuthenticationError):
        case.take()


def test_a_partition_whose_fetch_failed_rests(case):
    case.poll()

    case.poller.fetch_failed(P0)
    case.take()

    assert case.emit() == ["t-1 [0, 10)"]
    case.clock.advance(HOLD_MS)
    assert case.emit() == ["t-0 [0, 10)"]


def test_damage_lets_its_partition_rest_longer_each_time_and_then_ends(case):
    case.poll()
    damage = damaged(OffsetRange(P0, 0, 9, "id"), "damaged", 3, "one:9092", "", 5)
    case.poller.parts = replace(case.poller.parts, skip="kafka-tx skip --records")
    for pause_s in (1, 2, 4, 8, 16, 30, 30, 30):
        case.poller.fetch_failed(P0, damage)
        case.take()
        case.clock.advance(pause_s * 1_000 - 1)
        assert not [each for each in case.emit() if each.startswith("t-0")]
        case.clock.advance(1)
        assert "t-0 [0, 10)" in case.emit()
        manager = case.coordinator.managers[P0]
        manager.release(OffsetRange(P0, 0, 10), case.clock.monotonic_ms())

    command = r"run `kafka-tx skip --records t-0:3-5@id`, start it"
    with pytest.raises(DamagedRecordsError, match=command):
        case.poller.fetch_failed(P0, damage)


def test_damage_of_what_was_read_meanwhile_counts_anew(case):
    damage = damaged(OffsetRange(P0, 0, 9, "id"), "damaged", 3, "one:9092", "", 5)
    for _ in range(20):
        case.poller.fetch_failed(P0, damage)
        case.poller.was_read(OffsetRange(P0, 3, 4))

    for _ in range(8):
        case.poller.fetch_failed(P0, damage)
        case.poller.was_read(OffsetRange(P0, 4, 9))  # not what was damaged
        case.poller.was_read(OffsetRange(P1, 0, 9))
    with pytest.raises(DamagedRecordsError):
        case.poller.fetch_failed(P0, damage)


def test_other_damage_of_a_partition_counts_anew(case):
    for position in range(20):
        damage = damaged(OffsetRange(P0, 0, 99), "damaged", position, "one:9092", "")
        case.poller.fetch_failed(P0, damage)


def test_it_is_idle_when_all_is_read_completed_and_stored(case):
    case.poll()
    assert not case.poller.is_idle
    for emission in case.poller.chunk(100):
        emission.manager.ack(emission.range)
    assert case.poller.is_completed
    assert not case.poller.is_idle

    case.poller.commit_if_due(at_once=True)
    assert not case.poller.is_idle
    case.take()

    assert case.poller.is_idle


def test_a_log_that_seems_shorter_is_not_believed_at_once(case):
    case.poll()
    for emission in case.poller.chunk(100):
        emission.manager.ack(emission.range)
    case.cluster.logs[P0] = LogBounds(0, 4)

    for _ in range(2):
        case.clock.advance(5_000)
        case.answered_poll()
        case.poller.chunk(100)
        assert case.coordinator.manager(P0).counts.skipped[LossReason.CUT] == 0
    case.clock.advance(5_000)
    case.answered_poll()
    case.poller.chunk(100)

    assert case.coordinator.manager(P0).counts.skipped[LossReason.CUT] == 6
    assert not case.poller.is_idle


def test_an_answer_that_nobody_confirms_is_not_believed_however_old_it_is(case):
    case.poll()
    for emission in case.poller.chunk(100):
        emission.manager.ack(emission.range)
    case.cluster.logs[P0] = LogBounds(0, 4)
    case.clock.advance(5_000)
    case.answered_poll()
    case.cluster.problem = BrokerUnavailableError("silent")

    for _ in range(4):
        case.clock.advance(5_000)
        case.poll()
        case.poller.chunk(100)

    assert case.coordinator.manager(P0).counts.skipped[LossReason.CUT] == 0


def test_it_is_not_idle_while_a_partition_is_not_open(case):
    for at in (P0, P1):
        case.cluster.logs[at] = LogBounds(0, 0)
    case.poll()
    assert case.poller.is_idle

    del case.coordinator.managers[P1]
    case.coordinator.due = True
    case.poller.refresh_if_due()
    case.take()

    assert not case.poller.is_idle


def test_it_wakes_for_the_next_poll_retry_or_commit(case):
    case.poll()
    began = case.clock.monotonic_ms()
    assert case.poller.wakes_at_ms() == began + 2 * SOON_MS, "the least wait"

    (first, _) = case.poller.chunk(100)
    assert case.poller.wakes_at_ms() == began + BUSY_POLL_MS
    first.manager.release(0, began)

    assert case.poller.wakes_at_ms() == began + 10, "but not at once"
