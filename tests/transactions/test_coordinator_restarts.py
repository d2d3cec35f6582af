"""The transaction coordinator: the store, a new start, and the end."""

from __future__ import annotations

import pytest

from kafka_tx.errors import FencedError, StateCorruptedError, StateUnavailableError
from kafka_tx.transactions.coordinator.actions import (
    Cancel,
    Initialize,
    Outcome,
    StartBatch,
    StartCommit,
    Stopped,
    TransactionCommitted,
    Write,
)
from kafka_tx.transactions.layout import records
from tests.transactions import drive as driving
from tests.transactions.drive import (
    BOTH,
    EPOCH,
    TIMEOUT_MS,
    Drive,
    paced,
    started_again,
)

# --- the store ---


@BOTH
def test_a_write_that_may_have_failed_is_made_again_before_all_else(mode):
    drive = Drive(mode, max_pending=2, **paced())
    first, second = drive.start(1, 2)
    drive.process(first, second)
    drive.tick()
    record = drive.recorded(first)

    error = StateUnavailableError("no answer")
    assert drive.machine.store_failed(record.write_id, error) == []
    assert drive.machine.stored(record.write_id) == []  # too late to be believed
    assert drive.tick(49) == []
    assert drive.machine.wakes_at_ms() == 50
    (again,) = drive.tick(1)

    assert isinstance(again, Write)
    assert (again.put, again.delete) == (record.put, record.delete)
    assert again.write_id != record.write_id
    assert drive.machine.store_failed(record.write_id, error) == []
    assert drive.make(again) == [
        TransactionCommitted(first, "batch 1"),
        StartCommit(second),
    ]


def test_writes_are_made_one_at_a_time_in_their_order():
    drive = Drive(max_pending=2)
    (first,) = drive.start(1)
    drive.process(first)
    drive.tick()
    (record,) = drive.machine.committed(first)

    assert drive.machine.initialized(drive.asked.attempt, "two") == []

    committed, metadata = drive.make(record)
    assert committed == TransactionCommitted(first, "batch 1")
    assert isinstance(metadata, Write)
    assert list(metadata.put) == ["meta/2"]
    assert drive.make(metadata) == []


@pytest.mark.parametrize("error", [FencedError("epoch 4"), ValueError("broken")])
def test_an_error_of_the_store_that_no_retry_mends_stops_everything(error):
    drive = Drive(max_pending=2)
    first, second = drive.start(1, 2)
    drive.process(first)
    drive.tick()
    record = drive.recorded(first)

    assert drive.machine.store_failed(record.write_id, error) == [
        Cancel((first, second), f"stopped by {error}", Outcome.CANCELLED),
        Stopped(error),
    ]

    assert drive.machine.is_stopped
    assert drive.tick() == []
    assert drive.machine.stored(record.write_id) == []


# --- opening ---


def test_what_was_in_flight_starts_again_from_its_stored_metadata():
    before = Drive(max_pending=3)
    first, *_ = before.start(1, 2, 3)
    before.process(first)
    before.commit(first)

    after = Drive(max_pending=3, stored=before.store, epoch=EPOCH + 1)
    second, third, planning = after.tick()

    assert isinstance(second, StartBatch)
    assert isinstance(third, StartBatch)
    assert isinstance(planning, Initialize)
    assert (second.attempt.txid, second.metadata) == (2, "batch 2")
    assert (third.attempt.txid, third.committed_txid) == (3, 1)
    assert (planning.attempt.txid, planning.previous) == (4, "batch 3")


@BOTH
def test_a_crash_between_commit_and_record_commits_the_same_txid_again(mode):
    before = Drive(mode)
    (first,) = before.start(1)
    before.process(first)
    before.tick()
    before.machine.committed(first)

    after = Drive(mode, stored=before.store, epoch=EPOCH + 1)
    (again,) = started_again(after)
    after.process(again)

    assert after.tick() == [StartCommit(again)]
    assert again.txid == 1


def test_stored_metadata_of_an_uncommitted_opaque_txid_is_void():
    transactional = Drive(max_pending=3)
    first, *_ = transactional.start(1, 2, 3)
    transactional.process(first)
    transactional.commit(first)

    opaque = Drive("opaque", stored=transactional.store)
    (action,) = opaque.tick()

    assert isinstance(action, Initialize)
    assert (action.attempt.txid, action.previous) == (2, "batch 1")


