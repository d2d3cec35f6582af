"""The transaction coordinator: what a failure or a late answer does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_tx.errors import (
    DamagedRecordsError,
    FencedError,
    StateUnavailableError,
    TransactionError,
)
from kafka_tx.model import (
    BatchMetadata,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
)
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
from kafka_tx.transactions.coordinator.coordinator import FRESH_MS, POLL_MS
from kafka_tx.transactions.coordinator.in_flight_batches import BatchPhase
from tests.transactions.drive import (
    BOTH,
    EPOCH,
    TIMEOUT_MS,
    Drive,
    is_question,
    paced,
    started_again,
)

LATE = f"took longer than {TIMEOUT_MS} ms"

# --- failing ---


@BOTH
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_failed_batch_takes_the_later_ones_with_it(mode, failing):
    drive = Drive(mode, max_pending=3)
    attempts = drive.start(1, 2, 3)
    drive.process(attempts[2])

    actions = drive.machine.failed(attempts[failing - 1], "a bolt")

    assert actions == [Cancel(tuple(attempts[failing - 1 :]), "a bolt")]
    assert list(drive.phases()) == list(range(1, failing))


def test_a_transactional_replay_is_the_same_batch_and_asks_nobody():
    drive = Drive(max_pending=3)
    attempts = drive.start(1, 2, 3)
    drive.machine.failed(attempts[1], "a bolt")

    assert not drive.machine.asks_ready(drive.now_ms)
    second, third = drive.tick(is_ready=False)

    assert isinstance(second, StartBatch)
    assert isinstance(third, StartBatch)
    assert (second.attempt.txid, second.metadata) == (2, "batch 2")
    assert (third.attempt.txid, third.metadata) == (3, "batch 3")
    assert second.attempt.attempt_id > attempts[1].attempt_id


def test_an_opaque_replay_is_planned_anew_in_order_without_asking():
    drive = Drive("opaque", max_pending=3)
    attempts = drive.start(1, 2, 3)
    drive.machine.failed(attempts[1], "a bolt")

    assert not drive.machine.asks_ready(drive.now_ms)
    (second,) = drive.tick(is_ready=False)
    assert isinstance(second, Initialize)
    assert (second.attempt.txid, second.previous) == (2, "batch 1")
    drive.machine.initialized(second.attempt, "less")

    batch, third = drive.tick(is_ready=False)
    assert batch == StartBatch(second.attempt, "less", None)
    assert isinstance(third, Initialize)
    assert (third.attempt.txid, third.previous) == (3, "less")


def test_an_opaque_first_batch_is_planned_anew_from_where_it_began():
    drive = Drive("opaque")
    drive.tick()
    at = TopicPartition("t", 0)
    planned = BatchMetadata(1, (OffsetRange(at, 7, 9, "id"),), {"t": "id"})
    drive.answer(planned)
    (batch,) = drive.tick()
    assert (batch.attempt.txid, batch.metadata) == (1, planned)

    drive.machine.failed(batch.attempt, "a task")
    drive.tick()

    begins = replace(planned, txid=0, ranges=(OffsetRange(at, 7, 7, "id"),))
    assert drive.asked.previous == begins
    later = Drive("opaque", epoch=EPOCH + 1, stored=drive.store)
    later.tick()
    assert later.asked.previous == begins


def test_an_opaque_plan_under_way_is_void_when_an_earlier_batch_fails():
    drive = Drive("opaque", max_pending=3)
    (first,) = drive.start(1)
    void = drive.asked.attempt
    drive.machine.failed(first, "a bolt")

    assert drive.machine.planning is None
    assert drive.machine.initialized(void, "from the old end") == []

    (action,) = drive.tick()
    assert isinstance(action, Initialize)
    assert action.attempt.txid == 1


def test_a_transactional_plan_under_way_survives_an_earlier_failure():
    drive = Drive(max_pending=3)
    (first,) = drive.start(1)
    assert drive.asked.attempt.txid == 2
    drive.machine.failed(first, "a bolt")
    assert [a.attempt.txid for a in drive.tick()] == [1]

    drive.answer("two")

    batch = drive.tick()[0]
    assert isinstance(batch, StartBatch)
    assert (batch.attempt.txid, batch.metadata) == (2, "two")


@BOTH
def test_late_answers_of_an_old_attempt_touch_nothing(mode):
    drive = Drive(mode, max_pending=2)
    olds = drive.start(1, 2)
    drive.machine.failed(olds[0], "a bolt")
    drive.start(1, 2) if mode == "opaque" else drive.tick()
    before, wakes_at_ms = drive.machine.phases, drive.machine.wakes_at_ms()
    planning, stored = drive.machine.planning, drive.machine.state

    for late in olds:
        assert drive.machine.processed(late) == []
        assert drive.machine.failed(late, "late") == []
        assert drive.machine.committed(late) == []
        assert drive.machine.commit_failed(late, "late") == []
        assert drive.machine.crashed(late, ValueError("late")) == []

    assert [a.txid for a in before] == [1, 2]
    assert (drive.machine.phases, drive.machine.planning) == (before, planning)
    assert (drive.machine.state, drive.machine.wakes_at_ms()) == (stored, wakes_at_ms)
    assert not drive.machine.is_stopped


PAUSES_MS = (100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000)


@BOTH
@pytest.mark.parametrize("phase", ["processing", "committing"])
def test_a_batch_that_fails_again_and_again_is_replayed_after_longer_pauses(
    mode, phase
):
    drive = Drive(mode)
    (attempt,) = drive.start(1)
    drive.asked = None
    fail(drive, attempt, phase)
    attempt = replayed(drive, drive.tick())
    for pause_ms in PAUSES_MS:
        fail(drive, attempt, phase)
        wakes_at_ms = drive.machine.wakes_at_ms() or 0
        assert drive.now_ms < wakes_at_ms <= drive.now_ms + pause_ms
        assert drive.tick(pause_ms - 1) == []
        attempt = replayed(drive, drive.tick(1))

    drive.process(attempt)
    drive.commit(attempt)
    (second,) = drive.start(2)
    drive.machine.failed(second, "a bolt")

    assert replayed(drive, drive.tick()).txid == 2  # counted anew


def fail(drive, attempt, phase):
    if phase == "committing":
        drive.process(attempt)
        assert StartCommit(attempt) in drive.tick()
        drive.machine.commit_failed(attempt, "a committer")
    else:
        drive.machine.failed(attempt, "a bolt")


@BOTH
def test_a_pause_begins_when_the_batch_fails(mode):
    """Not at the last tick, which may be long ago."""
    drive = Drive(mode)
    (attempt,) = drive.start(1)
    drive.asked = None
    drive.machine.failed(attempt, "a bolt")
    attempt = replayed(drive, drive.tick())

    drive.now_ms = drive.machine.now_ms = 3_000
    drive.machine.failed(attempt, "a bolt")

    assert drive.tick(99) == []
    assert replayed(drive, drive.tick(1)).txid == 1


def test_the_failures_of_a_later_batch_hold_up_no_lower_one():
    drive = Drive(max_pending=2, timeout_ms=TIMEOUT_MS)
    first, second = drive.start(1, 2)
    drive.machine.failed(second, "a bolt")
    (second,) = (batch.attempt for batch in drive.tick())
    drive.machine.failed(second, "a bolt")
    assert drive.tick() == []

    drive.machine.failed(first, "a bolt")
    (again,) = drive.tick()
    assert again.attempt.txid == 1
    drive.process(again.attempt)
    drive.commit(again.attempt)

    assert drive.tick(99, is_ready=False) == []
    assert [a.attempt.txid for a in drive.tick(1, is_ready=False)] == [2]


def test_a_batch_that_was_late_is_replayed_at_once():
    drive = Drive(max_pending=1, timeout_ms=TIMEOUT_MS)
    drive.start(1)

    for doubled in (1, 2, 4):
        _, again = drive.tick(doubled * TIMEOUT_MS)
        assert again.attempt.txid == 1


@BOTH
def test_damaged_records_are_read_again_after_longer_and_longer_pauses(mode):
    drive = Drive(mode)
    damage = DamagedRecordsError("damaged", position=7)
    (attempt,) = drive.start(1)
    drive.asked = None
    for pause_s in (1, 2, 4, 8, 16):
        failed = drive.machine.failed(attempt, "damaged", damage)
        assert failed == [Cancel((attempt,), "damaged")]
        assert drive.tick() == []
        wakes_at_ms = drive.machine.wakes_at_ms() or 0
        assert drive.now_ms < wakes_at_ms <= drive.now_ms + pause_s * 1_000
        assert drive.tick(pause_s * 1_000 - 1) == []
        attempt = replayed(drive, drive.tick(1))

    cancelled, stopped = drive.machine.failed(attempt, "damaged", damage)
    assert isinstance(cancelled, Cancel)
    assert stopped == Stopped(damage)


def replayed(drive, actions):
    if isinstance(actions[0], Initialize):
        drive.answer("less")
        actions = drive.tick()
    return actions[0].attempt


def test_tries_count_anew_for_each_batch():
    drive = Drive()
    damage = DamagedRecordsError("damaged", position=7)
    (attempt,) = drive.start(1)
    for _ in range(4):
        drive.machine.failed(attempt, "damaged", damage)
        attempt = replayed(drive, drive.tick(60_000))
    drive.process(attempt)
    drive.commit(attempt)
    (attempt,) = drive.start(2)

    for _ in range(5):
        drive.machine.failed(attempt, "damaged", damage)
        attempt = replayed(drive, drive.tick(60_000))

    assert not drive.machine.is_stopped


@pytest.mark.parametrize("stops", [None, DamagedRecordsError("damaged")])
def test_a_stop_does_not_wait_for_a_replay(stops):
    drive = Drive()
    (attempt,) = drive.start(1)
    drive.machine.failed(attempt, "a bolt")
    attempt = replayed(drive, drive.tick())
    drive.machine.failed(attempt, "again", stops)

    drive.machine.stop(finish=True)

    assert Stopped(None) in drive.tick()


@BOTH
def test_a_failed_commit_replays_from_the_processing_phase(mode):
    drive = Drive(mode, max_pending=2)
    first, second = drive.start(1, 2)
    drive.process(first, second)
    drive.tick()

    assert drive.machine.commit_failed(first, "finish_batch") == [
        Cancel((first, second), "finish_batch")
    ]

    assert drive.phases() == {}
    assert not any(isinstance(a, StartCommit) for a in drive.tick())


@BOTH
@pytest.mark.parametrize("answer", ["crashed", "commit_failed", "committed"])
def test_a_commit_phase_that_was_given_up_holds_up_the_next_until_it_ends(mode, answer):
    drive = Drive(mode)
    (given_up,) = drive.start(1)
    drive.process(given_up)
    drive.tick()
    drive.machine.failed(given_up, "executor lost")
    (again,) = drive.start(1) if mode == "opaque" else [a.attempt for a in drive.tick()]
    drive.process(again)
    assert drive.tick() == []

    match answer:
        case "crashed":
            drive.machine.crashed(given_up, ValueError("after all"))
        case "commit_failed":
            drive.machine.commit_failed(given_up, "after all")
        case _:
            drive.machine.committed(given_up)

    assert drive.tick() == [StartCommit(again)]


@BOTH
def test_once_its_commit_is_complete_a_batch_cannot_fail(mode):
    drive = Drive(mode, max_pending=2)
    first, second = drive.start(1, 2)
    drive.process(first)
    drive.tick()
    (record,) = drive.machine.committed(first)

    assert drive.machine.failed(first, "executor lost") == []
    assert drive.machine.crashed(first, ValueError("too late")) == []
    assert drive.tick(10 * TIMEOUT_MS, is_ready=False)[0] == Cancel(
        (second,), f"processing {LATE}", Outcome.TIMED_OUT
    )

    assert drive.make(record) == [TransactionCommitted(first, "batch 1")]


# --- time-outs ---


@BOTH
def test_a_batch_that_takes_too_long_fails_with_the_later_ones(mode):
    drive = Drive(mode, max_pending=2, **paced())
    first, second = drive.start(1, 2)
    drive.process(second)

    assert drive.tick(TIMEOUT_MS - 1) == []
    assert drive.machine.wakes_at_ms() == TIMEOUT_MS
    assert drive.tick(1, is_ready=False)[0] == Cancel(
        (first, second), f"processing {LATE}", Outcome.TIMED_OUT
    )


@BOTH
def test_waiting_for_ones_turn_is_not_late(mode):
    drive = Drive(mode, max_pending=2, timeout_ms=TIMEOUT_MS)
    first, second = drive.start(1, 2)
    drive.process(first)
    drive.commit(first)
    drive.process(second)
    drive.machine.pause()

    assert drive.tick(TIMEOUT_MS) == [StartCommit(second)]
    assert drive.tick(TIMEOUT_MS - 1) == []
    assert drive.tick(1) == [Cancel((second,), f"committing {LATE}", Outcome.TIMED_OUT)]


def test_a_commit_that_is_late_must_end_before_another_one_begins():
    drive = Drive(max_pending=1, timeout_ms=TIMEOUT_MS)
    (late,) = drive.start(1)
    drive.process(late)
    drive.tick()

    cancel, again = drive.tick(TIMEOUT_MS)
    assert cancel == Cancel((late,), f"committing {LATE}", Outcome.TIMED_OUT)
    assert isinstance(again, StartBatch)
    drive.process(again.attempt)
    assert drive.tick() == []
    assert drive.machine.processed(late) == []  # says nothing about the commit call
    assert drive.machine.failed(late, "executor lost") == []
    assert drive.tick() == []

    assert drive.machine.committed(late) == []
    assert drive.tick() == [StartCommit(again.attempt)]


def test_a_batch_lost_while_it_commits_waits_for_its_commit_call():
    drive = Drive(max_pending=1, timeout_ms=None)
    (first,) = drive.start(1)
    drive.process(first)
    drive.tick()

    drive.machine.failed(first, "executor lost")
    (again,) = drive.tick()
    drive.process(again.attempt)
    assert drive.tick() == []

    assert drive.machine.commit_failed(first, "cancelled") == []
    assert drive.tick() == [StartCommit(again.attempt)]


def test_without_a_timeout_nothing_is_ever_late():
    drive = Drive(timeout_ms=None)
    drive.start(1)

    assert drive.tick(10**9) == []
    assert drive.machine.wakes_at_ms() == 10**9 + POLL_MS


def asking_again() -> tuple[Drive, TransactionAttempt, Write]:
    """A batch waits for its commit phase, and the store's answer was long under way."""
    drive = Drive(timeout_ms=None)
    drive.is_owner = False
    (first,) = drive.start(1)
    (question,) = drive.machine.processed(first)
    drive.machine.now_ms += FRESH_MS
    (again,) = drive.make(question)
    return drive, first, again


