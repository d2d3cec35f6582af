"""Defaults of fields, from their JSON to the bytes of a value."""

from __future__ import annotations

import struct
from typing import Any

from kafka_tx.errors import SchemaError
from kafka_tx.schemas.avro import (
    NO_DEFAULT,
    Array,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
)


def encode(schema: Type, given: Any, path: str) -> bytes:  # noqa: ANN401 - any JSON
    """The value of a default in Avro's binary encoding.

    Of a union it is the first type that takes it.

    Raises:
        SchemaError: The default is no value of the type.
    """
    try:
        return _encoded(schema, given)
    except (_NoValueError, struct.error, OverflowError, UnicodeEncodeError):
        raise SchemaError(
            f"the default of field '{path}', {str(given)[:80]!r}, is no value of its"
            " type"
        ) from None


class _NoValueError(Exception):
    """The JSON is no value of the type."""


def _encoded(schema: Type, given: Any) -> bytes:  # noqa: ANN401, PLR0911 - any JSON; a table
    match schema, given:
        case Union(branches=branches), _:
            return _of_union(branches, given)
        case Record(fields=fields), dict():
            return b"".join(
                _encoded(each.type, given.get(each.name, each.default))
                for each in fields
            )
        case Array(items=part), list():
            items = [_encoded(part, each) for each in given]
            return _block(items)
        case Map(values=part), dict():
            entries = given.items()
            return _block([_text(k.encode()) + _encoded(part, v) for k, v in entries])
        case Enum(symbols=symbols), str() if given in symbols:
            return number(symbols.index(given))
        case Fixed(size=size), str() if len(given) == size:
            return given.encode("latin-1")
        case Primitive(kind=kind), _ if given is not NO_DEFAULT:
            return _of_primitive(kind, given)
    raise _NoValueError


def _of_union(branches: tuple[Type, ...], given: Any) -> bytes:  # noqa: ANN401 - JSON
    for index, branch in enumerate(branches):
        try:
            return number(index) + _encoded(branch, given)
        except (_NoValueError, struct.error, OverflowError, UnicodeEncodeError):
            continue
    raise _NoValueError


def _of_primitive(kind: str, given: Any) -> bytes:  # noqa: ANN401 - any JSON
    is_whole = isinstance(given, int) and not isinstance(given, bool)
    match kind, given:
        case "null", None:
            return b""
        case "boolean", bool():
            return b"\1" if given else b"\0"
        case (("int" | "long"), _) if is_whole:
            struct.pack("<i" if kind == "int" else "<q", given)  # its range
            return number(given)
        case (("float" | "double"), _) if is_whole or isinstance(given, float):
            return struct.pack("<f" if kind == "float" else "<d", given)
        case "bytes", str():
            return _text(given.encode("latin-1"))
        case "string", str():
            return _text(given.encode())
        case _:
            raise _NoValueError


def number(given: int) -> bytes:
    """A number of 64 bits as a zigzag varint."""
    left = (given << 1) ^ (given >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _text(given: bytes) -> bytes:
    return number(len(given)) + given


def _block(items: list[bytes]) -> bytes:
    start = number(len(items)) if items else b""
    return start + b"".join(items) + b"\0"
