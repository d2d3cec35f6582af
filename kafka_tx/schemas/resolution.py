"""Resolves a writer's schema and a reader's into a program."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from kafka_tx.errors import SchemaError
from kafka_tx.schemas.avro import (
    NO_DEFAULT,
    NULL,
    Array,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    unqualified,
)
from kafka_tx.schemas.columns import Kind, Slot
from kafka_tx.schemas.defaults import encode
from kafka_tx.schemas.program import MOST_WORDS, Op, Program


def resolve(writer: Type, column: Slot) -> Program:
    """The program that reads a writer's records into a reader's column.

    Source: Avro's specification, Schema Resolution (deviates: times in another unit are
    converted; a decimal's precision may differ, and each value is checked).

    Raises:
        SchemaError: No record of the writer can be read: the types do not match, or a
            field is missing and has no default.
    """
    code = _Code()
    _Resolver(code).read(writer, column, "")
    code.add(Op.END)
    return Program(code.words.tobytes(), bytes(code.constants), tuple(code.reasons))


@dataclass(slots=True)
class _Code:
    words: array[int] = field(default_factory=lambda: array("i"))
    constants: bytearray = field(default_factory=bytearray)
    reasons: list[str] = field(default_factory=list)

    def add(self, *words: int) -> int:
        """Append; returns the index of the first word."""
        at = len(self.words)
        self.words.extend(words)
        if len(self.words) > MOST_WORDS:
            raise SchemaError(f"the schema needs more than {MOST_WORDS} instructions")
        return at

    def end(self, at: int) -> None:
        """Let the word ``at`` point behind what was added last."""
        self.words[at] = len(self.words)

    def constant(self, given: bytes) -> tuple[int, int]:
        at = len(self.constants)
        self.constants += given
        return at, len(given)

    def reason(self, text: str) -> int:
        self.reasons.append(text)
        return len(self.reasons) - 1

    def branches(self, writer: Union, add: Callable[[Type], None]) -> None:
        """Add a union; ``add`` adds what is done with one of its types."""
        count = len(writer.branches)
        at = self.add(Op.UNION, count, *[0] * count) + 2
        jumps = []
        for index, branch in enumerate(writer.branches):
            self.end(at + index)
            start = len(self.words)
            try:
                add(branch)
            except _MismatchError as error:
                del self.words[start:]
                self.add(Op.FAIL, self.reason(error.message))
            if index < count - 1:
                jumps.append(self.add(Op.JUMP, 0) + 1)
        for jump in jumps:
            self.end(jump)


_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_POWERS = {"millis": 3, "micros": 6, "nanos": 9}
_BITS = {"int": 32, "long": 64}


@dataclass(slots=True)
class _Resolver:
    code: _Code

    def read(self, writer: Type, slot: Slot, path: str) -> None:
        """Add what reads a writer's value into a slot."""
        if isinstance(writer, Union):
            self.code.branches(writer, lambda branch: self.read(branch, slot, path))
        elif writer == NULL and slot.is_nullable:
            self.code.add(Op.NULL, slot.number)
        else:
            self._same(writer, slot, path)

    def _same(self, writer: Type, slot: Slot, path: str) -> None:
        reader = slot.type
        match writer, reader:
            case Record(), Record() if _is_named(writer, reader):
                self._record(writer, reader, slot, path)
            case Enum(), Enum() if _is_named(writer, reader):
                self._enum(writer, reader, slot, path)
            case Fixed(), Fixed() if _is_named(writer, reader):
                self._fixed(writer, reader, slot, path)
            case Array(), Array():
                at = self.code.add(Op.ARRAY, slot.number, 0, least(writer.items)) + 2
                self.read(writer.items, slot.parts[0], f"{path}[]")
                self.code.end(at)
            case Map(), Map():
                at = self.code.add(Op.MAP, slot.number, 0) + 2
                self.read(writer.values, slot.parts[1], f"{path}{{}}")
                self.code.end(at)
            case Primitive(), Primitive():
                self._primitive(writer, reader, slot, path)
            case _:
                raise _mismatch(writer, slot, path)

    def _primitive(  # noqa: C901 - a table
        self, writer: Primitive, reader: Primitive, slot: Slot, path: str
    ) -> None:
        bits, at = _BITS.get(writer.kind, 0), slot.number
        match writer.kind, reader.kind:
            case ("int", "int"):
                factor(writer, slot, path)  # refuses another meaning
                self.code.add(Op.INT, at)
            case ("int" | "long", "long"):
                self.code.add(Op.LONG, at, bits, factor(writer, slot, path))
            case ("int" | "long", "float"):
                self.code.add(Op.LONG_TO_FLOAT, at, bits)
            case ("int" | "long", "double"):
                self.code.add(Op.LONG_TO_DOUBLE, at, bits)
            case ("float", "double"):
                self.code.add(Op.FLOAT_TO_DOUBLE, at)
            case ("bytes" | "string", "bytes") if slot.kind is Kind.DECIMAL:
                _check_scale(writer.logical, reader.logical, path)
                self.code.add(Op.DECIMAL, at, reader.logical.precision)
            case ("bytes" | "string", "bytes" | "string"):
                self.code.add(Op.TEXT if slot.kind is Kind.TEXT else Op.BYTES, at)
            case (kind, other) if kind == other:
                self.code.add(Op[kind.upper()], at)
            case _:
                raise _mismatch(writer, slot, path)

    def _fixed(self, writer: Fixed, reader: Fixed, slot: Slot, path: str) -> None:
        if writer.size != reader.size:
            raise _MismatchError(
                f"{_at(path)}: '{writer.name}' has {writer.size} bytes where it was"
                f" written, and {reader.size} where it is read"
            )
        if slot.kind is Kind.DECIMAL:
            _check_scale(writer.logical, reader.logical, path)
            precision = reader.logical.precision
            self.code.add(Op.FIXED_DECIMAL, slot.number, precision, reader.size)
        else:
            self.code.add(Op.FIXED, slot.number, reader.size)

    def _enum(self, writer: Enum, reader: Enum, slot: Slot, path: str) -> None:
        places: dict[str, tuple[int, int]] = {}
        table: list[int] = []
        for symbol in writer.symbols:
            text = symbol if symbol in reader.symbols else reader.default
            if text is None:
                reason = f"{_at(path)}: enum '{reader.name}' has no symbol '{symbol}'"
                table += (self.code.reason(f"{reason}, and no default"), -1)
                continue
            if text not in places:
                places[text] = self.code.constant(text.encode())
            table += places[text]
        self.code.add(Op.ENUM, slot.number, len(writer.symbols), *table)

    def _record(self, writer: Record, reader: Record, slot: Slot, path: str) -> None:
        self.code.add(Op.RECORD, slot.number)
        parts = zip(reader.fields, slot.parts, strict=True)
        left = {each.name: (each, part) for each, part in parts}
        meant = fields_meant(writer, reader)
        for each in writer.fields:
            inner = f"{path}.{each.name}" if path else each.name
            found = left.pop(meant.get(each.name, ""), None)
            if found is None:
                _skip(self.code, each.type)
            else:
                self.read(each.type, found[1], inner)
        for absent, part in left.values():
            self._default(absent, part, writer, f"{path}.{absent.name}".lstrip("."))

    def _default(self, absent: Field, slot: Slot, writer: Record, path: str) -> None:
        if absent.default is NO_DEFAULT:
            raise _MismatchError(
                f"{_at(path)} is not in the writer's record '{writer.name}', and has no"
                " default"
            )
        if absent.default is None and slot.is_nullable:
            self.code.add(Op.NULL, slot.number)
            return
        given = encode(absent.type, absent.default, path)
        at = self.code.add(Op.DEFAULT, *self.code.constant(given), 0) + 3
        self.read(absent.type, slot, path)
        self.code.end(at)


