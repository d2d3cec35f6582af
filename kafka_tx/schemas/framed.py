"""Typed columns from keys or values, each decoded with the schema it names.

A record names its schema in its first bytes: a zero and the id, of 32 bits, the highest
byte first; or a one and a UUID of 16 bytes. Newer producers give the same bytes in a
header instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx.errors import SchemaError
from kafka_tx.model import SchemaText
from kafka_tx.schemas.avro import parse
from kafka_tx.schemas.columns import Slot
from kafka_tx.schemas.decoders import Decoder, decoder
from kafka_tx.schemas.program import Program
from kafka_tx.schemas.resolution import resolve

SchemaKey = int | UUID
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_PREFIX, _LONG_PREFIX = 5, 17
_NO_ID = -1


class Broken(NamedTuple):
    """A record that has no value, with the id of its schema if it names one."""

    row: int
    schema_id: SchemaKey | None
    reason: str


class Named(NamedTuple):
    """Rows whose schema a header names, and the header's bytes; null: it has none."""

    rows: Ints
    heads: pa.Array


class TypedColumn(NamedTuple):
    """A column of the reader's type, and the records that are null in it for a fault.

    A tombstone is null and no fault.
    """

    column: pa.Array
    broken: list[Broken]


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
    _known: dict[SchemaKey, int] = field(default_factory=dict)
    _refused: dict[SchemaKey, str] = field(default_factory=dict)

    def typed(self, values: pa.Array, named: Named | None = None) -> TypedColumn:
        """Decode keys or values.

        Args:
            values: Binary.
            named: The headers that name schemas.

        Raises:
            RegistryError: The registry does not answer, or refuses.
        """
        rows = len(values)
        chosen = np.full(rows, _NO_ID, np.int32)
        begins = np.zeros(rows, np.int32)
        broken: list[Broken] = []
        is_there: Flags = values.is_valid().to_numpy(zero_copy_only=False)
        if self.writer is None:
            chosen[is_there] = self._own()
        else:
            for key, begin, mine, why in _groups(values, is_there, named):
                found = why if key is None else self._program(key)
                if isinstance(found, int):
                    chosen[mine], begins[mine] = found, begin
                else:
                    broken += [Broken(row, key, found) for row in mine.tolist()]
        made = self.decode(values, begins, chosen, self._programs, self.column)
        keys = {index: key for key, index in self._known.items()}
        for row, reason, detail in made.failures:
            why = self._programs[chosen[row]].why(reason, detail)
            broken.append(Broken(row, keys.get(int(chosen[row])), why))
        return TypedColumn(made.column, sorted(broken, key=lambda each: each.row))

    def _program(self, key: SchemaKey) -> int | str:
        """The index of a writer's program, or why there is none."""
        if key not in self._known:
            assert self.writer is not None
            if key in self._refused:
                return self._refused[key]
            try:  # the reader's own is known without a registry
                is_own = key == self.reader.id
                schema = self.reader if is_own else self.writer(key)
            except SchemaError as error:
                return error.message  # the registry may know it later
            try:
                made = resolve(parse(schema.text, schema.references), self.column)
            except SchemaError as error:
                self._refused[key] = error.message
                return error.message
            self._known[key] = len(self._programs)
            self._programs.append(made)
        return self._known[key]

    def _own(self) -> int:
        if not self._programs:
            writer = parse(self.reader.text, self.reader.references)
            self._programs.append(resolve(writer, self.column))
        return 0


def named_in(headers: pa.Array, name: str) -> Named | None:
    """The last header of this name of each row that has one; None: no row has."""
    if headers.null_count == len(headers):
        return None
    keys = pc.struct_field(headers.values, 0)
    places = np.flatnonzero(pc.fill_null(pc.equal(keys, name), False).to_numpy(False))
    rows = np.searchsorted(headers.offsets.to_numpy(), places, side="right") - 1
    is_last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
    kept = is_last & (rows >= 0) & (rows < len(headers))
    if not kept.any():
        return None
    heads = pc.struct_field(headers.values, 1).take(pa.array(places[kept]))
    return Named(rows[kept], heads)


class _Group(NamedTuple):
    """Rows of one schema: its key or why there is none, and where values begin."""

    key: SchemaKey | None
    begin: int
    rows: Ints
    why: str = ""


