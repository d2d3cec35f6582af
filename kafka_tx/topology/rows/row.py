"""The rows that bolts are given: tuples whose fields have names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.rows.blocks import Block, columns_of
from kafka_tx.topology.rows.fields import TX, Fields


class Row(tuple[Any, ...]):
    """One row of a stream: a tuple, its fields also by name.

    In a transactional topology field 0 is ``tx``, the attempt. A field is reached as
    ``row[1]``, ``row.word`` or ``row._get("word")``. All other attributes begin with
    an underscore, as in named tuples, so that no attribute hides a field.

    Attributes:
        _fields: Names of all fields, ``tx`` included.
        _source: The component that emitted the row.
        _stream: The stream it was emitted on.
    """

    __slots__ = ()

    _fields: ClassVar[tuple[str, ...]] = ()
    _source: ClassVar[str] = ""
    _stream: ClassVar[str] = ""

    def _get(self, name: str) -> Any:  # noqa: ANN401 - a field holds anything
        """The field of that name; also for names that are no Python identifiers.

        Raises:
            KeyError: There is no such field; names the existing ones.
        """
        if name not in self._fields:
            message = f"no field {name!r}; there are {', '.join(self._fields)}"
            raise KeyError(message)
        return self[self._fields.index(name)]

    def _asdict(self) -> dict[str, Any]:
        """All fields by name, in order."""
        return dict(zip(self._fields, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._source, self._stream, self._fields, tuple(self))

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
        return f"Row({pairs})"

    if TYPE_CHECKING:
        # A field may have the name of a method of tuples, and then hides it.
        count: Any
        index: Any

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a field holds anything
            """Fields are attributes."""


@lru_cache(maxsize=1024)
def row_class(source: str, stream: str, names: tuple[str, ...]) -> type[Row]:
    """The row class of one stream; call it with an iterable of all its values."""
    members: dict[str, Any] = {
        name: property(itemgetter(position), doc=f"Field {position}.")
        for position, name in enumerate(names)
        if not name.startswith("_")
    }
    members |= {"__slots__": (), "_fields": names}
    return type("Row", (Row,), members | {"_source": source, "_stream": stream})


def rows_for(
    source: str, stream: str, fields: Fields, block: Block, attempt: TransactionAttempt
) -> Iterable[Row]:
    """The rows of a block as bolts see them: named, the attempt first."""
    kind = row_class(source, stream, (TX, *fields.names))
    if isinstance(block, pa.RecordBatch):
        return map(kind, zip(repeat(attempt), *columns_of(block)))
    return [kind((attempt, *row)) for row in block]


def _rebuild(
    source: str, stream: str, names: tuple[str, ...], values: tuple[Any, ...]
) -> Row:
    return row_class(source, stream, names)(values)
