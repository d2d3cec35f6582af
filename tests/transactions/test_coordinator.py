"""The transaction coordinator: what is planned, started and committed, and when."""

from __future__ import annotations

from kafka_tx.transactions.coordinator.actions import (
    Initialize,
    StartBatch,
    StartCommit,
    TransactionCommitted,
    Write,
)
from kafka_tx.transactions.coordinator.coordinator import POLL_MS
from kafka_tx.transactions.coordinator.in_flight_batches import BatchPhase
from tests.transactions import drive as driving
from tests.transactions.drive import BOTH, EPOCH, Drive, paced

# --- planning ---


@BOTH
def test_the_first_batch_is_planned_from_nothing(mode):
    drive = Drive(mode)

    (action,) = drive.tick()

    assert isinstance(action, Initialize)
    assert action.attempt.txid == 1
    assert action.previous is None


def test_transactional_metadata_is_stored_before_anything_starts():
    drive = Drive(max_pending=2)
    (planning,) = drive.tick()

    (write,) = drive.machine.initialized(planning.attempt, "one")
    assert drive.tick() == []

    assert isinstance(write, Write)
    assert write.epoch == EPOCH
    assert write.put == {"meta/1": driving.meta(1, "one")}
    assert drive.make(write) == []
    batch, following = drive.tick()
    assert isinstance(batch, StartBatch)
    assert (batch.attempt.txid, batch.metadata) == (1, "one")
    assert isinstance(following, Initialize)
    assert (following.attempt.txid, following.previous) == (2, "one")


def test_an_opaque_batch_starts_without_a_write_and_is_stored_with_its_commit():
    drive = Drive("opaque")
    (planning,) = drive.tick()

    assert drive.machine.initialized(planning.attempt, "one") == []
    assert drive.tick() == [StartBatch(planning.attempt, "one", None)]

    drive.process(planning.attempt)
    assert drive.tick() == [StartCommit(planning.attempt)]
    (record,) = drive.machine.committed(planning.attempt)
    assert isinstance(record, Write)
    assert record.put == {
        "currtx": driving.currtx(2),
        "meta/1": driving.meta(1, "one"),
    }


@BOTH
def test_each_batch_is_planned_from_the_one_before(mode):
    drive = Drive(mode, max_pending=3)

    drive.start(1, 2)

    assert (drive.asked.attempt.txid, drive.asked.previous) == (3, "batch 2")


@BOTH
def test_one_plan_is_asked_for_at_a_time(mode):
    drive = Drive(mode, max_pending=3)

    assert len(drive.tick()) == 1
    assert drive.tick() == []
    assert not drive.machine.asks_ready(drive.now_ms)


def test_the_walk_ends_at_the_first_txid_that_is_not_ready():
    drive = Drive(max_pending=3, **paced())
    drive.tick()
    drive.answer("one")
    (batch,) = drive.tick(is_ready=False)
    assert isinstance(batch, StartBatch)

    assert drive.machine.asks_ready(drive.now_ms)
    assert drive.tick(is_ready=False) == []
    assert not drive.machine.asks_ready(drive.now_ms + 4)
    assert drive.tick(4) == []
    (action,) = drive.tick(1)
    assert isinstance(action, Initialize)
    assert action.attempt.txid == 2


@BOTH
def test_a_planned_batch_begins_before_the_spout_is_asked_for_the_next_one(mode):
    drive = Drive(mode, max_pending=3, **paced())
    drive.tick()
    drive.answer("one")

    assert not drive.machine.asks_ready(drive.now_ms)
    (batch,) = drive.tick(is_ready=False)

    assert isinstance(batch, StartBatch)
    assert drive.machine.wakes_at_ms() == drive.now_ms
    assert drive.machine.asks_ready(drive.now_ms)


@BOTH
def test_replays_begin_before_the_spout_is_asked(mode):
    drive = Drive(mode, max_pending=4, **paced())
    first, _ = drive.start(1, 2)
    drive.answer("batch 3")
    drive.tick(is_ready=False)
    drive.machine.failed(first, "lost")

    begun = []
    for _ in range(4):
        assert not drive.machine.asks_ready(drive.now_ms)
        actions = drive.tick(is_ready=False)
        begun += [a.attempt.txid for a in actions if isinstance(a, StartBatch)]
        if drive.asked is not None:
            drive.answer("again")
        if begun == [1, 2, 3]:
            break

    assert drive.machine.asks_ready(drive.now_ms)


def test_a_plan_that_failed_is_asked_for_again_after_a_pause():
    drive = Drive(**paced())
    (first,) = drive.tick()
    assert drive.machine.initialize_failed(first.attempt) == []

    assert drive.tick(49, is_ready=False) == []
    (second,) = drive.tick(1, is_ready=False)  # it may take the rows for planned

    assert isinstance(second, Initialize)
    assert second.attempt.txid == 1
    assert second.attempt != first.attempt
    assert drive.machine.initialized(first.attempt, "late") == []
    assert drive.machine.initialize_failed(first.attempt) == []
    assert drive.machine.planning == second.attempt


def test_new_txids_keep_their_interval():
    drive = Drive(max_pending=2, **paced(emit_interval_ms=500))
    drive.start(1)

    assert drive.tick(499) == []
    assert isinstance(drive.tick(1)[0], Initialize)


def test_after_an_empty_batch_the_next_new_txid_waits():
    drive = Drive(max_pending=2, **paced())
    drive.tick()
    drive.answer("nothing", is_empty=True)

    (batch,) = drive.tick()
    drive.process(batch.attempt)

    assert drive.tick(99) == [StartCommit(batch.attempt)]
    assert [type(a) for a in drive.tick(1)] == [Initialize]


