from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.kafka.group_offsets import LIMIT, decode, encode, fitting
from kafka_tx.model import CommittedOffset


@st.composite
def committed_offsets(draw, max_runs=40):
    offset = draw(st.integers(0, 2**61))
    lengths = st.tuples(st.integers(1, 2**40), st.integers(1, 2**40))
    runs, last = [], offset
    for gap, length in draw(st.lists(lengths, max_size=max_runs)):
        runs.append((last + gap, last + gap + length))
        last += gap + length
    name = st.text(max_size=20)
    return CommittedOffset(offset, tuple(runs), draw(name), draw(name))


@given(committed=committed_offsets())
def test_what_fits_comes_back_equal(committed):
    assert decode(committed.offset, encode(committed)) == committed


@given(committed=committed_offsets(), limit=st.integers(120, 400))
def test_what_does_not_fit_loses_its_highest_runs_only(committed, limit):
    count = fitting(committed, limit)
    text = encode(committed, limit)

    kept = decode(committed.offset, text)

    assert len(text) <= limit
    assert text.isascii()
    assert kept.completed == committed.completed[:count]
    assert kept.topology_id == committed.topology_id


@given(committed=committed_offsets(), limit=st.integers(120, 400))
def test_there_is_room_for_everything_or_hardly_any_room_is_left(committed, limit):
    count = fitting(committed, limit)

    if count < len(committed.completed):
        unlimited = encode(committed, 10**6)
        assert len(unlimited) > limit


def scattered(count):
    """Short runs with gaps that do not repeat."""
    runs, last = [], 0
    for number in range(count):
        start = last + 1 + number * 7919 % 97
        last = start + 1 + number * 104729 % 31
        runs.append((start, last))
    return CommittedOffset(0, tuple(runs), "deployment-7", "orders")


def test_more_than_a_thousand_scattered_runs_fit_into_kafkas_limit():
    assert fitting(scattered(1_000)) == 1_000
    assert 1_000 < fitting(scattered(100_000)) < 100_000
    assert len(encode(scattered(100_000))) <= LIMIT


def test_every_second_record_missing_takes_next_to_nothing():
    runs = tuple((2 * n + 1, 2 * n + 2) for n in range(100_000))

    assert fitting(CommittedOffset(0, runs)) == 100_000


def test_nothing_to_say_is_an_empty_text():
    assert encode(CommittedOffset(7)) == ""


@pytest.mark.parametrize("metadata", ["", "spark", '{"a":1}', "kafka_tx"])
def test_another_programs_text_says_nothing(metadata):
    assert decode(7, metadata) == CommittedOffset(7)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[:-1], "checksum"),
        (lambda text: "kafka_tx:1:ab", "cut short"),
        (lambda text: text[:25] + "0" + text[26:], "checksum"),
    ],
)
def test_our_own_text_is_read_whole_or_not_at_all(change, reason):
    text = change(encode(scattered(5)))

    with pytest.raises(ValueError, match=reason):
        decode(0, text)


def test_runs_are_not_taken_to_another_offset():
    with pytest.raises(ValueError, match="checksum"):
        decode(1, encode(scattered(5)))


def test_failures_are_kept_where_there_is_room():
    failures = tuple((3 * n, 3 * n + 1, 2) for n in range(100))
    some = CommittedOffset(0, ((1, 2),), "d", "n", topic_id="id", failures=failures)
    assert decode(0, encode(some)) == some

    crowded = replace(scattered(100_000), topic_id="id", failures=failures)
    text = encode(crowded)
    assert len(text) <= LIMIT
    assert decode(crowded.offset, text).failures == ()
    assert decode(crowded.offset, text).topic_id == "id"
