"""A hash of field values that is the same in every process, version and data form.

Python salts its own hash of text per process, so it cannot route rows: two executors
would send one key to two tasks. Here equal values hash equally, whether they come as a
Python value or in an Arrow column, and whatever integer, text or float type the column
has. Where a column holds another value than it was given (``changes_values``), callers
hash that one. Different values may collide; that only makes two keys share a task.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isnan
from typing import Any, TypeAlias
from uuid import UUID
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Hashes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
"""One 64-bit hash per row."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_NONE = 0x6E756C6C
_NAN = 0x6E616E
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive values are taken as they stand


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
    """Whether a column of this type may give back other values than it was given.

    A ``float`` rounds, a date forgets the time, coarser times forget microseconds,
    members of a struct that are absent become null, and a map is a list of pairs.
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
    return _mix(crc32(str(value).encode()))


def _hash_float(value: float) -> int:
    if isnan(value):
        return _NAN
    if value.is_integer():
        return _hash_int(int(value))
    return _mix(crc32(struct.pack(">d", value)))


def _hash_decimal(value: Decimal) -> int:
    if not value.is_finite():
        return _hash_float(float(value))
    if value == value.to_integral_value():
        return _hash_int(int(value))
    as_float = float(value)
    if Decimal(as_float) == value:
        return _hash_float(as_float)
    return _mix(crc32(str(value.normalize()).encode()))


def _hash_bytes(value: bytes) -> int:
    return crc32(value)


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
    (bytes, bytearray, memoryview): _hash_bytes,
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
