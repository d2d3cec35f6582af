"""Makes Kafka records from a topology's rows: by which fields, and for which topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TypeAlias

import pyarrow as pa

from kafka_tx.config import check_kind
from kafka_tx.errors import ConfigError
from kafka_tx.topology.rows.row import Row


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """The Kafka record that a mapper makes of a row; text is written as UTF-8.

    Attributes:
        partition: None: the key decides.
        timestamp_ms: None: the time of writing. 0 is refused: Kafka's client takes it
            for none.
    """

    value: str | bytes | None
    key: str | bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FieldMapper:
    """Takes key and value of a record from fields.

    A missing key field is a null key; a missing value field is an error.

    Attributes:
        key: Name of the key's field, of text or bytes.
        value: Name of the value's field, of text or bytes.

    Source: Storm, FieldNameBasedTupleToKafkaMapper (deviates: ``value``, as Spark's
    sink and our schemes have it, where Storm has ``message``).
    """

    key: str = "key"
    value: str = "value"

    def __post_init__(self) -> None:
        check_kind("key", self.key, str, "the name of a field")
        check_kind("value", self.value, str, "the name of a field")

    def __call__(self, row: Row) -> KafkaMessage:
        """The record of a row.

        Raises:
            ConfigError: The row has no such field.
        """
        if self.value not in row._fields:
            raise self._missing(row._fields)
        key = row._get(self.key) if self.key in row._fields else None
        return KafkaMessage(row._get(self.value), key)

    def columns(self, batch: pa.RecordBatch) -> tuple[pa.Array | None, pa.Array]:
        """Keys, if the key field exists, and values of many rows.

        Raises:
            ConfigError: The rows have no value field.
        """
        names = batch.schema.names
        if self.value not in names:
            raise self._missing(tuple(names))
        key = batch.column(self.key) if self.key in names else None
        return key, batch.column(self.value)

    def _missing(self, fields: tuple[str, ...]) -> ConfigError:
        return ConfigError.illegal(
            "value", self.value, f"a field of the rows ({', '.join(fields)})"
        )


@dataclass(frozen=True, slots=True)
class FieldTopic:
    """Takes the topic of a record from a field.

    Attributes:
        field: Its name, or its index in the row (0 is ``tx`` in a transactional
            topology).
        default: The topic of rows that have no such field.

    Source: Storm, FieldNameTopicSelector and FieldIndexTopicSelector.
    """

    field: str | int
    default: str | None = None

    def __post_init__(self) -> None:
        legal = "the name of a field, or its index"
        check_kind("field", self.field, (str, int), legal)
        check_kind("default", self.default, (str, NoneType), "a topic, or None")

    def __call__(self, row: Row) -> str | None:
        """The topic of a row; None: the row is not written."""
        index = self.index(row._fields)
        topic = self.default if index is None else row[index]
        return None if topic is None else str(topic)

    def index(self, fields: Sequence[str]) -> int | None:
        """The index of the field; None if there is no such field."""
        if isinstance(self.field, int):
            return self.field if 0 <= self.field < len(fields) else None
        return list(fields).index(self.field) if self.field in fields else None


Mapper: TypeAlias = Callable[[Row], KafkaMessage]
TopicSelector: TypeAlias = str | Callable[[Row], str | None]
