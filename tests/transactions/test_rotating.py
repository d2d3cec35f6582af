"""Rotating state: rules of order, None against absent, memory after the store."""

from __future__ import annotations

import pytest

from kafka_tx.errors import ConfigError, OutOfOrderError, StateCorruptedError
from kafka_tx.transactions.rotating import Change, RecordCodec, RotatingState

NUMBERS = RecordCodec[int]("number", "memory:", "jobs")


def a_state(*txids: int) -> RotatingState[int]:
    """A state that holds 10 x txid for each of these."""
    state = RotatingState[int]("user/0", NUMBERS)
    for txid in txids:
        state.apply(state.override_state(txid, 10 * txid))
    return state


# --- reading ---


def test_none_is_a_value_and_differs_from_absent():
    state = a_state(1)
    state.apply(state.override_state(2, None))

    assert state.has_state(2)
    assert state.state(2) is None
    with pytest.raises(OutOfOrderError, match="'user/0/3' does not exist"):
        state.state(3)


def test_txids_are_numbers_not_text():
    assert a_state(9, 10, 11).txids() == [9, 10, 11]


# --- creating ---


def test_what_is_there_is_not_written_again():
    assert a_state(3).create_state(3, 31) == Change()


def test_memory_follows_only_after_the_write():
    state = a_state(1)

    change = state.create_state(2, 11)
    assert list(change.put) == ["user/0/2"]
    assert not state.has_state(2)

    state.apply(change)
    assert state.state(2) == 11


def test_a_state_begins_with_one():
    assert a_state().create_state(1, 1)
    with pytest.raises(OutOfOrderError, match="only txid 1 can follow"):
        a_state().create_state(2, 1)


@pytest.mark.parametrize("txid", [5, 6, 1])
def test_all_but_the_next_txid_are_refused(txid):
    with pytest.raises(OutOfOrderError, match="only txid 4 can follow"):
        a_state(2, 3).create_state(txid, 1)


def test_the_next_txid_is_created_after_a_cleanup():
    state = a_state(2, 3)
    state.apply(state.cleanup_before(3))

    assert state.create_state(4, 31)


# --- overriding, removing, cleaning up ---


def test_override_does_not_ask_for_order():
    state = a_state(7)

    state.apply(state.override_state(3, 1))

    assert state.txids() == [3, 7]


def test_cleanup_is_strictly_below():
    state = a_state(1, 2, 3)

    change = state.cleanup_before(3)
    state.apply(change)

    assert change == Change(delete=("user/0/1", "user/0/2"))
    assert state.txids() == [3]
    assert not state.cleanup_before(3)


# --- store ---


def test_load_takes_what_is_under_the_prefix_and_nothing_else():
    stored = {
        "user/0/2": NUMBERS.encode(7),
        "user/00/3": NUMBERS.encode(8),
        "user/1/4": "not even a record",
    }
    state = a_state(1)

    state.load(stored)

    assert state.txids() == [2]
    assert state.state(2) == 7


@pytest.mark.parametrize("name", ["x", "0", "-1", "01", "1/2", "", "9" * 5000])
def test_a_path_that_is_no_txid_is_named(name):
    stored = {"user/0/3": NUMBERS.encode(1), f"user/0/{name}": NUMBERS.encode(1)}
    state = a_state()
    with pytest.raises(StateCorruptedError, match="is no path of a txid"):
        state.load(stored)
    del stored[f"user/0/{name}"]  # as the error says

    state.load(stored)
    assert state.txids() == [3]


def test_a_damaged_record_is_named_with_the_repair():
    damaged = NUMBERS.encode(1).replace('"data":1', '"data":2')

    with pytest.raises(StateCorruptedError, match=r"'user/0/5' of id 'jobs'.*repair"):
        a_state().load({"user/0/5": damaged})


def test_a_record_of_another_shape_is_named():
    codec = RecordCodec[int]("number", "memory:", "jobs", from_json=lambda p: p["at"])

    with pytest.raises(StateCorruptedError, match="unexpected content"):
        codec.decode("user/0/1", NUMBERS.encode(5))


def test_a_value_that_json_would_change_is_refused():
    with pytest.raises(ConfigError, match="read back as something else"):
        RecordCodec[object]("number", "memory:", "jobs").encode((1, 2))


def test_what_applies_twice_applies_once():
    state = a_state(1, 2)
    change = state.override_state(3, 5) | state.cleanup_before(2)

    state.apply(change)
    state.apply(change)

    assert state.txids() == [2, 3]


# --- changes ---


def test_joined_changes_touch_each_path_once():
    first = Change({"a": "1", "b": "1"}, ("c", "d"))
    second = Change({"c": "2", "b": "2"}, ("a", "d"))

    assert first | second == Change({"b": "2", "c": "2"}, ("d", "a"))
