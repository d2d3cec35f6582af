"""Columns as records with an Avro schema: checked as a whole, encoded one by one.

Logical types become the numbers and bytes that are written while they are still Arrow
columns, so that fastavro only encodes plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context
from io import BytesIO
from typing import Any

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

_NULL = Primitive("null")
_WIDE = Context(prec=60)
_WHOLE = ("byte", "short", "integer", "long")
_TAKEN: dict[str, tuple[str, ...]] = {
    "null": ("void",),
    "boolean": ("boolean",),
    "int": _WHOLE[:3],
    "long": _WHOLE,
    "float": ("float",),
    "double": ("float", "double"),
    "string": ("string",),
    "bytes": ("binary",),
    "fixed": ("binary",),
    "enum": ("string",),
    "date": ("date",),
    "timestamp": ("timestamp",),
    "local-timestamp": ("timestamp_ntz",),
}
"""Spark's types that a type takes, by its logical type's family or its own name."""


# --- before any record: the columns ---------------------------------------------------


def check_schema(schema: SchemaText, spark: Any, side: Side) -> None:  # noqa: ANN401 - JSON
    """As ``check_column``, for the text of a schema."""
    check_column(parse(schema.text, schema.references), spark, side)


def check_column(schema: Type, spark: Any, path: str) -> None:  # noqa: ANN401 - JSON
    """Refuse a column that the schema does not take (driver).

    ``spark`` is its type as in the JSON of Spark's types.

    Raises:
        ConfigError: Names the column and the rule.
    """
    schema, _ = _present(schema, path)
    match schema, spark:
        case Record(), {"type": "struct", "fields": fields}:
            _check_fields(schema, {each["name"]: each["type"] for each in fields}, path)
        case Array(items=part), {"type": "array", "elementType": kind}:
            check_column(part, kind, f"{path}[]")
        case Map(values=part), {"type": "map", "keyType": "string", "valueType": kind}:
            check_column(part, kind, f"{path}{{}}")
        case Record() | Array() | Map(), _:
            raise _refused(path, f"is {_word(spark)}", f"takes {schema.kind}")
        case _:
            _check_leaf(schema, spark, path)


def _check_fields(schema: Record, given: Mapping[str, Any], path: str) -> None:
    names = {each.name for each in schema.fields}
    for name in given:
        if name not in names:
            raise _refused(
                f"{path}.{name}",
                "is a column",
                f"has no such field in record '{schema.name}': leave the column out, or"
                " add the field to the schema",
            )
    for each in schema.fields:
        inner = f"{path}.{each.name}"
        if each.name in given:
            check_column(each.type, given[each.name], inner)
        elif each.default is NO_DEFAULT:
            raise _refused(inner, "is no column", "has this field without a default")
        elif isinstance(each.default, str) and _is_bytes(each):
            raise _refused(
                inner, "is no column", "has bytes as its default: give the column"
            )


def _check_leaf(schema: Type, spark: Any, path: str) -> None:  # noqa: ANN401 - JSON
    logical = getattr(schema, "logical", None)
    name = logical.name if logical else ""
    if name == "duration":
        raise _refused(
            path, f"is {_word(spark)}", "has a duration, which is not written"
        )
    if logical is not None and name == "decimal":
        _check_decimal(logical.precision, logical.scale, spark, path)
        return
    family, _, unit = name.rpartition("-")
    taken = _TAKEN.get(family or name, _TAKEN[schema.kind])
    if unit == "nanos" or family == "time":
        taken = _TAKEN[schema.kind]
    if spark not in taken:
        raise _refused(
            path, f"is {_word(spark)}", f"takes {' or '.join(taken)} ({schema.kind})"
        )


def _check_decimal(precision: int, scale: int, spark: Any, path: str) -> None:  # noqa: ANN401 - JSON
    found = str(spark).removeprefix("decimal(").removesuffix(")").partition(",")
    fits = str(spark).startswith("decimal(") and (
        int(found[0]) <= precision and int(found[2]) == scale
    )
    if not fits:
        raise _refused(
            path,
            f"is {_word(spark)}",
            f"takes decimals of at most {precision} digits with {scale} behind the"
            " point",
        )


def _present(schema: Type, path: str) -> tuple[Type, bool]:
    """The type of values that are not null; and whether null may be."""
    if not isinstance(schema, Union):
        return schema, schema == _NULL
    others = [each for each in schema.branches if each != _NULL]
    if len(others) != 1:
        raise _refused(
            path, "is a column", "has a union of more than null and one type"
        )
    return others[0], len(others) < len(schema.branches)


def _is_bytes(given: Field) -> bool:
    kinds = given.type.branches if isinstance(given.type, Union) else (given.type,)
    return any(each.kind in ("bytes", "fixed") for each in kinds)


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
    _tree: Type = field(init=False)
    _plain: Any = field(init=False)

    def __post_init__(self) -> None:
        import fastavro

        self._tree = parse(self.schema.text, self.schema.references)
        self._plain = fastavro.parse_schema(_without_logical(self._tree, {}))

    def encoded(self, column: pa.Array) -> pa.Array:
        """The records' bytes; null stays null.

        Raises:
            ConfigError: A value does not fit: it is null, none of the symbols, or of
                another length. Names the column and the rule.
        """
        from fastavro import schemaless_writer

        assert self.schema.id is not None
        head = b"\0" + self.schema.id.to_bytes(4, "big")
        there = column.drop_null()
        plain = _plain_column(self._tree, there, self.side)
        made = []
        for value in _values(plain, self.side):
            buffer = BytesIO()
            buffer.write(head)
            schemaless_writer(buffer, self._plain, value)
            made.append(buffer.getvalue())
        left = iter(made)
        return pa.array(
            [next(left) if valid else None for valid in column.is_valid().to_pylist()],
            pa.large_binary(),
        )


def _values(plain: pa.Array, path: str) -> list[Any]:
    try:
        found: list[Any] = plain.to_pylist(maps_as_pydicts="strict")
    except KeyError:
        raise _refused(path, "has a map with a key twice", "takes it once") from None
    return found


def _plain_column(schema: Type, given: pa.Array, path: str) -> pa.Array:
    """The numbers, bytes and texts that are written."""
    schema, may_be_null = _present(schema, path)
    if not given.null_count:
        return _plain(schema, given, path)
    if not may_be_null:
        raise _refused(path, "has null", "has no null there")
    made = _plain(schema, given.drop_null(), path)
    places = pc.cumulative_sum(given.is_valid().cast(pa.int64()))
    return made.take(pc.if_else(given.is_valid(), pc.subtract(places, 1), None))


def _plain(schema: Type, given: pa.Array, path: str) -> pa.Array:
    """As ``_plain_column``, of values without null."""
    match schema:
        case Record(fields=fields):
            names = {each.name: index for index, each in enumerate(given.type)}
            parts = {
                each.name: _plain_column(
                    each.type, given.field(names[each.name]), f"{path}.{each.name}"
                )
                for each in fields
                if each.name in names
            }
            return pa.StructArray.from_arrays([*parts.values()], names=[*parts])
        case Array(items=part):
            items = _plain_column(part, given.flatten(), f"{path}[]")
            lengths = pc.list_value_length(given).to_numpy(zero_copy_only=False)
            ends = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
            return pa.ListArray.from_arrays(ends, items)
        case Map(values=part):
            values = _plain_column(part, given.items, f"{path}{{}}")
            return pa.MapArray.from_arrays(given.offsets, given.keys, values)
        case Enum() | Fixed() | Primitive():
            return _plain_leaf(schema, given, path)
        case _:
            raise AssertionError(schema)


def _plain_leaf(
    schema: Enum | Fixed | Primitive, given: pa.Array, path: str
) -> pa.Array:
    if isinstance(schema, Enum):
        known = pc.is_in(given, value_set=pa.array(schema.symbols))
        if not pc.all(known, min_count=0).as_py():
            raise _refused(path, "has a text", f"takes {', '.join(schema.symbols)}")
        return given
    if schema.logical.name == "decimal":
        return _unscaled(given, schema.size if isinstance(schema, Fixed) else None)
    if isinstance(schema, Fixed):
        sizes = pc.binary_length(given)
        if not pc.all(pc.equal(sizes, schema.size), min_count=0).as_py():
            raise _refused(path, "has bytes", f"takes {schema.size} bytes")
        return given
    return _plain_time(schema.logical.name, given)


def _plain_time(name: str, given: pa.Array) -> pa.Array:
    family, _, unit = name.rpartition("-")
    if name == "date":
        return given.cast(pa.int32())
    if family in ("timestamp", "local-timestamp") and unit != "nanos":
        numbers = given.cast(pa.timestamp("us", given.type.tz)).cast(pa.int64())
        return _floor_1000(numbers) if unit == "millis" else numbers
    return given


def _floor_1000(numbers: pa.Array) -> pa.Array:
    """Milliseconds of microseconds, as Spark's ``to_avro`` has them: rounded down."""
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, 1000), 1000))
    below = pc.if_else(pc.less(rest, 0), 1, 0)
    return pc.subtract(pc.divide(numbers, 1000), below)


