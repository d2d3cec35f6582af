"""Schemes: from Kafka's records to a spout's rows, whole record batches at a time.

Schemes get the columns of Spark's Kafka source: ``key, value`` (binary, nullable),
``topic, partition, offset, timestamp, timestampType[, headers]``.

A scheme may make no row of a record, or several. Tombstones (null values) make no row
by default; their offsets are processed nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx.errors import ConfigError
from kafka_tx.topology.rows.blocks import Block, conform, to_batch
from kafka_tx.topology.rows.declared_values import ValueCheck
from kafka_tx.topology.rows.fields import Fields, FieldsLike
from kafka_tx.topology.rows.row import Row, row_class

_KAFKA = "kafka"

_RAW = Fields(("bytes",), (pa.binary(),))
_TEXT = Fields(("str",), (pa.string(),))
_METADATA = Fields(
    ("topic", "partition", "offset", "timestamp"),
    (pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", tz="UTC")),
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows that a scheme has made from a record batch.

    Attributes:
        rows: In the order of their records.
        records: For each row the index of its record in the given batch; None when
            there is exactly one row for each record, in order.
    """

    rows: Block
    records: pa.Array | None = None


class Scheme(Protocol):
    """Makes rows from records. Pickled; called in tasks, for batch after batch."""

    @property
    def fields(self) -> Fields:
        """The fields of the rows, without ``tx``."""

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """The rows of these records; the same records give the same rows."""


def reads_headers(scheme: object) -> bool:
    """Whether a scheme, or one inside of it, asks for the records' headers."""
    inner = getattr(scheme, "inner", None)
    asks = bool(getattr(scheme, "reads_headers", False))
    return asks or (inner is not None and reads_headers(inner))


@dataclass(frozen=True, slots=True)
class RawScheme:
    """The unchanged value; field ``bytes``. Source: Storm, RawMultiScheme."""

    fields: Fields = _RAW

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """One row for each record that has a value."""
        return _present(batch, [batch.column("value")], self.fields)


@dataclass(frozen=True, slots=True)
class StringScheme:
    """The value as text; bytes that are not UTF-8 become U+FFFD. Field ``str``.

    Source: Storm, StringScheme.
    """

    fields: Fields = _TEXT

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """One row for each record that has a value."""
        return _present(batch, [as_text(batch.column("value"))], self.fields)


@dataclass(frozen=True, slots=True)
class KeyValueScheme:
    """Key and value; the key is null if the record has none.

    Args:
        text: Whether they are UTF-8 text (the default) or stay bytes.

    Source: Storm, StringKeyValueScheme (deviates: two fields instead of a map).
    """

    text: bool = True

    @property
    def fields(self) -> Fields:
        """``key``, ``value``."""
        kind = pa.string() if self.text else pa.binary()
        return Fields(("key", "value"), (kind, kind))

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """One row for each record that has a value."""
        columns = [batch.column("key"), batch.column("value")]
        if self.text:
            columns = [as_text(column) for column in columns]
        return _present(batch, columns, self.fields)


@dataclass(frozen=True, slots=True)
class MetadataScheme:
    """Another scheme's fields, then topic, partition, offset, timestamp.

    Source: Storm, StringMessageAndMetadataScheme.
    """

    inner: Scheme = StringScheme()

    @property
    def fields(self) -> Fields:
        """The inner fields and the metadata; typed if the inner ones are."""
        inner = self.inner.fields
        if inner.types is None:
            return Fields(inner.names + _METADATA.names)
        assert _METADATA.types is not None
        return Fields(inner.names + _METADATA.names, inner.types + _METADATA.types)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """The inner rows, each with the metadata of its record."""
        inner = self.inner.decode(batch)
        rows = to_batch(inner.rows, self.inner.fields, _KAFKA)
        about = batch.select(list(_METADATA.names))
        if inner.records is not None:
            about = about.take(inner.records)
        columns = [*rows.columns, *about.columns]
        names = [*rows.schema.names, *_METADATA.names]
        return Decoded(pa.RecordBatch.from_arrays(columns, names=names), inner.records)


class FunctionScheme:
    """A function of yours from a record batch to a record batch.

    Args:
        function: Given the columns of Kafka's records; returns the declared fields as
            columns: one row for each record, in order, unless it also returns, as the
            second of a tuple, the index of each row's record.
        fields: The fields that it returns.
    """

    def __init__(self, function: Callable[..., Any], fields: FieldsLike) -> None:
        self._function = function
        self.fields = Fields.parse(fields)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """The result of the function.

        Raises:
            ConfigError: The result has other columns or types than declared.
            ValueError: There is not one row for each record, and no index names the
                record of each row.
        """
        made = self._function(batch)
        rows, records = made if isinstance(made, tuple) else (made, None)
        if records is None and rows.num_rows != batch.num_rows:
            message = (
                f"the scheme made {rows.num_rows} rows of {batch.num_rows} records;"
                " return (rows, index of each row's record) as well"
            )
            raise ValueError(message)
        index = None if records is None else pa.array(records, pa.int64())
        return Decoded(conform(rows, self.fields, _KAFKA), index)


class RecordScheme:
    """A function of yours from one record to its rows; the easy way, and the slow one.

    Args:
        function: Given a record as a row (``record.value``, ``record.offset``, …);
            returns tuples with one value for each field; no tuple, or None, for no row.
        fields: The fields of the tuples.
    """

    def __init__(
        self,
        function: Callable[[Row], Iterable[Sequence[Any]] | None],
        fields: FieldsLike,
    ) -> None:
        self._function = function
        self.fields = Fields.parse(fields)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """The rows of all records.

        Raises:
            ConfigError: A row does not have the declared fields.
        """
        kind = row_class(_KAFKA, "default", tuple(batch.schema.names))
        check = ValueCheck(_KAFKA, self.fields)
        rows: list[tuple[Any, ...]] = []
        counts = []
        for record in map(kind, zip(*batch.to_pydict().values(), strict=True)):
            made = [tuple(row) for row in self._function(record) or ()]
            for row in made:
                self._check_width(row)
                check(row)
            rows += made
            counts.append(len(made))
        records = np.repeat(np.arange(len(counts)), counts)
        return Decoded(rows, pa.array(records, pa.int64()))

    def _check_width(self, row: tuple[Any, ...]) -> None:
        if len(row) != len(self.fields):
            raise ConfigError(
                f"the scheme made a row of {len(row)} values; legal: one for each of"
                f" the {len(self.fields)} declared fields ({self.fields})",
                option="scheme",
            )


def as_text(column: pa.Array) -> pa.Array:
    """Bytes as UTF-8 text; illegal bytes become U+FFFD, null stays null."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        values = (
            None if value is None else value.decode("utf-8", "replace")
            for value in column.to_pylist()
        )
        return pa.array(list(values), pa.string())


def _present(batch: pa.RecordBatch, columns: list[pa.Array], fields: Fields) -> Decoded:
    """These columns as rows, without the records whose value is null."""
    rows = pa.RecordBatch.from_arrays(columns, names=list(fields.names))
    value = batch.column("value")
    if not value.null_count:
        return Decoded(rows)
    kept = pc.indices_nonzero(value.is_valid()).cast(pa.int64())
    return Decoded(rows.take(kept), kept)