def _groups(values: pa.Array, is_there: Flags, named: Named | None) -> Iterator[_Group]:
    """The rows by the schemas that they name; a header wins over the bytes."""
    ids = _ids(values, is_there)
    is_odd = is_there & (ids == _NO_ID)
    if named is not None:
        ids[named.rows] = _NO_ID
        is_odd[named.rows] = False
        kept = is_there[named.rows]
        heads = named.heads.filter(pa.array(kept))
        yield from _by_head(named.rows[kept], heads, 0, "its header")
    for number, rows in _by_id(ids):
        yield _Group(number, _PREFIX, rows)
    odd = np.flatnonzero(is_odd)
    heads = pc.binary_slice(values.take(pa.array(odd)), 0, _LONG_PREFIX)
    yield from _by_head(odd, heads, _LONG_PREFIX, "its first byte")


def _ids(values: pa.Array, is_there: Flags) -> Ints:
    """The id in the prefix of each row, -1 for none."""
    _, ends, data = values.buffers()
    count, first = len(values), values.offset
    at = np.frombuffer(ends, np.int32)[first : first + count + 1].astype(np.int64)
    ids = np.full(count, _NO_ID, np.int64)
    rows = np.flatnonzero(is_there & (np.diff(at) >= _PREFIX))
    if not len(rows):
        return ids
    held = np.frombuffer(data, np.uint8)
    begin = at[:-1][rows]
    found = np.zeros(len(rows), np.int64)
    for byte in range(1, _PREFIX):
        found = found << 8 | held[begin + byte]
    ids[rows] = np.where(held[begin] == 0, found, _NO_ID)
    return ids


def _by_id(ids: Ints) -> Iterator[tuple[int, Ints]]:
    """The ids that occur, without those of no schema, and the rows of each."""
    if not len(ids) or (ids == ids[0]).all():
        if len(ids) and ids[0] >= 0:
            yield int(ids[0]), np.arange(len(ids))
        return
    order = np.argsort(ids, kind="stable")
    found, begins = np.unique(ids[order], return_index=True)
    for number, mine in zip(found.tolist(), np.split(order, begins[1:]), strict=True):
        if number >= 0:
            yield number, mine


def _by_head(rows: Ints, heads: pa.Array, begin: int, where: str) -> Iterator[_Group]:
    """The rows by the bytes that name their schemas."""
    encoded = pc.fill_null(heads, b"").dictionary_encode()
    for index, mine in _by_id(encoded.indices.to_numpy().astype(np.int64)):
        head = encoded.dictionary[index].as_py()
        key, why = _key(head), ""
        if key is None and begin and len(head) < _PREFIX:
            why = f"it has {len(head)} bytes, too few for a schema id"
        elif key is None:
            first = head[:1].hex() or "nothing"
            why = f"{where} names no schema: it is {first}; legal: 00 or 01, and an id"
        yield _Group(key, begin, rows[mine], why)


def _key(head: bytes) -> SchemaKey | None:
    if head[:1] == b"\0" and len(head) >= _PREFIX:
        return int.from_bytes(head[1:_PREFIX], "big")
    if head[:1] == b"\1" and len(head) >= _LONG_PREFIX:
        return UUID(bytes=head[1:_LONG_PREFIX])
    return None


def reshaped(given: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column of one reader's schema in the type of another one.

    Fields are found by name; one that is missing is null.

    Raises:
        SchemaError: A type has changed to one that does not hold all its values.
    """
    have: Any = given.type
    if have == wanted:
        return given
    if pa.types.is_struct(have) and pa.types.is_struct(wanted):
        names = {field.name: index for index, field in enumerate(have)}
        parts = [
            reshaped(given.field(names[each.name]), each.type)
            if each.name in names
            else pa.nulls(len(given), each.type)
            for each in wanted
        ]
        return pa.StructArray.from_arrays(
            parts, fields=list(wanted), mask=given.is_null()
        )
    if pa.types.is_list(have) and pa.types.is_list(wanted):
        items = reshaped(given.values, wanted.value_type)
        return _with_children(given, wanted, items)
    if pa.types.is_map(have) and pa.types.is_map(wanted):
        items = reshaped(given.items, wanted.item_type)
        entries = pa.StructArray.from_arrays(
            [given.keys, items], fields=[wanted.key_field, wanted.item_field]
        )
        return _with_children(given, wanted, entries)
    if (str(have), str(wanted)) not in _WIDENED:
        raise SchemaError(f"{have} cannot become {wanted}")
    return given.cast(wanted, safe=False)  # as Avro, which rounds


_WIDENED = {
    *(("int32", wider) for wider in ("int64", "float", "double")),
    *(("int64", wider) for wider in ("float", "double")),
    ("float", "double"),
    ("string", "binary"),
}


def _with_children(given: pa.Array, wanted: pa.DataType, part: pa.Array) -> pa.Array:
    valid, ends = given.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(given), [valid, ends], offset=given.offset, children=[part]
    )
