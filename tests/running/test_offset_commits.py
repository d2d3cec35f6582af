"""When a poller stores what is completed."""

from __future__ import annotations

import pytest

from kafka_tx.errors import StateCorruptedError, StateLostError, StateUnavailableError
from kafka_tx.model import CommittedOffset, OffsetRange
from tests.running.polling import COMMIT_MS, P0, P1, acked


def test_what_is_completed_is_stored_when_it_is_time(case):
    acked(case)
    case.poller.commit_if_due()
    assert case.store.stores == 0

    case.clock.advance(COMMIT_MS)
    case.poller.commit_if_due()
    case.take()

    assert case.store.load([P0, P1]) == {P0: CommittedOffset(1)}
    assert case.coordinator.managers[P0].committed_to == 1


def test_a_clock_that_was_set_back_still_commits(case):
    acked(case)
    case.clock.set_wall(1)

    case.poller.commit_if_due()
    case.take()

    assert case.store.load([P0]) == {P0: CommittedOffset(1)}


def test_nothing_new_is_nothing_to_store(case):
    case.poller.commit_if_due(at_once=True)

    assert case.store.stores == 0


def test_what_was_not_stored_is_stored_next_time(case):
    acked(case)
    case.store.error = StateUnavailableError("away")
    case.poller.commit_if_due(at_once=True)
    case.take()
    assert case.coordinator.managers[P0].committed_to == 0
    case.store.error = None

    case.poller.commit_if_due(at_once=True)
    case.take()

    assert case.coordinator.managers[P0].committed_to == 1


def test_a_store_that_refuses_is_raised_on_the_topologys_thread(case):
    acked(case)
    case.store.error = StateCorruptedError("no")
    case.poller.commit_if_due(at_once=True)

    with pytest.raises(StateCorruptedError):
        case.take()


def test_a_store_that_forgets_is_told_everything_again_in_time(case):
    case.store.renew_ms = lambda: 60_000
    case.poller.parts.keeper.acquire(0, 1)
    case.poll()
    case.emit()
    for manager in case.poller.partitions.managers:
        manager.ack(OffsetRange(manager.topic_partition, 0, 10))
    case.poller.commit_if_due(at_once=True)
    case.take()

    for _ in range(2):
        case.store.store({P0: CommittedOffset(1), P1: CommittedOffset(1)})
        case.clock.advance(59_999 - COMMIT_MS)
        case.poller.commit_if_due(at_once=True)
        case.take()
        stored = case.store.load([P0, P1])
        assert [each.offset for each in stored.values()] == [1, 1], "only asked"
        case.clock.advance(COMMIT_MS + 1)
        case.poller.commit_if_due()
        case.take()
        stored = case.store.load([P0, P1])
        assert [each.offset for each in stored.values()] == [10, 10]


def test_a_renewal_that_failed_is_tried_again(case):
    case.store.renew_ms = lambda: 60_000
    case.poller.parts.keeper.acquire(0, 1)
    case.poller.partitions.managers[0].committed(CommittedOffset(0))
    case.clock.advance(60_000)
    case.store.error = StateUnavailableError("away")
    case.poller.commit_if_due(at_once=True)
    case.take()
    case.store.error = None

    case.poller.commit_if_due(at_once=True)
    case.take()

    assert P0 in case.store.load([P0])


def test_a_store_is_asked_now_and_then_while_there_is_nothing_to_store(case):
    case.poll()
    asked: list[object] = []
    case.store.store = asked.append

    case.clock.advance(4_999)
    case.poller.commit_if_due(at_once=True)
    assert asked == []
    case.clock.advance(1)
    case.poller.commit_if_due(at_once=True)
    case.take()

    assert asked == [{}]
    case.store.store = went_back
    case.clock.advance(5_000)
    case.poller.commit_if_due(at_once=True)
    with pytest.raises(StateLostError):
        case.take()


def went_back(_):
    raise StateLostError("it went back")
