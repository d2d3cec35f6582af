"""The batches in flight: exact attempts, time-outs, commit calls still under way."""

from __future__ import annotations

import pytest

from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.coordinator.in_flight_batches import (
    BatchPhase,
    InFlightBatches,
)

END_TIMEOUT_MS = 500
ONE, TWO, THREE = (TransactionAttempt(txid, 10 + txid) for txid in (1, 2, 3))


def begun(*phases: BatchPhase, timeout_ms: int | None = 100) -> InFlightBatches:
    """Attempts ONE, TWO, … in these phases, all since 0 ms."""
    in_flight = InFlightBatches(timeout_ms, END_TIMEOUT_MS)
    for attempt, phase in zip((ONE, TWO, THREE), phases, strict=False):
        in_flight.start(attempt, 0)
        batch = in_flight.find(attempt, BatchPhase.PROCESSING)
        assert batch is not None
        batch.phase = phase
    return in_flight


def test_another_attempt_of_the_same_txid_is_not_found():
    in_flight = begun(BatchPhase.PROCESSING)

    assert in_flight.find(TransactionAttempt(1, 99), *BatchPhase) is None
    assert in_flight.find(ONE, BatchPhase.PROCESSED) is None
    assert in_flight.find(TWO, *BatchPhase) is None
    assert in_flight.find(ONE, *BatchPhase) is not None


def test_dropping_takes_this_txid_and_all_later_ones_in_order():
    in_flight = begun(BatchPhase.PROCESSED, BatchPhase.PROCESSING, BatchPhase.PROCESSED)

    assert in_flight.drop_from(2, 0) == (TWO, THREE)
    assert in_flight.phases() == {ONE: BatchPhase.PROCESSED}
    assert in_flight.drop_from(2, 0) == ()


def test_a_dropped_commit_call_blocks_commits_until_it_has_ended():
    in_flight = begun(BatchPhase.COMMITTING)
    in_flight.drop_from(1, 0)
    assert not in_flight.is_idle()
    again = TransactionAttempt(1, 50)
    in_flight.start(again, 0)
    batch = in_flight.find(again, BatchPhase.PROCESSING)
    assert batch is not None
    batch.phase = BatchPhase.PROCESSED

    assert in_flight.may_commit(1) is None
    in_flight.has_ended(again)
    assert in_flight.may_commit(1) is None
    in_flight.has_ended(ONE)
    assert in_flight.may_commit(1) is batch


@pytest.mark.parametrize("phase", [BatchPhase.PROCESSED, BatchPhase.RECORDING])
def test_a_phase_in_which_nothing_works_is_never_late(phase):
    in_flight = begun(phase)

    assert in_flight.late(10**9) is None
    assert in_flight.next_deadline_ms() is None


@pytest.mark.parametrize("phase", [BatchPhase.PROCESSING, BatchPhase.COMMITTING])
def test_the_lowest_late_flight_is_found_when_its_time_is_over(phase):
    in_flight = begun(phase, BatchPhase.PROCESSING)

    assert in_flight.late(99) is None
    assert in_flight.next_deadline_ms() == 100
    late = in_flight.late(100)
    assert late is not None
    assert late.attempt == ONE


def test_without_a_timeout_no_flight_is_late():
    in_flight = begun(BatchPhase.PROCESSING, timeout_ms=None)

    assert in_flight.late(10**9) is None
    assert in_flight.next_deadline_ms() is None


def test_a_txid_that_was_late_has_longer_until_it_has_landed():
    in_flight, limits = begun(BatchPhase.PROCESSING, BatchPhase.PROCESSING), []
    for _ in range(5):
        limits.append(in_flight.limit_ms(1))
        in_flight.was_late(1)

    assert limits == [100, 200, 400, 800, 800]
    assert in_flight.limit_ms(2) == 100
    assert in_flight.late(799) is in_flight.find(TWO, BatchPhase.PROCESSING)
    in_flight.drop_from(2, 799)
    assert in_flight.late(799) is None
    assert in_flight.late(800) is in_flight.find(ONE, BatchPhase.PROCESSING)
    in_flight.land(1)
    assert in_flight.limit_ms(1) == 100
