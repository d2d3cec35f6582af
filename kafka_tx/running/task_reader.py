"""Reads Kafka in the tasks of both kinds of topologies.

Python supports only timestamps of the years 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.model import OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_FIRST_US, _LAST_US = (
    (t - _EPOCH) // timedelta(microseconds=1) for t in (_FIRST, _LAST)
)


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Opens the fastest reader that the task's machine has, not the driver's.

    A timestamp that Python does not support is null.
    """

    config: SourceConfig

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """See ``protocols.RangeReader``."""
        reader = assembly.range_reader(self.config)
        yield from map(with_python_times, reader.read(wanted))


def with_python_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with null for timestamps that Python does not support."""
    column = batch.column("timestamp")
    times = column.view(pa.int64())
    bounds = pc.min_max(times).as_py()
    if bounds["min"] is None or all(map(_is_shown, bounds.values())):
        return batch
    shown = pa.array(map(_is_shown, times.to_pylist()), pa.bool_())
    index = batch.schema.get_field_index("timestamp")
    shown_times = pc.if_else(shown, column, pa.scalar(None, column.type))
    return batch.set_column(index, batch.schema.field(index), shown_times)


def _is_shown(time_us: int | None) -> bool:
    return time_us is not None and _FIRST_US <= time_us <= _LAST_US
