"""Who may work in a commit phase, and when it is over."""

from __future__ import annotations

from kafka_tx.model import TransactionAttempt
from kafka_tx.running.permit import Permits

ONE, TWO = TransactionAttempt(1, 7), TransactionAttempt(2, 8)


def test_nobody_may_begin_before_the_phase_is_open_or_after_it_was_closed():
    permits = Permits()
    assert not permits.ask(1, ONE, "note[0]")

    permits.open(ONE)
    assert permits.ask(2, ONE, "note[0]")
    assert not permits.ask(3, TWO, "note[0]")
    permits.close(ONE)

    assert not permits.ask(4, ONE, "note[1]")


def test_a_phase_is_over_when_it_is_closed_and_all_who_began_have_ended():
    permits = Permits()
    permits.open(ONE)
    permits.ask(1, ONE, "note[0]")
    permits.ask(2, ONE, "note[1]")
    permits.ended(1)
    assert not permits.is_over(ONE)

    assert permits.close(ONE) == (2,)
    assert not permits.is_over(ONE)
    permits.ended(2)
    permits.ended(2)

    assert permits.is_over(ONE)


def test_a_task_that_is_run_twice_does_not_work_beside_itself():
    permits = Permits()
    permits.open(ONE)
    assert permits.ask(1, ONE, "note[0]")

    assert not permits.ask(2, ONE, "note[0]")
    permits.ended(1)

    assert permits.ask(3, ONE, "note[0]")


def test_a_task_that_was_done_is_not_let_in_again_in_this_phase():
    """Others may have committed what it sent: what it would send now may differ."""
    permits = Permits()
    permits.open(ONE)
    permits.ask(1, ONE, "note[0]")
    permits.done(1)
    permits.ended(1)

    assert not permits.ask(2, ONE, "note[0]")
    assert permits.ask(3, ONE, "note[1]")
    permits.close(ONE)
    permits.open(ONE)

    assert permits.ask(4, ONE, "note[0]")


def test_a_task_that_is_done_after_the_end_of_its_phase_leaves_nothing():
    """As a task that was given up just before its last line."""
    permits = Permits()
    permits.open(ONE)
    permits.ask(1, ONE, "note[0]")
    permits.close(ONE)

    permits.done(1)
    permits.ended(1)

    assert not permits._done
    permits.open(ONE)
    assert permits.ask(2, ONE, "note[0]")


def test_one_phase_does_not_wait_for_the_tasks_of_another():
    permits = Permits()
    permits.open(ONE)
    permits.open(TWO)
    permits.ask(1, ONE, "note[0]")

    assert permits.close(TWO) == ()
    assert permits.is_over(TWO)
