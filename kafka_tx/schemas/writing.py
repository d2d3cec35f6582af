"""Columns as records with an Avro schema: checked as a whole, encoded one by one.

Logical types become the numbers and bytes that are written while they are still Arrow
columns, so that fastavro only encodes plain values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx.config import Side
from kafka_tx.errors import ConfigError
from kafka_tx.model import SchemaText
from kafka_tx.schemas.avro import (
    NO_DEFAULT,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    parse,
)
from kafka_tx.schemas.columns import Kind, Slot
from kafka_tx.schemas.defaults import encode
from kafka_tx.schemas.framed import ID_HEADERS
from kafka_tx.schemas.readers import column as column_of

_WIDE = Context(prec=60)
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_TAKEN = {
    "integer": ("byte", "short", "integer"),
    "long": ("byte", "short", "integer", "long"),
    "double": ("float", "double"),
}
"""Spark's types that are written as one; others are written as themselves only."""


# --- before any record: the columns ---------------------------------------------------


def check_schema(schema: SchemaText, spark: Any, side: Side) -> None:  # noqa: ANN401 - JSON
    """Refuse a column that the schema does not take (driver).

    ``spark`` is its type as in the JSON of Spark's types.

    Raises:
        ConfigError: Names the column and the rule.
        SchemaError: The default of a field without column is no value of its type.
    """
    _check(column_of(schema), spark, side)


def _check(slot: Slot, spark: Any, path: str) -> None:  # noqa: ANN401 - JSON
    match slot.kind, spark:
        case Kind.STRUCT, {"type": "struct", "fields": fields}:
            _check_fields(slot, {each["name"]: each["type"] for each in fields}, path)
        case Kind.LIST, {"type": "array", "elementType": kind}:
            _check(slot.parts[0], kind, f"{path}[]")
        case Kind.MAP, {"type": "map", "keyType": "string", "valueType": kind}:
            _check(slot.parts[1], kind, f"{path}{{}}")
        case ((Kind.STRUCT | Kind.LIST | Kind.MAP), _):
            raise _refused(path, f"is {_word(spark)}", f"takes {slot.type.kind}")
        case Kind.DECIMAL, _:
            _check_decimal(slot.arrow, spark, path)
        case _:
            taken = _TAKEN.get(slot.spark, (slot.spark,))
            if spark not in taken:
                rule = f"takes {' or '.join(taken)} ({slot.type.kind})"
                raise _refused(path, f"is {_word(spark)}", rule)


def _check_fields(slot: Slot, given: Mapping[str, Any], path: str) -> None:
    assert isinstance(slot.type, Record)
    fields = slot.type.fields
    for name in sorted(given.keys() - {each.name for each in fields}):
        raise _refused(
            f"{path}.{name}",
            "is a column",
            f"has no such field in record '{slot.type.name}': leave the column out, or"
            " add the field to the schema",
        )
    for each, part in zip(fields, slot.parts, strict=True):
        inner = f"{path}.{each.name}"
        if each.name in given:
            _check(part, given[each.name], inner)
        elif each.default is NO_DEFAULT:
            raise _refused(inner, "is no column", "has this field without a default")
        else:
            encode(each.type, each.default, inner)  # that it is a value of its type


def _check_decimal(wanted: pa.Decimal128Type, spark: Any, path: str) -> None:  # noqa: ANN401 - JSON
    digits, scale = wanted.precision, wanted.scale
    found = _DECIMAL.fullmatch(str(spark))
    if found is None or int(found[1]) > digits or int(found[2]) != scale:
        rule = (
            f"takes decimals of at most {digits} digits with {scale} behind the point"
        )
        raise _refused(path, f"is {_word(spark)}", rule)


def _refused(path: str, what: str, rule: str) -> ConfigError:
    return ConfigError(
        f"column '{path}' {what}, and the schema {rule}. Nothing was written",
        option="value.schema",
        value=path,
    )


def _word(spark: Any) -> str:  # noqa: ANN401 - JSON
    return spark["type"] if isinstance(spark, dict) else str(spark)


# --- the values -----------------------------------------------------------------------


@dataclass(slots=True)
class AvroColumn:
    """Encodes one column, with the id of its schema in front."""

    side: Side
    schema: SchemaText
    _slot: Slot = field(init=False)
    _plain: Any = field(init=False)

    def __post_init__(self) -> None:
        import fastavro

        self._slot = column_of(self.schema)
        tree = parse(self.schema.text, self.schema.references)
        self._plain = fastavro.parse_schema(
            _without_logical(tree, {}), _ignore_default_error=True
        )

    def encoded(self, column: pa.Array) -> pa.Array:
        """The records' bytes; null stays null.

        Raises:
            ConfigError: A value does not fit: it is null, none of the symbols, or of
                another length. Names the column and the rule.
        """
        from fastavro import schemaless_writer

        assert self.schema.id is not None
        head = b"\0" + self.schema.id.to_bytes(4, "big")
        plain = _plain(self._slot, column.drop_null(), self.side)
        try:
            left = iter(plain.to_pylist(maps_as_pydicts="strict"))
        except KeyError:
            rule = "takes it once"
            raise _refused(self.side, "has a map with a key twice", rule) from None

        def record() -> bytes:
            buffer = BytesIO(head)
            buffer.seek(len(head))
            schemaless_writer(buffer, self._plain, next(left))
            return buffer.getvalue()

        return pa.array(
            [record() if valid else None for valid in column.is_valid().to_pylist()],
            pa.large_binary(),
        )

    def headers(self, given: pa.Array) -> pa.Array:
        """Without an id of another record's schema, which readers would believe."""
        entries = given.flatten()
        is_kept = pc.not_equal(entries.field("key"), ID_HEADERS[self.side])
        is_kept = pc.fill_null(is_kept, True)
        if pc.all(is_kept, min_count=0).as_py():
            return given
        rows = pc.list_parent_indices(given).filter(is_kept).to_numpy()
        counts = np.bincount(rows, minlength=len(given))
        ends = pa.array([0, *counts.cumsum().tolist()], pa.int32())
        return pa.ListArray.from_arrays(ends, entries.filter(is_kept))


