"""Schemas, what becomes of them, and values, for Hypothesis; fastavro is the oracle."""

from __future__ import annotations

import copy
import datetime as dt
import io
import json
from decimal import Context, Decimal
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
import numpy as np
from hypothesis import strategies as st

Json = Any

_WIDE = Context(prec=60)
_DAY = dt.date(1970, 1, 1)
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
)
_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
}


class Case(NamedTuple):
    """A writer's schema, a reader's, and values of the writer."""

    writer: Json
    reader: Json
    values: list[Any]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Records that were written before their schema changed."""
    names = count(1)
    writer = draw(_records(names, depth=3))
    reader = draw(_evolved(writer, names))
    values = draw(st.lists(values_of(writer), min_size=0, max_size=8))
    return Case(writer, reader, values)


def encoded(writer: Json, value: Any) -> bytes:
    """A value in Avro's binary encoding."""
    made = io.BytesIO()
    fastavro.schemaless_writer(
        made, fastavro.parse_schema(copy.deepcopy(writer)), value
    )
    return made.getvalue()


def expected(case: Case, given: bytes) -> Any:
    """What the reader gets, as Arrow gives it to Python."""
    writer, reader = (
        fastavro.parse_schema(copy.deepcopy(each))
        for each in (case.writer, case.reader)
    )
    found = fastavro.schemaless_reader(io.BytesIO(given), writer, reader)
    return as_arrow(case.reader, found)


def as_arrow(schema: Json, value: Any) -> Any:
    """Fastavro's value as the column gives it."""
    if value is None:
        return None
    if isinstance(schema, list):
        (other,) = (each for each in schema if each != "null")
        return as_arrow(other, value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {
            each["name"]: as_arrow(each["type"], value[each["name"]])
            for each in schema["fields"]
        }
    if kind == "array":
        return [as_arrow(schema["items"], each) for each in value]
    if kind == "map":
        return [(k, as_arrow(schema["values"], v)) for k, v in value.items()]
    return _plain(kind, value)


def _plain(kind: str, value: Any) -> Any:
    if isinstance(value, dt.time):
        since = dt.datetime.combine(_DAY, value) - dt.datetime.combine(_DAY, dt.time())
        unit = "milliseconds" if kind == "int" else "microseconds"
        return since // dt.timedelta(**{unit: 1})
    if isinstance(value, UUID):
        return str(value)
    if kind == "bytes" and isinstance(value, str):
        return value.encode()
    if kind == "float":  # fastavro does not round
        is_whole = isinstance(value, int)
        return float(np.array(value, np.int64 if is_whole else None).astype(np.float32))
    return float(value) if kind == "double" else value


# --- schemas ------------------------------------------------------------------------


@st.composite
def _records(draw: st.DrawFn, names: count[int], depth: int) -> Json:
    fields = draw(st.lists(_types(names, depth - 1), min_size=1, max_size=5))
    return {
        "type": "record",
        "name": f"R{next(names)}",
        "fields": [{"name": f"f{next(names)}", "type": each} for each in fields],
    }


@st.composite
def _types(draw: st.DrawFn, names: count[int], depth: int) -> Json:
    simple = st.one_of(
        st.sampled_from(_PRIMITIVES), st.sampled_from(_LOGICAL), _named(names)
    )
    if depth <= 0:
        return copy.deepcopy(draw(simple))
    inner = _types(names, depth - 1)
    nested = st.one_of(
        inner.map(lambda each: {"type": "array", "items": each}),
        inner.map(lambda each: {"type": "map", "values": each}),
        _records(names, depth),
        simple.map(lambda each: ["null", each]),
        simple.map(lambda each: [each, "null"]),
    )
    return copy.deepcopy(draw(st.one_of(simple, nested)))


@st.composite
def _named(draw: st.DrawFn, names: count[int]) -> Json:
    name = f"N{next(names)}"
    if draw(st.booleans()):
        return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}
    size = draw(st.integers(0, 9))
    if size and draw(st.booleans()):
        logical = {"logicalType": "decimal", "precision": 2, "scale": 1}
        return {"type": "fixed", "name": name, "size": size, **logical}
    return {"type": "fixed", "name": name, "size": size}


# --- what becomes of a schema -------------------------------------------------------


