"""Which schema a record names, and what becomes of records that name none."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.config import RecordFormat
from kafka_tx.errors import RecordFormatError, SchemaError
from kafka_tx.model import SchemaText
from kafka_tx.record_schema import arrow_schema
from kafka_tx.schemas import typed_batches
from kafka_tx.schemas.avro import parse
from kafka_tx.schemas.columns import Slot, column_of
from kafka_tx.schemas.defaults import number
from kafka_tx.schemas.framed import FramedColumn, named_in, reshaped
from kafka_tx.schemas.readers import column
from kafka_tx.schemas.registry import UnknownSchemaError
from kafka_tx.schemas.typed_batches import TypedBatches, typed_schema

OLD: Any = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
NEW: Any = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "b", "type": "string", "default": "none"}],
}
GUID = uuid.UUID(int=77)
TEXTS = {1: json.dumps(OLD), 2: json.dumps(NEW), 3: '"string"', GUID: json.dumps(NEW)}
READER = SchemaText(TEXTS[2], 2)


def writer(key: Any) -> SchemaText:
    if key not in TEXTS:
        raise UnknownSchemaError(f"no id {key}")
    return SchemaText(TEXTS[key])


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def typed(values: list[bytes | None], named: Any = None) -> tuple[list[Any], list[Any]]:
    heads = named and pa.array([named.get(n) for n in range(len(values))], pa.binary())
    made = FramedColumn(column(READER), READER, writer).typed(
        pa.array(values, pa.binary()), heads
    )
    made.column.validate(full=True)
    return made.column.to_pylist(), [tuple(each[:3]) for each in made.broken]


def test_each_record_is_decoded_with_the_schema_it_names() -> None:
    rows, broken = typed(
        [framed(1, number(7)), framed(2, number(8) + b"\x02x"), None, framed(1, b"\0")]
    )

    assert rows == [
        {"a": 7, "b": "none"},
        {"a": 8, "b": "x"},
        None,
        {"a": 0, "b": "none"},
    ]
    assert broken == []


def test_the_readers_own_id_needs_no_registry() -> None:
    """Most records name it, and most workers then never import a client."""
    made = FramedColumn(column(READER), READER, _no_registry).typed(
        pa.array([framed(2, number(8) + b"\x02x")], pa.binary())
    )

    assert made.column.to_pylist() == [{"a": 8, "b": "x"}]


def _no_registry(key: Any) -> SchemaText:
    raise AssertionError(f"asked for {key}")


def test_a_long_prefix_names_a_schema_by_its_uuid() -> None:
    rows, broken = typed(
        [b"\x01" + GUID.bytes + number(8) + b"\x02x", framed(1, b"\0")]
    )

    assert rows == [{"a": 8, "b": "x"}, {"a": 0, "b": "none"}]
    assert broken == []


def test_a_header_wins_over_the_bytes() -> None:
    by_uuid, by_id = b"\x01" + GUID.bytes, framed(1, b"")
    rows, broken = typed(
        [number(8) + b"\x02x", number(5), framed(1, number(6)), None],
        {0: by_uuid, 1: by_id, 3: by_uuid},
    )

    assert rows == [
        {"a": 8, "b": "x"},
        {"a": 5, "b": "none"},
        {"a": 6, "b": "none"},
        None,
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("value", "schema_id", "reason"),
    [
        (b"", None, "it has 0 bytes, too few for a schema id"),
        (b"\0\0\0\1", None, "it has 4 bytes, too few for a schema id"),
        (
            b'{"a": 1}',
            None,
            "its first byte names no schema: it is 7b; legal: 00 or 01, and an id",
        ),
        (
            b"\1" + b"x" * 15,
            None,
            "its first byte names no schema: it is 01; legal: 00 or 01, and an id",
        ),
        (framed(9, b"\0"), 9, "no id 9"),
        (
            framed(3, b"\0"),
            3,
            "the value is string where it was written, and record 'R' where it is read",
        ),
        (framed(1, b""), 1, "the bytes end within the value"),
        (framed(1, b"\0\0"), 1, "bytes are left after the value"),
    ],
)
def test_a_broken_record_is_null_and_says_why(
    value: bytes, schema_id: int | None, reason: str
) -> None:
    rows, broken = typed([framed(1, b"\2"), value, framed(1, b"\4")])

    assert rows == [{"a": 1, "b": "none"}, None, {"a": 2, "b": "none"}]
    assert broken == [(1, schema_id, reason)]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"", "its header names no schema: it is nothing; legal: 00 or 01, and an id"),
        (b"\2abc", "its header names no schema: it is 02; legal: 00 or 01, and an id"),
    ],
)
def test_a_header_that_names_no_schema_breaks_the_record(
    head: bytes, reason: str
) -> None:
    rows, broken = typed([number(8)], {0: head})

    assert rows == [None]
    assert broken == [(0, None, reason)]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=24)), max_size=20))
def test_any_bytes_leave_their_neighbours_alone(values: list[bytes | None]) -> None:
    good = framed(1, number(7))
    mixed = [each for value in values for each in (good, value)]

    rows, broken = typed([*mixed, good])

    assert rows[::2] == [{"a": 7, "b": "none"}] * (len(values) + 1)
    faults = {row for row, _, _ in broken}
    assert all(mixed[row] is not None and rows[row] is None for row in faults)


def test_a_slice_of_a_column_is_decoded() -> None:
    values = pa.array([framed(1, b"\2"), framed(2, b"\4\2x"), framed(1, b"\6")])[1:]

    made = FramedColumn(column(READER), READER, writer).typed(values)

    assert made.column.to_pylist() == [{"a": 2, "b": "x"}, {"a": 3, "b": "none"}]


def test_headers_that_go_on_behind_the_id_name_one_schema() -> None:
    made = FramedColumn(column(READER), READER, writer)
    heads = [framed(1, b"x"), framed(1, b"y")]

    found = made.typed(pa.array([number(1), number(2)]), pa.array(heads))

    assert found.column.to_pylist() == [{"a": 1, "b": "none"}, {"a": 2, "b": "none"}]
    assert len(made._known) == 1


def test_headers_are_found_by_their_name() -> None:
    kind = arrow_schema(True).field("headers").type
    headers = pa.array(
        [
            None,
            [{"key": "x", "value": b"1"}, {"key": "id", "value": b"2"}],
            [],
            [{"key": "id", "value": None}],
            [{"key": "id", "value": b"3"}, {"key": "id", "value": b"4"}],
        ],
        kind,
    )

    assert heads_in(headers) == [None, b"2", None, b"", b"4"]
    assert heads_in(headers[2:]) == [None, b"", b"4"]
    assert named_in(headers[:1], "id") is None
    assert named_in(headers[:2], "none") is None


def heads_in(headers: pa.Array) -> Any:
    found = named_in(headers, "id")
    assert found is not None
    return found.to_pylist()


# --- batches --------------------------------------------------------------------------


def batch(*values: bytes | None) -> pa.RecordBatch:
    rows = [
        {"value": value, "topic": "t", "partition": 3, "offset": 10 + index}
        for index, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(False))


def own(text: Any, **more: Any) -> RecordFormat:
    return RecordFormat(side="value", reader=SchemaText(json.dumps(text)), **more)


WITHOUT = {**OLD, "fields": [{"name": "c", "type": ["null", "int"], "default": None}]}


@pytest.fixture
def format_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A format whose reader is one of the schemas of a registry."""
    told: dict[int, Any] = {1: OLD, 2: NEW, 3: WITHOUT}

    class Known:
        @staticmethod
        def by_id(key: Any) -> SchemaText:
            if key not in told:
                raise UnknownSchemaError(f"the registry has no id {key}")
            if isinstance(told[key], Exception):
                raise told[key]
            return SchemaText(json.dumps(told[key]), key)

    monkeypatch.setattr(typed_batches, "registry_of", lambda settings: Known)
    monkeypatch.setattr(typed_batches, "_of_process", {})

    def made(key: int, **more: Any) -> RecordFormat:
        return RecordFormat(
            side="value", reader=Known.by_id(key), registry={"url": "u"}, **more
        )

    made.told = told  # type: ignore[attr-defined]
    return made


