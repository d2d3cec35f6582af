"""Timestamps of records; Python supports only the years 1 to 9999."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_US = int((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * _SECOND
_END_US = (
    int((datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH).total_seconds()) + 86_400
) * _SECOND


def with_python_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with null for timestamps that Python does not support."""
    column = batch.column("timestamp")
    bounds = pc.min_max(column.view(pa.int64())).as_py()
    if bounds["min"] is None or (_is_shown(bounds["min"]) and _is_shown(bounds["max"])):
        return batch
    shown = pa.array(
        [_is_shown(time) for time in column.view(pa.int64()).to_pylist()], pa.bool_()
    )
    index = batch.schema.get_field_index("timestamp")
    shown_times = pc.if_else(shown, column, pa.scalar(None, column.type))
    return batch.set_column(index, batch.schema.field(index), shown_times)


def milliseconds(batch: pa.RecordBatch) -> list[int | None]:
    """The records' times in ms since the Unix epoch; None if null or unsupported."""
    times = with_python_times(batch).column("timestamp").view(pa.int64()).to_pylist()
    return [None if time is None else time // 1_000 for time in times]


def _is_shown(time_us: int | None) -> bool:
    return time_us is not None and _FIRST_US <= time_us < _END_US
