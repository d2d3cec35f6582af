import pickle
import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest

from integration.stores import maps
from integration.stores.maps import content
from kafka_tx.errors import (
    ConfigError,
    FencedError,
    OutOfOrderError,
    ReplayDiffersError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql import merge
from kafka_tx.sql.maps import (
    NonTransactionalMap,
    OpaqueMap,
    OpaqueValue,
    TransactionalMap,
    TransactionalValue,
)

FIRST, SECOND, THIRD = (TransactionAttempt(txid, txid * 10) for txid in (1, 2, 3))
SECOND_AGAIN = TransactionAttempt(2, 25)


def rows(**values):
    return pa.table({"key": list(values), "value": list(values.values())})


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/maps.db"


open_map = maps.open_map


@pytest.fixture(params=["sqlite", "some other database"])
def any_words(request, monkeypatch):
    """Also as a database whose words for merging are not known."""
    if request.param != "sqlite":
        monkeypatch.setattr(merge, "_writer", lambda connection, rows: None)


BOTH = pytest.mark.parametrize("kind", [TransactionalMap, OpaqueMap])
ALL = pytest.mark.parametrize(
    "kind", [NonTransactionalMap, TransactionalMap, OpaqueMap]
)


@ALL
@pytest.mark.usefixtures("any_words")
@pytest.mark.parametrize(
    ("reducer", "expected"),
    [
        ("sum", {"a": 15, "b": 2, "c": 7}),
        ("max", {"a": 9, "b": 2, "c": 7}),
        ("min", {"a": 1, "b": 2, "c": 7}),
        ("last", {"a": 1, "b": 2, "c": 7}),
        (lambda old, new: (old or 0) * 10 + new, {"a": 591, "b": 2, "c": 7}),
    ],
)
def test_rows_of_two_batches_are_merged(open_map, kind, reducer, expected):
    state = open_map(kind)

    state.update(FIRST, rows(a=5, b=2), reducer)
    state.update(
        SECOND, pa.table({"key": ["a", "c", "a"], "value": [9, 7, 1]}), reducer
    )

    assert content(state) == expected
    assert state.get(["a", "nosuch"]) == {"a": expected["a"]}


@ALL
def test_count_counts_rows_and_needs_no_values(open_map, kind):
    state = open_map(kind)

    state.update(FIRST, pa.record_batch({"key": ["a", "b", "a"]}), "count")
    state.update(SECOND, pa.table({"key": ["a"], "value": [None]}), "count")

    assert content(state) == {"a": 3, "b": 1}


@BOTH
def test_a_committed_batch_that_is_replayed_changes_nothing(open_map, kind):
    state = open_map(kind)
    state.update(FIRST, rows(a=1))
    state.update(SECOND, rows(a=10, b=10))

    for attempt in (SECOND, SECOND_AGAIN):
        state.update(attempt, rows(a=10, b=10))

    assert content(state) == {"a": 11, "b": 10}


def test_a_transactional_replay_tells_that_it_was_counted(open_map):
    state = open_map(TransactionalMap)

    assert state.update(FIRST, rows(a=1))
    assert not state.update(TransactionAttempt(1, 3), rows(a=1))

    assert state.last_attempt() == FIRST


def test_a_replay_of_a_plain_map_counts_again(open_map):
    state = open_map(NonTransactionalMap)

    state.update(FIRST, rows(a=1))
    state.update(FIRST, rows(a=1))

    assert content(state) == {"a": 2}


@BOTH
def test_an_older_txid_is_refused_and_changes_nothing(open_map, kind):
    state = open_map(kind)
    state.update(SECOND, rows(a=1))

    with pytest.raises(OutOfOrderError, match="transaction 1 comes after 2"):
        state.update(FIRST, rows(a=1))

    assert content(state) == {"a": 1}
    assert state.last_attempt() == SECOND


def test_an_opaque_replay_starts_from_what_was_before(open_map):
    state = open_map(OpaqueMap)
    state.update(FIRST, rows(a=1, b=1, c=1))
    state.update(SECOND, rows(a=10, b=10, new=10))

    state.update(SECOND_AGAIN, rows(b=20))

    assert content(state) == {"a": 1, "b": 21, "c": 1}
    assert state.entries(["a", "b"]) == {
        "a": OpaqueValue(1, 1, 1, 0),
        "b": OpaqueValue(21, 1, 2, 25),
    }


def test_an_empty_opaque_replay_takes_back_what_was_written(open_map):
    state = open_map(OpaqueMap)
    state.update(FIRST, rows(a=1))
    state.update(SECOND, rows(a=10, new=10))

    with state.batch(SECOND_AGAIN):
        pass

    assert content(state) == {"a": 1}
    state.update(TransactionAttempt(2, 26), rows(a=5))
    assert content(state) == {"a": 6}


def test_a_lower_attempt_of_an_opaque_txid_is_refused(open_map):
    state = open_map(OpaqueMap)
    state.update(SECOND_AGAIN, rows(a=1))

    with pytest.raises(FencedError, match="attempt 2:20 is older than attempt 2:25"):
        state.update(SECOND, rows(a=10))

    assert content(state) == {"a": 1}


@BOTH
@pytest.mark.usefixtures("any_words")
def test_writes_of_one_batch_add_up_and_are_seen_inside_it(open_map, kind):
    state = open_map(kind)
    state.update(FIRST, rows(a=1))

    with state.batch(SECOND) as batch:
        batch.update(rows(a=1, b=1))
        batch.update(rows(a=1))
        assert batch.get(["a", "b"]) == {"a": 3, "b": 1}
        batch.put(rows(b=7))
        batch.remove(["a"])
        assert batch.get(["a"]) == {}
        batch.update(rows(a=2))

    assert content(state) == {"a": 2, "b": 7}
    state.update(SECOND_AGAIN, rows(a=4))
    replayed = {"a": 5} if kind is OpaqueMap else {"a": 2, "b": 7}
    assert content(state) == replayed


@BOTH
def test_a_batch_that_fails_half_way_leaves_nothing(open_map, kind):
    state = open_map(kind)
    state.update(FIRST, rows(a=1))

    def fail_half_way():
        with state.batch(SECOND) as batch:
            batch.update(rows(a=1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()

    assert content(state) == {"a": 1}
    assert state.last_attempt() == FIRST


@pytest.mark.usefixtures("any_words")
def test_a_replay_undoes_a_removal(open_map):
    state = open_map(OpaqueMap)
    state.update(FIRST, rows(a=1, b=1))
    state.remove(SECOND, ["a", "nosuch"])
    assert content(state) == {"b": 1}

    state.update(SECOND_AGAIN, rows(a=1))

    assert content(state) == {"a": 2, "b": 1}


def test_what_was_removed_leaves_the_table_with_the_next_transaction(open_map, url):
    state = open_map(OpaqueMap)
    state.update(FIRST, rows(a=1))
    state.remove(SECOND, ["a"])
    assert state.entries(["a"]) == {"a": OpaqueValue(None, 1, 2, 20)}

    with state.batch(THIRD):
        pass

    assert state.entries(["a"]) == {}


@ALL
def test_a_null_removes_under_last_and_is_nothing_elsewhere(open_map, kind):
    state = open_map(kind)
    state.update(FIRST, rows(a=1, b=1))

    state.update(SECOND, pa.table({"key": ["a"], "value": pa.nulls(1)}), "sum")
    assert content(state) == {"a": 1, "b": 1}
    state.update(THIRD, pa.table({"key": ["a", "a"], "value": [5, None]}), "last")

    assert content(state) == {"b": 1}


@ALL
def test_a_function_that_returns_none_removes_the_key(open_map, kind):
    state = open_map(kind)
    state.update(FIRST, rows(a=1, b=1))

    state.update(SECOND, rows(a=1, c=1), lambda old, new: None)

    assert content(state) == {"b": 1}


@ALL
@pytest.mark.usefixtures("any_words")
@pytest.mark.parametrize("n", [0, 1, 299, 300, 301, 2_000])
def test_batches_of_any_size(open_map, kind, n):
    state = open_map(kind, key=int)
    table = pa.table({"key": list(range(n)), "value": list(range(n))})

    state.update(FIRST, table)
    state.update(SECOND, table)

    assert content(state) == {key: 2 * key for key in range(n)}
    assert state.get(range(n)) == content(state)


@pytest.mark.parametrize(
    ("key", "value", "pair"),
    [
        (str, str, ("ключ \"'%s", "wörd")),
        (str, float, ("", 0.5)),
        (bytes, bytes, (b"\x00\xff", b"")),
        (int, int, (-(2**63), 2**63 - 1)),
    ],
)
@BOTH
def test_keys_and_values_come_back_as_they_were(open_map, kind, key, value, pair):
    state = open_map(kind, key=key, value=value)

    state.update(FIRST, pa.table({"key": [pair[0]], "value": [pair[1]]}), "last")

    assert content(state) == dict([pair])


@BOTH
def test_a_sum_of_more_than_64_bits_is_refused(open_map, kind):
    state = open_map(kind)
    state.update(FIRST, rows(a=2**63 - 1))

    with pytest.raises(ConfigError, match="key 'a'.* 64 bits"):
        state.update(SECOND, rows(a=1))
    with pytest.raises(ConfigError, match="64 bits"):
        state.update(SECOND, pa.table({"key": ["b", "b"], "value": [2**62, 2**62]}))

    assert content(state) == {"a": 2**63 - 1}


@BOTH
def test_large_numbers_that_cancel_out_are_added_exactly(open_map, kind):
    state = open_map(kind)
    values = [2**62, 2**62, -(2**62), 2**62 - 1, 7]
    keys = ["a", "a", "a", "a", "b"]

    state.update(FIRST, pa.table({"key": keys, "value": values}))

    assert content(state) == {"a": 2**63 - 1, "b": 7}


@pytest.mark.parametrize("reducer", ["sum", "count"])
@pytest.mark.parametrize("value", [str, bytes])
def test_only_numbers_are_added_up(open_map, value, reducer):
    state = open_map(TransactionalMap, value=value)

    with pytest.raises(ConfigError, match=f"'{reducer}'.*max, min, last"):
        state.update(FIRST, pa.table({"key": ["a"], "value": [value()]}), reducer)
    assert state.last_attempt() == TransactionAttempt(0, 0)


def test_rows_that_do_not_fit_are_named(open_map):
    state = open_map(TransactionalMap)

    for table, text in [
        (pa.table({"word": ["a"], "value": [1]}), "one named 'key'"),
        (pa.table({"key": ["a"]}), "one named 'value'"),
        (pa.table({"key": ["a"], "value": ["x"]}), "column 'value' is string"),
        (
            pa.table({"key": pa.array([None], pa.string()), "value": [1]}),
            "without a key",
        ),
    ]:
        with pytest.raises(ConfigError, match=text):
            state.update(FIRST, table)
    with pytest.raises(ConfigError, match="sum, count, max"):
        state.update(FIRST, rows(a=1), "mean")

    assert state.last_attempt() == TransactionAttempt(0, 0)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (str, b"a"),
        (str, 1),
        (int, "2"),
        (int, 2**70),
        (int, 1.5),
        (bytes, "a"),
        (bytes, 1),
    ],
)
def test_a_key_of_another_type_is_refused_wherever_it_is_given(open_map, kind, key):
    state = open_map(TransactionalMap, key=kind)
    known = {str: "a", int: 2, bytes: b"a"}[kind]
    state.update(FIRST, pa.table({"key": [known], "value": [1]}))

    for call in (
        lambda: state.get([key]),
        lambda: state.entries([key]),
        lambda: state.remove(SECOND, [key]),
    ):
        with pytest.raises(ConfigError, match="key"):
            call()

    assert state.get([known, known]) == {known: 1}


def test_a_float_that_is_no_number_is_refused(open_map):
    state = open_map(TransactionalMap, value=float)

    with pytest.raises(ConfigError, match="NaN"):
        state.update(FIRST, rows(a=float("nan")))


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a;b", "kafka_tx_state", "x" * 61])
def test_a_name_that_is_no_table_is_refused(url, name):
    with pytest.raises(ConfigError, match="a table's name"):
        TransactionalMap(url, name)


def test_a_map_keeps_its_kind(open_map):
    open_map(TransactionalMap).update(FIRST, rows(a=1))

    with pytest.raises(ConfigError, match="transactional map"):
        open_map(OpaqueMap).update(SECOND, rows(a=1))


def test_maps_of_one_database_have_their_own_progress(open_map):
    one, other = open_map(OpaqueMap, "one"), open_map(OpaqueMap, "other")

    one.update(SECOND, rows(a=1))
    other.update(FIRST, rows(a=5))

    assert (content(one), content(other)) == ({"a": 1}, {"a": 5})


def test_a_map_travels_as_its_address(open_map):
    state = open_map(OpaqueMap, "totals", key=int, value=float)
    state.update(FIRST, pa.table({"key": [1], "value": [0.5]}))

    other = pickle.loads(pickle.dumps(state))
    try:
        assert content(other) == {1: 0.5}
    finally:
        other.close()


def test_entries_tell_the_last_transaction_of_each_key(open_map):
    state = open_map(TransactionalMap)
    state.update(FIRST, rows(a=1, b=1))
    state.update(SECOND, rows(b=1))

    assert state.entries(["a", "b", "c"]) == {
        "a": TransactionalValue(1, 1),
        "b": TransactionalValue(2, 2),
    }


def test_anybody_can_read_the_table(open_map, tmp_path):
    open_map(OpaqueMap, "words").update(FIRST, rows(a=1))

    with sqlite3.connect(tmp_path / "maps.db") as db:
        found = db.execute("SELECT key, value FROM words").fetchall()
    db.close()

    assert found == [("a", 1)]


@BOTH
@pytest.mark.parametrize(
    "others",
    [rows(b=5), rows(a=6), rows(a=5, b=5), rows(a=5).slice(0, 0)],
    ids=["another key", "another value", "more", "nothing"],
)
def test_a_second_writer_of_an_attempt_is_told_and_changes_nothing(
    open_map, kind, others
):
    open_map(kind).update(FIRST, rows(a=5))
    second = open_map(kind)

    with pytest.raises(ReplayDiffersError, match="the map has two writers"):
        second.update(FIRST, others)

    assert content(second) == {"a": 5}


ROWS = {"a": 1, "b": 2, "c": 4}


@BOTH
@pytest.mark.parametrize("of", [int, float, str, lambda n: b"%d" % n])
@pytest.mark.parametrize("reducer", ["last", "max", lambda _, new: new])
@pytest.mark.parametrize(
    "others",
    [
        {"a": 1, "b": 3, "c": 4},
        {"a": 2, "b": 1, "c": 4},
        {"a": 1, "bb": 2, "c": 4},
        {"a": 1, "b": None, "c": 4},
    ],
    ids=["another value", "the same sum", "another key", "one is removed"],
)
def test_a_second_writer_between_the_same_first_and_last_key_is_told(
    open_map, kind, of, reducer, others
):
    def typed(values):
        given = {k: None if v is None else of(v) for k, v in values.items()}
        return rows(**given)

    state = open_map(kind, value=type(of(1)))
    state.update(FIRST, typed(ROWS), reducer)
    once = content(state)

    with pytest.raises(ReplayDiffersError, match="the map has two writers"):
        state.update(FIRST, typed(others), reducer)

    assert content(state) == once
    state.update(FIRST, typed(ROWS), reducer)
    assert content(state) == once


@BOTH
def test_a_second_writer_that_removes_other_keys_is_told(open_map, kind):
    state = open_map(kind)
    state.update(FIRST, rows(a=1, b=2, bb=3, c=4))
    state.remove(SECOND, ["a", "b", "c"])

    with pytest.raises(ReplayDiffersError, match="the map has two writers"):
        state.remove(SECOND, ["a", "bb", "c"])

    state.remove(SECOND, ["c", "b", "a"])
    assert content(state) == {"bb": 3}


@BOTH
@pytest.mark.parametrize("first", [-0.5, 0.1, 1e300])
def test_floats_that_are_added_in_another_order_are_the_same_rows(
    open_map, kind, first
):
    parts = [first, *(n / 7 for n in range(1, 99))]
    sums = sum(parts), sum(reversed(parts))
    state = open_map(kind, value=float)

    for each in (sums, reversed(sums)):
        state.update(FIRST, rows(**dict(zip("ab", each, strict=True))))

    with pytest.raises(ReplayDiffersError):
        state.update(FIRST, rows(a=-sums[0], b=sums[0]))


@BOTH
@pytest.mark.parametrize("beside", [{}, {"b": 5.0}, {"b": -1e12, "c": float("inf")}])
def test_a_float_whose_sum_cancels_is_the_same_in_another_order(open_map, kind, beside):
    sums = 1e9 + 0.1 - 1e9 - 0.1, 1e9 - 1e9 + 0.1 - 0.1, -1e9 - 0.1 + 1e9 + 0.1
    assert len(set(sums)) == 3
    state = open_map(kind, value=float)

    for more in (0.0, 5.0):
        for each in sums:
            given = TransactionAttempt(1 + int(more), 10)
            state.update(given, rows(a=more + each, **beside))


@BOTH
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": 0.5}, {"a": 0.505}),
        ({"a": 1e12, "b": 1.0}, {"a": 1e12, "b": 5000.0}),
        ({"a": float("inf"), "b": 1.0}, {"a": float("inf"), "b": 2.0}),
        ({"a": 1e300}, {"a": float("inf")}),
        ({"a": 1e15}, {"a": 1e15 + 1e8}),
        (dict.fromkeys(map(str, range(1000)), 1e6), {"500": 1e6 + 4}),
        ({f"{n}": n for n in range(1000)}, {"500": 501, "501": 500}),
    ],
)
def test_other_floats_are_other_rows(open_map, kind, first, second):
    def floats(given):
        return rows(**{key: float(value) for key, value in given.items()})

    state = open_map(kind, value=float)
    state.update(FIRST, floats(first))

    with pytest.raises(ReplayDiffersError, match="the map has two writers"):
        state.update(FIRST, floats(first | second))
    state.update(FIRST, floats(first))


