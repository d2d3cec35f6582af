"""The acker's ledger: when a tuple tree is complete."""

from __future__ import annotations

import random
from functools import reduce
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.errors import ConfigError
from tests.transactions.plain_acker import (
    Ledger,
    TreeCompleted,
    TreeFailed,
    TreePostponed,
)

SPOUT = 4
A, B, C = 0x1F2E3D4C5B6A7988, 0x0123456789ABCDEF, 0xFEDCBA9876543210


def test_a_tree_completes_when_its_last_edge_is_acked():
    ledger = Ledger()

    assert ledger.init(7, A, SPOUT, now_ms=100) is None
    assert ledger.ack(7, A ^ B ^ C, now_ms=120) is None  # A acked, B and C anchored
    assert ledger.ack(7, C, now_ms=130) is None
    assert ledger.ack(7, B, now_ms=150) == TreeCompleted(7, SPOUT, 50)
    assert len(ledger) == 0


def test_a_tuple_without_edges_is_complete_at_once():
    assert Ledger().init(7, 0, SPOUT, now_ms=5) == TreeCompleted(7, SPOUT, 0)


def test_an_ack_may_come_before_the_init():
    ledger = Ledger()

    assert ledger.ack(7, A, now_ms=90) is None
    assert ledger.init(7, A, SPOUT, now_ms=100) == TreeCompleted(7, SPOUT, 10)


def test_a_failure_may_come_before_the_init():
    ledger = Ledger()

    assert ledger.fail(7, now_ms=90) is None
    assert ledger.init(7, A, SPOUT, now_ms=100) == TreeFailed(7, SPOUT, 10)


def test_zero_wins_over_a_failure():
    ledger = Ledger()
    ledger.fail(7, now_ms=0)
    ledger.ack(7, A, now_ms=0)

    assert ledger.init(7, A, SPOUT, now_ms=0) == TreeCompleted(7, SPOUT, 0)


def test_a_root_is_reported_once():
    ledger = Ledger()
    ledger.init(7, A, SPOUT, now_ms=0)

    assert ledger.fail(7, now_ms=3) == TreeFailed(7, SPOUT, 3)
    assert ledger.ack(7, A, now_ms=4) is None
    assert ledger.fail(7, now_ms=5) is None


def test_an_edge_acked_twice_is_open_again():
    ledger = Ledger()
    ledger.init(7, A ^ B, SPOUT, now_ms=0)

    ledger.ack(7, A, now_ms=0)
    ledger.ack(7, A, now_ms=0)

    assert ledger.ack(7, B, now_ms=0) is None


def test_a_tuple_anchored_twice_on_one_input_completes():
    ledger = Ledger()
    ledger.init(7, A, SPOUT, now_ms=0)

    ledger.ack(7, A ^ B ^ C, now_ms=0)  # one emission, two edges

    assert ledger.ack(7, B ^ C, now_ms=0) == TreeCompleted(7, SPOUT, 0)


def test_a_tuple_anchored_on_two_roots_holds_both():
    ledger = Ledger()
    ledger.init(1, A, SPOUT, now_ms=0)
    ledger.init(2, B, SPOUT, now_ms=0)

    ledger.ack(1, A ^ C, now_ms=0)
    ledger.ack(2, B ^ C, now_ms=0)

    assert len(ledger) == 2
    assert ledger.ack(1, C, now_ms=0) == TreeCompleted(1, SPOUT, 0)
    assert ledger.ack(2, C, now_ms=0) == TreeCompleted(2, SPOUT, 0)


def test_an_untouched_root_is_forgotten_in_silence():
    ledger = Ledger(buckets=2)
    ledger.init(7, A, SPOUT, now_ms=0)

    assert [ledger.rotate(), ledger.rotate()] == [0, 1]
    assert ledger.ack(7, A, now_ms=9) is None


def test_acks_do_not_prolong_and_reset_does():
    ledger = Ledger(buckets=2)
    ledger.init(7, A ^ B, SPOUT, now_ms=0)
    ledger.init(8, A ^ B, SPOUT, now_ms=0)
    ledger.rotate()

    ledger.ack(7, A, now_ms=0)
    assert ledger.reset_timeout(8, now_ms=0) == TreePostponed(8, SPOUT)

    assert ledger.rotate() == 1
    assert ledger.ack(8, A ^ B, now_ms=2) == TreeCompleted(8, SPOUT, 2)


def test_a_reset_before_the_init_tells_nobody():
    assert Ledger().reset_timeout(7, now_ms=0) is None


def test_fewer_than_two_buckets_are_refused():
    with pytest.raises(ConfigError):
        Ledger(buckets=1)


@given(seed=st.integers(0, 2**32), size=st.integers(1, 30))
def test_any_tree_in_any_order_completes_exactly_at_the_end(seed, size):
    chance = random.Random(seed)
    edges = [chance.getrandbits(64) for _ in range(size)]
    parents = [None if i == 0 else chance.randrange(i) for i in range(size)]
    messages = [
        edges[i]
        ^ reduce(xor, (e for e, p in zip(edges, parents, strict=True) if p == i), 0)
        for i in range(size)
    ]
    chance.shuffle(messages)
    ledger = Ledger()

    reports = [ledger.init(1, edges[0], SPOUT, now_ms=0)]
    reports += [ledger.ack(1, message, now_ms=0) for message in messages]

    assert reports[-1] == TreeCompleted(1, SPOUT, 0)
    assert set(reports[:-1]) == {None}
