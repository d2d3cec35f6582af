"""Runs programs over a column of bytes, in plain Python.

A program becomes a function for each instruction, once; a record then costs about a
microsecond for each of its fields. ``native`` has the same in C. Both append to slots
that are columns already, so no record is ever a Python object; that is also why no
library for Avro is used here: these make a dictionary of each record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

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


class Failure(NamedTuple):
    """A record without a value: its row, a ``Reason`` and the detail of ``FAILED``."""

    row: int
    reason: int
    detail: int


class Decoded(NamedTuple):
    """A typed column, as long as the given one, and the records that have no value."""

    column: pa.Array
    failures: list[Failure]


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
    slots = _filled(column)
    run = _Run(slots)
    steps = {
        index: _Built(programs[index], slots).steps()
        for index in np.unique(chosen).tolist()
        if index >= 0
    }
    failures: list[Failure] = []
    for row, (value, begin, program) in enumerate(
        zip(values.to_pylist(), begins.tolist(), chosen.tolist(), strict=True)
    ):
        found = None
        if program >= 0:
            found = run.record(value, begin, steps[program], row)
        if program < 0 or found is not None:
            slots[0].null()
        if found is not None:
            failures.append(Failure(row, *found))
    return Decoded(slots[0].array(), failures)


class _Run:
    """Runs programs on one record after the other."""

    def __init__(self, slots: list[_Slot]) -> None:
        repeated = {id(each) for slot in slots if slot.repeats for each in slot.below()}
        self._once = [slot for slot in slots if id(slot) not in repeated]
        self._repeated = [slot for slot in slots if id(slot) in repeated]

    def record(
        self, value: bytes, begin: int, steps: Step, row: int
    ) -> tuple[int, int] | None:
        """Append a record, or nothing: the reason and its detail."""
        sizes = [len(slot.values) for slot in self._repeated]
        try:
            left = FREE_VALUES + VALUES_OF_A_BYTE * (len(value) - begin)
            _end(steps(_Bytes(value, [left]), begin), value)
        except _FailedError as error:
            for slot in self._once:
                del slot.values[row:]
            for slot, size in zip(self._repeated, sizes, strict=True):
                del slot.values[size:]
            return error.reason, error.detail
        return None


def _end(at: int, value: bytes) -> None:
    if at < len(value):
        raise _FailedError(Reason.TRAILING)


class _FailedError(Exception):
    def __init__(self, reason: Reason, detail: int = 0) -> None:
        super().__init__(reason, detail)
        self.reason = int(reason)
        self.detail = detail


class _Bytes:
    """The bytes that are read, and how many empty items they have had."""

    __slots__ = ("budget", "empty", "given", "size")

    def __init__(self, given: bytes, budget: list[int]) -> None:
        self.budget = budget
        self.given = given
        self.size = len(given)
        self.empty = 0


Step = Callable[[_Bytes, int], int]
"""Reads at an index; returns the index behind what it has read."""


# --- numbers ------------------------------------------------------------------------


def _long(record: _Bytes, at: int) -> tuple[int, int]:
    given = record.given
    try:
        byte = given[at]
        if byte < 0x80:  # most of them
            return (byte >> 1) ^ -(byte & 1), at + 1
        found, shift = byte & 0x7F, 7
        while byte >= 0x80:
            at += 1
            byte = given[at]
            if shift == 63 and byte > 1:
                raise _FailedError(Reason.NUMBER)
            found |= (byte & 0x7F) << shift
            shift += 7
    except IndexError:
        raise _FailedError(Reason.CUT) from None
    return (found >> 1) ^ -(found & 1), at + 1


def _number(record: _Bytes, at: int, bits: int) -> tuple[int, int]:
    found, at = _long(record, at)
    if bits == 32 and not -0x8000_0000 <= found <= 0x7FFF_FFFF:
        raise _FailedError(Reason.NUMBER)
    return found, at


def _length(record: _Bytes, at: int) -> tuple[int, int]:
    found, at = _long(record, at)
    if found < 0 or found > record.size - at:
        raise _FailedError(Reason.LENGTH)
    return found, at


def _behind(record: _Bytes, at: int, size: int) -> int:
    if size > record.size - at:
        raise _FailedError(Reason.CUT)
    return at + size


def _index(record: _Bytes, at: int, count: int) -> tuple[int, int]:
    found, at = _long(record, at)
    if not 0 <= found < count:
        raise _FailedError(Reason.INDEX)
    return found, at


# --- slots --------------------------------------------------------------------------


class _Slot:
    """A slot that is being filled: leaves have ``values``, with None for null."""

    def __init__(self, slot: Slot, parts: list[_Slot]) -> None:
        self.slot = slot
        self.parts = parts
        self.values: list[Any] = []

    def null(self) -> None:
        """Append null, to the fields of a record, too."""
        self.values.append(None)
        if self.slot.kind is Kind.STRUCT:
            for part in self.parts:
                part.null()

    @property
    def repeats(self) -> bool:
        """Whether a row has any number of values in the slots below."""
        return self.slot.kind in (Kind.LIST, Kind.MAP)

    def width(self) -> int:
        """How many slots a value fills: this and those below, up to lists and maps."""
        return 1 + sum(p.width() for p in self.parts if self.slot.kind is Kind.STRUCT)

    def below(self) -> Iterator[_Slot]:
        for part in self.parts:
            yield part
            yield from part.below()

    def array(self) -> pa.Array:
        kind = self.slot.kind
        if kind is Kind.STRUCT:
            return self._with_children([], [part.array() for part in self.parts])
        if kind is Kind.LIST:
            return self._with_children([self._ends()], [self.parts[0].array()])
        if kind is Kind.MAP:
            arrow = self.slot.arrow
            entries = pa.StructArray.from_arrays(
                [part.array() for part in self.parts],
                fields=[arrow.key_field, arrow.item_field],
            )
            return self._with_children([self._ends()], [entries])
        if kind is Kind.DECIMAL:
            return self._decimals()
        storage = {Kind.INT32: pa.int32(), Kind.INT64: pa.int64()}.get(kind)
        if storage is None:
            return pa.array(self.values, self.slot.arrow)
        return pa.array(self.values, storage).view(self.slot.arrow)

    def _with_children(
        self, buffers: list[pa.Buffer], children: list[pa.Array]
    ) -> pa.Array:
        return pa.Array.from_buffers(
            self.slot.arrow,
            len(self.values),
            [self._valid(), *buffers],
            children=children,
        )

    def _valid(self) -> pa.Buffer | None:
        if None not in self.values:
            return None
        is_there = [value is not None for value in self.values]
        return pa.py_buffer(np.packbits(is_there, bitorder="little").tobytes())

    def _ends(self) -> pa.Buffer:
        lengths = np.array([0, *(value or 0 for value in self.values)], np.int32)
        return pa.py_buffer(np.cumsum(lengths, dtype=np.int32).tobytes())

    def _decimals(self) -> pa.Array:
        numbers = b"".join(
            (value or 0).to_bytes(16, "little", signed=True) for value in self.values
        )
        return pa.Array.from_buffers(
            self.slot.arrow,
            len(self.values),
            [self._valid(), pa.py_buffer(numbers)],
        )


def _filled(column: Slot) -> list[_Slot]:
    """The slots in the order of their numbers, without values."""
    parts = [_filled(part) for part in column.parts]
    here = _Slot(column, [part[0] for part in parts])
    return [here, *chain.from_iterable(parts)]


# --- instructions -------------------------------------------------------------------


class _Built:
    """Makes functions of a program's instructions."""

    def __init__(self, program: Program, slots: list[_Slot]) -> None:
        self._words = program.words()
        self._constants = program.constants
        self._slots = slots

    def steps(self) -> Step:
        """The whole program."""
        return self._block(0, len(self._words) - 1)

    def _block(self, start: int, end: int) -> Step:
        steps: list[Step] = []
        at = start
        while at < end and self._words[at] != Op.JUMP:
            op = Op(self._words[at])
            step, at = _MADE[op](self, at + 1)
            steps.append(step)
        if len(steps) == 1:
            return steps[0]

        def run(record: _Bytes, at: int) -> int:
            for step in steps:
                at = step(record, at)
            return at

        return run

    def _add(self, at: int) -> Callable[[Any], None]:
        return self._slots[self._words[at]].values.append

    def op_fail(self, at: int) -> tuple[Step, int]:
        detail = self._words[at]

        def step(_record: _Bytes, _at: int) -> int:
            raise _FailedError(Reason.FAILED, detail)

        return step, at + 1

    def op_null(self, at: int) -> tuple[Step, int]:
        null = self._slots[self._words[at]].null

        def step(_record: _Bytes, at: int) -> int:
            null()
            return at

        return step, at + 1

    def op_boolean(self, at: int) -> tuple[Step, int]:
        add = self._add(at)

        def step(record: _Bytes, at: int) -> int:
            end = _behind(record, at, 1)
            if record.given[at] > 1:
                raise _FailedError(Reason.BOOLEAN)
            add(record.given[at] == 1)
            return end

        return step, at + 1

    def op_int(self, at: int) -> tuple[Step, int]:
        add = self._add(at)

        def step(record: _Bytes, at: int) -> int:
            found, at = _number(record, at, 32)
            add(found)
            return at

        return step, at + 1

    def op_long(self, at: int) -> tuple[Step, int]:
        add, (bits, factor) = self._add(at), self._words[at + 1 : at + 3]

        def step(record: _Bytes, at: int) -> int:
            found, at = _number(record, at, bits)
            found = found * factor if factor > 0 else found // -factor
            if not -(1 << 63) <= found < 1 << 63:
                raise _FailedError(Reason.TIME)
            add(found)
            return at

        return step, at + 3

    def op_long_to_float(self, at: int) -> tuple[Step, int]:
        return self._converted(at, np.float32)

    def op_long_to_double(self, at: int) -> tuple[Step, int]:
        return self._converted(at, np.float64)

    def _converted(self, at: int, kind: type[Any]) -> tuple[Step, int]:
        add, bits = self._add(at), self._words[at + 1]

        def step(record: _Bytes, at: int) -> int:
            found, at = _number(record, at, bits)
            add(float(np.int64(found).astype(kind)))
            return at

        return step, at + 2

    def op_float(self, at: int) -> tuple[Step, int]:
        return self._packed(at, struct.Struct("<f"))

    op_float_to_double = op_float

    def op_double(self, at: int) -> tuple[Step, int]:
        return self._packed(at, struct.Struct("<d"))

    def _packed(self, at: int, form: struct.Struct) -> tuple[Step, int]:
        add, size, unpack = self._add(at), form.size, form.unpack_from

        def step(record: _Bytes, at: int) -> int:
            end = _behind(record, at, size)
            add(unpack(record.given, at)[0])
            return end

        return step, at + 1

    def op_bytes(self, at: int) -> tuple[Step, int]:
        add = self._add(at)

        def step(record: _Bytes, at: int) -> int:
            size, at = _length(record, at)
            add(record.given[at : at + size])
            return at + size

        return step, at + 1

    def op_text(self, at: int) -> tuple[Step, int]:
        add = self._add(at)
        return lambda record, at: _text(record, at, add), at + 1

    def op_fixed(self, at: int) -> tuple[Step, int]:
        add, size = self._add(at), self._words[at + 1]

        def step(record: _Bytes, at: int) -> int:
            end = _behind(record, at, size)
            add(record.given[at:end])
            return end

        return step, at + 2

    def op_decimal(self, at: int) -> tuple[Step, int]:
        add, most = self._add(at), 10 ** self._words[at + 1]

        def step(record: _Bytes, at: int) -> int:
            size, at = _length(record, at)
            add(_decimal(record, at, at + size, most))
            return at + size

        return step, at + 2

    def op_fixed_decimal(self, at: int) -> tuple[Step, int]:
        add, most, size = self._add(at), 10 ** self._words[at + 1], self._words[at + 2]

        def step(record: _Bytes, at: int) -> int:
            end = _behind(record, at, size)
            add(_decimal(record, at, end, most))
            return end

        return step, at + 3

    def op_enum(self, at: int) -> tuple[Step, int]:
        add, count = self._add(at), self._words[at + 1]
        table = self._words[at + 2 : at + 2 + 2 * count]
        texts: list[str | int] = [
            offset if size < 0 else self._constants[offset : offset + size].decode()
            for offset, size in zip(table[::2], table[1::2], strict=True)
        ]

        def step(record: _Bytes, at: int) -> int:
            index, at = _index(record, at, count)
            found = texts[index]
            if not isinstance(found, str):
                raise _FailedError(Reason.FAILED, found)
            add(found)
            return at

        return step, at + 2 + 2 * count

    def op_union(self, at: int) -> tuple[Step, int]:
        count = self._words[at]
        targets = list(self._words[at + 1 : at + 1 + count])
        is_one = count == 1
        end = targets[0] if is_one else self._words[targets[1] - 1]
        ends = [end] if is_one else [*targets[1:], end]
        branches = [self._block(*each) for each in zip(targets, ends, strict=True)]

        def step(record: _Bytes, at: int) -> int:
            index, at = _index(record, at, count)
            return branches[index](record, at)

        return step, end

    def op_record(self, at: int) -> tuple[Step, int]:
        add = self._add(at)

        def step(_record: _Bytes, at: int) -> int:
            add(True)
            return at

        return step, at + 1

    def op_array(self, at: int) -> tuple[Step, int]:
        number, end, least = self._words[at : at + 3]
        return self._blocks(number, self._block(at + 3, end), least), end

    def op_map(self, at: int) -> tuple[Step, int]:
        number, end = self._words[at : at + 2]
        key, body = self._slots[number + 1].values.append, self._block(at + 2, end)

        def entry(record: _Bytes, at: int) -> int:
            return body(record, _text(record, at, key))

        return self._blocks(number, entry, 1), end

    def _blocks(self, number: int, item: Step, least: int) -> Step:
        slot = self._slots[number]
        add, width = slot.values.append, sum(part.width() for part in slot.parts)

        def step(record: _Bytes, at: int) -> int:
            total = 0
            while True:
                count, at = _long(record, at)
                if count == 0:
                    break
                if count < 0:
                    count = -count
                    _, at = _length(record, at)
                _check_count(record, at, count, least)
                _charge(record, count * width)
                for _ in range(count):
                    at = item(record, at)
                total += count
            add(total)
            return at

        return step

    def op_default(self, at: int) -> tuple[Step, int]:
        offset, length, end = self._words[at : at + 3]
        given = self._constants[offset : offset + length]
        body = self._block(at + 3, end)

        def step(record: _Bytes, at: int) -> int:
            _charge(record, length)
            body(_Bytes(given, record.budget), 0)
            return at

        return step, end

    def op_skip_long(self, at: int) -> tuple[Step, int]:
        return lambda record, at: _long(record, at)[1], at

    def op_skip_fixed(self, at: int) -> tuple[Step, int]:
        size = self._words[at]
        return lambda record, at: _behind(record, at, size), at + 1

    def op_skip_bytes(self, at: int) -> tuple[Step, int]:
        return _skip_bytes, at

    def op_skip_blocks(self, at: int) -> tuple[Step, int]:
        end, least, has_keys = self._words[at : at + 3]
        body = self._block(at + 3, end)

        def step(record: _Bytes, at: int) -> int:
            while True:
                count, at = _long(record, at)
                if count == 0:
                    return at
                if count < 0:
                    at = _skip_bytes(record, at)
                    continue
                _check_count(record, at, count, least)
                for _ in range(count):
                    at = body(record, _skip_bytes(record, at) if has_keys else at)

        return step, end