# --- what the reader does not have ----------------------------------------------------


def _skip(code: _Code, writer: Type) -> None:  # noqa: C901 - a table
    """Add what passes over a writer's value."""
    match writer:
        case Union():
            code.branches(writer, lambda branch: _skip(code, branch))
        case Record(fields=fields):
            for each in fields:
                _skip(code, each.type)
        case Array(items=part) | Map(values=part):
            has_keys = isinstance(writer, Map)
            at = code.add(Op.SKIP_BLOCKS, 0, least(part) + has_keys, has_keys) + 1
            _skip(code, part)
            code.end(at)
        case Enum() | Primitive(kind="int" | "long"):
            code.add(Op.SKIP_LONG)
        case Primitive(kind="bytes" | "string"):
            code.add(Op.SKIP_BYTES)
        case Fixed(size=size):
            code.add(Op.SKIP_FIXED, size)
        case Primitive(kind=kind):
            code.add(Op.SKIP_FIXED, _SIZES[kind])


def least(writer: Type) -> int:
    """The least number of bytes that a value takes; at most 2^20, which is enough."""
    match writer:
        case Record(fields=fields):
            found = sum(least(each.type) for each in fields)
        case Union(branches=branches):
            found = 1 + min(map(least, branches))
        case Fixed(size=size):
            found = size
        case Primitive(kind=kind):
            found = _SIZES.get(kind, 1)
        case _:
            found = 1
    return min(found, 1 << 20)


