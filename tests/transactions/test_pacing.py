"""Pacing: legal values, and when a batch may be planned."""

from __future__ import annotations

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.coordinator.pacing import Pacing, PlanningGate


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_pending", 0),
        ("timeout_ms", 0),
        ("emit_interval_ms", -1),
        ("idle_pause_ms", 0),
        ("retry_ms", 0),
    ],
)
def test_a_value_below_its_least_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"option '{name}' is {value}"):
        Pacing(**{name: value})


def test_no_timeout_and_no_interval_are_legal():
    assert Pacing(timeout_ms=None, emit_interval_ms=0).max_pending == 1


def test_a_replay_asks_neither_interval_nor_pause_nor_readiness():
    gate = PlanningGate(Pacing(emit_interval_ms=500), newest=4)
    assert gate.lets_pass(5, 0, is_ready=True)
    gate.planning = TransactionAttempt(5, 1)
    gate.planned(0, is_empty=True)

    assert not gate.lets_pass(6, 499, is_ready=True)
    assert gate.lets_pass(5, 0, is_ready=False)
    assert gate.lets_pass(4, 0, is_ready=False)


def test_a_failed_plan_delays_replays_too():
    gate = PlanningGate(Pacing(retry_ms=50), newest=4)
    gate.planning = TransactionAttempt(4, 1)
    gate.failed(100)

    assert not gate.lets_pass(4, 149, is_ready=True)
    assert gate.lets_pass(4, 150, is_ready=True)
    assert gate.opens_at_ms(5) == 150


def test_the_longer_of_interval_and_pause_counts():
    gate = PlanningGate(Pacing(emit_interval_ms=500, idle_pause_ms=100), newest=0)
    assert gate.lets_pass(1, 0, is_ready=True)
    gate.planning = TransactionAttempt(1, 1)

    gate.planned(10, is_empty=True)
    assert gate.opens_at_ms(2) == 500


def test_nothing_passes_while_a_plan_is_awaited():
    gate = PlanningGate(Pacing(), newest=0)
    gate.planning = TransactionAttempt(1, 1)

    assert not gate.lets_pass(1, 10**6, is_ready=True)