def test_a_schema_as_text_reads_records_without_a_schema_id() -> None:
    formats = (own(OLD),)

    made = TypedBatches(formats, False, {})(batch(number(7), None))

    assert made.schema == typed_schema(formats, False)
    assert made.column("value").to_pylist() == [{"a": 7}, None]


def test_many_nulls_of_a_wide_record_are_several_batches() -> None:
    """A null fills the slots of all fields: 80 MB, were it one batch."""
    wide = {
        "type": "record",
        "name": "W",
        "fields": [{"name": f"f{n}", "type": "long"} for n in range(500)],
    }
    formats = (own(wide, is_permissive=True),)
    good = number(3) * 500
    values = [None] * 10_000 + [b"cut", good] + [None] * 10_000

    made = list(TypedBatches(formats, False, {}).pieces(batch(*values)))

    assert max(each.nbytes for each in made) < 50 << 20
    assert sum(each.num_rows for each in made) == len(values)
    offsets = [n for each in made for n in each.column("offset").to_pylist()]
    assert offsets == list(range(10, 10 + len(values)))
    reasons = [n for each in made for n in each.column("value_error").to_pylist()]
    assert [row for row, why in enumerate(reasons) if why] == [10_000]
    found = [n for each in made for n in each.column("value").is_valid().to_pylist()]
    assert [row for row, is_there in enumerate(found) if is_there] == [10_001]


