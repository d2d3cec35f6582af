"""The batches in flight: exact attempts, time-outs, commit calls still under way."""

from __future__ import annotations

import pytest

from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.flights import BatchFlights, BatchPhase

PATIENCE_MS = 500
ONE, TWO, THREE = (TransactionAttempt(txid, 10 + txid) for txid in (1, 2, 3))


def in_flight(*phases: BatchPhase, timeout_ms: int | None = 100) -> BatchFlights:
    """Attempts ONE, TWO, … in these phases, all since 0 ms."""
    flights = BatchFlights(timeout_ms, PATIENCE_MS)
    for attempt, phase in zip((ONE, TWO, THREE), phases, strict=False):
        flights.start(attempt, 0)
        flight = flights.find(attempt, BatchPhase.PROCESSING)
        assert flight is not None
        flight.phase = phase
    return flights


def test_another_attempt_of_the_same_txid_is_not_found():
    flights = in_flight(BatchPhase.PROCESSING)

    assert flights.find(TransactionAttempt(1, 99), *BatchPhase) is None
    assert flights.find(ONE, BatchPhase.PROCESSED) is None
    assert flights.find(TWO, *BatchPhase) is None
    assert flights.find(ONE, *BatchPhase) is not None


def test_dropping_takes_this_txid_and_all_later_ones_in_order():
    flights = in_flight(
        BatchPhase.PROCESSED, BatchPhase.PROCESSING, BatchPhase.PROCESSED
    )

    assert flights.drop_from(2, 0) == (TWO, THREE)
    assert flights.phases() == {ONE: BatchPhase.PROCESSED}
    assert flights.drop_from(2, 0) == ()


def test_a_dropped_commit_call_blocks_commits_until_it_has_ended():
    flights = in_flight(BatchPhase.COMMITTING)
    flights.drop_from(1, 0)
    assert not flights.is_idle()
    again = TransactionAttempt(1, 50)
    flights.start(again, 0)
    flight = flights.find(again, BatchPhase.PROCESSING)
    assert flight is not None
    flight.phase = BatchPhase.PROCESSED

    assert flights.may_commit(1) is None
    flights.has_ended(again)
    assert flights.may_commit(1) is None
    flights.has_ended(ONE)
    assert flights.may_commit(1) is flight


@pytest.mark.parametrize("phase", [BatchPhase.PROCESSED, BatchPhase.RECORDING])
def test_a_phase_in_which_nothing_works_is_never_late(phase):
    flights = in_flight(phase)

    assert flights.late(10**9) is None
    assert flights.next_deadline_ms() is None


@pytest.mark.parametrize("phase", [BatchPhase.PROCESSING, BatchPhase.COMMITTING])
def test_the_lowest_late_flight_is_found_when_its_time_is_over(phase):
    flights = in_flight(phase, BatchPhase.PROCESSING)

    assert flights.late(99) is None
    assert flights.next_deadline_ms() == 100
    late = flights.late(100)
    assert late is not None
    assert late.attempt == ONE


def test_without_a_timeout_no_flight_is_late():
    flights = in_flight(BatchPhase.PROCESSING, timeout_ms=None)

    assert flights.late(10**9) is None
    assert flights.next_deadline_ms() is None


def test_a_txid_that_was_late_has_longer_until_it_has_landed():
    flights, limits = in_flight(BatchPhase.PROCESSING, BatchPhase.PROCESSING), []
    for _ in range(5):
        limits.append(flights.limit_ms(1))
        flights.was_late(1)

    assert limits == [100, 200, 400, 800, 800]
    assert flights.limit_ms(2) == 100
    assert flights.late(799) is flights.find(TWO, BatchPhase.PROCESSING)
    flights.drop_from(2, 799)
    assert flights.late(799) is None
    assert flights.late(800) is flights.find(ONE, BatchPhase.PROCESSING)
    flights.land(1)
    assert flights.limit_ms(1) == 100
