"""Groupings: which task of a bolt gets a row.

Routers are deterministic: the same rows in the same order, from the same task of the
source, reach the same tasks again, also in another process. Python salts its own hash
of text per process, so fields are hashed here: equal values hash equally, whether they
come as a Python value or in an Arrow column, and whatever integer, text or float type
the column has. If a column changes a value (``changes_values``), callers hash the
changed value. Different values may have the same hash; their keys then share a task.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from math import isnan
from operator import itemgetter
from typing import Any, Protocol, TypeAlias
from uuid import UUID
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx.topology.rows.blocks import Block, Rows, size
from kafka_tx.topology.rows.fields import Fields

Hashes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
"""One 64-bit hash per row."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_NONE = 0x6E756C6C
_NAN = 0x6E616E
_LONG_DIGITS = 4_300
_LONG = 10**_LONG_DIGITS
"""From here on Python refuses to make text of an integer. Python's own hash of numbers
is the same in every process, and the same for an int and an equal Decimal."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive values are hashed without a zone


def hash_value(value: object) -> int:
    """A 64-bit hash of one value.

    Equal numbers hash equally across int, float, bool and Decimal, as they compare.

    Raises:
        TypeError: The value's type has no form that is the same in every process.
    """
    for kind, hashed in _BY_TYPE.items():
        if isinstance(value, kind):
            return hashed(value)
    if hasattr(value, "item"):  # a numpy scalar
        return hash_value(value.item())
    message = (
        f"rows cannot be grouped by a value of type {type(value).__name__}; legal:"
        " None, numbers, text, bytes, dates and times, UUIDs, and lists, tuples and"
        " dictionaries of them"
    )
    raise TypeError(message)


def hash_values(values: Sequence[object]) -> int:
    """A hash of several values of one row, in order."""
    combined = 0
    for value in values:
        combined = _mix(((combined * 31) & _MASK) ^ hash_value(value))
    return combined


def hash_columns(columns: Sequence[pa.Array]) -> Hashes:
    """``hash_values`` of every row of these columns, without a loop over rows.

    Raises:
        TypeError: as ``hash_value``.
    """
    combined = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        combined = _mix_all((combined * np.uint64(31)) ^ _hash_column(column))
    return combined


def changes_values(kind: pa.DataType) -> bool:
    """Whether a column of this type may change the values that are put into it.

    A ``float`` rounds, a date drops the time, coarser times drop microseconds, absent
    members of a struct become null, and a map becomes a list of pairs.
    """
    types = pa.types
    if types.is_temporal(kind):
        is_fine = types.is_timestamp(kind) and kind.unit == "us"
        return not is_fine
    is_narrow = types.is_floating(kind) and not types.is_float64(kind)
    return is_narrow or types.is_nested(kind)


def _mix(number: int) -> int:
    """Finaliser of splitmix64: every input bit changes about half of the output's."""
    number = (number + _GOLDEN) & _MASK
    number = ((number ^ (number >> 30)) * _MIX_1) & _MASK
    number = ((number ^ (number >> 27)) * _MIX_2) & _MASK
    return number ^ (number >> 31)


def _mix_all(numbers: Hashes) -> Hashes:
    numbers = numbers + np.uint64(_GOLDEN)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(_MIX_1)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(_MIX_2)
    return numbers ^ (numbers >> np.uint64(31))


def _hash_int(value: int) -> int:
    if -(1 << 63) <= value < (1 << 63):
        return _mix(value & _MASK)
    if abs(value) >= _LONG:
        return _mix(int.__hash__(value) & _MASK)
    return _mix(crc32(str(value).encode()))


def _hash_float(value: float) -> int:
    if isnan(value):
        return _NAN
    if value.is_integer():
        return _hash_int(int(value))
    return _mix(crc32(struct.pack(">d", value)))


