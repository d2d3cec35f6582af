"""Streaming writers: Spark 4.1 hands over Arrow record batches, 4.0 only rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

    StreamWriter = DataSourceStreamWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamWriter
    except ImportError:  # Spark 4.0
        StreamWriter = DataSourceStreamWriter

__all__ = ["StreamWriter", "record_batches"]

_ROWS = 10_000
"""In one record batch, as many as Spark's own default."""


def record_batches(given: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """What a task is to write, as record batches (executor)."""
    if StreamWriter is DataSourceStreamWriter:
        return _batches_of(given)
    return iter(given)


def _batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    left = iter(rows)
    while some := [row.asDict(recursive=True) for row in islice(left, _ROWS)]:
        yield pa.RecordBatch.from_pylist(some)