def test_fail_fast_names_the_record() -> None:
    with pytest.raises(
        RecordFormatError, match="the value of offset 11 of t-3"
    ) as raised:
        TypedBatches((own(OLD),), False, {})(batch(number(7), b"", b""))

    assert raised.value.fields == {
        "topic": "t",
        "partition": 3,
        "offset": 11,
        "schema_id": None,
        "reason": "the bytes end within the value",
    }
    assert "value.mode=PERMISSIVE" in str(raised.value)


def test_permissive_gives_reason_and_bytes_beside_null() -> None:
    formats = (own(OLD, is_permissive=True),)

    made = TypedBatches(formats, False, {})(batch(number(7), b"\0\0", None))

    assert made.schema == typed_schema(formats, False)
    assert made.column("value").to_pylist() == [{"a": 7}, None, None]
    assert made.column("value_error").to_pylist() == [
        None,
        "bytes are left after the value",
        None,
    ]
    assert made.column("value_bytes").to_pylist() == [None, b"\0\0", None]


def test_a_value_that_is_avros_null_has_its_bytes(format_of: Any) -> None:
    """No tombstone: as a dead letter that is sent back it would delete the key."""
    format_of.told[4] = ["null", OLD]
    formats = (format_of(4, is_permissive=True),)
    null = framed(4, b"\0")

    made = TypedBatches(formats, False, {})(batch(null, framed(4, b"\2\x0e"), None))

    assert made.column("value").to_pylist() == [None, {"a": 7}, None]
    assert made.column("value_error").to_pylist() == [None, None, None]
    assert made.column("value_bytes").to_pylist() == [null, None, None]


def test_bytes_name_their_schema_where_its_header_is_not_kept(format_of: Any) -> None:
    """A dead letter would be a record without a schema."""
    uuid_head = b"\1" + GUID.bytes
    heads = (b"\0\0\0\0\1", uuid_head, b"", b"\7none", b"\0\0\0\0\1", None)
    values = [b"cut", b"cut", b"cut", b"cut", None, framed(1, b"cut")]
    rows = [
        {"value": value, "headers": [{"key": "__value_schema_id", "value": head}]}
        if head is not None
        else {"value": value}
        for head, value in zip(heads, values, strict=True)
    ]
    given = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(True))
    formats = (format_of(2, is_permissive=True),)

    made = TypedBatches(formats, False, {})(given)
    kept = TypedBatches(formats, True, {})(given)

    assert made.column("value_bytes").to_pylist() == [
        framed(1, b"cut"),
        uuid_head + b"cut",
        *values[2:],
    ]
    assert kept.column("value_bytes").to_pylist() == values


def test_a_text_that_is_another_one_than_the_plans_stops_the_batch() -> None:
    with pytest.raises(
        SchemaError, match="was planned with schema text-77 for 'value'"
    ):
        TypedBatches((own(OLD),), False, {"value": "text-77"})


# --- replays under a newer schema -----------------------------------------------------


MIXED = (framed(3, b"\2\x0a"), framed(1, number(7)), None, framed(3, b"\0"))


def test_this_starts_schema_reads_what_the_plans_does_not(format_of: Any) -> None:
    """A required field was dropped: the batch could not be decoded as planned."""
    formats = (format_of(3),)

    made = TypedBatches(formats, False, {"value": "1"})(batch(*MIXED))

    assert made.schema == typed_schema(formats, False)
    rows = made.column("value").to_pylist()
    assert rows == [{"c": 5}, {"c": None}, None, {"c": None}]


def test_permissive_replays_leave_broken_what_was_broken(format_of: Any) -> None:
    """Their dead letters may be written."""
    formats = (format_of(3, is_permissive=True),)

    made = TypedBatches(formats, False, {"value": "1"})(batch(*MIXED))

    assert made.column("value").to_pylist() == [None, {"c": None}, None, None]
    assert made.column("value_bytes")[0].as_py() == MIXED[0]


