"""The conformance suite of decoders: what Avro says, with fastavro as the oracle."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_tx.schemas.avro import parse
from kafka_tx.schemas.columns import Slot, column_of
from kafka_tx.schemas.decoding import Decoded, Decoder
from kafka_tx.schemas.defaults import number
from kafka_tx.schemas.program import MOST_EMPTY_ITEMS, Program, Reason
from kafka_tx.schemas.resolution import resolve
from tests.schemas.evolving import Case, cases, encoded, expected


def decoded(
    decode: Decoder, values: list[bytes], program: Program, column: Slot, skip: int = 0
) -> Decoded:
    """All of one writer."""
    made = decode(
        pa.array(values, pa.binary()),
        np.full(len(values), skip, np.int32),
        np.zeros(len(values), np.int32),
        [program],
        column,
    )
    made.column.validate(full=True)
    assert made.column.type == column.arrow
    assert len(made.column) == len(values)
    return made


def both(writer: Any, reader: Any = None) -> tuple[Program, Slot]:
    column = column_of(parse(json.dumps(writer if reader is None else reader)))
    return resolve(parse(json.dumps(writer)), column), column


def reasons(made: Decoded) -> list[int]:
    return [failure.reason for failure in made.failures]


@given(cases())
@settings(max_examples=60)
def test_values_are_those_of_fastavro(decode: Decoder, case: Case) -> None:
    given_bytes = [encoded(case.writer, value) for value in case.values]

    made = decoded(decode, given_bytes, *both(case.writer, case.reader))

    assert made.failures == []
    assert made.column.to_pylist() == [expected(case, each) for each in given_bytes]


@given(cases(), st.data())
@settings(max_examples=60)
def test_a_broken_record_fails_alone(
    decode: Decoder, case: Case, data: st.DataObject
) -> None:
    """Whatever a byte string holds, the records around it are decoded."""
    good = [encoded(case.writer, value) for value in case.values]
    program, column = both(case.writer, case.reader)
    whole = data.draw(st.sampled_from(good)) if good else b""
    cut = data.draw(st.integers(0, len(whole)))
    noise = data.draw(st.binary(max_size=20))
    wanted = decoded(decode, good, program, column).column.to_pylist()

    made = decoded(decode, [*good, whole[:cut] + noise, *good], program, column)

    found = made.column.to_pylist()
    assert found[: len(good)] == wanted
    assert found[len(good) + 1 :] == wanted
    assert [failure.row for failure in made.failures] in ([], [len(good)])
    if made.failures:
        assert found[len(good)] is None


@given(cases())
def test_cut_and_trailing_bytes_are_failures(decode: Decoder, case: Case) -> None:
    given_bytes = [encoded(case.writer, value) for value in case.values]
    program, column = both(case.writer, case.reader)

    longer = decoded(decode, [each + b"\0" for each in given_bytes], program, column)
    shorter = decoded(
        decode, [each[:-1] for each in given_bytes if each], program, column
    )

    assert reasons(longer) == [Reason.TRAILING] * len(given_bytes)
    assert len(shorter.failures) == len([each for each in given_bytes if each])


def test_writers_that_alternate_are_decoded_in_one_pass(decode: Decoder) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = json.loads(json.dumps(old))
    new["fields"].append({"name": "b", "type": "string", "default": "none"})
    column = column_of(parse(json.dumps(new)))
    programs = [resolve(parse(json.dumps(schema)), column) for schema in (old, new)]
    values = [b"head" + number(n) + (b"\x02x" if n % 2 else b"") for n in range(100)]

    made = decode(
        pa.array([*values, None], pa.binary()),
        np.full(101, 4, np.int32),
        np.array([*(n % 2 for n in range(100)), -1], np.int32),
        programs,
        column,
    )

    assert made.failures == []
    rows = [{"a": n, "b": "x" if n % 2 else "none"} for n in range(100)]
    assert made.column.to_pylist() == [*rows, None]


def test_a_column_that_was_sliced_is_decoded(decode: Decoder) -> None:
    program, column = both("string")
    values = pa.array([b"\x02a", b"\x02b", b"\x02c"], pa.binary())[1:]

    made = decode(
        values, np.zeros(2, np.int32), np.zeros(2, np.int32), [program], column
    )

    assert made.column.to_pylist() == ["b", "c"]


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("long", b"\xff" * 9 + b"\x02", Reason.NUMBER),
        ("long", b"\x80" * 11, Reason.NUMBER),
        ("long", b"\x80", Reason.CUT),
        ("int", number(2**31), Reason.NUMBER),
        ("int", number(-(2**31) - 1), Reason.NUMBER),
        ("boolean", b"\x02", Reason.BOOLEAN),
        ("boolean", b"", Reason.CUT),
        ("double", b"1234567", Reason.CUT),
        ("string", b"\x04a", Reason.LENGTH),
        ("string", number(-1), Reason.LENGTH),
        ("bytes", number(2**62) + b"a", Reason.LENGTH),
        ("string", b"\x02\xff", Reason.TEXT),
        ("string", b"\x06\xed\xa0\x80", Reason.TEXT),
        ("string", b"\x04\xc0\x80", Reason.TEXT),
        (["null", "int"], number(2), Reason.INDEX),
        (["null", "int"], number(-1), Reason.INDEX),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, number(1), Reason.INDEX),
        ({"type": "array", "items": "int"}, number(3) + b"\0\0", Reason.LENGTH),
        ({"type": "array", "items": "int"}, number(-(2**63)), Reason.CUT),
        ({"type": "array", "items": "int"}, number(-(2**63)) + b"\0", Reason.LENGTH),
        ({"type": "array", "items": "int"}, number(-1) + b"\x08\0\0", Reason.LENGTH),
        ({"type": "array", "items": "int"}, b"\x02\x02", Reason.CUT),
        ({"type": "array", "items": "null"}, number(2**60) + b"\0", Reason.EMPTY_ITEMS),
        ({"type": "map", "values": "null"}, b"\x02\x02\xff\0", Reason.TEXT),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1},
            b"\x02\x64",
            Reason.DIGITS,
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
            number(40) + b"\x01" + b"\0" * 39,
            Reason.DIGITS,
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            number(2**60),
            Reason.TIME,
        ),
    ],
)
def test_what_is_no_value_has_a_reason(
    decode: Decoder, schema: Any, value: bytes, reason: Reason
) -> None:
    program, column = both(schema)

    made = decoded(decode, [value], program, column)

    assert [(failure.row, failure.reason) for failure in made.failures] == [(0, reason)]
    assert made.column.to_pylist() == [None]


@pytest.mark.parametrize(
    ("schema", "value", "wanted"),
    [
        ("long", b"\x80\x00", 0),
        ("long", b"\xff" * 9 + b"\x01", -(2**63)),
        ({"type": "array", "items": "int"}, b"\x01\x02\x06\x02\x08\0", [3, 4]),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
            b"\0",
            0,
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
            number(20) + b"\xff" * 20,
            -1,
        ),
        ({"type": "array", "items": "null"}, number(3) + b"\0", [None, None, None]),
        (
            {"type": "map", "values": "int"},
            b"\x04\x02a\x02\x02a\x04\0",
            [("a", 1), ("a", 2)],
        ),
        ({"type": "record", "name": "E", "fields": []}, b"", {}),
    ],
)
def test_odd_values_are_values(
    decode: Decoder, schema: Any, value: bytes, wanted: Any
) -> None:
    program, column = both(schema)

    made = decoded(decode, [value], program, column)

    assert made.failures == []
    assert made.column.to_pylist() == [wanted]


def test_items_without_bytes_are_bounded_in_a_record_as_a_whole(
    decode: Decoder,
) -> None:
    nulls = {"type": "array", "items": "null"}
    program, column = both({"type": "array", "items": nulls})
    part = number(MOST_EMPTY_ITEMS // 2) + b"\0"

    made = decoded(
        decode, [number(n) + part * n + b"\0" for n in (2, 3, 2)], program, column
    )

    assert reasons(made) == [Reason.EMPTY_ITEMS]
    assert [row is None for row in made.column.to_pylist()] == [False, True, False]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "wanted"),
    [
        ("timestamp-millis", "timestamp-micros", 1, 1_000),
        ("timestamp-micros", "timestamp-millis", 1_001, 1_001),
        ("timestamp-nanos", "timestamp-micros", -1, -1),
        ("timestamp-millis", "timestamp-nanos", 2, 2_000_000),
        ("local-timestamp-millis", "local-timestamp-micros", -3, -3_000),
    ],
)
def test_times_are_converted_from_the_unit_of_the_writer(
    decode: Decoder, writer: str, reader: str, value: int, wanted: int
) -> None:
    program, column = both(
        {"type": "long", "logicalType": writer}, {"type": "long", "logicalType": reader}
    )

    made = decoded(decode, [number(value)], program, column)

    assert made.column.view(pa.int64()).to_pylist() == [wanted]


def test_a_branch_that_the_reader_cannot_take_fails_where_it_comes(
    decode: Decoder,
) -> None:
    program, column = both(["int", "string", "long"], "long")

    made = decoded(
        decode,
        [number(0) + number(7), b"\x02\x02a", number(2) + number(9)],
        program,
        column,
    )

    assert made.column.to_pylist() == [7, None, 9]
    (failure,) = made.failures
    assert program.why(failure.reason, failure.detail) == (
        "the value is string where it was written, and long where it is read"
    )


def test_a_symbol_that_the_reader_lacks_fails_where_it_comes(decode: Decoder) -> None:
    old = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    program, column = both(old, {"type": "enum", "name": "E", "symbols": ["B"]})

    made = decoded(decode, [number(0), number(1)], program, column)

    assert made.column.to_pylist() == [None, "B"]
    (failure,) = made.failures
    assert program.why(failure.reason, failure.detail) == (
        "the value: enum 'E' has no symbol 'A', and no default"
    )


def test_skipped_fields_may_be_of_any_type(decode: Decoder) -> None:
    """Also of those that a reader's schema may not have."""
    writer = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": ["null", "int", "string"]},
            {"name": "b", "type": {"type": "map", "values": ["int", "string"]}},
            {
                "name": "c",
                "type": {
                    "type": "fixed",
                    "name": "D",
                    "size": 12,
                    "logicalType": "duration",
                },
            },
            {"name": "d", "type": {"type": "array", "items": "double"}},
            {"name": "kept", "type": "int"},
        ],
    }
    reader = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "kept", "type": "int"}],
    }
    values = [
        {"a": "x", "b": {"k": 1, "l": "m"}, "c": b"." * 12, "d": [1.0, 2.0], "kept": n}
        for n in range(3)
    ]

    made = decoded(
        decode, [encoded(writer, each) for each in values], *both(writer, reader)
    )

    assert made.column.to_pylist() == [{"kept": 0}, {"kept": 1}, {"kept": 2}]