class _MismatchError(SchemaError):
    """A type of the writer does not match; within a union, others may."""


def _is_named(writer: Record | Enum | Fixed, reader: Record | Enum | Fixed) -> bool:
    names = {
        unqualified(reader.name),
        *reader.aliases,
        *map(unqualified, reader.aliases),
    }
    return writer.name in names or unqualified(writer.name) in names


def fields_meant(writer: Record, reader: Record) -> dict[str, str]:
    """The reader's field for each of the writer's, by name, else by alias."""
    there = {each.name for each in writer.fields}
    meant = {each.name: each.name for each in reader.fields if each.name in there}
    for each in reader.fields:
        if each.name not in there:
            found = [a for a in each.aliases if a in there and a not in meant]
            meant |= dict.fromkeys(found[:1], each.name)
    return meant


def factor(writer: Primitive, slot: Slot, path: str) -> int:
    """By how much a number is multiplied to be in the unit of the column.

    Columns of timestamps are microseconds. Others, and nanoseconds, are the reader's
    number. Raises SchemaError for another meaning.
    """
    assert isinstance(slot.type, Primitive)
    wanted = slot.type.logical.name
    if not wanted:
        return 1
    family, _, unit = wanted.rpartition("-")
    given_family, _, given_unit = (writer.logical.name or wanted).rpartition("-")
    if family != given_family or (not family and given_unit != unit):
        raise _mismatch(writer, slot, path)
    is_converted = slot.arrow not in (pa.int32(), pa.int64(), pa.date32())
    power = _POWERS.get("micros" if is_converted else unit, 0)
    power -= _POWERS.get(given_unit, 0)
    by: int = 10 ** abs(power)
    return by if power >= 0 else -by


def _check_scale(writer: Logical, reader: Logical, path: str) -> None:
    if writer.name == "decimal" and writer.scale != reader.scale:
        raise _MismatchError(
            f"{_at(path)} is a decimal of scale {writer.scale} where it was written,"
            f" and of scale {reader.scale} where it is read"
        )


def _mismatch(writer: Type, slot: Slot, path: str) -> _MismatchError:
    return _MismatchError(
        f"{_at(path)} is {_word(writer)} where it was written, and {_word(slot.type)}"
        " where it is read"
    )


def _word(given: Type) -> str:
    name = getattr(given, "name", "")
    if name:
        return f"{given.kind} '{name}'"
    logical = getattr(given, "logical", None)
    return f"{given.kind} ({logical.name})" if logical and logical.name else given.kind


def _at(path: str) -> str:
    return f"field '{path}'" if path else "the value"
