"""Maps and tables on PostgreSQL, where rows go another way than into SQLite."""

import datetime as dt
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import make_url

from integration.cluster.waiting import wait_until
from integration.stores import maps
from integration.stores.maps import ODD, content
from kafka_tx.errors import ConfigError, ReplayDiffersError, StateError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import NonTransactionalMap, OpaqueMap, TransactionalMap
from kafka_tx.sql.tables import append_rows
from tests.conformance.value_suite import ValueSuite

FIRST, SECOND = TransactionAttempt(1, 10), TransactionAttempt(2, 20)
SECOND_AGAIN = TransactionAttempt(2, 25)
SIZES = pytest.mark.parametrize("more", [0, 1_000], ids=["statements", "copy"])

open_map = maps.open_map


def connected(url):
    address = make_url(url)
    return psycopg.connect(
        host=address.host,
        port=address.port,
        user=address.username,
        dbname=address.database,
        autocommit=True,
    )


@pytest.fixture
def url(postgresql):
    return postgresql


@SIZES
@pytest.mark.parametrize("kind", [NonTransactionalMap, TransactionalMap, OpaqueMap])
@pytest.mark.parametrize(
    ("reducer", "merged"),
    [
        ("sum", 12),
        *(
            pytest.param(*each, marks=pytest.mark.all)
            for each in (("max", 9), ("min", 3), ("last", 3))
        ),
    ],
)
def test_two_batches_are_merged(open_map, kind, more, reducer, merged):
    state = open_map(kind)
    keys = [*ODD, *(f"k{n}" for n in range(more))]

    for attempt, value in ((FIRST, 9), (SECOND, 3)):
        rows = pa.table({"key": keys, "value": [value] * len(keys)})
        state.update(attempt, rows, reducer)

    assert content(state) == dict.fromkeys(keys, merged)
    assert list(content(state)) == sorted(keys)


def test_maps_of_other_types_share_a_connection(open_map):
    """Many rows go through a temporary table, which stays with the connection."""
    numbers = range(1_000)
    whole = open_map(TransactionalMap, "whole", key=int, value=float)
    halves = open_map(TransactionalMap, "halves", value=float)
    counts = open_map(TransactionalMap, "counts", value=int)
    texts = [f"{n:04}" for n in numbers]

    whole.update(FIRST, pa.table({"key": [*numbers], "value": [0.5] * 1_000}))
    halves.update(FIRST, pa.table({"key": texts, "value": [0.5] * 1_000}))
    counts.update(FIRST, pa.table({"key": texts, "value": [2**53 + 1] * 1_000}))

    assert content(whole) == dict.fromkeys(numbers, 0.5)
    assert content(halves) == dict.fromkeys(texts, 0.5)
    assert content(counts) == dict.fromkeys(texts, 2**53 + 1)


@pytest.fixture
def latin(postgresql_server):
    """A database of another encoding than UTF-8."""
    name = f"latin_{uuid4().hex[:12]}"
    postgresql_server.execute(
        f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    )
    return postgresql_server.url(name)


@SIZES
def test_texts_stay_what_they_are_in_a_database_of_another_encoding(latin, more):
    keys = ["ö", *(f"k{n}" for n in range(more))]
    rows = pa.table({"key": keys, "value": ["ä"] * len(keys)})

    with closing(TransactionalMap(latin, "last", value=str)) as state:
        state.update(FIRST, rows, "last")
        assert append_rows(latin, "orders", FIRST, rows)
        euros = rows.set_column(1, "value", pa.array(["€"] * len(keys)))
        with pytest.raises(StateError, match="LATIN1"):
            state.update(SECOND, euros, "last")
        found = content(state)

    assert found == dict.fromkeys(keys, "ä")
    with connected(latin) as database:
        told = database.execute("SELECT key, value FROM orders").fetchall()
    assert sorted(told) == sorted((key, "ä") for key in keys)


@SIZES
def test_an_opaque_replay_takes_everything_back(open_map, more):
    state = open_map(OpaqueMap)
    keys = [*ODD, *(f"k{n}" for n in range(more))]
    rows = pa.table({"key": keys, "value": [1] * len(keys)})
    state.update(FIRST, rows)
    with state.batch(SECOND) as batch:
        batch.update(rows)
        batch.update(rows)
        batch.remove(keys[1:])
    assert content(state) == {keys[0]: 3}

    state.update(SECOND_AGAIN, pa.table({"key": ["new", ""], "value": [5, 5]}))

    assert content(state) == dict.fromkeys(keys, 1) | {"": 6, "new": 5}


@SIZES
@pytest.mark.parametrize("kind", [TransactionalMap, OpaqueMap])
def test_bytes_come_back_as_they_were(open_map, kind, more):
    state = open_map(kind, key=bytes, value=bytes)
    keys = [b"", b"\x00\xff", *(b"k%d" % n for n in range(more))]

    state.update(FIRST, pa.table({"key": keys, "value": keys}), "last")

    assert content(state) == {key: key for key in keys}