def _hash_decimal(value: Decimal) -> int:
    if value.is_nan():
        return _NAN
    if value.is_infinite():
        return _hash_float(float(value))
    if value.adjusted() >= _LONG_DIGITS:
        return _mix(hash(value) & _MASK)
    if value == value.to_integral_value():
        return _hash_int(int(value))
    as_float = float(value)
    if Decimal(as_float) == value:
        return _hash_float(as_float)
    return _mix(crc32(str(value.normalize()).encode()))


def _hash_datetime(value: datetime) -> int:
    if value.tzinfo is not None:
        value = value.replace(tzinfo=None) - (value.utcoffset() or timedelta())
    return _hash_timedelta(value - _EPOCH)


def _hash_timedelta(value: timedelta) -> int:
    return _hash_int(value // timedelta(microseconds=1))


def _hash_dict(value: dict[Any, Any]) -> int:
    return sum(hash_values(pair) for pair in value.items()) & _MASK


# In order: a bool is an int and a datetime is a date, so the narrower type comes first.
_BY_TYPE: dict[type | tuple[type, ...], Callable[[Any], int]] = {
    str: lambda value: crc32(value.encode("utf-8", "surrogatepass")),
    int: _hash_int,
    type(None): lambda _: _NONE,
    (bytes, bytearray, memoryview): crc32,
    float: _hash_float,
    Decimal: _hash_decimal,
    datetime: _hash_datetime,
    date: lambda value: _hash_int(value.toordinal()),
    time: lambda value: crc32(value.isoformat().encode()),
    timedelta: _hash_timedelta,
    UUID: lambda value: _hash_int(value.int),
    (list, tuple): hash_values,
    dict: _hash_dict,
}


def _hash_column(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_integer(kind) and kind != pa.uint64() and not column.null_count:
        return _mix_all(column.cast(pa.int64()).to_numpy().view(np.uint64))
    if pa.types.is_nested(kind):
        return _hash_list(column)
    if not pa.types.is_dictionary(kind):
        # Keys repeat: hash each value once and look the rows up.
        column = pc.dictionary_encode(column)
    hashes = np.append(_hash_list(column.dictionary), np.uint64(_NONE))
    indices = column.indices.cast(pa.int64()).fill_null(len(hashes) - 1)
    found: Hashes = hashes[indices.to_numpy()]
    return found


def _hash_list(values: pa.Array) -> Hashes:
    if pa.types.is_string(values.type) and not values.null_count:
        hashes = map(crc32, values.cast(pa.binary()).to_pylist())
    else:
        hashes = map(hash_value, values.to_pylist())
    return np.fromiter(hashes, np.uint64, len(values))


_REMEMBERED_KEYS = 1 << 16


class GroupingKind(StrEnum):
    """The groupings, by Storm's names."""

    SHUFFLE = "shuffle"
    FIELDS = "fields"
    GLOBAL = "global"
    ALL = "all"
    LOCAL_OR_SHUFFLE = "local-or-shuffle"


@dataclass(frozen=True, slots=True)
class Grouping:
    """How rows of one stream are spread over the tasks of one bolt.

    Attributes:
        fields: The names of a fields grouping, in their order; empty for other kinds.
    """

    kind: GroupingKind
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.fields)})" if self.fields else self.kind


class Router(Protocol):
    """Splits the blocks of one task of a source among the tasks of one bolt."""

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """Yield (target task, its rows); rows of one target keep their order."""


def router_for(
    grouping: Grouping, fields: Fields, tasks: int, source_task: int
) -> Router:
    """The router of one task of a source, to ``tasks`` (at least 1) of a bolt.

    Shuffles of different source tasks begin at different targets, so that small blocks
    do not all go to task 0.
    """
    match grouping.kind:
        case GroupingKind.ALL:
            return AllRouter(tasks)
        case GroupingKind.GLOBAL:
            return AllRouter(1)
        case GroupingKind.FIELDS:
            indexes = fields.indexes(grouping.fields)
            kinds = fields.types and tuple(fields.types[index] for index in indexes)
            return AllRouter(1) if tasks == 1 else FieldsRouter(indexes, tasks, kinds)
        case GroupingKind.SHUFFLE | GroupingKind.LOCAL_OR_SHUFFLE:
            return AllRouter(1) if tasks == 1 else ShuffleRouter(tasks, source_task)


