"""Values that maps and tables take or refuse, the same on each database."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from kafka_tx.errors import ConfigError
from kafka_tx.sql.maps import NonTransactionalMap, OpaqueMap, TransactionalMap
from kafka_tx.sql.snapshot import SnapshotValue
from kafka_tx.sql.tables import append_rows
from tests.conformance.sink_suite import attempt

_numbers = itertools.count()
KINDS = [NonTransactionalMap, TransactionalMap, OpaqueMap]
NAN, INF = float("nan"), float("inf")
DAY = dt.date(2026, 1, 2)
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
MICRO = MOMENT.replace(microsecond=1)
BAD_TEXT = {"no UTF-8": b"a\xff", "zero byte": b"a\0b", "half": b"\xed\xa0\x80"}
MANY = [f"k{n}" for n in range(1_000)]
"""Enough keys for another kind of statement."""


def text(*raw: bytes) -> pa.Array:
    """Text as Spark hands it over, which checks nothing."""
    return pa.array(raw, pa.binary()).view(pa.string())


def keys_of(state):
    return state.to_arrow()["key"].to_pylist()


class ValueSuite:
    """Subclasses have a fixture ``url``; ``has_nan``: the database has NaN."""

    has_nan = True

    @pytest.fixture
    def open_map(self, url):
        opened: list[Any] = []

        def make(kind=TransactionalMap, name=None, **types):
            opened.append(kind(url, name or f"map_{next(_numbers)}", **types))
            return opened[-1]

        yield make
        for one in opened:
            one.close()

    @pytest.mark.parametrize("bad", BAD_TEXT.values(), ids=BAD_TEXT)
    @pytest.mark.parametrize("reducer", ["count", "last", lambda a, b: b])
    @pytest.mark.parametrize("more", [[], MANY], ids=["few", "many"])
    def test_text_that_is_none_is_named_with_its_row(
        self, open_map, bad, reducer, more
    ):
        state = open_map(value=str if reducer != "count" else int)
        keys = text(b"good", bad, *(key.encode() for key in more))
        values: Any = ["1"] * len(keys)
        with pytest.raises(ConfigError, match=r"'key', row 1 .*make_valid_utf8"):
            state.update(attempt(1), pa.table({"key": keys, "value": values}), reducer)

        if reducer != "count":
            values = text(*([b"1"] * (len(keys) - 1)), bad)
            numbers = [f"{n}" for n in range(len(keys))]
            rows = pa.table({"key": numbers, "value": values})
            with pytest.raises(ConfigError, match=f"'value', row {len(keys) - 1} "):
                state.update(attempt(1), rows, reducer)
        assert keys_of(state) == []
        good = pa.table({"key": ["a"], "value": ["1"]})
        assert state.update(attempt(1), good, reducer)

    @pytest.mark.parametrize("bad", BAD_TEXT.values(), ids=BAD_TEXT)
    @pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
    def test_bytes_are_no_text_either_and_a_map_of_bytes_takes_them(
        self, open_map, bad, kind
    ):
        rows = pa.table({"key": pa.array([b"a", bad], kind), "value": [1, 1]})
        with pytest.raises(ConfigError, match=r"'key', row 1 .*key=bytes"):
            open_map().update(attempt(1), rows)

        state = open_map(key=bytes)
        assert state.update(attempt(1), rows)
        assert sorted(keys_of(state)) == sorted([b"a", bad])

    @pytest.mark.parametrize("bad", ["\ud800", "a\0b"])
    def test_pythons_texts_are_refused_at_every_call(self, open_map, bad):
        state = open_map(value=str)
        value = SnapshotValue(open_map(value=str))
        rows = pa.table({"key": ["a"], "value": ["1"]})
        state.update(attempt(1), rows, "last")
        calls = [
            lambda: state.get([bad]),
            lambda: state.entries([bad]),
            lambda: state.remove(attempt(2), [bad]),
            lambda: state.update(attempt(2), rows, lambda *_: bad),
            lambda: value.set(attempt(1), bad),
        ]
        for call in calls:
            with pytest.raises(ConfigError, match=r"text|does not fit"):
                call()
        assert (state.get(["a"]), value.get()) == ({"a": "1"}, None)

    @pytest.mark.parametrize("bad", BAD_TEXT.values(), ids=BAD_TEXT)
    def test_tables_refuse_the_same_text(self, url, bad):
        name = f"table_{next(_numbers)}"
        rows = pa.table({"n": [1, 2], "word": text(b"a", bad)})
        with pytest.raises(ConfigError, match="'word', row 1 "):
            append_rows(url, name, attempt(1), rows)
        assert append_rows(url, name, attempt(1), rows.slice(0, 1))

    @pytest.mark.parametrize(
        ("kind", "beyond"),
        [
            (pa.date32(), 2_932_897),
            (pa.date32(), -719_163),
            (pa.timestamp("us"), 253_402_300_800_000_000),
            (pa.timestamp("us", "UTC"), 253_402_300_800_000_000),
            (pa.timestamp("us", "UTC"), -62_135_596_800_000_001),
        ],
    )
    def test_years_that_not_all_have_are_refused(self, url, kind, beyond):
        whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
        edges = [None, *((0, beyond - 1) if beyond > 0 else (beyond + 1, 0))]
        name = f"table_{next(_numbers)}"

        assert append_rows(
            url, name, attempt(1), pa.table({"at": pa.array(edges, whole).cast(kind)})
        )
        late = pa.table({"at": pa.array([0, None, beyond], whole).cast(kind)})
        with pytest.raises(ConfigError, match=r"'at', row 2 .*years 1 to 9999"):
            append_rows(url, name, attempt(2), late)

    def test_numbers_that_a_table_cannot_hold_are_refused(self, url):
        name = f"table_{next(_numbers)}"
        assert append_rows(url, name, attempt(1), pa.table({"x": [INF, -INF, None]}))
        rows = pa.table({"x": [1.0, None, NAN]})
        if self.has_nan:
            assert append_rows(url, name, attempt(2), rows)
            return
        with pytest.raises(ConfigError, match=r"'x', row 2 .*NaN.*no such number"):
            append_rows(url, name, attempt(2), rows)
        assert append_rows(url, name, attempt(2), pa.table({"x": [2.0]}))

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("more", [[], MANY], ids=["few", "many"])
    @pytest.mark.parametrize(
        ("first", "second"), [(INF, -INF), (1e308, 1e308), (-1e308, -1e308)]
    )
    def test_a_sum_that_is_no_number_is_refused(
        self, open_map, kind, more, first, second
    ):
        state = open_map(kind, value=float)
        keys = ["a", *more]

        def add(txid, value):
            rest = [0.0] * len(more)
            return state.update(
                attempt(txid), pa.table({"key": keys, "value": [value, *rest]})
            )

        add(1, first)
        for way in (
            lambda: add(2, second),
            lambda: state.update(
                attempt(2), pa.table({"key": ["a", "a"], "value": [INF, -INF]})
            ),
            lambda: state.update(
                attempt(2), pa.table({"key": ["a"], "value": [1.0]}), lambda *_: NAN
            ),
        ):
            with pytest.raises(ConfigError, match=r"'value'.* key 'a'"):
                way()
        assert state.get(["a"]) == {"a": first}
        add(2, first if first == INF else -first)
        assert state.get(["a"]) == {"a": INF if first == INF else 0.0}

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("more", [[], MANY], ids=["few", "many"])
    def test_a_sum_of_more_than_64_bits_is_named(self, open_map, kind, more):
        state = open_map(kind)
        keys = ["a", *more]
        rows = pa.table({"key": keys, "value": [1] * len(keys)})
        state.update(attempt(1), pa.table({"key": ["a"], "value": [2**63 - 1]}))

        with pytest.raises(ConfigError, match=r"'value' is 1 for key 'a'.* 64 bits"):
            state.update(attempt(2), rows)

        assert keys_of(state) == ["a"]
        assert state.update(attempt(2), rows, "last")

    @pytest.mark.parametrize("change", [lambda *_: 1.5, lambda *_: 2**64])
    def test_what_a_function_returns_is_not_cut(self, open_map, change):
        state = open_map()
        with pytest.raises(ConfigError, match="does not fit"):
            state.update(attempt(1), pa.table({"key": ["a"], "value": [1]}), change)
        assert keys_of(state) == []

    @pytest.mark.parametrize(
        "key", [1.0, MOMENT, MOMENT.replace(tzinfo=None), Decimal("1E-7")]
    )
    def test_what_spark_writes_otherwise_is_not_cast_to_text(self, open_map, key):
        with pytest.raises(ConfigError, match=r"'key' is .*string\(key\)"):
            open_map().update(attempt(1), pa.table({"key": [key], "value": [1]}))

    @pytest.mark.parametrize(
        ("key", "written"),
        [(7, "7"), (True, "true"), (DAY, "2026-01-02"), (Decimal("1.50"), "1.50")],
    )
    def test_what_spark_writes_alike_is_cast_to_text(self, open_map, key, written):
        state = open_map()
        state.update(attempt(1), pa.table({"key": [key], "value": [1]}))
        assert keys_of(state) == [written]

    def test_a_time_is_no_number(self, open_map):
        with pytest.raises(ConfigError, match="'value' is timestamp"):
            open_map().update(attempt(1), pa.table({"key": ["a"], "value": [MOMENT]}))

    @pytest.mark.parametrize("suffix", ["_removed", "_txid", "_pkey", "_key_check"])
    def test_names_beside_each_other_are_two_names(self, url, open_map, suffix):
        name = f"orders_{next(_numbers)}"
        rows = pa.table({"key": ["a"], "value": [1]})
        for each in (name, f"{name}{suffix}"):
            assert open_map(OpaqueMap, each).update(attempt(1), rows)
        for each in (f"t_{name}", f"t_{name}{suffix}"):
            assert append_rows(url, each, attempt(1), rows, opaque=True)
        assert open_map(OpaqueMap, name).get(["a"]) == {"a": 1}

    @pytest.mark.parametrize("length", [55, 56, 59, 60])
    def test_a_name_may_have_60_characters(self, url, open_map, length):
        rows = pa.table({"key": ["a"], "value": [1]})
        for kind in KINDS:
            name = f"{kind.__name__}_{next(_numbers)}_".ljust(length, "x")
            state = open_map(kind, name)
            assert state.update(attempt(1), rows)
            assert state.get(["a"]) == {"a": 1}
        for opaque in (False, True):
            name = f"table_{next(_numbers)}_".ljust(length, "x")
            assert append_rows(url, name, attempt(1), rows, opaque=opaque)

    @pytest.mark.parametrize(
        ("kind", "kept", "changed"),
        [
            ("numeric(30, 2)", Decimal("1.10"), Decimal("1.1111111111111111")),
            ("real", 0.5, 0.1),
            ("date", dt.datetime(2026, 1, 2), MOMENT.replace(tzinfo=None)),  # noqa: DTZ001
            ("time", dt.datetime(1970, 1, 1, 3), MOMENT.replace(tzinfo=None)),  # noqa: DTZ001
            ("timestamp(0)", MOMENT, MOMENT.replace(microsecond=500_000)),
            ("timestamp(3)", MOMENT.replace(microsecond=1_000), MICRO),
            ("integer", 3.0, 3.5),
            ("numeric(30, 2)", 1.1, 1.111),
            ("double precision", 2**62, 2**53 + 1),
            ("double precision", Decimal("0.25"), Decimal("1234567.12345678901")),
        ],
    )
    def test_a_column_of_others_that_would_change_a_value_is_named(
        self, url, kind, kept, changed
    ):
        name = f"table_{next(_numbers)}"
        engine = sa.create_engine(_driver(url), poolclass=sa.NullPool)
        with engine.begin() as db:
            db.execute(sa.text(f"CREATE TABLE {name} (x {kind})"))
        if not self.has_nan and not isinstance(changed, int | Decimal):  # SQLite
            assert append_rows(url, name, attempt(1), pa.table({"x": [changed]}))
            return
        assert append_rows(url, name, attempt(1), pa.table({"x": [kept, None]}))

        with pytest.raises(ConfigError, match=r"'x', row 1 .*would change it"):
            append_rows(url, name, attempt(2), pa.table({"x": [None, changed]}))

        assert append_rows(url, name, attempt(2), pa.table({"x": [kept]}))


def _driver(url):
    return url.replace("postgresql:", "postgresql+psycopg:")