def test_a_record_that_neither_schema_reads_is_named_with_both(format_of: Any) -> None:
    values = (framed(1, number(7)), framed(3, b"\0"))

    with pytest.raises(RecordFormatError, match="offset 11 of t-3") as raised:
        TypedBatches((format_of(2),), False, {"value": "1"})(batch(*values))

    text = str(raised.value)
    assert "Schema 1, with which the batch was planned, does not read it either" in text
    assert "another schema than 2 reads the record, start again with it" in text
    assert "such as value.schema=id:3, until" in text
    TypedBatches((format_of(3),), False, {"value": "1"})(batch(*values))


def test_a_plans_schema_that_is_gone_is_registered_again(format_of: Any) -> None:
    old = format_of.told.pop(1)

    with pytest.raises(SchemaError, match="Register this schema again") as raised:
        TypedBatches((format_of(2),), False, {"value": "1"})

    assert "planned with schema 1 for 'value'" in str(raised.value)
    format_of.told[1] = old
    made = TypedBatches((format_of(2),), False, {"value": "1"})
    rows = made(batch(framed(1, number(7)))).column("value").to_pylist()
    assert rows == [{"a": 7, "b": None}]


@pytest.fixture
def ruled(format_of: Any) -> Any:
    """As ``format_of``; schema 3 has a rule."""
    format_of.told[3] = SchemaError("schema 3 has the rule 'protect'", rule="protect")
    return format_of


def test_a_record_whose_schema_has_a_rule_names_a_way_that_load_takes(
    ruled: Any,
) -> None:
    """Its own schema, and maybe ``latest``, are refused there."""
    values = (framed(1, number(7)), framed(3, b"\0"))
    with pytest.raises(RecordFormatError, match="offset 11 of t-3") as raised:
        TypedBatches((ruled(1),), False, {})(batch(*values))

    text = str(raised.value)
    assert "has the rule 'protect'. Nothing of this batch was given out. Set" in text
    assert "Set value.schema=id:1 and value.mode=PERMISSIVE to get null" in text
    assert text.endswith(
        "Or set value.format=bytes and decode with Confluent's deserializer"
    )
    assert "another schema" not in text
    made = TypedBatches((ruled(1, is_permissive=True),), False, {})(batch(*values))
    assert made.column("value").to_pylist() == [{"a": 7}, None]
    assert made.column("value_bytes").to_pylist() == [None, values[1]]


def test_a_plan_under_a_schema_with_a_rule_is_ended_by_the_version_that_made_it(
    ruled: Any,
) -> None:
    with pytest.raises(SchemaError, match="let that version end the batch") as raised:
        TypedBatches((ruled(1, is_permissive=True),), False, {"value": "3"})

    assert "planned the batch with schema 3 for 'value'" in str(raised.value)


def slot(schema: Any) -> Slot:
    return column_of(parse(json.dumps(schema)))


def replayed(rows: list[Any], planned: Any, now: Any) -> list[Any]:
    """What a column of the plan's schema is under this start's."""
    old, new = slot(planned), slot(now)
    made = reshaped(pa.array(rows, old.arrow), old, new)
    made.validate(full=True)
    assert made.type == new.arrow
    found: list[Any] = made.to_pylist()
    return found


def record_of(*fields: tuple[Any, ...], name: str = "R") -> Any:
    named = [{"name": each[0], "type": each[1]} for each in fields]
    for made, each in zip(named, fields, strict=True):
        made |= {"aliases": list(each[2:])} if each[2:] else {}
    return {"type": "record", "name": name, "fields": named}


def many(kind: str, inner: Any) -> Any:
    return {"type": kind, {"array": "items", "map": "values"}[kind]: inner}


