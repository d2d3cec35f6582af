"""Rotating state: rules of order, None against absent, memory after the store."""

from __future__ import annotations

import pytest

from kafka_tx.errors import ConfigError, OutOfOrderError, StateCorruptedError
from kafka_tx.transactions.rotating import Change, RecordCodec, RotatingState

NUMBERS = RecordCodec[int]("number", "memory:", "jobs")


def a_state(*txids: int, strict: bool = False) -> RotatingState[int]:
    """A state that holds 10 x txid for each of these."""
    state = RotatingState[int]("user/0", NUMBERS, strict_order=strict)
    for txid in txids:
        state.apply(state.override_state(txid, 10 * txid))
    return state


def never(_txid, _previous):
    pytest.fail("init was called")


def one_more(_txid, previous):
    return (previous or 0) + 1


# --- reading ---


def test_an_empty_state_has_no_previous():
    state = a_state()

    assert state.previous_state(7) is None
    assert not state.has_state(1)


def test_previous_is_the_greatest_strictly_lower_txid():
    state = a_state(2, 4, 6)

    assert [state.previous_state(txid) for txid in (2, 3, 4, 5, 7)] == [
        None, 20, 20, 40, 60,
    ]  # fmt: skip


def test_none_is_a_value_and_differs_from_absent():
    state = a_state(1)
    state.apply(state.override_state(2, None))

    assert state.has_state(2)
    assert state.state(2) is None
    with pytest.raises(OutOfOrderError, match="'user/0/3' does not exist"):
        state.state(3)


def test_txids_are_numbers_not_text():
    assert a_state(9, 10, 11).previous_state(12) == 110
    assert a_state(9, 10, 11).txids() == [9, 10, 11]


# --- creating ---


def test_a_value_that_is_there_is_returned_and_nothing_is_written():
    value, change = a_state(3).get_state(3, never)

    assert (value, change) == (30, Change())
    assert not change


def test_a_new_value_is_made_from_the_greatest_lower_one():
    value, change = a_state(2, 3).get_state(5, one_more)

    assert value == 31
    assert list(change.put) == ["user/0/5"]


def test_below_a_later_txid_the_new_value_is_none_without_asking():
    state = a_state(4)

    value, change = state.get_state(3, never)
    state.apply(change)

    assert value is None
    assert state.has_state(3)
    assert state.get_state(3, never) == (None, Change())


def test_memory_follows_only_after_the_write():
    state = a_state(1)

    _, change = state.get_state(2, one_more)
    assert not state.has_state(2)

    state.apply(change)
    assert state.state(2) == 11


def test_an_init_that_fails_leaves_no_trace():
    state = a_state(1)

    with pytest.raises(ZeroDivisionError):
        state.get_state(2, lambda *_: 1 // 0)

    assert state.txids() == [1]


# --- strict order ---


def test_strict_order_begins_with_one():
    assert a_state(strict=True).get_state(1, one_more)[0] == 1
    with pytest.raises(OutOfOrderError, match="only txid 1 can follow"):
        a_state(strict=True).get_state(2, never)


@pytest.mark.parametrize("txid", [5, 6, 1])
def test_strict_order_refuses_all_but_the_next(txid):
    with pytest.raises(OutOfOrderError, match="only txid 4 can follow"):
        a_state(2, 3, strict=True).get_state(txid, never)


def test_strict_order_creates_the_next_one_after_a_cleanup():
    state = a_state(2, 3, strict=True)
    state.apply(state.cleanup_before(3))

    assert state.get_state(4, one_more)[0] == 31


def test_strict_order_still_reads_what_is_there():
    assert a_state(2, 3, strict=True).get_state(2, never)[0] == 20


# --- overriding, removing, cleaning up ---


def test_override_does_not_ask_for_order():
    state = a_state(7, strict=True)

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
    with pytest.raises(StateCorruptedError, match="is no path of a txid"):
        a_state().load({f"user/0/{name}": NUMBERS.encode(1)})


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
