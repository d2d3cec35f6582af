"""Checks that the rows a component emits one by one have its declared types.

The check runs in ``emit``, so that its result does not depend on where the rows go: to
a bolt of the same task, to another process, or into record batches.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from kafka_tx.errors import ConfigError
from kafka_tx.topology.reasons import cut, text_of
from kafka_tx.topology.rows.fields import Fields

_FastCheck: TypeAlias = Callable[[Sequence[Any]], bool]

_SHOWN = 200
"""Bytes of a value in an error."""


class ValueCheck:
    """Call it with the values of a row; it raises if Arrow would refuse one of them.

    Common Python types have a fast check; Arrow itself checks all others. Untyped
    fields hold anything. Picklable.

    Args:
        source: The component that emits.
        fields: Its declared fields.
    """

    __slots__ = ("_fast_checks", "_fields", "_source")

    def __init__(self, source: str, fields: Fields) -> None:
        self._source = source
        self._fields = fields
        types = enumerate(fields.types or ())
        self._fast_checks = tuple(_fast_check(place, kind) for place, kind in types)

    def __call__(self, values: Sequence[Any]) -> None:
        """Check the values of one row, one for each field.

        Raises:
            ConfigError: A value does not fit; names component, field and value.
        """
        for fits in self._fast_checks:
            if not fits(values):
                self._check_with_arrow(values)
                return

    def __reduce__(self) -> tuple[Any, ...]:
        return ValueCheck, (self._source, self._fields)

    def _check_with_arrow(self, values: Sequence[Any]) -> None:
        columns = zip(self._fields.names, self._fields.types or (), values, strict=True)
        for name, kind, value in columns:
            try:
                pa.array([value], type=kind)
                _refuse_fraction(value, kind)
            except Exception as error:  # noqa: BLE001 - Arrow raises errors of all kinds
                raise ConfigError(
                    f"component '{self._source}' emitted {_shown(value)} in field"
                    f" '{name}'; legal: values of type {kind}, and None."
                    f" {cut(text_of(error), _SHOWN)}",
                    option=f"{self._source}.{name}",
                ) from None


def _refuse_fraction(value: object, kind: pa.DataType) -> None:
    """Raise for a fraction that Arrow would cut off without an error."""
    is_whole = not isinstance(value, float) or value.is_integer()
    if pa.types.is_integer(kind) and not is_whole:
        raise ValueError("It has a fraction.")


def _shown(value: object) -> str:
    try:
        return cut(repr(value), _SHOWN)
    except Exception:  # noqa: BLE001 - a user's object may be broken in every way
        return f"a {type(value).__name__}"


@lru_cache(maxsize=1024)
def _fast_check(place: int, kind: pa.DataType) -> _FastCheck:
    """A fast check of the value at that place; False: Arrow must check the value."""
    if pa.types.is_signed_integer(kind):
        return _whole_numbers(place, kind.bit_width)
    if kind == pa.string():
        return lambda row: type(row[place]) is str and row[place].isascii()
    python = _ALL_FIT.get(kind)
    return lambda row: type(row[place]) is python


def _whole_numbers(place: int, bits: int) -> _FastCheck:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    return lambda row: type(row[place]) is int and least <= row[place] <= most


_ALL_FIT: dict[pa.DataType, type] = {
    pa.binary(): bytes,
    pa.bool_(): bool,
    pa.float64(): float,
    pa.date32(): datetime.date,
}