def test_blocks_with_a_size_are_passed_over_as_a_whole(decode: Decoder) -> None:
    writer = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": {"type": "array", "items": "string"}},
            {"name": "b", "type": "int"},
        ],
    }
    reader = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]}
    value = number(-2) + number(4) + b"\xff\xff\xff\xff" + b"\0" + number(5)

    made = decoded(decode, [value], *both(writer, reader))

    assert made.column.to_pylist() == [{"b": 5}]


def test_nothing_is_a_column_without_rows(decode: Decoder) -> None:
    made = decoded(decode, [], *both({"type": "array", "items": "string"}))

    assert made.column.to_pylist() == []


@pytest.mark.parametrize(
    ("kind", "default", "wanted"),
    [
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001", b"\xff\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        (["int", "null"], 3, 3),
        (["null", "int"], 3, 3),
        ("float", 1, 1.0),
        ({"type": "array", "items": ["null", "int"]}, [None, 4], [None, 4]),
        ({"type": "map", "values": "long"}, {"k": 1}, [("k", 1)]),
    ],
)
def test_a_missing_field_has_its_default(
    decode: Decoder, kind: Any, default: Any, wanted: Any
) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = json.loads(json.dumps(old))
    new["fields"].insert(0, {"name": "b", "type": kind, "default": default})

    made = decoded(decode, [number(1)], *both(old, new))

    assert made.column.to_pylist() == [{"b": wanted, "a": 1}]


def test_a_record_that_would_fill_far_more_than_its_bytes_fails_alone(
    decode: Decoder,
) -> None:
    """Nulls of wide records and defaults of items take a byte of it, or none."""
    wide = {
        "type": "record",
        "name": "Wide",
        "fields": [{"name": f"f{n}", "type": ["null", "long"]} for n in range(100)],
    }
    nulls, column = both({"type": "array", "items": ["null", wide]})
    few, many = (number(n) + b"\0" * (n + 1) for n in (1_000, 20_000))

    made = decoded(decode, [few, many, few], nulls, column)

    assert [len(row or ()) for row in made.column.to_pylist()] == [1_000, 0, 1_000]
    assert reasons(made) == [Reason.AMPLIFIED]
    item = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "boolean"}]}
    longer = json.loads(json.dumps(item))
    longer["fields"].append({"name": "b", "type": "string", "default": "x" * 4_096})
    program, column = both(
        {"type": "array", "items": item}, {"type": "array", "items": longer}
    )
    assert (
        reasons(decoded(decode, [few, many, few], program, column))
        == [Reason.AMPLIFIED] * 3
    )