class AllRouter:
    """Sends all rows to each of the first ``tasks`` tasks."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """The block, once for each task."""
        for task in range(self._tasks):
            yield task, block


class ShuffleRouter:
    """Sends equal shares in turn; a share of an Arrow batch is one slice of it.

    Rows left over after equal shares go to the tasks after the last ones served.
    """

    def __init__(self, tasks: int, first: int) -> None:
        self._tasks = tasks
        self._next = first % tasks

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """One share for each task that gets any row."""
        rows = size(block)
        share, more = divmod(rows, self._tasks)
        start = 0
        for turn in range(min(rows, self._tasks)):
            end = start + share + (turn < more)
            yield (self._next + turn) % self._tasks, block[start:end]
            start = end
        self._next = (self._next + more) % self._tasks


class FieldsRouter:
    """Sends rows with equal values in some fields to one task: hash modulo tasks.

    If Arrow changes a value (0.1 as ``float``, a dictionary as map), the changed value
    is hashed, so that rows and record batches with the same key go to the same task.

    Args:
        kinds: The fields' declared types; None: no types.
    """

    def __init__(
        self,
        indexes: tuple[int, ...],
        tasks: int,
        kinds: tuple[pa.DataType, ...] | None = None,
    ) -> None:
        self._indexes = indexes
        self._tasks = tasks
        self._kinds = kinds if kinds and any(map(changes_values, kinds)) else None
        self._key = itemgetter(*indexes)
        self._known = _Targets(tasks, is_single=len(indexes) == 1)

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """One part for each task that gets any row.

        Raises:
            TypeError: A field holds a value that has no stable hash.
        """
        if isinstance(block, pa.RecordBatch):
            return self._route_batch(block)
        return self._route_rows(block)

    def _route_batch(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Block]]:
        targets = self._targets([batch.column(index) for index in self._indexes])
        for task in range(self._tasks):
            positions = np.flatnonzero(targets == task)
            if len(positions):
                yield task, batch.take(pa.array(positions))

    def _targets(self, columns: list[pa.Array]) -> Hashes:
        return hash_columns(columns) % np.uint64(self._tasks)

    def _targets_of(self, rows: Rows) -> list[int]:
        if self._kinds is not None:
            pairs = zip(self._indexes, self._kinds, strict=True)
            columns = [pa.array([row[i] for row in rows], kind) for i, kind in pairs]
            targets: list[int] = self._targets(columns).tolist()
            return targets
        try:
            return list(map(self._known.__getitem__, map(self._key, rows)))
        except TypeError:  # a list or dictionary inside: cannot be remembered
            return [self._known.target(key) for key in map(self._key, rows)]

    def _route_rows(self, rows: Rows) -> Iterator[tuple[int, Block]]:
        targets = self._targets_of(rows)
        parts: list[Rows] = [[] for _ in range(self._tasks)]
        for row, task in zip(rows, targets, strict=True):
            parts[task].append(row)
        for task, part in enumerate(parts):
            if part:
                yield task, part


class _Targets(dict[Any, int]):
    """The task of each key met so far, up to a limit."""

    def __init__(self, tasks: int, *, is_single: bool) -> None:
        super().__init__()
        self._tasks = tasks
        self._is_single = is_single

    def __missing__(self, key: Any) -> int:  # noqa: ANN401 - a field holds anything
        target = self.target(key)
        if len(self) < _REMEMBERED_KEYS:
            self[key] = target
        return target

    def target(self, key: Any) -> int:  # noqa: ANN401 - a field holds anything
        """The task of a key: the value of one field, or a tuple of several."""
        return hash_values((key,) if self._is_single else key) % self._tasks