MILLIS = {"type": "int", "logicalType": "time-millis"}
MICROS = {"type": "long", "logicalType": "time-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}


def test_a_long_that_no_double_holds_is_rounded() -> None:
    """As the records of the newer schema are."""
    assert replayed([2**60 + 1, None], "long", "double") == [float(2**60), None]


def test_a_column_takes_the_shape_of_another_schema() -> None:
    inner, wider = (
        record_of(("x", "int"), name="I"),
        record_of(("new", "string"), ("x", "long"), name="I"),
    )
    old = record_of(("a", "int"), ("l", many("array", inner)), ("m", many("map", "I")))
    new = record_of(
        ("m", many("map", wider)), ("b", "boolean"), ("l", many("array", "I"))
    )
    rows = [{"a": 1, "l": [{"x": 2}, None], "m": [("k", {"x": 3})]}, None]

    assert replayed(rows, old, new) == [
        {
            "m": [("k", {"new": None, "x": 3})],
            "b": None,
            "l": [{"new": None, "x": 2}, None],
        },
        None,
    ]


def test_times_are_in_the_unit_of_this_start() -> None:
    """At any depth, as the records of the newer schema are."""
    old, new = (
        record_of(
            ("t", unit), ("l", many("array", unit)), ("m", many("map", ["null", unit]))
        )
        for unit in (MILLIS, MICROS)
    )
    rows = [{"t": 1, "l": [2, 3], "m": [("k", 4), ("l", None)]}, None]

    assert replayed(rows, old, new) == [
        {"t": 1_000, "l": [2_000, 3_000], "m": [("k", 4_000), ("l", None)]},
        None,
    ]
    assert replayed([1], "int", MICROS) == [1]  # a number of any unit
    assert replayed([1], MILLIS, "long") == [1]


def logical(name: str) -> Any:
    return {"type": "long", "logicalType": name}


EACH_UNIT = {"millis": -2_000, "micros": -1_999_001, "nanos": -1_999_000_999}
"""One time, as each unit holds it; the larger ones round down."""


@pytest.mark.parametrize("family", ["timestamp", "local-timestamp"])
@pytest.mark.parametrize("planned", [*EACH_UNIT, None])
@pytest.mark.parametrize("now", [*EACH_UNIT, None])
def test_times_are_what_they_are_in_records_that_are_read_now(
    family: str, planned: str | None, now: str | None
) -> None:
    """Also where one of the units, or a plain number, has a column of another type."""
    texts = [
        json.dumps(logical(f"{family}-{unit}") if unit else "long")
        for unit in (planned, now)
    ]
    old, new = (column(SchemaText(text)) for text in texts)
    given = pa.array([number(EACH_UNIT[planned or "micros"]), None], pa.binary())

    before, after = (
        FramedColumn(each, SchemaText(texts[0]), None).typed(given).column
        for each in (old, new)
    )

    assert reshaped(before, old, new).equals(after)


@pytest.mark.parametrize(
    ("planned", "now", "given", "wanted"),
    [
        (
            {**DECIMAL, "scale": 2},
            {**DECIMAL, "scale": 2, "precision": 12},
            [Decimal("1234567.89"), None],
            [Decimal("1234567.89"), None],
        ),
        ("bytes", "string", ["ü".encode(), None], ["ü", None]),
        ("string", "bytes", ["ü", None], ["ü".encode(), None]),
    ],
)
def test_what_holds_all_values_of_the_plan_takes_them(
    planned: Any, now: Any, given: list[Any], wanted: list[Any]
) -> None:
    assert replayed(given, planned, now) == wanted


def test_a_value_that_this_starts_type_does_not_hold_is_refused() -> None:
    with pytest.raises(SchemaError, match="binary cannot become string: Invalid UTF8"):
        replayed([b"\xff"], "bytes", "string")
    with pytest.raises(SchemaError, match="overflow"):
        replayed([2**62], "long", logical("timestamp-millis"))


def test_renamed_fields_are_found_by_their_aliases() -> None:
    """At any depth, and where this start's schema is the older one."""
    old, new = (
        record_of(field, ("l", many("array", record_of(field, name="I"))))
        for field in (("old", "string"), ("new", "string", "older", "old"))
    )
    rows = [{"old": "a", "l": [{"old": "b"}]}, None]
    renamed = [{"new": "a", "l": [{"new": "b"}]}, None]

    assert replayed(rows, old, new) == renamed
    assert replayed(renamed, new, old) == rows


def test_a_field_that_is_there_is_nobodys_alias() -> None:
    planned = record_of(("a", "int"), ("b", "int"))
    now = record_of(("b", "int", "a"), ("c", "int", "b"))

    assert replayed([{"a": 1, "b": 2}], planned, now) == [{"b": 2, "c": None}]


@pytest.mark.parametrize(
    ("planned", "now"),
    [
        ("string", "int"),
        ("long", "int"),
        ("int", {"type": "int", "logicalType": "date"}),
        ({**DECIMAL, "scale": 2}, {**DECIMAL, "scale": 3}),
        (DECIMAL, {**DECIMAL, "precision": 8}),
        (logical("timestamp-micros"), logical("local-timestamp-micros")),
        (NANOS, logical("local-timestamp-micros")),
        (record_of(("a", "int")), "int"),
        (NANOS, MICROS),
    ],
)
def test_a_type_that_does_not_hold_the_former_is_refused(
    planned: Any, now: Any
) -> None:
    with pytest.raises(SchemaError, match="cannot become|where it is read"):
        replayed([], planned, now)
