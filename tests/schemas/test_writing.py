"""Columns that are written with a schema, and those that do not fit it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from kafka_tx.errors import ConfigError, SchemaError
from kafka_tx.model import SchemaText
from kafka_tx.schemas.avro import parse
from kafka_tx.schemas.columns import column_of
from kafka_tx.schemas.decoding import decode
from kafka_tx.schemas.resolution import resolve
from kafka_tx.schemas.writing import AvroColumn, check_schema
from tests.schemas.evolving import Case, cases, encoded

PREFIX = b"\0\0\0\0\7"
ONE = pa.struct([("a", pa.int32())])


def text(schema: Any) -> SchemaText:
    return SchemaText(json.dumps(schema), 7)


def column(schema: Any) -> AvroColumn:
    return AvroColumn("value", text(schema))


def decoded(schema: Any, values: pa.Array, skip: int) -> pa.Array:
    slot = column_of(parse(json.dumps(schema)))
    program = resolve(parse(json.dumps(schema)), slot)
    count = len(values)
    begins = np.full(count, skip, np.int32)
    made = decode(values, begins, np.zeros(count, np.int32), [program], slot)
    assert made.failures == []
    return made.column


@given(cases())
@settings(max_examples=60)
def test_what_was_decoded_is_written_as_it_was(case: Case) -> None:
    """The columns of a schema fit it, and their values come back."""
    schema = case.writer
    given_bytes = pa.array([encoded(schema, each) for each in case.values], pa.binary())
    rows = decoded(schema, given_bytes, 0)

    check_schema(
        SchemaText(json.dumps(schema)),
        column_of(parse(json.dumps(schema))).spark,
        "value",
    )
    written = column(schema).encoded(rows)

    assert all(each.startswith(PREFIX) for each in written.to_pylist())
    again = decoded(schema, written.cast(pa.binary()), len(PREFIX))
    assert again.to_pylist() == rows.to_pylist()


def test_null_is_a_tombstone() -> None:
    written = column("string").encoded(pa.array(["a", None, "b"]))

    assert written.to_pylist() == [PREFIX + b"\2a", None, PREFIX + b"\2b"]


def test_times_are_rounded_down_to_the_unit_of_the_schema() -> None:
    kind = pa.timestamp("us", tz="UTC")
    times = pa.array([-1, 0, 1_999, -1_001], pa.int64()).view(kind)

    written = column({"type": "long", "logicalType": "timestamp-millis"}).encoded(times)

    assert [each[5:] for each in written.to_pylist()] == [b"\1", b"\0", b"\2", b"\3"]


def test_a_field_without_column_has_its_default() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "b", "type": "string", "default": "x"},
            {"name": "c", "type": ["null", "long"], "default": None},
        ],
    }

    written = column(schema).encoded(pa.array([{"a": 1}]))

    assert written.to_pylist() == [PREFIX + b"\2\2x\0"]


def test_defaults_may_hold_bytes_at_any_depth() -> None:
    two = {"type": "fixed", "name": "F", "size": 2}
    parts = [
        {"name": "a", "type": "bytes"},
        {"name": "b", "type": {"type": "array", "items": two}},
        {"name": "c", "type": {"type": "map", "values": ["null", "bytes"]}},
        {"name": "d", "type": "bytes", "default": "d"},
    ]
    inner = {"type": "record", "name": "I", "fields": parts}
    given = {"a": "\xff", "b": ["\x00\x01"], "c": {"k": "\xfe", "l": None}}
    schema = record(
        _A,
        {"name": "x", "type": inner, "default": given},
        {"name": "y", "type": ["bytes", "null"], "default": "y"},
    )
    check_schema(text(schema), struct(a="integer"), "value")

    (written,) = column(schema).encoded(pa.array([{"a": 1}], ONE)).to_pylist()

    maps = b"\4\2k\2\2\xfe\2l\0\0"
    assert written == PREFIX + b"\2" + b"\2\xff\2\0\1\0" + maps + b"\2d\0\2y"


def test_a_default_that_is_no_value_counts_only_where_it_is_written() -> None:
    schema = record(_A, {"name": "b", "type": "bytes", "default": "\u20ac"})
    rows = pa.array([{"a": 1, "b": b"x"}], pa.struct([*ONE, ("b", pa.binary())]))

    assert column(schema).encoded(rows).to_pylist() == [PREFIX + b"\2\2x"]
    with pytest.raises(SchemaError, match="'value.b'.* is no value of its type"):
        check_schema(text(schema), struct(a="integer"), "value")


def test_types_of_any_namespace_are_written() -> None:
    """A bare name is of the namespace around it, in what encodes them, too."""
    word = {"type": "enum", "name": "X", "namespace": "", "symbols": ["p", "q"]}
    inner = {
        "type": "record",
        "name": "S",
        "namespace": "c.my-company",
        "fields": [{"name": "w", "type": word}],
    }
    schema = record({"name": "s", "type": inner}, {"name": "v", "type": "X"})
    schema["namespace"] = "a.b"

    written = column(schema).encoded(pa.array([{"s": {"w": "q"}, "v": "p"}]))

    assert written.to_pylist() == [PREFIX + b"\2\0"]


def test_a_record_without_fields_is_written() -> None:
    """Also where each field has its default."""
    empty = {"type": "record", "name": "R", "fields": []}
    other = {**empty, "fields": [{"name": "a", "type": "int", "default": 1}]}
    rows = pa.array([{}, None, {}], pa.struct([]))

    assert column(empty).encoded(rows).to_pylist() == [PREFIX, None, PREFIX]
    assert column(other).encoded(rows).to_pylist() == [
        PREFIX + b"\2",
        None,
        PREFIX + b"\2",
    ]


def test_null_does_not_fit_a_union_without_null() -> None:
    with pytest.raises(ConfigError, match="'value.a' has null"):
        column(record({"name": "a", "type": ["int"]})).encoded(
            pa.array([{"a": None}], pa.struct([("a", pa.int32())]))
        )


def struct(**fields: Any) -> Any:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def record(*fields: Any) -> Any:
    return {"type": "record", "name": "R", "fields": list(fields)}


_A = {"name": "a", "type": "int"}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


@pytest.mark.parametrize(
    ("schema", "spark", "said"),
    [
        (record(_A), struct(a="long"), r"column 'value.a' is long, .* takes byte or"),
        (record(_A), struct(a="string"), r"column 'value.a' is string"),
        (
            record(_A),
            struct(a="integer", b="long"),
            r"'value.b' is a column, .* no such",
        ),
        (record(_A), struct(), r"'value.a' is no column, .* without a default"),
        (
            record(_A),
            "string",
            r"column 'value' is string, and the schema takes record",
        ),
        ("string", struct(a="integer"), r"column 'value' is struct"),
        (
            _DECIMAL,
            "decimal(10,2)",
            r"takes decimals of at most 9 digits with 2 behind",
        ),
        (_DECIMAL, "decimal(9,3)", r"takes decimals of at most 9 digits"),
        (_DECIMAL, "double", r"column 'value' is double"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            "timestamp_ntz",
            r"is timestamp_ntz, and the schema takes timestamp \(long\)",
        ),
        (
            {"type": "map", "values": "int"},
            {
                "type": "map",
                "keyType": "integer",
                "valueType": "integer",
                "valueContainsNull": True,
            },
            "column 'value' is map",
        ),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "elementType": "string", "containsNull": True},
            r"column 'value\[\]' is string",
        ),
    ],
)
def test_a_column_that_does_not_fit_is_refused_by_name(
    schema: Any, spark: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_schema(SchemaText(json.dumps(schema)), spark, "value")


@pytest.mark.parametrize(
    ("schema", "values", "said"),
    [
        (
            record(_A),
            pa.array([{"a": None}], pa.struct([("a", pa.int32())])),
            "'value.a' has null",
        ),
        (
            {"type": "array", "items": "int"},
            pa.array([[1, None]], pa.list_(pa.int32())),
            r"'value\[\]' has null",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            pa.array(["A", "C"]),
            "takes A, B",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            pa.array([b"ab", b"abc"]),
            "takes 2 bytes",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(
    schema: Any, values: pa.Array, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        column(schema).encoded(values)


def test_nested_nulls_keep_their_places() -> None:
    inner = record({"name": "x", "type": {"type": "array", "items": _DECIMAL}})
    schema = record({"name": "in", "type": ["null", {**inner, "name": "In"}]})
    rows = [
        {"in": None},
        {"in": {"x": [Decimal("1.25")]}},
        {"in": None},
        {"in": {"x": []}},
    ]
    kind = pa.struct([("in", pa.struct([("x", pa.list_(pa.decimal128(9, 2)))]))])

    written = column(schema).encoded(pa.array(rows, kind))

    assert decoded(schema, written.cast(pa.binary()), 5).to_pylist() == rows


def test_a_type_that_has_only_null_is_written() -> None:
    schema = record(
        _A,
        {"name": "n", "type": "null"},
        {"name": "l", "type": {"type": "array", "items": "null"}},
    )
    kind = [("a", pa.int32()), ("n", pa.null()), ("l", pa.list_(pa.null()))]
    rows = [{"a": 1, "n": None, "l": [None, None]}, {"a": 2, "n": None, "l": []}]

    written = column(schema).encoded(pa.array(rows, pa.struct(kind)))

    assert decoded(schema, written.cast(pa.binary()), 5).to_pylist() == rows


def test_the_id_of_another_records_schema_is_no_header() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    own, other = ("__value_schema_id", b"\0\0\0\0\1"), ("__key_schema_id", b"k")
    names = [[own, ("h", b"x")], None, [], [own], [other, own, own], [("h", None)]]
    rows = [each and [{"key": k, "value": v} for k, v in each] for each in names]
    given = pa.array([[], *rows], kind)[1:]

    made = column("string").headers(given)

    made.validate(full=True)
    found = [[one["key"] for one in each or ()] for each in made.to_pylist()]
    assert found == [["h"], [], [], [], ["__key_schema_id"], ["h"]]
    assert column("string").headers(given[5:]).equals(given[5:])
    assert column("string").headers(given[1:2]).equals(given[1:2])


def test_times_beyond_pythons_years_are_written() -> None:
    kind = pa.timestamp("us", tz="UTC")
    far = pa.array([2**62, -(2**62)], pa.int64()).view(kind)
    schema = {"type": "long", "logicalType": "timestamp-micros"}

    written = column(schema).encoded(far)

    assert decoded(schema, written.cast(pa.binary()), 5).view(
        pa.int64()
    ).to_pylist() == [
        2**62,
        -(2**62),
    ]


def test_a_map_with_a_key_twice_is_refused() -> None:
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))

    with pytest.raises(ConfigError, match="column 'value' has a map with a key"):
        column({"type": "map", "values": "int"}).encoded(twice)