@BOTH
def test_attempt_ids_rise_and_are_never_used_again(mode):
    first = Drive(mode, epoch=3)
    attempts = first.start(1)
    first.machine.failed(attempts[0], "a bolt")
    attempts += started_again(first)
    later = Drive(mode, epoch=4, stored=first.store)
    attempts += started_again(later)

    ids = [attempt.attempt_id for attempt in attempts]
    assert ids == sorted(set(ids))
    assert [number // 10**12 for number in ids] == [3, 3, 4]
    assert max(ids) < 2**63


@pytest.mark.parametrize("payload", [0, -1, "2", 1.5, True, [1]])
def test_a_currtx_that_is_no_txid_is_named(payload):
    record = records.encode("currtx", payload)

    with pytest.raises(StateCorruptedError, match="'currtx' of id 'jobs'"):
        Drive(stored={"currtx": record})


@BOTH
@pytest.mark.parametrize(
    ("currtx", "txids"),
    [(1, [2]), (3, []), (3, [3]), (3, [1, 2]), (3, [2, 4]), (2, [2])],
)
def test_a_hole_in_the_stored_txids_is_named(mode, currtx, txids):
    stored = {f"meta/{txid}": driving.meta(txid, "x") for txid in txids}
    stored["currtx"] = driving.currtx(currtx)

    with pytest.raises(
        StateCorruptedError, match="every txid from|it is missing and a later one"
    ) as caught:
        Drive(mode, stored=stored)

    assert "repair" in str(caught.value)


# --- pausing and stopping ---


@BOTH
def test_while_paused_commits_go_on_and_nothing_starts(mode):
    drive = Drive(mode, max_pending=2)
    first, second = drive.start(1, 2)
    drive.machine.pause()
    drive.process(first)
    drive.commit(first)
    drive.machine.failed(second, "a bolt")

    assert drive.tick() == []
    assert not drive.machine.asks_ready(drive.now_ms)
    drive.machine.activate()
    assert drive.tick() != []


@BOTH
def test_stopping_finishes_what_is_in_flight(mode):
    drive = Drive(mode, max_pending=2)
    first, second = drive.start(1, 2)

    assert drive.machine.stop(finish=True) == []
    assert drive.tick() == []
    drive.process(first, second)
    assert drive.commit(first)[1:] == [StartCommit(second)]
    (record,) = drive.machine.committed(second)
    assert drive.tick() == []
    drive.make(record)

    assert drive.tick() == [Stopped()]
    assert drive.tick() == []


@BOTH
def test_what_fails_while_stopping_is_left_for_the_next_start(mode):
    drive = Drive(mode, max_pending=2)
    first, _ = drive.start(1, 2)
    drive.machine.stop(finish=True)

    drive.machine.failed(first, "a bolt")

    assert drive.tick() == [Stopped()]


@BOTH
def test_stopping_at_once_lets_only_the_commit_under_way_end(mode):
    drive = Drive(mode, max_pending=3)
    first, second, third = drive.start(1, 2, 3)
    drive.process(first, second)
    drive.tick()

    assert drive.machine.stop(finish=False) == [
        Cancel((second, third), "stopped", Outcome.CANCELLED)
    ]
    assert drive.tick() == []
    (record,) = drive.machine.committed(first)
    assert drive.make(record) == [TransactionCommitted(first, "batch 1")]

    assert drive.tick() == [Stopped()]


@BOTH
def test_stopping_at_once_cancels_a_batch_that_only_waits_to_commit(mode):
    drive = Drive(mode)
    (first,) = drive.start(1)
    drive.process(first)

    assert drive.machine.stop(finish=False) == [
        Cancel((first,), "stopped", Outcome.CANCELLED)
    ]
    assert drive.tick() == []  # the store has been asked, and answers first
    assert drive.tick() == [Stopped()]


def test_stopping_waits_for_a_late_commit_call():
    drive = Drive(timeout_ms=TIMEOUT_MS)
    (late,) = drive.start(1)
    drive.process(late)
    drive.tick()
    drive.machine.stop(finish=True)

    assert [type(a) for a in drive.tick(TIMEOUT_MS)] == [Cancel]
    drive.machine.commit_failed(late, "cancelled")
    assert drive.tick() == [Stopped()]


@BOTH
def test_a_plan_that_comes_after_the_end_is_ignored(mode):
    drive = Drive(mode)
    (planning,) = drive.tick()
    drive.machine.stop(finish=True)
    assert drive.tick() == [Stopped()]

    assert drive.machine.initialized(planning.attempt, "late") == []
    assert drive.machine.stop(finish=False) == []
    assert drive.machine.abort(ValueError("late")) == []


@BOTH
def test_an_error_of_the_users_code_stops_everything_with_that_error(mode):
    drive = Drive(mode, max_pending=2)
    attempts = drive.start(1, 2)
    error = ZeroDivisionError("in bolt 'sum'")

    assert drive.machine.crashed(attempts[1], error) == [
        Cancel(tuple(attempts), "stopped by in bolt 'sum'", Outcome.CANCELLED),
        Stopped(error),
    ]
    assert drive.tick() == []


def test_an_error_while_planning_stops_everything():
    drive = Drive()
    (planning,) = drive.tick()
    error = ZeroDivisionError()

    assert drive.machine.crashed(planning.attempt, error) == [Stopped(error)]