@st.composite
def _evolved(draw: st.DrawFn, schema: Json, names: count[int]) -> Json:
    if isinstance(schema, list):
        return [
            each if each == "null" else draw(_evolved(each, names)) for each in schema
        ]
    if isinstance(schema, str):
        kinds = [schema, *_PROMOTED.get(schema, ())]
        return draw(st.sampled_from(kinds))
    made = copy.deepcopy(schema)
    kind = schema["type"]
    if kind == "record":
        made["fields"] = draw(_evolved_fields(schema["fields"], names))
    elif kind in ("array", "map"):
        part = "items" if kind == "array" else "values"
        made[part] = draw(_evolved(schema[part], names))
    elif kind == "enum" and draw(st.booleans()):
        made |= {"symbols": ["C", "other", "A"], "default": "other"}
    return made


@st.composite
def _evolved_fields(draw: st.DrawFn, fields: list[Json], names: count[int]) -> Json:
    made = []
    for each in fields:
        if draw(st.integers(0, 5)) == 0:
            continue  # it is skipped
        kind = draw(_evolved(each["type"], names))
        is_plain = not isinstance(kind, list)
        field = {**each, "type": kind}
        if is_plain and draw(st.integers(0, 3)) == 0:
            field["type"] = ["null", kind]
        if draw(st.integers(0, 3)) == 0:
            field |= {"name": f"g{next(names)}", "aliases": [each["name"]]}
        made.append(field)
    for _ in range(draw(st.integers(0, 2))):
        made.append(draw(_added(names)))
    if not made:
        made.append(draw(_added(names)))
    return draw(st.permutations(made))


@st.composite
def _added(draw: st.DrawFn, names: count[int]) -> Json:
    inner = {
        "type": "record",
        "name": f"R{next(names)}",
        "fields": [
            {"name": "x", "type": "int"},
            {"name": "y", "type": "string", "default": "why"},
        ],
    }
    kind, default = draw(
        st.sampled_from(
            [
                ("int", -3),
                ("double", 1.5),
                ("string", "ä"),
                ("bytes", "a\u0001"),  # fastavro leaves it text
                ("boolean", True),
                (["null", "long"], None),
                (["long", "null"], 5),
                ({"type": "array", "items": "int"}, [1, 2]),
                ({"type": "map", "values": "string"}, {"k": "v"}),
                (inner, {"x": 7, "y": "z"}),
            ]
        )
    )
    return {"name": f"a{next(names)}", "type": kind, "default": default}


# --- values -------------------------------------------------------------------------

_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=12),
    "string": st.text(max_size=12),
}
_FIRST = dt.datetime.combine(dt.date.min, dt.time.min)
_LAST = dt.datetime.combine(dt.date.max, dt.time.max)
_TIMES: dict[str, st.SearchStrategy[Any]] = {
    "date": st.dates(),
    "time-millis": st.times().map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
    ),
    "time-micros": st.times(),
    "timestamp-millis": st.datetimes(_FIRST, _LAST, timezones=st.just(dt.UTC)).map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
    ),
    "timestamp-micros": st.datetimes(_FIRST, _LAST, timezones=st.just(dt.UTC)),
    "local-timestamp-millis": st.datetimes(_FIRST, _LAST).map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
    ),
    "local-timestamp-micros": st.datetimes(_FIRST, _LAST),
    "uuid": st.uuids(),
}


def values_of(schema: Json) -> st.SearchStrategy[Any]:  # noqa: C901, PLR0911 - a table
    """Values of a schema, as fastavro takes them."""
    if isinstance(schema, list):
        return st.one_of(*map(values_of, schema))
    if isinstance(schema, str):
        return _PLAIN[schema]
    if schema.get("logicalType") in _TIMES:
        return _TIMES[schema["logicalType"]]
    if schema.get("logicalType") == "decimal":
        scale, most = schema["scale"], 10 ** schema["precision"] - 1
        return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale, _WIDE))
    match schema["type"]:
        case "record":
            return st.fixed_dictionaries(
                {each["name"]: values_of(each["type"]) for each in schema["fields"]}
            )
        case "array":
            return st.lists(values_of(schema["items"]), max_size=3)
        case "map":
            return st.dictionaries(
                st.text(max_size=3), values_of(schema["values"]), max_size=3
            )
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case _:
            raise AssertionError(json.dumps(schema))
