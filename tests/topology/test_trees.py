"""What tasks report of trees, and what a chunk makes of it."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.at_least_once.chunks import Chunk
from kafka_tx.topology.at_least_once.lineage import TaskTrees, runs_of
from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.run.messages import Emitted

TASK = TaskId("spout", 0)


def ints(*numbers):
    return np.array(numbers, np.int64)


def report(trees, packets=0):
    return trees.report(TASK, (Emitted("spout", 3),), {"a": 1}, packets)


def settled(*trees, first=0, end=10):
    plan: object = None
    chunk = Chunk(plan, TransactionAttempt(1, 1))  # type: ignore[arg-type]
    chunk.accept(report(each) for each in trees)
    found = chunk.settle(first, end)
    return [
        roots.tolist()
        for roots in (found.completed, found.failed, found.untried, found.open)
    ]


def test_what_was_read_and_is_reported_by_no_task_is_complete():
    reads, works = TaskTrees(), TaskTrees()
    reads.begin(ints(100, 101, 102, 103, 105))
    works.fail(ints(101), "split", "no space")
    works.leave(ints(102))
    works.leave_open(ints(103))

    ended = settled(reads, works, first=100, end=106)

    assert ended == [[100, 105], [101], [102, 104], [103]]


def test_where_all_are_done_nothing_is_counted_record_by_record():
    tasks = [TaskTrees() for _ in range(3)]
    tasks[0].begin(ints(104, 105))
    tasks[1].begin(ints(100, 101))
    tasks[2].begin(ints(102, 103))
    plan: object = None
    chunk = Chunk(plan, TransactionAttempt(1, 1))  # type: ignore[arg-type]
    chunk.accept(report(each) for each in tasks)

    assert chunk.settle(100, 106).done == ((100, 106),)
    assert settled(*tasks, first=100, end=106) == [[*range(100, 106)], [], [], []]
    assert settled(*tasks, first=100, end=107) == [[*range(100, 106)], [], [106], []]


def test_a_failure_counts_more_than_rows_that_were_not_tried_or_left_open():
    tasks = [TaskTrees() for _ in range(4)]
    tasks[0].leave(ints(1, 2))
    tasks[1].fail(ints(2, 3), "split", "no space")
    tasks[2].leave_open(ints(1, 2, 3, 4))
    tasks[3].begin(ints(0, 1, 2, 3, 4))

    assert settled(*tasks, end=5) == [[0], [2, 3], [1], [4]]


ANY_ROOTS = st.sets(st.integers(0, 19))


@given(st.lists(st.tuples(*[ANY_ROOTS] * 4), min_size=1, max_size=4))
def test_every_root_ends_in_one_way(tasks):
    trees: list[TaskTrees] = []
    begun: set[int] = set()
    for reads, fails, leaves, opens in tasks:
        each = TaskTrees()
        each.begin(ints(*sorted(reads - begun)))
        begun |= reads
        each.fail(ints(*fails), "split", "no space")
        each.leave(ints(*leaves))
        each.leave_open(ints(*opens))
        trees.append(pickle.loads(pickle.dumps(each)))

    failed = set().union(*(fails for _, fails, _, _ in tasks))
    left = set().union(*(leaves for _, _, leaves, _ in tasks))
    opened = set().union(*(opens for *_, opens in tasks))
    untried = ({*range(20)} - begun - opened | left) - failed
    assert settled(*trees, end=20) == [
        sorted(begun - failed - left - opened),
        sorted(failed),
        sorted(untried),
        sorted(opened - failed - left),
    ]


def test_failures_are_kept_by_component_and_reason():
    trees = TaskTrees()
    trees.fail(ints(5, 3), "split", "no space")
    trees.fail(ints(3), "split", "no space")
    trees.fail(ints(4), "count", "no space")

    results = report(trees)

    assert [(f.component, f.reason, f.roots.tolist()) for f in results.failed] == [
        ("split", "no space", [3, 5]),
        ("count", "no space", [4]),
    ]


def test_a_report_travels():
    trees = TaskTrees()
    trees.begin(ints(1, 2))

    again = pickle.loads(pickle.dumps(report(trees, 2**63 + 1)))

    assert (again.begun, again.packets) == (((1, 3),), 2**63 + 1)
    assert (again.task, again.emitted, again.facts) == (TASK, (("spout", 3),), {"a": 1})


@given(st.sets(st.integers(0, 40)))
def test_runs_hold_exactly_the_roots(roots):
    runs = runs_of(ints(*sorted(roots)))

    assert {root for first, end in runs for root in range(first, end)} == roots
    assert all(runs[n][1] < runs[n + 1][0] for n in range(len(runs) - 1))


@pytest.mark.parametrize("count", [200_000])
def test_a_chunk_without_failures_is_told_as_one_run(count):
    trees = TaskTrees()
    for roots in np.split(np.arange(count), 20):
        trees.begin(roots)

    assert len(pickle.dumps(report(trees))) < 1_000
    assert report(trees).begun == ((0, count),)