def test_an_owner_that_was_frozen_asks_again_before_it_commits():
    """While it was, another owner may have come: the answer was already on its way."""
    drive, _, again = asking_again()

    assert is_question(again)
    assert drive.phases() == {1: BatchPhase.PROCESSED}
    lost = FencedError("another owner")
    (*_, stopped) = drive.machine.store_failed(again.write_id, lost)
    assert stopped == Stopped(lost)


def test_a_store_that_is_always_slow_lets_batches_commit():
    drive, first, again = asking_again()
    drive.machine.now_ms += FRESH_MS

    assert drive.make(again) == [StartCommit(first)]
    record = drive.recorded(first)
    drive.machine.now_ms += FRESH_MS
    assert isinstance(drive.make(record)[0], TransactionCommitted)


@BOTH
def test_a_commit_phase_that_never_ends_stops_everything_in_time(mode):
    drive = Drive(mode, timeout_ms=TIMEOUT_MS, end_timeout_ms=100)
    (hanging,) = drive.start(1)
    drive.process(hanging)
    drive.tick()
    drive.tick(TIMEOUT_MS)
    assert drive.machine.wakes_at_ms() == TIMEOUT_MS + 100
    drive.tick(99)
    assert not drive.machine.is_stopped

    stopped = drive.tick(1)[-1]

    assert isinstance(stopped, Stopped)
    assert isinstance(stopped.error, TransactionError)
    assert str(hanging) in str(stopped.error)
    again = Drive(mode, stored=drive.store, epoch=EPOCH + 1)  # as the error says
    (replay,) = started_again(again)
    assert replay.txid == hanging.txid
    assert replay.attempt_id > hanging.attempt_id  # sinks refuse the one that hung
    again.process(replay)
    again.commit(replay)


