import datetime as dt
import sqlite3
from contextlib import closing
from decimal import Decimal

import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError, FencedError, OutOfOrderError, StateError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.tables import append_rows

FIRST, SECOND = TransactionAttempt(1, 10), TransactionAttempt(2, 20)
SECOND_AGAIN = TransactionAttempt(2, 25)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tables.db"


@pytest.fixture
def append(file):
    return lambda attempt, *words, **more: append_rows(
        f"sqlite:///{file}",
        "words",
        attempt,
        pa.table({"word": pa.array(words, pa.string())}),
        **more,
    )


@pytest.fixture
def select(file):
    def run(statement):
        with closing(sqlite3.connect(file)) as db:
            return db.execute(statement).fetchall()

    return run


@pytest.fixture
def words(select):
    return lambda: [word for (word,) in select("SELECT word FROM words ORDER BY word")]


def test_each_txid_is_appended_once(append, words):
    assert append(FIRST, "a", "b")
    assert append(SECOND, "c")
    assert not append(SECOND_AGAIN, "c")

    assert words() == ["a", "b", "c"]


def test_an_empty_batch_is_counted_too(append, words):
    append(FIRST, "a")
    append(SECOND)

    assert not append(SECOND_AGAIN, "b")
    assert words() == ["a"]


@pytest.mark.parametrize("opaque", [False, True])
def test_an_older_txid_is_refused(append, words, opaque):
    append(SECOND, "a", opaque=opaque)

    with pytest.raises(OutOfOrderError):
        append(FIRST, "b", opaque=opaque)

    assert words() == ["a"]


def test_an_opaque_replay_replaces_the_rows_of_the_earlier_attempt(append, select):
    append(FIRST, "a", opaque=True)
    append(SECOND, "b", "c", opaque=True)

    assert append(SECOND_AGAIN, "d", opaque=True)

    rows = select("SELECT word, txid FROM words ORDER BY word")
    assert rows == [("a", 1), ("d", 2)]
    with pytest.raises(FencedError):
        append(SECOND, "b", opaque=True)


def test_a_table_keeps_its_kind(append):
    append(FIRST, "a")

    with pytest.raises(ConfigError, match="transactional table"):
        append(SECOND, "a", opaque=True)


def test_rows_go_into_a_table_that_exists(append, file, select):
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE words (n INTEGER PRIMARY KEY, word TEXT UNIQUE)")

    append(FIRST, "b", "a")

    assert select("SELECT * FROM words") == [(1, "b"), (2, "a")]


def test_a_row_that_is_refused_leaves_nothing_of_its_batch(append, file, words):
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE words (word TEXT UNIQUE)")

    with pytest.raises(StateError, match="UNIQUE"):
        append(FIRST, "a", "b", "a")

    assert words() == []
    assert append(FIRST, "a")


def test_a_missing_column_is_named(append, file):
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE words (other TEXT)")

    with pytest.raises(StateError, match="no column named word"):
        append(FIRST, "a")


def test_a_table_of_somebody_else_is_left_for_another_name(append, file, select):
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE words (other TEXT)")
    with pytest.raises(StateError, match="only if this job has written nothing"):
        append(FIRST, "a")

    for attempt, word in ((FIRST, "a"), (SECOND, "b"), (SECOND_AGAIN, "b")):
        append_rows(
            f"sqlite:///{file}", "mine", attempt, pa.table({"word": pa.array([word])})
        )

    assert select("SELECT word FROM mine ORDER BY word") == [("a",), ("b",)]
    assert select("SELECT * FROM words") == []


def test_a_table_that_was_changed_gets_its_columns_back(append, file, words):
    append(FIRST, "a")
    with closing(sqlite3.connect(file)) as db:
        db.execute("ALTER TABLE words RENAME COLUMN word TO changed")
    with pytest.raises(StateError, match="give it the columns that are named"):
        append(SECOND, "b")

    with closing(sqlite3.connect(file)) as db:
        db.execute("ALTER TABLE words RENAME COLUMN changed TO word")
    append(SECOND, "b")
    append(SECOND_AGAIN, "b")

    assert words() == ["a", "b"]


ZONE = dt.timezone(dt.timedelta(hours=2))


def test_sparks_types_are_stored(file, select):
    rows = pa.table(
        {
            "text": ["ö"],
            "bytes": [b"\x00"],
            "n": pa.array([1], pa.int32()),
            "x": [0.5],
            "yes": [True],
            "day": [dt.date(2026, 1, 2)],
            "moment": pa.array(
                [dt.datetime(2026, 1, 2, 3, 4, tzinfo=ZONE)],
                pa.timestamp("us", "+02:00"),
            ),
            "price": pa.array([Decimal("1.10")], pa.decimal128(38, 2)),
            "nothing": pa.array([None], pa.int64()),
        }
    )

    append_rows(f"sqlite:///{file}", "words", FIRST, rows)

    moment, price = "2026-01-02 01:04:00.000000", "1.10"
    stored = ("ö", b"\x00", 1, 0.5, 1, "2026-01-02", moment, price, None)
    assert select("SELECT * FROM words") == [stored]


def test_a_nested_column_is_named(file):
    rows = pa.table({"headers": [[1, 2]]})

    with pytest.raises(ConfigError, match="column 'headers' is list"):
        append_rows(f"sqlite:///{file}", "words", FIRST, rows)


def test_a_column_txid_is_ours_in_an_opaque_table(file):
    rows = pa.table({"txid": [1]})

    with pytest.raises(ConfigError, match="txid"):
        append_rows(f"sqlite:///{file}", "words", FIRST, rows, opaque=True)
    assert append_rows(f"sqlite:///{file}", "words", FIRST, rows)


@pytest.mark.parametrize("txid", [0, -1])
def test_a_txid_begins_at_one(append, txid):
    with pytest.raises(ConfigError, match="1 and above"):
        append(TransactionAttempt(txid, 1), "a")


@pytest.mark.parametrize("names", [[""], ["a", " "], ["a", "a"]])
def test_columns_have_a_name_each(tmp_path, names):
    rows = pa.table([pa.array([1])] * len(names), names=names)

    with pytest.raises(ConfigError, match="columns with a name each, and none twice"):
        append_rows(f"sqlite:///{tmp_path}/t.db", "t", TransactionAttempt(1, 1), rows)