def test_nothing_to_say_is_metadata_too():
    drive = Drive()
    drive.tick()
    drive.answer(None)

    (batch,) = drive.tick()

    assert isinstance(batch, StartBatch)
    assert batch.metadata is None


# --- the window ---


@BOTH
def test_no_more_than_max_pending_are_in_flight(mode):
    drive = Drive(mode, max_pending=2)
    drive.start(1, 2)

    assert drive.tick() == []


@BOTH
def test_a_later_batch_that_is_done_makes_no_room(mode):
    drive = Drive(mode, max_pending=3)
    _, second, _ = drive.start(1, 2, 3)

    drive.process(second)

    assert drive.tick() == []
    assert drive.phases() == {
        1: BatchPhase.PROCESSING,
        2: BatchPhase.PROCESSED,
        3: BatchPhase.PROCESSING,
    }


@BOTH
def test_by_default_one_batch_is_in_flight(mode):
    drive = Drive(mode)
    (first,) = drive.start(1)
    assert drive.tick() == []

    drive.process(first)
    assert drive.commit(first) == [TransactionCommitted(first, "batch 1")]

    assert drive.start(2)[0].txid == 2


@BOTH
def test_a_batch_is_told_the_last_committed_txid(mode):
    drive = Drive(mode, max_pending=2)
    first, _ = drive.start(1, 2)
    drive.process(first)
    drive.commit(first)
    drive.tick()
    drive.answer("three")

    (batch,) = drive.tick()

    assert isinstance(batch, StartBatch)
    assert (batch.attempt.txid, batch.committed_txid) == (3, 1)


# --- committing ---


@BOTH
def test_the_store_is_asked_as_soon_as_the_lowest_batch_is_processed(mode):
    drive = Drive(mode, max_pending=2)
    first, second = drive.start(1, 2)

    assert drive.machine.processed(second) == []
    (question,) = drive.machine.processed(first)

    assert driving.is_question(question)
    assert drive.tick() == []  # it is asked once
    assert drive.make(question) == [StartCommit(first)]


@BOTH
def test_the_lowest_commits_first_and_alone(mode):
    drive = Drive(mode, max_pending=3)
    first, second, third = drive.start(1, 2, 3)

    drive.process(third, second)
    assert drive.tick() == []
    drive.process(first)
    assert drive.tick() == [StartCommit(first)]
    assert drive.tick() == []
    (record,) = drive.machine.committed(first)
    assert drive.tick() == []

    assert drive.make(record) == [
        TransactionCommitted(first, "batch 1"),
        StartCommit(second),
    ]
    assert not any(isinstance(action, StartCommit) for action in drive.tick())


def test_a_commit_is_recorded_in_one_write_with_all_that_belongs_to_it():
    drive = Drive(max_pending=3)
    first, second, _ = drive.start(1, 2, 3)
    drive.process(first, second)
    drive.commit(first)
    drive.tick()

    (record,) = drive.machine.committed(second)

    assert isinstance(record, Write)
    assert record.put == {"currtx": driving.currtx(3)}
    assert record.delete == ("meta/1",)
    drive.make(record)
    assert sorted(drive.store) == [
        "currtx",
        "meta/2",
        "meta/3",
    ]


@BOTH
def test_an_answer_for_a_phase_that_has_not_begun_is_ignored(mode):
    drive = Drive(mode)
    (first,) = drive.start(1)

    assert drive.machine.committed(first) == []
    drive.process(first)
    assert drive.machine.committed(first) == []
    assert drive.machine.commit_failed(first, "?") == []

    assert drive.phases() == {1: BatchPhase.PROCESSED}


# --- waking up ---


def test_it_wakes_when_the_next_batch_may_be_planned():
    drive = Drive(max_pending=2, **paced(emit_interval_ms=500))
    assert drive.machine.wakes_at_ms() == 0
    drive.start(1)

    assert drive.machine.wakes_at_ms() == 500
    drive.tick(500)
    assert drive.machine.wakes_at_ms() == POLL_MS


def test_a_spout_that_is_not_ready_is_not_asked_in_a_busy_loop():
    drive = Drive(**paced())
    pauses = []

    for _ in range(7):
        drive.tick(is_ready=False)
        pauses.append((drive.machine.wakes_at_ms() or 0) - drive.now_ms)
        drive.tick(pauses[-1] - 1)
        assert not drive.machine.asks_ready(drive.now_ms)
        drive.now_ms += 1

    assert pauses == [5, 10, 20, 40, 80, 100, 100]


def test_a_spout_that_was_not_ready_is_asked_when_a_batch_is_committed():
    drive = Drive(max_pending=2, **paced())
    drive.tick()
    drive.answer("one")
    (batch,) = drive.tick(is_ready=False)
    for _ in range(7):
        drive.tick(100, is_ready=False)
    assert not drive.machine.asks_ready(drive.now_ms)

    drive.process(batch.attempt)
    drive.commit(batch.attempt)

    assert drive.machine.asks_ready(drive.now_ms)


def test_a_spout_that_was_ready_is_asked_again_soon():
    drive = Drive(max_pending=2, **paced())
    drive.tick(is_ready=False)
    drive.tick(5, is_ready=False)
    drive.tick(10)
    drive.answer("one")
    drive.tick(is_ready=False)

    drive.tick(is_ready=False)

    assert drive.machine.wakes_at_ms() == drive.now_ms + 5