def _with_nulls(slot: Slot, given: pa.Array, path: str) -> pa.Array:
    """As ``_plain``, of values that may be null."""
    if not given.null_count or slot.kind is Kind.NULL:
        return _plain(slot, given, path)
    if not slot.is_nullable:
        raise _refused(path, "has null", "has no null there")
    made = _plain(slot, given.drop_null(), path)
    places = pc.cumulative_sum(given.is_valid().cast(pa.int64()))
    return made.take(pc.if_else(given.is_valid(), pc.subtract(places, 1), None))


def _plain(slot: Slot, given: pa.Array, path: str) -> pa.Array:
    """The numbers, bytes and texts that are written."""
    match slot.kind:
        case Kind.STRUCT:
            there = {each.name for each in given.type}
            assert isinstance(slot.type, Record)
            parts = {
                each.name: _with_nulls(
                    part, given.field(each.name), f"{path}.{each.name}"
                )
                for each, part in zip(slot.type.fields, slot.parts, strict=True)
                if each.name in there
            }
            if not parts:
                return given
            return pa.StructArray.from_arrays([*parts.values()], names=[*parts])
        case Kind.LIST:
            items = _with_nulls(slot.parts[0], given.flatten(), f"{path}[]")
            lengths = pc.list_value_length(given).to_numpy(zero_copy_only=False)
            ends = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
            return pa.ListArray.from_arrays(ends, items)
        case Kind.MAP:
            values = _with_nulls(slot.parts[1], given.items, f"{path}{{}}")
            return pa.MapArray.from_arrays(given.offsets, given.keys, values)
        case _:
            return _plain_leaf(slot, given, path)


def _plain_leaf(slot: Slot, given: pa.Array, path: str) -> pa.Array:
    schema = slot.type
    if isinstance(schema, Enum):
        known = pc.is_in(given, value_set=pa.array(schema.symbols))
        if not pc.all(known, min_count=0).as_py():
            raise _refused(path, "has a text", f"takes {', '.join(schema.symbols)}")
        return given
    assert isinstance(schema, Fixed | Primitive)
    size = schema.size if isinstance(schema, Fixed) else None
    if slot.kind is Kind.DECIMAL:
        return _unscaled(given, size)
    if size is not None:
        sizes = pc.binary_length(given)
        if not pc.all(pc.equal(sizes, size), min_count=0).as_py():
            raise _refused(path, "has bytes", f"takes {size} bytes")
    if pa.types.is_date(slot.arrow):
        return given.cast(pa.int32())
    if pa.types.is_timestamp(slot.arrow):
        micros = given.cast(pa.timestamp("us", given.type.tz)).cast(pa.int64())
        is_millis = schema.logical.name.endswith("millis")
        # as Spark's `to_avro` has them: rounded down
        return pa.array(micros.to_numpy() // 1_000) if is_millis else micros
    return given


def _unscaled(given: pa.Array, size: int | None) -> pa.Array:
    scale, made = given.type.scale, []
    for value in given.to_pylist():
        number = int(value.scaleb(scale, _WIDE))
        length = size or (number.bit_length() + 8) // 8
        made.append(number.to_bytes(length, "big", signed=True))
    return pa.array(made, pa.binary())


def _without_logical(schema: Type, names: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    """The JSON of a schema that has the same bytes and no logical types.

    ``names`` are what named types are called here, which no namespace changes.
    """
    match schema:
        case Primitive(kind=kind):
            return kind
        case Array(items=part):
            return {"type": "array", "items": _without_logical(part, names)}
        case Map(values=part):
            return {"type": "map", "values": _without_logical(part, names)}
        case Union(branches=branches):
            return [_without_logical(each, names) for each in branches]
        case Fixed() | Enum() | Record():
            if schema.name in names:
                return names[schema.name]
            names[schema.name] = name = f"kafka_tx.T{len(names)}"
            members = _members(schema, names)
            return {"type": schema.kind, "name": name, **members}


def _members(schema: Fixed | Enum | Record, names: dict[str, str]) -> dict[str, Any]:
    match schema:
        case Fixed(size=size):
            return {"size": size}
        case Enum(symbols=symbols):
            return {"symbols": list(symbols)}
        case Record(fields=fields):
            return {"fields": [_field(each, names) for each in fields]}


def _field(given: Field, names: dict[str, str]) -> dict[str, Any]:
    made = {"name": given.name, "type": _without_logical(given.type, names)}
    if given.default is not NO_DEFAULT:
        made["default"] = _default(given.type, given.default)
    return made


def _default(schema: Type, given: Any) -> Any:  # noqa: ANN401 - JSON
    """A default as it is written: JSON has texts for bytes.

    One that is no value of its type is of a field that has a column: none is written.
    """
    match schema, given:
        case ((Fixed() | Primitive(kind="bytes")), str()):
            return given.encode("latin-1", "replace")
        case Record(fields=fields), dict():
            return {
                each.name: _default(each.type, given.get(each.name, each.default))
                for each in fields
            }
        case Array(items=part), list():
            return [_default(part, each) for each in given]
        case Map(values=part), dict():
            return {key: _default(part, each) for key, each in given.items()}
        case Union(branches=branches), _:
            others = [each for each in branches if each.kind != "null"]
            return _default(others[0], given) if others else given
        case _:
            return given