def _text(record: _Bytes, at: int, add: Callable[[str], None]) -> int:
    size, at = _length(record, at)
    try:
        add(record.given[at : at + size].decode())
    except UnicodeDecodeError:
        raise _FailedError(Reason.TEXT) from None
    return at + size


def _decimal(record: _Bytes, at: int, end: int, most: int) -> int:
    found = int.from_bytes(record.given[at:end], "big", signed=True)
    if not -most < found < most:
        raise _FailedError(Reason.DIGITS)
    return found


def _skip_bytes(record: _Bytes, at: int) -> int:
    size, at = _length(record, at)
    return at + size


def _check_count(record: _Bytes, at: int, count: int, least: int) -> None:
    if not least:
        record.empty += count
        if record.empty > MOST_EMPTY_ITEMS:
            raise _FailedError(Reason.EMPTY_ITEMS)
    elif count * least > record.size - at:
        raise _FailedError(Reason.LENGTH)


def _charge(record: _Bytes, cost: int) -> None:
    if cost > record.budget[0]:
        raise _FailedError(Reason.AMPLIFIED)
    record.budget[0] -= cost


_MADE: dict[Op, Callable[[_Built, int], tuple[Step, int]]] = {
    op: getattr(_Built, f"op_{op.name.lower()}")
    for op in Op
    if op not in (Op.END, Op.JUMP)
}