def test_what_copy_refuses_is_an_error_of_ours(postgresql):
    append_rows(postgresql, "whole", FIRST, pa.table({"n": [1]}))

    with pytest.raises(StateError, match="invalid input syntax"):
        append_rows(postgresql, "whole", SECOND, pa.table({"n": ["x"]}))

    assert append_rows(postgresql, "whole", SECOND, pa.table({"n": [2]}))


@pytest.mark.all
class TestValues(ValueSuite):
    pass


@pytest.mark.parametrize("more", [0, 1_000])
def test_a_key_that_the_index_has_no_room_for_is_named(open_map, more):
    state = open_map(TransactionalMap)
    keys = [*(f"k{n}" for n in range(more)), os.urandom(4_800).hex()]
    rows = pa.table({"key": keys, "value": [1] * len(keys)})

    with pytest.raises(ConfigError, match="'key' is .*9600 bytes.*sha2"):
        state.update(FIRST, rows)

    assert content(state) == {}


@pytest.mark.parametrize(
    "kinds", [(pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())]
)
def test_sparks_types_are_appended_once(postgresql, kinds):
    moment = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
    row = {
        "text": "ö",
        "bytes": b"C:\\\\101",
        "n": 1,
        "x": 0.5,
        "yes": True,
        "day": dt.date(2026, 1, 2),
        "moment": moment,
        "price": Decimal("1.10"),
    }
    rows = pa.Table.from_pylist([row])
    for index, kind in enumerate(kinds):
        name = rows.column_names[index]
        rows = rows.set_column(index, name, rows[name].cast(kind))

    for attempt in (FIRST, SECOND, SECOND_AGAIN):
        append_rows(postgresql, "kept", attempt, rows)

    with connected(postgresql) as connection:
        found = connection.execute("SELECT * FROM kept").fetchall()
    assert found == [tuple(row.values())] * 2


@pytest.mark.parametrize(
    ("kind", "kept", "changed"),
    [("varchar(3)", "ä  ", "ä   "), ("char(3)", "ä  ", "ä   "), ("char(1)", "ä", "ä ")],
)
def test_blanks_that_a_column_would_change_are_refused(postgresql, kind, kept, changed):
    with connected(postgresql) as database:
        database.execute(f"CREATE TABLE kept (x {kind}, y text)".encode())
    append_rows(postgresql, "kept", FIRST, pa.table({"x": [kept], "y": [changed]}))

    rows = pa.table({"x": [None, changed], "y": ["", ""]})
    with pytest.raises(
        ConfigError, match="'x', row 1 .*'ä  *': .*would change it.*rtrim"
    ):
        append_rows(postgresql, "kept", SECOND, rows)

    with connected(postgresql) as database:
        assert database.execute("SELECT * FROM kept").fetchall() == [(kept, changed)]


def test_times_are_utc_whatever_the_databases_zone(postgresql):
    name = make_url(postgresql).database
    with connected(postgresql) as database:
        database.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'".encode())
    aware = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
    naive = aware.replace(tzinfo=None)
    with connected(postgresql) as database:
        database.execute("CREATE TABLE kept (tz timestamptz, ntz timestamp)")

    append_rows(postgresql, "kept", FIRST, pa.table({"tz": [naive], "ntz": [aware]}))

    with connected(postgresql) as database:
        assert database.execute("SELECT * FROM kept").fetchall() == [(aware, naive)]


def test_of_two_first_writers_of_a_name_the_second_is_told_so(open_map, postgresql):
    """Both find no row to lock."""
    first, second = open_map(TransactionalMap), open_map(TransactionalMap)
    assert content(first) == {}
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    )

    with connected(postgresql) as database, ThreadPoolExecutor(1) as late:
        with first.batch(FIRST) as batch:
            batch.update(pa.table({"key": ["a"], "value": [1]}))
            other = late.submit(
                second.update, FIRST, pa.table({"key": ["a"], "value": [2]})
            )
            wait_until(
                "the second writer waits for the first",
                lambda: database.execute(waiting).fetchone() != (0,),
            )
        with pytest.raises(ReplayDiffersError, match="first write of txid 1 is commit"):
            other.result()

    assert content(first) == {"a": 1}


def test_names_that_differ_in_capital_letters_alone_are_two_names(open_map, postgresql):
    for kind in (TransactionalMap, OpaqueMap):
        first, second = open_map(kind, f"{kind.__name__}"), kind.__name__.lower()
        first.update(FIRST, pa.table({"key": ["a"], "value": [1]}))
        other = open_map(kind, second)
        other.update(FIRST, pa.table({"key": ["b"], "value": [2]}))

        assert (content(first), content(other)) == ({"a": 1}, {"b": 2})
    for name in ("Rows", "rows"):
        assert append_rows(postgresql, name, FIRST, pa.table({"a": [1], "A": [2]}))
