"""Runs programs over a column of bytes, in plain Python.

``native`` has the same in C. Both read what Avro's specification allows and nothing
else, within the bounds of ``program``; libraries for Avro take more than that.
"""

from __future__ import annotations

import struct
from array import array as array_of_words
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_tx.schemas.columns import Kind, Slot
from kafka_tx.schemas.program import (
    FREE_VALUES,
    MOST_EMPTY_ITEMS,
    VALUES_OF_A_BYTE,
    Op,
    Program,
    Reason,
)

Words = npt.NDArray[np.int32]

Values: TypeAlias = dict[int, Any]
"""Of a record, or of an item of a list or map, by slot; absent below a null.

True stands for a struct, and a list of such items for a list or a map.
"""


class Failure(NamedTuple):
    """A record without a value: its row, a ``Reason`` and the detail of ``FAILED``."""

    row: int
    reason: int
    detail: int


class Decoded(NamedTuple):
    """A typed column, as long as the given one, and the records that have no value."""

    column: pa.Array
    failures: list[Failure]


Decoder: TypeAlias = Callable[
    [pa.Array, Words, Words, Sequence[Program], Slot], Decoded
]
"""As ``decode``."""


def decode(
    values: pa.Array,
    begins: Words,
    chosen: Words,
    programs: Sequence[Program],
    column: Slot,
) -> Decoded:
    """Decode records of several writers in one pass.

    Args:
        values: Binary; nulls are allowed where ``chosen`` is negative.
        begins: For each row, how many of its first bytes are passed over.
        chosen: For each row the index of its program; negative: the row is null.
        programs: One for each writer.
        column: The slots that all programs fill.
    """
    widths = {slot.number: sum(map(_width, slot.parts)) for slot in column.all()}
    machines = [_Machine(each, widths) for each in programs]
    rows: list[Values | None] = []
    failures: list[Failure] = []
    for row, (value, begin, program) in enumerate(
        zip(values.to_pylist(), begins.tolist(), chosen.tolist(), strict=True)
    ):
        found: Values | None = None
        if program >= 0:
            try:
                found = machines[program].record(value, begin)
            except _FailedError as error:
                failures.append(Failure(row, error.reason, error.detail))
        rows.append(found)
    return Decoded(_column(column, rows), failures)


class _FailedError(Exception):
    def __init__(self, reason: Reason, detail: int = 0) -> None:
        super().__init__(reason, detail)
        self.reason = int(reason)
        self.detail = detail


# --- bytes --------------------------------------------------------------------------


class _Bytes:
    """Bytes that are read from an index on, within what is left of a budget."""

    __slots__ = ("at", "budget", "empty", "given")

    def __init__(self, given: bytes, at: int, budget: list[int]) -> None:
        self.given = given
        self.at = at
        self.budget = budget
        self.empty = 0

    def left(self) -> int:
        return len(self.given) - self.at

    def skip(self, size: int) -> None:
        if size > self.left():
            raise _FailedError(Reason.CUT)
        self.at += size

    def take(self, size: int) -> bytes:
        self.skip(size)
        return self.given[self.at - size : self.at]

    def long(self) -> int:
        found = shift = 0
        try:
            while (byte := self.given[self.at]) >= 0x80:
                if shift == 63:
                    break
                found |= (byte & 0x7F) << shift
                shift += 7
                self.at += 1
        except IndexError:
            raise _FailedError(Reason.CUT) from None
        if shift == 63 and byte > 1:
            raise _FailedError(Reason.NUMBER)
        self.at += 1
        found |= byte << shift
        return (found >> 1) ^ -(found & 1)

    def number(self, bits: int) -> int:
        found = self.long()
        if bits == 32 and not -0x8000_0000 <= found <= 0x7FFF_FFFF:
            raise _FailedError(Reason.NUMBER)
        return found

    def length(self) -> int:
        found = self.long()
        if not 0 <= found <= self.left():
            raise _FailedError(Reason.LENGTH)
        return found

    def index(self, count: int) -> int:
        found = self.long()
        if not 0 <= found < count:
            raise _FailedError(Reason.INDEX)
        return found

    def text(self) -> str:
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError:
            raise _FailedError(Reason.TEXT) from None

    def boolean(self) -> bool:
        (byte,) = self.take(1)
        if byte > 1:
            raise _FailedError(Reason.BOOLEAN)
        return byte == 1

    def decimal(self, size: int, precision: int) -> int:
        found = int.from_bytes(self.take(size), "big", signed=True)
        if abs(found) >= 10**precision:
            raise _FailedError(Reason.DIGITS)
        return found

    def counts(self, least: int, *, skips: bool = False) -> Iterator[int]:
        """How many items are in each block; those of a skipped block do not count."""
        while count := self.long():
            size = self.length() if count < 0 else 0
            if count < 0 and skips:
                self.at += size
                continue
            self._check(abs(count), least)
            yield abs(count)

    def _check(self, count: int, least: int) -> None:
        if not least:
            self.empty += count
            if self.empty > MOST_EMPTY_ITEMS:
                raise _FailedError(Reason.EMPTY_ITEMS)
        elif count * least > self.left():
            raise _FailedError(Reason.LENGTH)

    def charge(self, cost: int) -> None:
        if cost > self.budget[0]:
            raise _FailedError(Reason.AMPLIFIED)
        self.budget[0] -= cost


