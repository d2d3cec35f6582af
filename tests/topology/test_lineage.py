import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.topology.at_least_once.lineage import Lineage, Tracked, joined

ANCHORS = st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=8)


def lineage(anchors):
    """The lineage of rows with these roots."""
    counts = [len(roots) for roots in anchors]
    flat = [root for roots in anchors for root in roots]
    return Lineage(
        np.array(flat, np.int64),
        np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
    )


def anchors_of(found):
    return [found.roots[found.of(row)].tolist() for row in range(len(found))]


ONE_EACH = Lineage(np.array([5, 6, 7]))


def test_a_lineage_without_starts_has_one_root_for_each_row():
    assert anchors_of(ONE_EACH) == [[5], [6], [7]]
    assert anchors_of(ONE_EACH.take(np.array([2, 0, 0]))) == [[7], [5], [5]]


@given(ANCHORS, st.data())
def test_rows_keep_their_roots_when_taken(anchors, data):
    rows = data.draw(
        st.lists(st.integers(0, len(anchors) - 1), max_size=9)
        if anchors
        else st.just([])
    )
    positions = np.array(rows, np.int64)
    whole = lineage(anchors)

    assert anchors_of(whole.take(positions)) == [anchors[row] for row in rows]
    rows = map(whole.of, range(len(whole)))
    assert [whole.roots[row].tolist() for row in rows] == anchors
    assert anchors_of(Lineage.of_each([tuple(roots) for roots in anchors])) == anchors


@given(ANCHORS, st.integers(0, 8), st.integers(0, 8))
def test_rows_between_two_keep_their_roots(anchors, start, end):
    start, end = sorted((min(start, len(anchors)), min(end, len(anchors))))

    assert anchors_of(lineage(anchors).between(start, end)) == anchors[start:end]


@given(st.lists(ANCHORS, min_size=1, max_size=4))
def test_joined_blocks_have_their_rows_in_order(parts):
    found = joined([lineage(part) for part in parts])

    assert anchors_of(found) == [roots for part in parts for roots in part]


def test_blocks_with_one_root_for_each_row_join_to_such_a_block():
    assert joined([ONE_EACH, ONE_EACH]).starts is None
    assert anchors_of(joined([ONE_EACH, lineage([[], [1, 2]])])) == [
        [5],
        [6],
        [7],
        [],
        [1, 2],
    ]


def test_one_row_may_come_from_all():
    assert anchors_of(ONE_EACH.whole()) == [[5, 6, 7]]


def test_rows_of_tracked_rows_keep_their_roots():
    given_rows = Tracked([("a",), ("b",), ("c",)], lineage([[1], [2, 3], []]))

    part = given_rows.rows(1, 3)

    assert part.block == [("b",), ("c",)]
    assert anchors_of(part.lineage) == [[2, 3], []]


@pytest.mark.parametrize("rows", [2, 4])
def test_every_row_needs_its_roots(rows):
    with pytest.raises(AssertionError):
        Tracked([("a",)] * rows, ONE_EACH)
