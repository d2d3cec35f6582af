"""A scheme for records with an Avro schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx.config import (
    RecordFormat,
    Side,
    check_kind,
    legal_schema,
    registry_settings,
)
from kafka_tx.errors import ConfigError
from kafka_tx.record_schema import BYTES, ERROR
from kafka_tx.schemas.columns import Kind, Slot
from kafka_tx.schemas.readers import column, reader_schema
from kafka_tx.schemas.typed_batches import TypedBatches
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.rows.schemes import Decoded

_VALUE: Side = "value"
_ADDED = (_VALUE + ERROR, _VALUE + BYTES)


class AvroScheme:
    """The fields of an Avro record; of another type the one field ``value``.

    Each record is decoded with the schema that it names and resolved into the reader's
    schema, which is fetched once, where the scheme is made. A record whose value is
    null gives no row. Spouts read headers for it, which may name schemas.

    With ``FAILFAST`` a broken record is an error: in an at-least-once topology it fails
    alone, in a transactional one it stops the topology. With ``PERMISSIVE`` its fields
    are null, and two more fields have the reason and the bytes: ``value_error`` and
    ``value_bytes``. A record that holds Avro's null has its bytes, too, and no reason.

    A transactional topology that is started again under a newer ``latest`` decodes an
    unfinished batch with the newer one: name a version or an id there.

    Args:
        schema: ``latest``, a version, ``id:N``, ``@`` and a file, or a text.
        subject: Whose ``latest`` or version it is, such as ``orders-value``.
        registry: The options ``schema.registry.*``; empty: records have no schema id.
        mode: See above.

    Raises:
        ConfigError: An argument is illegal, or the schema has no columns.
        RegistryError: The schema registry does not answer, or refuses the client.
    """

    def __init__(
        self,
        schema: str = "latest",
        *,
        subject: str = "",
        registry: Mapping[str, str] | None = None,
        mode: Literal["FAILFAST", "PERMISSIVE"] = "FAILFAST",
    ) -> None:
        check_kind("registry", registry or {}, Mapping, "options schema.registry.*")
        if mode not in ("FAILFAST", "PERMISSIVE"):
            raise ConfigError.illegal("mode", mode, "FAILFAST, PERMISSIVE")
        settings = registry_settings(registry or {})
        word = legal_schema("schema", schema, has_registry=bool(settings))
        if not subject and (word == "latest" or word.isdecimal()):
            raise ConfigError.illegal(
                "subject", subject, "the subject in the registry, such as orders-value"
            )
        asked = RecordFormat(
            side=_VALUE,
            schema=word,
            subject=subject,
            is_permissive=mode == "PERMISSIVE",
            registry=settings,
        )
        self.__setstate__(replace(asked, reader=reader_schema(asked)))

    def __getstate__(self) -> RecordFormat:
        return self._format

    def __setstate__(self, given: RecordFormat) -> None:
        self._format = given
        self._types: TypedBatches | None = None

    def __repr__(self) -> str:
        return f"AvroScheme({self._format!r})"

    @property
    def fields(self) -> Fields:
        """The record's fields with their types, then those of ``PERMISSIVE``."""
        slot = self._slot
        names, types = [str(_VALUE)], [slot.arrow]
        if slot.kind is Kind.STRUCT:
            names = [each.name for each in slot.arrow]
            types = [each.type for each in slot.arrow]
        if self._format.is_permissive:
            names += _ADDED
            types += [pa.string(), pa.binary()]
        return Fields(tuple(names), tuple(types))

    @property
    def reads_headers(self) -> bool:
        """Whether records may name their schemas in headers."""
        return bool(self._format.registry)

    @property
    def _slot(self) -> Slot:
        assert self._format.reader is not None
        return column(self._format.reader)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """One row for each record that has a value.

        Raises:
            RecordFormatError: A record is broken, and the mode is ``FAILFAST``.
            RegistryError: The schema registry does not answer, or refuses.
        """
        if self._types is None:
            self._types = TypedBatches((self._format,), False, {})
        given, kept = batch.column(_VALUE), None
        if given.null_count:
            kept = pc.indices_nonzero(given.is_valid()).cast(pa.int64())
            batch = batch.take(kept)
        typed = self._types(batch)
        made = typed.column(_VALUE)
        columns = made.flatten() if self._slot.kind is Kind.STRUCT else [made]
        if self._format.is_permissive:
            columns += [typed.column(name) for name in _ADDED]
        names = list(self.fields.names)
        return Decoded(pa.RecordBatch.from_arrays(columns, names=names), kept)