# --- instructions -------------------------------------------------------------------


def _long(given: _Bytes, bits: int, factor: int) -> int:
    found = given.number(bits)
    found = found * factor if factor > 0 else found // -factor
    if not -(1 << 63) <= found < 1 << 63:
        raise _FailedError(Reason.TIME)
    return found


def _unpacked(form: str) -> Callable[[_Bytes], float]:
    size, unpack = struct.calcsize(form), struct.Struct(form).unpack
    return lambda given: float(unpack(given.take(size))[0])


def _rounded(kind: type[Any]) -> Callable[[_Bytes, int], float]:
    return lambda given, bits: float(np.int64(given.number(bits)).astype(kind))


_LEAVES: dict[Op, tuple[int, Callable[..., Any]]] = {
    Op.NULL: (0, lambda _: None),
    Op.RECORD: (0, lambda _: True),
    Op.BOOLEAN: (0, _Bytes.boolean),
    Op.INT: (0, lambda given: given.number(32)),
    Op.LONG: (2, _long),
    Op.FLOAT: (0, _unpacked("<f")),
    Op.DOUBLE: (0, _unpacked("<d")),
    Op.FLOAT_TO_DOUBLE: (0, _unpacked("<f")),
    Op.LONG_TO_FLOAT: (1, _rounded(np.float32)),
    Op.LONG_TO_DOUBLE: (1, _rounded(np.float64)),
    Op.BYTES: (0, lambda given: given.take(given.length())),
    Op.TEXT: (0, _Bytes.text),
    Op.FIXED: (1, _Bytes.take),
    Op.DECIMAL: (1, lambda given, most: given.decimal(given.length(), most)),
    Op.FIXED_DECIMAL: (2, lambda given, most, size: given.decimal(size, most)),
}
"""Instructions that fill a slot: how many operands follow it, and what reads."""

_SKIPS: dict[Op, tuple[int, Callable[..., Any]]] = {
    Op.SKIP_LONG: (0, _Bytes.long),
    Op.SKIP_FIXED: (1, _Bytes.skip),
    Op.SKIP_BYTES: (0, lambda given: given.skip(given.length())),
}


_Step: TypeAlias = tuple[Callable[..., Any], int | None, tuple[int, ...], int]
"""What reads, the slot that it fills, its operands and the next word; slot None: the
instruction chooses the next word."""

_NOWHERE = -1
"""The slot of what is passed over."""


