"""Typed columns from keys or values, each decoded with the schema it names.

A record names its schema in its first bytes: a zero and the id, of 32 bits, the highest
byte first; or a one and a UUID of 16 bytes. Newer producers give the same bytes in a
header instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx.config import Side
from kafka_tx.errors import SchemaError
from kafka_tx.model import SchemaText
from kafka_tx.schemas.avro import Array, Map, Primitive, Record, parse
from kafka_tx.schemas.columns import Slot
from kafka_tx.schemas.decoders import decoder
from kafka_tx.schemas.decoding import Decoder
from kafka_tx.schemas.program import Program
from kafka_tx.schemas.registry import has_rule
from kafka_tx.schemas.resolution import factor, fields_meant, resolve

SchemaKey = int | UUID

ID_HEADERS: dict[Side, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""Where newer producers name the schema; these win over the first bytes."""

_PREFIX, _LONG_PREFIX = 5, 17
_NONE = -1


class Broken(NamedTuple):
    """A record that has no value, with the id of its schema if it names one.

    Attributes:
        has_rule: The reason is a rule of its schema.
    """

    row: int
    schema_id: SchemaKey | None
    reason: str
    has_rule: bool = False


class TypedColumn(NamedTuple):
    """A column of the reader's type, and the records that are null in it for a fault.

    A tombstone is null and no fault.
    """

    column: pa.Array
    broken: list[Broken]


class _Writer(NamedTuple):
    """Who wrote a record, by the bytes that name its schema.

    Attributes:
        begin: How many bytes of a value name the schema, where no header does.
        program: Its index, or ``_NONE``.
        why: Why there is no program; empty: the bytes name no schema.
        has_rule: The schema has a rule, and no program for that.
    """

    key: SchemaKey | None = None
    begin: int = 0
    program: int = _NONE
    why: str = ""
    has_rule: bool = False


@dataclass(slots=True)
class FramedColumn:
    """Decodes columns of one reader; keeps the programs of writers it has met.

    Attributes:
        column: Of the reader's schema.
        writer: The schema of an id; raises SchemaError for one that is of no use.
            None: records name no schema, and the reader's is theirs.
        reader: The reader's schema.
    """

    column: Slot
    reader: SchemaText
    writer: Callable[[SchemaKey], SchemaText] | None
    decode: Decoder = field(default_factory=decoder)
    _programs: list[Program] = field(default_factory=list)
    _known: dict[bytes, _Writer] = field(default_factory=dict)

    def typed(self, values: pa.Array, named: pa.Array | None = None) -> TypedColumn:
        """Decode keys or values.

        Args:
            values: Binary.
            named: As ``named_in``: a header wins over the first bytes.

        Raises:
            RegistryError: The registry does not answer, or refuses.
        """
        heads = _first_bytes(values, _PREFIX if self.writer else 0)
        in_header = np.zeros(len(values), bool)
        if named is not None:
            in_header = named.is_valid().to_numpy(zero_copy_only=False)
            heads = pc.if_else(
                values.is_valid(),
                pc.coalesce(_first_bytes(named, _PREFIX), heads),
                None,
            )
        encoded = heads.dictionary_encode()
        writers = [*map(self._writer, encoded.dictionary.to_pylist()), _Writer()]
        at = pc.fill_null(encoded.indices, _NONE).to_numpy()  # null: the last writer
        chosen = np.array([each.program for each in writers], np.int32)[at]
        begins = np.array([each.begin for each in writers], np.int32)[at]
        begins[in_header] = 0
        made = self.decode(values, begins, chosen, self._programs, self.column)
        reasons = {
            row: self._programs[chosen[row]].why(reason, detail)
            for row, reason, detail in made.failures
        }
        for row in np.flatnonzero((chosen == _NONE) & (at != _NONE)).tolist():
            head = encoded.dictionary[at[row]].as_py()
            reasons[row] = writers[at[row]].why or _unnamed(head, in_header[row])
        broken = [
            Broken(row, writers[at[row]].key, why, writers[at[row]].has_rule)
            for row, why in reasons.items()
        ]
        return TypedColumn(made.column, sorted(broken))

    def _writer(self, head: bytes) -> _Writer:
        if head not in self._known:
            key, schema = _key(head), self.reader
            begin = _LONG_PREFIX if isinstance(key, UUID) else _PREFIX
            if self.writer is None:
                begin = 0
            elif key is None:
                return _Writer()
            elif key != self.reader.id:  # the reader's own needs no registry
                try:
                    schema = self.writer(key)
                except SchemaError as error:  # the registry may know it later
                    return _Writer(key, why=error.message, has_rule=has_rule(error))
            try:
                made = resolve(parse(schema.text, schema.references), self.column)
            except SchemaError as error:
                self._known[head] = _Writer(key, why=error.message)
            else:
                self._known[head] = _Writer(key, begin, len(self._programs))
                self._programs.append(made)
        return self._known[head]


def named_in(headers: pa.Array, name: str) -> pa.Array | None:
    """The last header of this name of each row, null where it has none.

    None: no row has one. A header without a value is empty.
    """
    names, values = headers.values.flatten()
    places = np.flatnonzero(pc.fill_null(pc.equal(names, name), False).to_numpy(False))
    rows = np.searchsorted(headers.offsets.to_numpy(), places, side="right") - 1
    is_inside = (rows >= 0) & (rows < len(headers))
    if not is_inside.any():
        return None
    found = np.full(len(headers), _NONE)
    found[rows[is_inside]] = places[is_inside]  # of a row's places the last one stays
    return pc.fill_null(values, b"").take(pa.array(found, mask=found == _NONE))


