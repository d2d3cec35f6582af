"""Typed columns from keys or values, each decoded with the schema it names.

A record names its schema in its first bytes: a zero and the id, of 32 bits, the highest
byte first; or a one and a UUID of 16 bytes. Newer producers give the same bytes in a
header instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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

_PREFIX, _LONG_PREFIX = 5, 17
_NO_ID = -1


class Broken(NamedTuple):
    """A record that has no value, with the id of its schema if it names one."""

    row: int
    schema_id: SchemaKey | None
    reason: str


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

    def typed(
        self, values: pa.Array, named: Mapping[int, bytes | None] | None = None
    ) -> TypedColumn:
        """Decode keys or values.

        Args:
            values: Binary.
            named: The bytes of the header that names the schema, for the rows that
                have one.

        Raises:
            RegistryError: The registry does not answer, or refuses.
        """
        rows = len(values)
        chosen = np.full(rows, _NO_ID, np.int32)
        begins = np.zeros(rows, np.int32)
        broken: list[Broken] = []
        is_there = _is_there(values)
        if self.writer is None:
            chosen[is_there] = self._own()
            keys: dict[int, SchemaKey] = {}
        else:
            keys = self._choose(values, is_there, named or {}, chosen, begins, broken)
        made = self.decode(values, begins, chosen, self._programs, self.column)
        for row, reason, detail in made.failures:
            why = self._programs[chosen[row]].why(reason, detail)
            broken.append(Broken(row, keys.get(int(chosen[row])), why))
        return TypedColumn(made.column, sorted(broken, key=lambda each: each.row))

    def _choose(
        self,
        values: pa.Array,
        is_there: npt.NDArray[np.bool_],
        named: Mapping[int, bytes | None],
        chosen: npt.NDArray[np.int32],
        begins: npt.NDArray[np.int32],
        broken: list[Broken],
    ) -> dict[int, SchemaKey]:
        """Find the program and the start of each row; gives programs' schema ids."""
        ids, lengths = _ids(values, is_there)
        for row, head in named.items():
            ids[row] = _NO_ID
            if is_there[row]:
                self._one(row, head, None, chosen, begins, broken)
        odd = np.flatnonzero((ids == _NO_ID) & is_there)
        for row in odd.tolist():
            if row not in named:
                head = values[row].as_py()[:_LONG_PREFIX]
                self._one(row, head, int(lengths[row]), chosen, begins, broken)
        order = np.argsort(ids, kind="stable")
        held = ids[order]
        for number in _distinct(ids):
            mine = order[
                np.searchsorted(held, number) : np.searchsorted(held, number, "right")
            ]
            found = self._program(number)
            if isinstance(found, int):
                chosen[mine], begins[mine] = found, _PREFIX
            else:
                broken += [Broken(row, number, found) for row in mine.tolist()]
        return {index: key for key, index in self._known.items()}

    def _one(
        self,
        row: int,
        head: bytes | None,
        length: int | None,
        chosen: npt.NDArray[np.int32],
        begins: npt.NDArray[np.int32],
        broken: list[Broken],
    ) -> None:
        """Find the schema of a row with a header or a long prefix (``length``)."""
        key = _key(head)
        if key is None:
            broken.append(Broken(row, None, _unnamed(head, length)))
            return
        found = self._program(key)
        if isinstance(found, int):
            chosen[row] = found
            begins[row] = 0 if length is None else _LONG_PREFIX
        else:
            broken.append(Broken(row, key, found))

    def _program(self, key: SchemaKey) -> int | str:
        """The index of a writer's program, or why there is none."""
        if key not in self._known:
            assert self.writer is not None
            if key in self._refused:
                return self._refused[key]
            try:
                schema = self.writer(key)
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


def header_ids(headers: pa.Array, name: str) -> dict[int, bytes | None]:
    """The last header of this name of each row that has one."""
    if headers.null_count == len(headers):
        return {}
    keys = pc.struct_field(headers.values, 0)
    places = np.flatnonzero(pc.fill_null(pc.equal(keys, name), False).to_numpy(False))
    if not len(places):
        return {}
    values = pc.struct_field(headers.values, 1)
    rows = np.searchsorted(headers.offsets.to_numpy(), places, side="right") - 1
    return {
        int(row): values[int(place)].as_py()
        for row, place in zip(rows.tolist(), places.tolist(), strict=True)
        if 0 <= row < len(headers)
    }


def _is_there(values: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return found


def _ids(values: pa.Array, is_there: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """The id in the prefix of each row, -1 for none; and how long the rows are."""
    _, ends, data = values.buffers()
    count, first = len(values), values.offset
    at = np.frombuffer(ends, np.int32)[first : first + count + 1].astype(np.int64)
    lengths = np.diff(at)
    ids = np.full(count, _NO_ID, np.int64)
    rows = np.flatnonzero(is_there & (lengths >= _PREFIX))
    if not len(rows):
        return ids, lengths
    held = np.frombuffer(data, np.uint8)
    begin = at[:-1][rows]
    found = np.zeros(len(rows), np.int64)
    for byte in range(1, _PREFIX):
        found = found << 8 | held[begin + byte]
    ids[rows] = np.where(held[begin] == 0, found, _NO_ID)
    return ids, lengths


def _distinct(ids: Ints) -> Iterable[int]:
    """The ids that occur, without those of no schema."""
    if not len(ids):
        return []
    if ids[0] >= 0 and (ids == ids[0]).all():
        return [int(ids[0])]
    return [number for number in np.unique(ids).tolist() if number >= 0]


def _unnamed(head: bytes | None, length: int | None) -> str:
    if length is not None and length < _PREFIX:
        return f"it has {length} bytes, too few for a schema id"
    where = "its header" if length is None else "its first byte"
    first = (head or b"")[:1].hex() or "nothing"
    return f"{where} names no schema: it is {first}; legal: 00 or 01, and an id"


def _key(head: bytes | None) -> SchemaKey | None:
    if head and head[0] == 0 and len(head) >= _PREFIX:
        return int.from_bytes(head[1:_PREFIX], "big")
    if head and head[0] == 1 and len(head) >= _LONG_PREFIX:
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
    return given.cast(wanted)


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