def _unscaled(given: pa.Array, size: int | None) -> pa.Array:
    scale, made = given.type.scale, []
    for value in given.to_pylist():
        number = int(value.scaleb(scale, _WIDE))
        length = size or (number.bit_length() + 8) // 8
        made.append(number.to_bytes(length, "big", signed=True))
    return pa.array(made, pa.binary())


def _without_logical(schema: Type, known: dict[str, None]) -> Any:  # noqa: ANN401 - JSON
    """The JSON of a schema that has the same bytes and no logical types."""
    match schema:
        case Primitive(kind=kind):
            return kind
        case Array(items=part):
            return {"type": "array", "items": _without_logical(part, known)}
        case Map(values=part):
            return {"type": "map", "values": _without_logical(part, known)}
        case Union(branches=branches):
            return [_without_logical(each, known) for each in branches]
        case Fixed() | Enum() | Record():
            if schema.name in known:
                return schema.name
            known[schema.name] = None
            return {"name": schema.name, "type": schema.kind} | _members(schema, known)


def _members(schema: Fixed | Enum | Record, known: dict[str, None]) -> dict[str, Any]:
    if isinstance(schema, Fixed):
        return {"size": schema.size}
    if isinstance(schema, Enum):
        return {"symbols": list(schema.symbols)}
    return {
        "fields": [
            {"name": each.name, "type": _without_logical(each.type, known)}
            | ({} if each.default is NO_DEFAULT else {"default": each.default})
            for each in schema.fields
        ]
    }
