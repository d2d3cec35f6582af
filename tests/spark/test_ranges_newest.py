"""The newest timestamp of what a task reads."""

import pyarrow as pa
import pytest

from kafka_tx.spark.source.ranges import _newest_ms

STAMP = pa.timestamp("us", tz="UTC")


def batch(*milliseconds):
    times = [None if ms is None else ms * 1_000 for ms in milliseconds]
    return pa.RecordBatch.from_arrays([pa.array(times, STAMP)], ["timestamp"])


@pytest.mark.parametrize(
    ("times", "before", "newest"),
    [
        ([5, 9, 7], None, 9),
        ([5], 9, 9),
        ([], 9, 9),
        ([-1, -1], None, None),
        ([None, 5], None, 5),
        ([None], None, None),
        (range(20_000), None, 19_999),
    ],
)
def test_it_is_found_whatever_stands_beside_it(times, before, newest):
    assert _newest_ms(batch(*times), before) == newest


def test_a_slice_is_looked_at_alone():
    assert _newest_ms(batch(9, 5, 6, 8).slice(1, 2), None) == 6