def with_id(value: bytes | None, named: bytes | None) -> bytes | None:
    """A record that names its schema in its first bytes, as its header did."""
    key = None if named is None else _key(named)
    if value is None or named is None or key is None:
        return value
    return named[: _LONG_PREFIX if isinstance(key, UUID) else _PREFIX] + value


def _first_bytes(values: pa.Array, size: int) -> pa.Array:
    """What names the schema in each value; of a long prefix all of it."""
    heads = pc.binary_slice(values, 0, size)
    is_long = pc.starts_with(heads, b"\1")
    if not pc.any(is_long).as_py():
        return heads
    return pc.if_else(is_long, pc.binary_slice(values, 0, _LONG_PREFIX), heads)


def _key(head: bytes) -> SchemaKey | None:
    if head[:1] == b"\0" and len(head) >= _PREFIX:
        return int.from_bytes(head[1:_PREFIX], "big")
    if head[:1] == b"\1" and len(head) >= _LONG_PREFIX:
        return UUID(bytes=head[1:_LONG_PREFIX])
    return None


def _unnamed(head: bytes, is_header: bool) -> str:
    if not is_header and len(head) < _PREFIX:
        return f"it has {len(head)} bytes, too few for a schema id"
    where, first = "its header" if is_header else "its first byte", head[:1].hex()
    return (
        f"{where} names no schema: it is {first or 'nothing'}; legal: 00 or 01, and an"
        " id"
    )


def reshaped(given: pa.Array, planned: Slot, now: Slot) -> pa.Array:
    """A column of one reader's schema in the type of another one.

    Fields are found by name, else by the aliases of either schema; one that is missing
    is null. Times in another unit are converted.

    Raises:
        SchemaError: A type has changed to one that does not hold all its values, or to
            another meaning; or a value is none of the type: bytes that are no text.
    """
    if planned is now or planned.type == now.type:
        return given
    match planned.type, now.type:
        case Record(), Record():
            return _reshaped_record(given, planned, now)
        case Array(), Array():
            items = reshaped(given.values, planned.parts[0], now.parts[0])
            return _with_children(given, now.arrow, items)
        case Map(), Map():
            items = reshaped(given.items, planned.parts[1], now.parts[1])
            entries = pa.StructArray.from_arrays(
                [given.keys, items], fields=[now.arrow.key_field, now.arrow.item_field]
            )
            return _with_children(given, now.arrow, entries)
        case _:
            return _reshaped_leaf(given, planned, now)


def _reshaped_leaf(given: pa.Array, planned: Slot, now: Slot) -> pa.Array:
    have, wanted = planned.arrow, now.arrow
    if have != wanted and not _holds(have, wanted):
        raise SchemaError(f"{have} cannot become {wanted}")
    is_number = pa.types.is_integer(wanted) or pa.types.is_timestamp(wanted)
    try:
        if isinstance(planned.type, Primitive) and is_number:
            by = _ratio(planned.type, now) / _ratio(planned.type, planned)
            given = _times(given.cast(pa.int64()), by)
        # numbers as Avro, which rounds; texts are checked
        return given.cast(wanted, safe=pa.types.is_string(wanted))
    except pa.ArrowInvalid as error:
        raise SchemaError(f"{have} cannot become {wanted}: {error}") from None


def _holds(have: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_decimal(have) and pa.types.is_decimal(wanted):
        return bool(have.scale == wanted.scale and have.precision <= wanted.precision)
    return (str(have), str(wanted)) in _WIDENED


def _ratio(given: Primitive, slot: Slot) -> Fraction:
    by = factor(given, slot, "")
    return Fraction(by) if by > 0 else Fraction(1, -by)


def _times(given: pa.Array, by: Fraction) -> pa.Array:
    """Multiplied, or divided and rounded down."""
    made = pc.multiply_checked(given, by.numerator)
    if by.denominator == 1:
        return made
    found = pc.fill_null(made, 0).to_numpy() // by.denominator
    return pc.if_else(made.is_valid(), found, None)


def _reshaped_record(given: pa.Array, planned: Slot, now: Slot) -> pa.Array:
    before, after = planned.type, now.type
    assert isinstance(before, Record)
    assert isinstance(after, Record)
    renamed = fields_meant(before, after)
    back = fields_meant(after, before)  # this start's schema may be the older one
    sources = {new: old for new, old in back.items() if old not in renamed}
    sources |= {new: old for old, new in renamed.items()}
    places = {each.name: place for place, each in enumerate(before.fields)}
    parts = []
    for each, part in zip(after.fields, now.parts, strict=True):
        place = places.get(sources.get(each.name, ""))
        parts.append(
            pa.nulls(len(given), part.arrow)
            if place is None
            else reshaped(given.field(place), planned.parts[place], part)
        )
    return pa.StructArray.from_arrays(
        parts, fields=list(now.arrow), mask=given.is_null()
    )


_TIMESTAMPS = ("timestamp[us]", "timestamp[us, tz=UTC]")
_WIDENED = {
    *(("int32", wider) for wider in ("int64", "float", "double")),
    *(("int64", wider) for wider in ("float", "double")),
    ("float", "double"),
    ("string", "binary"),
    ("binary", "string"),
    *(pair for time in _TIMESTAMPS for pair in ((time, "int64"), ("int64", time))),
}


def _with_children(given: pa.Array, wanted: pa.DataType, part: pa.Array) -> pa.Array:
    valid, ends = given.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(given), [valid, ends], offset=given.offset, children=[part]
    )