# --- whose the store is ---


@BOTH
def test_a_commit_phase_begins_only_under_an_epoch_that_the_store_just_took(mode):
    drive = Drive(mode)
    (first,) = drive.start(1)
    drive.process(first)
    drive.is_owner = False

    (question,) = drive.tick()

    assert is_question(question)
    assert question.epoch == EPOCH
    assert drive.tick() == []  # asked once
    assert drive.machine.stored(question.write_id) == [StartCommit(first)]
    assert drive.tick() == []


@BOTH
def test_a_former_owner_begins_no_commit_phase(mode):
    drive = Drive(mode, max_pending=2)
    first, second = drive.start(1, 2)
    drive.process(first, second)
    drive.is_owner = False
    (question,) = [action for action in drive.tick() if is_question(action)]
    error = FencedError("epoch 4")

    actions = drive.machine.store_failed(question.write_id, error)

    assert actions[-1] == Stopped(error)
    assert drive.tick() == []


def test_a_store_that_does_not_answer_is_asked_again_who_owns_it():
    drive = Drive(**paced())
    (first,) = drive.start(1)
    drive.process(first)
    drive.is_owner = False
    (question,) = drive.tick()

    drive.machine.store_failed(question.write_id, StateUnavailableError("no answer"))
    assert drive.tick(49) == []
    (again,) = drive.tick(1)

    assert is_question(again)
    assert drive.machine.stored(again.write_id) == [StartCommit(first)]


def test_an_answer_for_an_attempt_that_failed_meanwhile_begins_nothing():
    drive = Drive()
    (first,) = drive.start(1)
    drive.process(first)
    drive.is_owner = False
    (question,) = drive.tick()
    drive.machine.failed(first, "executor lost")

    assert drive.machine.stored(question.write_id) == []
