"""The newest timestamp of what a task reads."""

import sys

import numpy
import pyarrow as pa
import pytest

from kafka_tx.spark.source.ranges import _newest_ms

STAMP = pa.timestamp("us", tz="UTC")


def batch(*milliseconds):
    times = [None if ms is None else ms * 1_000 for ms in milliseconds]
    return pa.RecordBatch.from_arrays([pa.array(times, STAMP)], ["timestamp"])


@pytest.mark.parametrize("with_numpy", [True, False])
@pytest.mark.parametrize(
    ("times", "before", "newest"),
    [
        ([5, 9, 7], None, 9),
        ([5], 9, 9),
        ([], 9, 9),
        ([-1, -1], None, None),
        ([None, 5], None, 5),
        ([None], None, None),
        (range(1_000), None, 999),
        (range(20_000), None, 19_999),
        ([None, *range(20_000)], None, 19_999),
    ],
)
def test_it_is_found_whatever_stands_beside_it(
    monkeypatch, times, before, newest, with_numpy
):
    monkeypatch.setitem(sys.modules, "numpy", numpy if with_numpy else None)

    assert _newest_ms(batch(*times), before) == newest


def test_a_slice_is_measured_without_the_rest_of_its_batch():
    assert _newest_ms(batch(9, 5, 6, 8).slice(1, 2), None) == 6
    assert _newest_ms(batch(9, *range(2_000), 9_000).slice(1, 2_000), None) == 1_999
