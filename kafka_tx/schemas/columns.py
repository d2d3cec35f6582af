"""The column that a reader's schema gives: its Spark type, Arrow type and slots.

Every type of the schema that has a place in Arrow is a *slot*. Slots are numbered from
0 in the order of the schema: a record, then its fields; an array, then its items; a
map, then its keys, then its values. Programs name slots, and all programs of a reader
have the same ones, whoever wrote the record.

Types are those of Spark's ``from_avro``. Everything may be null in them, since a
replayed batch may lack columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa

from kafka_tx.errors import SchemaError
from kafka_tx.schemas.avro import (
    NULL,
    Array,
    Enum,
    Map,
    Primitive,
    Record,
    Type,
    Union,
)

MOST_DIGITS = 38
"""Of Spark's decimals."""


class Kind(IntEnum):
    """How a slot is stored; Arrow's layout of that type."""

    NULL = 0
    BOOLEAN = 1
    INT32 = 2
    INT64 = 3
    FLOAT = 4
    DOUBLE = 5
    BINARY = 6
    TEXT = 7
    DECIMAL = 8
    STRUCT = 9
    LIST = 10
    MAP = 11


@dataclass(frozen=True, slots=True)
class Slot:
    """A place of the column.

    Attributes:
        number: In the order above.
        type: Without the null of its union.
        is_nullable: Whether the schema has null here.
        spark: As in the JSON of Spark's types.
        parts: A record's fields; an array's items; a map's keys and values.
    """

    number: int
    kind: Kind
    type: Type
    is_nullable: bool
    arrow: pa.DataType
    spark: Any
    parts: tuple[Slot, ...] = ()

    def all(self) -> Iterator[Slot]:
        """This slot and those below it, in the order of their numbers."""
        yield self
        for part in self.parts:
            yield from part.all()


def layout(root: Slot) -> list[int]:
    """What a decoder has to know of the slots: kind and number of parts, in turn."""
    return [word for slot in root.all() for word in (slot.kind, len(slot.parts))]


def column_of(schema: Type) -> Slot:
    """The slots of a reader's schema.

    Raises:
        SchemaError: It has a type without a column: a union of more than null and one
            type, a duration, a decimal of more than 38 digits, or names that Spark does
            not tell apart.
    """
    return _Numbered().slot(schema, "")


_SIMPLE: dict[str, tuple[Kind, pa.DataType, str]] = {
    "null": (Kind.NULL, pa.null(), "void"),
    "boolean": (Kind.BOOLEAN, pa.bool_(), "boolean"),
    "int": (Kind.INT32, pa.int32(), "integer"),
    "long": (Kind.INT64, pa.int64(), "long"),
    "float": (Kind.FLOAT, pa.float32(), "float"),
    "double": (Kind.DOUBLE, pa.float64(), "double"),
    "bytes": (Kind.BINARY, pa.binary(), "binary"),
    "fixed": (Kind.BINARY, pa.binary(), "binary"),
    "string": (Kind.TEXT, pa.string(), "string"),
    "enum": (Kind.TEXT, pa.string(), "string"),
}
_TIMES: dict[str, tuple[Kind, pa.DataType, str]] = {
    "date": (Kind.INT32, pa.date32(), "date"),
    "timestamp": (Kind.INT64, pa.timestamp("us", tz="UTC"), "timestamp"),
    "local-timestamp": (Kind.INT64, pa.timestamp("us"), "timestamp_ntz"),
}


class _Numbered:
    """Gives slots their numbers."""

    def __init__(self) -> None:
        self._next = 0

    def slot(self, schema: Type, path: str, *, is_nullable: bool = False) -> Slot:
        if isinstance(schema, Union):
            other = _other_than_null(schema, path)
            return self.slot(other, path, is_nullable=NULL in schema.branches)
        number = self._next
        self._next += 1
        kind, arrow, spark, parts = self._described(schema, path)
        return Slot(number, kind, schema, is_nullable, arrow, spark, parts)

    def _described(
        self, schema: Type, path: str
    ) -> tuple[Kind, pa.DataType, Any, tuple[Slot, ...]]:
        match schema:
            case Record(fields=fields):
                _check_names(schema)
                parts = tuple(
                    self.slot(each.type, f"{path}.{each.name}".lstrip("."))
                    for each in fields
                )
                named = [(e.name, part) for e, part in zip(fields, parts, strict=True)]
                arrow = pa.struct([(name, part.arrow) for name, part in named])
                return Kind.STRUCT, arrow, spark_struct(named), parts
            case Array(items=items):
                part = self.slot(items, f"{path}[]")
                arrow = pa.list_(pa.field("element", part.arrow))
                spark = {"elementType": part.spark, "containsNull": True}
                return Kind.LIST, arrow, {"type": "array", **spark}, (part,)
            case Map(values=values):
                keys = self.slot(Primitive("string"), path)
                part = self.slot(values, f"{path}{{}}")
                spark = {"keyType": keys.spark, "valueType": part.spark}
                spark |= {"type": "map", "valueContainsNull": True}
                return Kind.MAP, pa.map_(keys.arrow, part.arrow), spark, (keys, part)
            case _:
                return *_leaf(schema, path), ()


def spark_struct(named: Iterable[tuple[str, Slot]]) -> Any:  # noqa: ANN401 - JSON
    """A struct of columns in the JSON of Spark's types."""
    more = {"nullable": True, "metadata": {}}
    fields = [{"name": name, "type": slot.spark, **more} for name, slot in named]
    return {"type": "struct", "fields": fields}


def _leaf(schema: Type, path: str) -> tuple[Kind, pa.DataType, Any]:
    assert not isinstance(schema, Array | Map | Union | Record)
    logical = "" if isinstance(schema, Enum) else schema.logical.name
    if logical == "duration":
        raise SchemaError(f"{_at(path)} is a duration, which Spark has no type for")
    if logical == "decimal":
        assert not isinstance(schema, Enum)
        precision, scale = schema.logical.precision, schema.logical.scale
        if precision > MOST_DIGITS:
            raise SchemaError(
                f"{_at(path)} is a decimal of {precision} digits; Spark's have at most"
                f" {MOST_DIGITS}"
            )
        arrow = pa.decimal128(precision, scale)
        return Kind.DECIMAL, arrow, f"decimal({precision},{scale})"
    family, _, unit = logical.rpartition("-")
    if logical == "date" or (family in _TIMES and unit != "nanos"):
        return _TIMES[family or logical]
    return _SIMPLE[schema.kind]


def _other_than_null(schema: Union, path: str) -> Type:
    others = [each for each in schema.branches if each != NULL]
    if len(others) > 1:
        kinds = ", ".join(getattr(each, "name", each.kind) for each in schema.branches)
        raise SchemaError(
            f"{_at(path)} is a union of {kinds}; legal: null and one other type"
        )
    return others[0] if others else schema.branches[0]


def _check_names(schema: Record) -> None:
    seen: dict[str, str] = {}
    for each in schema.fields:
        other = seen.setdefault(each.name.lower(), each.name)
        if other != each.name:
            raise SchemaError(
                f"record '{schema.name}' has the fields '{other}' and '{each.name}',"
                " which are one name to Spark"
            )


def _at(path: str) -> str:
    return f"field '{path}'" if path else "the schema"
