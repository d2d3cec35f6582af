import itertools

from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.offsets.runs import RunList


def runs(*given_runs):
    built = RunList()
    for start, end in given_runs:
        built.add(start, end)
    return built


def test_runs_that_touch_become_one():
    assert list(runs((0, 3), (5, 8), (3, 5))) == [(0, 8)]


def test_a_run_in_the_middle_cuts_a_longer_one_in_two():
    built = runs((0, 10))

    built.remove(4, 6)

    assert list(built) == [(0, 4), (6, 10)]


def test_an_empty_list_has_no_first_and_no_end():
    assert (RunList().first, RunList().last_end) == (None, None)


CHANGES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 60), st.integers(1, 20)), max_size=30
)


@given(CHANGES, st.integers(0, 60), st.integers(1, 30))
def test_a_run_list_answers_like_a_set(changes, low, length):
    built, model = RunList(), set()
    for is_add, start, size in changes:
        span = range(start, start + size)
        if is_add:
            built.add(span.start, span.stop)
            model |= set(span)
        else:
            built.remove(span.start, span.stop)
            model -= set(span)

    found = list(built)

    assert {x for start, end in found for x in range(start, end)} == model
    assert all(a[1] < b[0] for a, b in itertools.pairwise(found))
    assert len(built) == len(found)
    assert built.first == min(model, default=None)
    assert built.last_end == (max(model) + 1 if model else None)
    assert all((x in built) == (x in model) for x in range(90))
    cut = {
        x for start, end in built.overlap(low, low + length) for x in range(start, end)
    }
    assert cut == model & set(range(low, low + length))
