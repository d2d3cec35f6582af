"""What is stored of dead letters that were sent back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.sinks.sent_letters import LetterPlace, SentLetters
from kafka_tx.sinks.sink_memory import NOT_OURS

PLACE = LetterPlace("dead", "id-1", 3)
offsets = st.integers(0, 40)


@given(st.lists(st.tuples(offsets, st.sets(offsets))), offsets, st.integers(0, 50))
def test_what_waits_is_what_was_never_sent(rounds, trimmed, end):
    """Whatever is left in each round, and wherever the log begins and ends."""
    state, unsent, known = SentLetters(), set(range(50)), 0
    for grown, left in rounds:
        known = max(known, grown)
        for start, stop in state.waiting(0, known):
            kept = {at for at in left if start <= at < stop}
            state = state.settled(start, stop, kept, 0)
            unsent -= set(range(start, stop)) - kept
        state = SentLetters.of_value(state.value)

    waiting = {at for run in state.waiting(trimmed, end) for at in range(*run)}
    assert waiting == {at for at in unsent if trimmed <= at < end}


def test_what_the_log_dropped_is_not_kept():
    state = SentLetters().settled(0, 10, [1, 7], 0)

    assert state.settled(7, 8, [7], 5).left == ((7, 8),)


def test_letters_behind_a_lost_end_were_not_sent():
    state = SentLetters().settled(0, 10, [2, 8], 0).cut(5)

    assert state.waiting(0, 7) == [(2, 3), (5, 7)]


def test_a_group_that_knows_of_none_that_is_left_counts_for_all_below():
    state = SentLetters().settled(0, 10, [2, 8], 0)

    assert state.sent_below(5).left == ((8, 9),)
    assert state.sent_below(12).waiting(0, 13) == [(12, 13)]


def test_a_group_says_of_which_topic_its_offset_is():
    assert PLACE.serial_of(PLACE.metadata(7)) == 7
    assert LetterPlace("dead", "id-2", 3).serial_of(PLACE.metadata(7)) is None


@pytest.mark.parametrize("metadata", [None, "", "a person", "[]", "[" * 4_000, "7"])
def test_an_offset_without_our_metadata_was_set_by_a_person(metadata):
    assert PLACE.serial_of(metadata) == 0


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b"[" * 9_999])
def test_a_value_that_is_none_is_an_error(value):
    with pytest.raises(NOT_OURS):
        SentLetters.of_value(value)


def test_a_record_without_value_says_nothing():
    assert SentLetters.of_value(b"null") == SentLetters()
