import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.run.messages import Emitted
from kafka_tx.topology.tracked import trees as trees_module
from kafka_tx.topology.tracked.trees import TaskTrees, runs_of

TASK = TaskId("spout", 0)


def ints(*numbers):
    return np.array(numbers, np.int64)


def edges(*numbers):
    return np.array(numbers, np.uint64)


def report(trees):
    return trees.report(TASK, (Emitted("spout", 3),), {"a": 1})


def test_a_tree_whose_edges_cancel_is_complete():
    trees = TaskTrees()
    trees.begin(ints(3, 4, 5, 9))
    trees.add(ints(3, 4, 9), edges(11, 12, 13))
    trees.add(ints(9, 3), edges(13, 11))

    told = report(trees)

    assert told.completed == ((3, 4), (5, 6), (9, 10))
    assert told.begun.tolist() == [4]
    assert told.begun_edges.tolist() == [12]
    assert told.acked.tolist() == []


def test_trees_that_began_elsewhere_are_told_apart():
    trees = TaskTrees()
    trees.begin(ints(3))
    trees.add(ints(3, 8, 8, 7), edges(11, 1, 2, 5))

    told = report(trees)

    assert (told.begun.tolist(), told.begun_edges.tolist()) == ([3], [11])
    assert (told.acked.tolist(), told.acked_edges.tolist()) == ([7, 8], [5, 3])


def test_failures_are_kept_by_component_and_reason():
    trees = TaskTrees()
    trees.fail(ints(5, 3), "split", "no space")
    trees.fail(ints(3), "split", "no space")
    trees.fail(ints(4), "count", "no space")

    told = report(trees)

    assert [(f.component, f.reason, f.roots.tolist()) for f in told.failed] == [
        ("split", "no space", [3, 5]),
        ("count", "no space", [4]),
    ]


def test_a_report_travels():
    trees = TaskTrees()
    trees.begin(ints(1, 2))
    trees.add(ints(2), edges(2**63 + 1))

    again = pickle.loads(pickle.dumps(report(trees)))

    assert again.completed == ((1, 2),)
    assert again.begun_edges.tolist() == [2**63 + 1]
    assert (again.task, again.emitted, again.facts) == (TASK, (("spout", 3),), {"a": 1})


def test_folding_early_changes_nothing(monkeypatch):
    def told():
        trees = TaskTrees()
        trees.begin(ints(*range(50)))
        for step in range(40):
            roots = ints(*range(step, step + 10))
            trees.add(roots, edges(*range(1, 11)))
        found = report(trees)
        return found.begun.tolist(), found.begun_edges.tolist(), found.completed

    usual = told()
    monkeypatch.setattr(trees_module, "_FOLD_AT", 25)

    assert told() == usual


@given(st.sets(st.integers(0, 40)))
def test_runs_hold_exactly_the_roots(roots):
    runs = runs_of(ints(*sorted(roots)))

    assert {root for first, end in runs for root in range(first, end)} == roots
    assert all(runs[n][1] < runs[n + 1][0] for n in range(len(runs) - 1))


def test_nothing_happened_is_told_as_nothing():
    told = report(TaskTrees())

    assert told.completed == ()
    assert len(told.begun) == len(told.acked) == len(told.failed) == 0


@pytest.mark.parametrize("count", [200_000])
def test_a_chunk_that_ends_in_its_task_is_told_as_one_run(count):
    trees = TaskTrees()
    roots = np.arange(count)
    trees.begin(roots)
    ids = np.random.default_rng(1).integers(1, 1 << 64, count, dtype=np.uint64)
    trees.add(roots, ids)
    trees.add(roots, ids)

    assert len(pickle.dumps(report(trees))) < 1_000
    assert report(trees).completed == ((0, count),)
