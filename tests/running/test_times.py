"""Times that Python cannot show."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_tx.running.task_reader import milliseconds, with_python_times
from kafka_tx.topology.rows.schemes import MetadataScheme, RecordScheme

YEAR_0_US = -62_135_596_800_000_001
LAST_US = 253_402_300_799_999_999


def batch(*times_us):
    count = len(times_us)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([None] * count, pa.binary()),
            pa.array([b"v"] * count, pa.binary()),
            pa.array(["t"] * count),
            pa.array([0] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array(times_us, pa.int64()).view(pa.timestamp("us", tz="UTC")),
            pa.array([0] * count, pa.int32()),
        ],
        names=[
            *("key", "value", "topic", "partition", "offset", "timestamp"),
            "timestampType",
        ],
    )


@pytest.mark.parametrize("beyond", [YEAR_0_US, LAST_US + 1, 2**63 - 1, -(2**63) + 1])
def test_what_python_cannot_show_is_null(beyond):
    shown = with_python_times(batch(5_000, beyond, LAST_US, None))

    assert shown["timestamp"].is_null().to_pylist() == [False, True, False, True]
    assert shown.schema == batch(1).schema
    assert milliseconds(batch(5_000, beyond)) == [5, None]
    shown.to_pylist()


def test_a_batch_without_such_times_is_handed_on_as_it_is():
    plain = batch(0, LAST_US)
    assert with_python_times(plain) is plain


@pytest.mark.parametrize(
    "scheme",
    [MetadataScheme(), RecordScheme(lambda r: [(r.timestamp,)], "at timestamp")],
)
def test_schemes_make_rows_of_them(scheme):
    decoded = scheme.decode(with_python_times(batch(5_000, LAST_US + 1)))
    rows = decoded.rows
    if isinstance(rows, pa.RecordBatch):
        rows = rows.to_pylist()
    assert len(rows) == 2
