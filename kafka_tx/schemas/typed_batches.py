"""Batches of Kafka's records with typed keys and values, in the task that reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx.config import RecordFormat, Side
from kafka_tx.errors import RecordFormatError, SchemaError
from kafka_tx.model import SchemaText
from kafka_tx.record_schema import BYTES, ERROR, arrow_schema
from kafka_tx.schemas.framed import (
    ID_HEADERS,
    Broken,
    FramedColumn,
    TypedColumn,
    named_in,
    reshaped,
    with_id,
)
from kafka_tx.schemas.planned import in_words
from kafka_tx.schemas.readers import column
from kafka_tx.schemas.registry import UnknownSchemaError, has_rule, registry_of

MOST_VALUES = 1 << 22
"""Of a typed batch, counted as rows times slots: a null fills all slots of a struct."""


def typed_schema(formats: tuple[RecordFormat, ...], include_headers: bool) -> pa.Schema:
    """The columns of a batch whose formats have their readers' schemas."""
    schema = arrow_schema(include_headers)
    for each in formats:
        assert each.reader is not None
        index = schema.get_field_index(each.side)
        typed = pa.field(each.side, column(each.reader).arrow)
        schema = schema.set(index, typed)
    for each in formats:
        if each.is_permissive:
            schema = schema.append(pa.field(each.side + ERROR, pa.string()))
            schema = schema.append(pa.field(each.side + BYTES, pa.binary()))
    return schema


class _Reading(NamedTuple):
    """One side: its format, and what decodes it.

    Attributes:
        planned: With the schema of the batch's plan.
        now: With this start's; often the same.
    """

    format: RecordFormat
    planned: FramedColumn
    now: FramedColumn