class _Machine:
    """Runs one program."""

    def __init__(self, program: Program, widths: Mapping[int, int]) -> None:
        self._words: array_of_words[int] = program.words()
        self._constants = program.constants
        self._widths = widths
        self._steps: dict[int, _Step] = {}

    def record(self, value: bytes, begin: int) -> Values:
        """The values of a record; raises _FailedError."""
        budget = FREE_VALUES + VALUES_OF_A_BYTE * (len(value) - begin)
        given, out = _Bytes(value, begin, [budget]), Values()
        self._run(given, out, 0, len(self._words) - 1)
        if given.left():
            raise _FailedError(Reason.TRAILING)
        return out

    def _run(self, given: _Bytes, out: Values, at: int, end: int) -> None:
        while at < end:
            read, slot, operands, behind = self._steps.get(at) or self._step(at)
            if slot is None:
                at = read(self, given, out, at + 1)
            else:
                out[slot] = read(given, *operands)
                at = behind

    def _step(self, at: int) -> _Step:
        op = Op(self._words[at])
        read = _OTHERS.get(op)
        if read is None:
            is_skip = op in _SKIPS
            count, read = _SKIPS[op] if is_skip else _LEAVES[op]
            first = at + 1 if is_skip else at + 2
            slot = _NOWHERE if is_skip else self._words[at + 1]
            operands = tuple(self._words[first : first + count])
            self._steps[at] = read, slot, operands, first + count
        else:
            self._steps[at] = read, None, (), 0
        return self._steps[at]

    def _jump(self, _given: _Bytes, _out: Values, at: int) -> int:
        return self._words[at]

    def _fail(self, _given: _Bytes, _out: Values, at: int) -> int:
        raise _FailedError(Reason.FAILED, self._words[at])

    def _enum(self, given: _Bytes, out: Values, at: int) -> int:
        slot, count = self._words[at : at + 2]
        place = at + 2 + 2 * given.index(count)
        offset, size = self._words[place : place + 2]
        if size < 0:
            raise _FailedError(Reason.FAILED, offset)
        out[slot] = self._constants[offset : offset + size].decode()
        return at + 2 + 2 * count

    def _union(self, given: _Bytes, _out: Values, at: int) -> int:
        return self._words[at + 1 + given.index(self._words[at])]

    def _array(self, given: _Bytes, out: Values, at: int) -> int:
        slot, end, least = self._words[at : at + 3]
        items: list[Values] = []
        for count in given.counts(least):
            given.charge(count * self._widths[slot])
            for _ in range(count):
                items.append({})
                self._run(given, items[-1], at + 3, end)
        out[slot] = items
        return end

    def _map(self, given: _Bytes, out: Values, at: int) -> int:
        slot, end = self._words[at : at + 2]
        items: list[Values] = []
        for count in given.counts(1):
            given.charge(count * self._widths[slot])
            for _ in range(count):
                items.append({slot + 1: given.text()})
                self._run(given, items[-1], at + 2, end)
        out[slot] = items
        return end

    def _default(self, given: _Bytes, out: Values, at: int) -> int:
        offset, length, end = self._words[at : at + 3]
        given.charge(length)
        inner = self._constants[offset : offset + length]
        self._run(_Bytes(inner, 0, given.budget), out, at + 3, end)
        return end

    def _skip_blocks(self, given: _Bytes, out: Values, at: int) -> int:
        end, least, has_keys = self._words[at : at + 3]
        for count in given.counts(least, skips=True):
            for _ in range(count):
                if has_keys:
                    given.skip(given.length())
                self._run(given, out, at + 3, end)
        return end


_OTHERS: dict[Op, Callable[..., Any]] = {
    Op.JUMP: _Machine._jump,
    Op.FAIL: _Machine._fail,
    Op.ENUM: _Machine._enum,
    Op.UNION: _Machine._union,
    Op.ARRAY: _Machine._array,
    Op.MAP: _Machine._map,
    Op.DEFAULT: _Machine._default,
    Op.SKIP_BLOCKS: _Machine._skip_blocks,
}


# --- columns ------------------------------------------------------------------------


def _width(slot: Slot) -> int:
    """How many slots a value fills: this and those below, up to lists and maps."""
    return 1 + sum(map(_width, slot.parts if slot.kind is Kind.STRUCT else ()))


def _column(slot: Slot, rows: Sequence[Values | None]) -> pa.Array:
    values = [None if row is None else row.get(slot.number) for row in rows]
    buffers, children = [_validity(values)], []
    if slot.kind is Kind.STRUCT:
        there = [row if v else None for row, v in zip(rows, values, strict=True)]
        children = [_column(part, there) for part in slot.parts]
    elif slot.kind in (Kind.LIST, Kind.MAP):
        items = list(chain.from_iterable(value or () for value in values))
        children = [_column(part, items) for part in slot.parts]
        ends = np.cumsum([0, *(len(value or ()) for value in values)], dtype=np.int32)
        buffers.append(pa.py_buffer(ends.tobytes()))
        if slot.kind is Kind.MAP:
            fields = [slot.arrow.key_field, slot.arrow.item_field]
            children = [pa.StructArray.from_arrays(children, fields=fields)]
    elif slot.kind is Kind.DECIMAL:
        numbers = [(value or 0).to_bytes(16, "little", signed=True) for value in values]
        buffers.append(pa.py_buffer(b"".join(numbers)))
    else:
        storage = {Kind.INT32: pa.int32(), Kind.INT64: pa.int64()}.get(slot.kind)
        return pa.array(values, storage or slot.arrow).view(slot.arrow)
    return pa.Array.from_buffers(slot.arrow, len(values), buffers, children=children)


def _validity(values: Sequence[Any]) -> pa.Buffer | None:
    if None not in values:
        return None
    is_there = [value is not None for value in values]
    return pa.py_buffer(np.packbits(is_there, bitorder="little").tobytes())