@BOTH
def test_a_digest_of_version_0_3_0_is_not_compared(open_map, url, kind):
    state = open_map(kind)
    state.update(FIRST, rows(a=5))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
        db.execute("UPDATE kafka_tx_progress SET digest = ?", (64 * "0",))

    state.update(FIRST, rows(a=5))

    assert content(state) == {"a": 5}


@BOTH
def test_a_second_update_of_a_batch_is_no_replay_and_is_told(open_map, kind):
    state = open_map(kind)
    state.update(FIRST, rows(a=5))

    with pytest.raises(ReplayDiffersError, match="a map of its own, with another name"):
        state.update(FIRST, rows(b=2))
    assert content(state) == {"a": 5}
    replay = TransactionAttempt(1, 11)
    another = open_map(kind, "another")
    state.update(replay, rows(a=5))
    another.update(replay, rows(b=2))
    assert [content(one) for one in (state, another)] == [{"a": 5}, {"b": 2}]


@BOTH
@pytest.mark.parametrize("reducer", ["sum", "count", "last", lambda old, new: new])
def test_the_same_attempt_may_come_again_with_the_same_rows(open_map, kind, reducer):
    state = open_map(kind)
    for _ in range(3):
        state.update(FIRST, rows(a=5, b=2), reducer)
    once = content(state)

    state.update(TransactionAttempt(1, 11), rows(c=1), reducer)

    assert once.keys() == {"a", "b"}
    assert content(state).keys() == ({"c"} if kind is OpaqueMap else {"a", "b"})