class TypedBatches:
    """Types the keys and values of one task's batches.

    Args:
        formats: With their readers' schemas.
        include_headers: Whether the result has the column ``headers``; what is given
            has it if records may name their schema there.
        planned: By side the names of the schemas with which the batch was planned:
            a replay is decoded with these, and, unless it is permissive, with the
            readers' own where these read no value. Empty: the readers' own.

    Raises:
        SchemaError: A planned schema cannot be had.
        RegistryError: The registry does not answer, or refuses.
    """

    def __init__(
        self,
        formats: tuple[RecordFormat, ...],
        include_headers: bool,
        planned: Mapping[str, str],
    ) -> None:
        self._include_headers = include_headers
        self._schema = typed_schema(formats, include_headers)
        self._readings = [_reading(each, planned.get(each.side)) for each in formats]

    def pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """As a call; a batch that would have too many values is several."""
        width = sum(len([*each.planned.column.all()]) for each in self._readings)
        rows = max(MOST_VALUES // width, 1)
        for start in range(0, max(batch.num_rows, 1), rows):
            yield self(batch.slice(start, rows))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with typed columns.

        Raises:
            RecordFormatError: A record is broken, and its side is not permissive.
            SchemaError: A replay's columns do not fit those of this start.
            RegistryError: The registry does not answer, or refuses.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        headers = columns.get("headers")
        broken: dict[Side, list[Broken]] = {}
        ids: dict[Side, pa.Array | None] = {}
        for reading in self._readings:
            side = reading.format.side
            named = None if headers is None else named_in(headers, ID_HEADERS[side])
            made = _typed(reading, columns[side], named)
            if made.broken and not reading.format.is_permissive:
                raise _error(batch, reading, made.broken[0])
            columns[side] = made.column
            broken[side] = made.broken
            ids[side] = None if self._include_headers else named
        if not self._include_headers:
            columns.pop("headers", None)
        rows = {each.row for found in broken.values() for each in found}
        for reading in self._readings:
            if reading.format.is_permissive:
                side = reading.format.side
                given = batch.column(side)
                null = pc.and_(given.is_valid(), columns[side].is_null())
                held = rows.union(pc.indices_nonzero(null).to_pylist())
                columns |= _beside(side, given, ids[side], broken[side], held)
        return pa.RecordBatch.from_arrays([*columns.values()], schema=self._schema)


def _typed(reading: _Reading, values: pa.Array, named: pa.Array | None) -> TypedColumn:
    """A column of this start's type.

    ``FAILFAST``: no try under the plan's schema gave out a record that it does not
    read, so this start's may read it.
    """
    made = reading.planned.typed(values, named)
    if reading.planned is reading.now:
        return made
    made = made._replace(column=_as_now(reading, made.column))
    if not made.broken or reading.format.is_permissive:
        return made
    rows = np.array([each.row for each in made.broken])
    again = reading.now.typed(
        values.take(pa.array(rows)),
        None if named is None else named.take(pa.array(rows)),
    )
    places = np.arange(len(values))
    places[rows] = len(values) + np.arange(len(rows))
    return TypedColumn(
        pa.concat_arrays([made.column, again.column]).take(pa.array(places)),
        [each._replace(row=int(rows[each.row])) for each in again.broken],
    )


def _as_now(reading: _Reading, given: pa.Array) -> pa.Array:
    try:
        return reshaped(given, reading.planned.column, reading.now.column)
    except SchemaError as error:
        planned = reading.planned.reader.name
        raise _planned_otherwise(reading.format, planned, error.message) from None


def _planned_otherwise(
    record_format: RecordFormat, planned: str, why: str
) -> SchemaError:
    """The error of a replay that this start's schema does not fit."""
    side, reader = str(record_format.side), record_format.reader
    others = {side: (planned, reader.name if reader else record_format.schema)}
    return SchemaError(f"{why}: {in_words(others)}. Nothing was written")


_of_process: dict[tuple[str, frozenset[tuple[str, str]], SchemaText], FramedColumn] = {}
_MOST_COLUMNS = 50


def _reading(record_format: RecordFormat, planned: str | None) -> _Reading:
    """What decodes a side in this process."""
    reader, settings = record_format.reader, record_format.registry
    assert reader is not None
    now = _decoding(record_format, reader)
    if planned is None or planned == reader.name:
        return _Reading(record_format, now, now)
    if not planned.isdecimal() or not settings:
        raise _planned_otherwise(
            record_format, planned, "the schema of the plan is not in a registry"
        )
    try:
        found = registry_of(settings).by_id(int(planned))
    except UnknownSchemaError as error:
        raise SchemaError(
            f"{error.message}, and the batch was planned with schema {planned} for"
            f" '{record_format.side}'. Register this schema again under its id, as"
            " docs/schemas.md shows, then start again. Nothing was written"
        ) from None
    except SchemaError as error:
        if not has_rule(error):
            raise
        raise SchemaError(
            f"{error.message}. An earlier version of kafka_tx planned the batch with"
            f" schema {planned} for '{record_format.side}', and applied no rule either:"
            " let that version end the batch, then start this one. Nothing was written"
        ) from None
    return _Reading(record_format, _decoding(record_format, found), now)


def _decoding(record_format: RecordFormat, reader: SchemaText) -> FramedColumn:
    settings = record_format.registry
    key = record_format.side, frozenset(settings.items()), reader
    if key not in _of_process:
        while len(_of_process) >= _MOST_COLUMNS:
            del _of_process[next(iter(_of_process))]
        writer = registry_of(settings).by_id if settings else None
        _of_process[key] = FramedColumn(column(reader), reader, writer)
    return _of_process[key]


def _beside(
    side: str,
    given: pa.Array,
    ids: pa.Array | None,
    broken: list[Broken],
    rows: Collection[int],
) -> dict[str, pa.Array]:
    """The columns that ``PERMISSIVE`` adds.

    ``rows`` have their bytes: those with a fault on either side, so that a dead letter
    is whole, and those whose value is Avro's null, which is no tombstone.
    ``ids`` come from headers that the batch does not keep.
    """
    errors: list[str | None] = [None] * len(given)
    bytes_: list[bytes | None] = [None] * len(given)
    for each in broken:
        errors[each.row] = _told(each)
    for row in rows:
        named = None if ids is None else ids[row].as_py()
        bytes_[row] = with_id(given[row].as_py(), named)
    return {
        side + ERROR: pa.array(errors, pa.string()),
        side + BYTES: pa.array(bytes_, pa.binary()),
    }


def _told(broken: Broken) -> str:
    named = "" if broken.schema_id is None else f"schema {broken.schema_id}: "
    return named + broken.reason


def _error(
    batch: pa.RecordBatch, reading: _Reading, broken: Broken
) -> RecordFormatError:
    topic, partition, offset = (
        batch.column(name)[broken.row].as_py()
        for name in ("topic", "partition", "offset")
    )
    side, planned, now = reading.format.side, reading.planned.reader, reading.now.reader
    also = own = ""
    change = " Set"
    if planned != now:
        also = (
            f" Schema {planned.name}, with which the batch was planned, does not read"
            " it either."
        )
    named = broken.schema_id
    if broken.has_rule:  # named by its id, or as the latest one, load() refuses it
        change = f" Set {side}.schema=id:{now.id} and" if now.id else " Set"
        own = f". Or set {side}.format=bytes and decode with Confluent's deserializer"
    elif named not in (None, now.id):
        other = f"id:{named}" if isinstance(named, int) else "latest"
        change = (
            f" If another schema than {now.name} reads the record, start again with it,"
            f" such as {side}.schema={other}, until the batch has ended. Otherwise set"
        )
    return RecordFormatError(
        f"the {side} of offset {offset} of {topic}-{partition} cannot be decoded:"
        f" {_told(broken)}.{also} Nothing of this batch was given out.{change}"
        f" {side}.mode=PERMISSIVE to get null for such a record, the reason in"
        f" '{side}{ERROR}' and its bytes in '{side}{BYTES}'; with_dead_letters writes"
        f" them to a topic{own}",
        topic=topic,
        partition=partition,
        offset=offset,
        schema_id=None if broken.schema_id is None else str(broken.schema_id),
        reason=broken.reason,
    )
