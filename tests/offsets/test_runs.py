import itertools
import random
import time
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from integration.sizes import size
from kafka_tx.offsets.runs import BLOCK, OffsetRuns

# Offsets around the edges of a few blocks, where the two representations meet.
OFFSET = st.integers(0, 4 * BLOCK + 3) | st.sampled_from(
    [edge * BLOCK + near for edge in range(1, 5) for near in (-1, 0, 1)]
)
CHANGE = st.tuples(st.sampled_from(["add", "remove", "discard"]), OFFSET, OFFSET)


def test_an_empty_set_has_no_first_and_no_end():
    empty = OffsetRuns()

    assert (empty.first, empty.end, len(empty), list(empty)) == (None, None, 0, [])


def test_runs_across_blocks_are_one_run():
    assert list(OffsetRuns((10, 5 * BLOCK), (5 * BLOCK, 6 * BLOCK + 7))) == [
        (10, 6 * BLOCK + 7)
    ]


def test_adding_tells_how_many_offsets_are_new():
    runs = OffsetRuns((0, 10))

    assert runs.add(5, 3 * BLOCK) == 3 * BLOCK - 10
    assert runs.add(5, 3 * BLOCK) == 0


def test_an_offset_is_discarded_once():
    runs = OffsetRuns((0, 2 * BLOCK))

    assert runs.discard(7)
    assert not runs.discard(7)
    assert not runs.discard(5 * BLOCK)


def test_removing_below_and_above_keeps_what_is_between():
    runs = OffsetRuns((100, 10 * BLOCK))

    assert runs.remove_below(3 * BLOCK + 1) == 3 * BLOCK + 1 - 100
    assert runs.remove_from(4 * BLOCK) == 6 * BLOCK
    assert list(runs) == [(3 * BLOCK + 1, 4 * BLOCK)]
    assert runs.remove_below(5) == runs.remove_from(9 * BLOCK) == 0


def test_the_text_form_shows_the_first_runs_only():
    runs = OffsetRuns(*((n, n + 1) for n in range(0, 40, 2)))

    assert repr(runs).startswith("OffsetRuns([0, 1), [2, 3)")
    assert repr(runs).endswith("20 offsets)")


@settings(max_examples=size(200, 2_000), deadline=None)
@given(st.lists(CHANGE, max_size=25), OFFSET, OFFSET)
def test_offset_runs_answer_like_a_set(changes, one, other):
    runs = OffsetRuns()
    model: set[int] = set()
    for what, a, b in changes:
        start, end = min(a, b), max(a, b)
        before = len(model)
        if what == "add":
            model |= set(range(start, end))
            assert runs.add(start, end) == len(model) - before
        elif what == "remove":
            model -= set(range(start, end))
            assert runs.remove(start, end) == before - len(model)
        else:
            assert runs.discard(start) == (start in model)
            model.discard(start)

    found = list(runs)

    assert {x for start, end in found for x in range(start, end)} == model
    assert all(a[1] < b[0] for a, b in itertools.pairwise(found))
    assert len(runs) == len(model)
    assert runs.first == min(model, default=None)
    assert runs.end == (max(model) + 1 if model else None)
    assert (one in runs) == (one in model)
    low, high = min(one, other), max(one, other)
    inside = runs.overlap(low, high)
    assert {x for start, end in inside for x in range(start, end)} == {
        x for x in model if low <= x < high
    }
    others = OffsetRuns((low, high)), OffsetRuns((0, 3))
    left = (x for x in model if x >= 3 and not low <= x < high)
    assert runs.first_beyond(*others) == min(left, default=None)
    outside = list(runs.gaps(low, high))
    assert sorted(inside + outside) == _cut_at_edges(model, low, high)


def _cut_at_edges(model, low, high):
    """The runs of [low, high) of equal membership, ascending."""
    cuts = [x for x in range(low + 1, high) if (x in model) != (x - 1 in model)]
    edges = [low, *cuts, high] if low < high else []
    return list(itertools.pairwise(edges))


def test_a_contiguous_set_takes_no_memory_for_its_offsets():
    tracemalloc.start()
    try:
        runs = OffsetRuns((3, 1_000_000_007))
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert len(runs) == 1_000_000_004
    assert used < 20_000


def test_an_isolated_hole_takes_a_few_hundred_bytes():
    holes = range(7, 10_000_000, 10_000)
    runs = OffsetRuns((0, 10_000_000))

    tracemalloc.start()
    try:
        for hole in holes:
            runs.discard(hole)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert len(list(runs)) == len(holes) + 1
    assert used / len(holes) < 600


def test_many_offsets_leave_in_random_order():
    offsets = list(range(500_000))
    random.Random(3).shuffle(offsets)
    runs = OffsetRuns((0, 500_000))

    started = time.process_time()
    for offset in offsets:
        runs.discard(offset)

    assert time.process_time() - started < 4  # 1 s; a list that moves takes 8 s
    assert list(runs) == []
