"""Blocks: the form of rows between components, as Arrow or as plain tuples.

A block never holds the ``tx`` column: a task runs one attempt, so the attempt is put
before the values only when a bolt is given the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.rows.fields import TX, TX_TYPE, DeclarationError, Fields

Rows: TypeAlias = list[tuple[Any, ...]]
"""Rows as plain tuples of their values."""

Block: TypeAlias = "pa.RecordBatch | Rows"
"""Some rows of one stream, in order: an Arrow record batch or plain tuples."""

_MEASURED = {str, bytes, bytearray}


def size(block: Block) -> int:
    """Number of rows."""
    return block.num_rows if isinstance(block, pa.RecordBatch) else len(block)


def pieces(block: Block, rows: int) -> Iterator[Block]:
    """The block cut into pieces of at most that many rows; nothing is copied twice."""
    total = size(block)
    if total <= rows:
        yield block
        return
    for start in range(0, total, rows):
        yield block[start : start + rows]


def select(block: Block, rows: npt.NDArray[np.int64]) -> Block:
    """These rows of a block, in that order."""
    if isinstance(block, pa.RecordBatch):
        return block.take(pa.array(rows))
    return [block[row] for row in rows]


MOST_BYTES = 8 << 20
"""Most bytes of rows that are sent together, estimated from their texts and bytes."""


def weight(block: Block) -> int:
    """The approximate number of bytes of a block that is sent."""
    if isinstance(block, pa.RecordBatch):
        return int(block.nbytes)
    return sum(
        len(value) for row in block for value in row if type(value) in _MEASURED
    ) + 8 * len(block)


def bounded(routed: Iterable[tuple[int, Block]]) -> Iterator[tuple[int, Block]]:
    """The same blocks, in parts of at most ``MOST_BYTES`` or of one row."""
    for task, block in routed:
        if size(block) == 1 or weight(block) <= MOST_BYTES:
            yield task, block
        else:
            halves = pieces(block, -(-size(block) // 2))
            yield from bounded((task, half) for half in halves)


def columns_of(batch: pa.RecordBatch) -> list[list[Any]]:
    """The columns as Python lists."""
    return [column.to_pylist() for column in batch.columns]


def to_rows(block: Block) -> Rows:
    """The block as plain tuples."""
    if not isinstance(block, pa.RecordBatch):
        return block
    return list(zip(*columns_of(block), strict=True))


def to_batch(block: Block, fields: Fields, source: str) -> pa.RecordBatch:
    """The block as Arrow, with the declared types, or with inferred ones if untyped.

    Raises:
        ConfigError: The values of a field do not have its declared type, or have no
            common type; names the component and the field.
    """
    if isinstance(block, pa.RecordBatch):
        return block
    columns = list(zip(*block, strict=True)) or [()] * len(fields)
    types = fields.types or (None,) * len(fields)
    arrays = [
        _array(values, kind, name, source)
        for values, kind, name in zip(columns, types, fields.names, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(fields.names))


def _array(
    values: tuple[Any, ...], kind: pa.DataType | None, name: str, source: str
) -> pa.Array:
    try:
        return pa.array(values, type=kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        wanted = f"values of type {kind}" if kind else "values of one common type"
        raise ConfigError(
            f"component '{source}' emitted values of field '{name}' that do not make an"
            f" Arrow column; legal: {wanted}. {error}",
            option=f"{source}.{name}",
        ) from error


def conform(batch: pa.RecordBatch, fields: Fields, source: str) -> pa.RecordBatch:
    """An emitted batch in its declared form: no ``tx``, declared order and types.

    Raises:
        DeclarationError: Columns are missing or not declared.
        ConfigError: A type cannot be cast.
    """
    names = tuple(name for name in batch.schema.names if name != TX)
    if sorted(names) != sorted(fields.names):
        raise DeclarationError(
            f"component '{source}' emitted an Arrow batch with the columns"
            f" {', '.join(names) or '(none)'}; legal: its declared fields"
            f" {', '.join(fields.names)}, with or without 'tx'.",
            option=source,
        )
    if tuple(batch.schema.names) != fields.names:
        batch = batch.select(list(fields.names))
    schema = fields.schema
    if schema is None or batch.schema.equals(schema):
        return batch
    try:
        return batch.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise ConfigError(
            f"component '{source}' emitted an Arrow batch of {batch.schema.types};"
            f" legal: its declared types {schema.types}. {error}",
            option=source,
        ) from error


def with_tx(batch: pa.RecordBatch, attempt: TransactionAttempt) -> pa.RecordBatch:
    """The batch with the attempt as its first column."""
    rows = batch.num_rows
    parts = [
        pa.repeat(pa.scalar(number, pa.int64()), rows)
        for number in (attempt.txid, attempt.attempt_id)
    ]
    tx = pa.StructArray.from_arrays(parts, fields=list(TX_TYPE))
    schema = batch.schema.insert(0, pa.field(TX, TX_TYPE))
    return pa.RecordBatch.from_arrays([tx, *batch.columns], schema=schema)
