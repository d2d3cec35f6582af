"""The ledger in blocks: the acker's rules on arrays."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.errors import ConfigError
from kafka_tx.transactions.root_blocks import BlockLedger, fold
from tests.transactions.plain_acker import Ledger, TreeCompleted, TreeFailed

A, B, C = 0xFFFFFFFFFFFFFFFF, 0x0123456789ABCDEF, 0xFEDCBA9876543210


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def edges(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def ended(report) -> tuple[list[int], list[int]]:
    return report.completed.tolist(), report.failed.tolist()


def a_ledger(first: int = 100, count: int = 3, buckets: int = 2) -> BlockLedger:
    ledger = BlockLedger(buckets)
    ledger.begin(first, count)
    return ledger


def test_trees_of_a_block_end_one_by_one():
    ledger = a_ledger()
    assert ended(ledger.init(numbers(100, 101, 102), edges(A, B, C))) == ([], [])

    assert ended(ledger.ack(numbers(101, 100), edges(B, A ^ C))) == ([101], [])
    assert len(ledger) == 2
    assert ended(ledger.fail(numbers(102))) == ([], [102])
    assert ended(ledger.ack(numbers(100), edges(C))) == ([100], [])
    assert len(ledger) == 0


def test_a_root_may_come_several_times_in_one_message():
    ledger = a_ledger()
    ledger.init(numbers(100), edges(A))

    acks = ledger.ack(numbers(100, 100, 100), edges(A ^ B ^ C, B, C))

    assert ended(acks) == ([100], [])


def test_a_tuple_without_edges_is_complete_at_once():
    assert ended(a_ledger().init(numbers(100, 102), edges(0, 0))) == ([100, 102], [])


def test_acks_and_failures_may_come_before_the_init():
    ledger = a_ledger()
    assert ended(ledger.ack(numbers(100), edges(A))) == ([], [])
    assert ended(ledger.fail(numbers(101))) == ([], [])

    assert ended(ledger.init(numbers(100, 101), edges(A, B))) == ([100], [101])


def test_a_root_ends_once():
    ledger = a_ledger()
    ledger.init(numbers(100), edges(A))
    ledger.fail(numbers(100))

    assert ended(ledger.ack(numbers(100), edges(A))) == ([], [])
    assert ended(ledger.fail(numbers(100))) == ([], [])
    assert ledger.late == 0


def test_messages_go_to_their_blocks_and_strays_are_counted():
    ledger = a_ledger(first=100, count=2)
    ledger.begin(200, 2)
    ledger.begin(50, 1)
    roots = numbers(201, 7, 100, 150, 50, 202)

    report = ledger.init(roots, edges(0, 0, 0, 0, 0, 0))

    assert ended(report) == ([50, 100, 201], [])
    assert ledger.late == 3
    assert len(ledger) == 2


def test_what_is_not_done_in_time_is_returned_by_the_rotation():
    ledger = a_ledger(buckets=2)
    ledger.init(numbers(100, 101, 102), edges(A, B, C))
    ledger.ack(numbers(101), edges(B))
    assert ledger.rotate().tolist() == []
    ledger.begin(200, 1)

    assert ledger.rotate().tolist() == [100, 102]

    assert ended(ledger.ack(numbers(100), edges(A))) == ([], [])
    assert ledger.late == 1
    assert ledger.rotate().tolist() == [200]


def test_roots_that_never_began_time_out_too():
    ledger = a_ledger(buckets=2)
    ledger.rotate()

    assert ledger.rotate().tolist() == [100, 101, 102]


def test_a_block_that_has_ended_is_forgotten():
    ledger = a_ledger(count=1)
    ledger.init(numbers(100), edges(0))

    ledger.begin(100, 1)

    assert len(ledger) == 1


@pytest.mark.parametrize(
    ("first", "count"), [(100, 1), (99, 2), (102, 5), (0, 101), (50, 500), (7, 0)]
)
def test_an_empty_or_overlapping_block_is_refused(first, count):
    with pytest.raises(ConfigError, match="none of them in an open block"):
        a_ledger().begin(first, count)


def test_neighbouring_blocks_are_no_overlap():
    ledger = a_ledger(100, 3)

    ledger.begin(103, 1)
    ledger.begin(99, 1)

    assert len(ledger) == 5


def test_folding_keeps_the_xor_of_each_root():
    roots, partials = fold(numbers(5, 3, 5, 3, 9), edges(A, B, C, B, A))

    assert roots.tolist() == [3, 5, 9]
    assert partials.tolist() == [0, A ^ C, A]


def test_folding_nothing_gives_nothing():
    roots, partials = fold(numbers(), edges())

    assert (len(roots), len(partials)) == (0, 0)


@given(seed=st.integers(0, 2**32))
def test_blocks_report_what_the_ledger_reports(seed):
    chance = random.Random(seed)
    single, blocks = Ledger(), BlockLedger()
    blocks.begin(0, 4)
    blocks.begin(4, 4)
    pool = [chance.getrandbits(64) for _ in range(3)]  # few, so that many cancel
    reported = set()

    for _ in range(40):
        kind = chance.choice(["init", "ack", "ack", "fail"])
        root, value = chance.randrange(8), chance.choice([0, *pool])
        if root in reported:
            continue
        if kind == "init":
            one = single.init(root, value, 0, 0)
            many = blocks.init(numbers(root), edges(value))
        elif kind == "ack":
            one = single.ack(root, value, 0)
            many = blocks.ack(numbers(root), edges(value))
        else:
            one = single.fail(root, 0)
            many = blocks.fail(numbers(root))
        expected = {TreeCompleted: ([root], []), TreeFailed: ([], [root])}
        assert ended(many) == expected.get(type(one), ([], []))
        if one is not None:
            reported.add(root)
