"""The newest timestamp of what a task has read."""

import sys

import pyarrow as pa
import pytest

from kafka_tx.spark.source.ranges import _newest_ms

MICROS = pa.timestamp("us", "UTC")


def batch(times_us):
    return pa.record_batch([pa.array(times_us, MICROS)], names=["timestamp"])


@pytest.mark.parametrize("with_numpy", [True, False])
@pytest.mark.parametrize("rows", [1, 10, 1_000, 1_001, 20_000])
def test_the_greatest_of_any_number_of_rows_counts(monkeypatch, rows, with_numpy):
    import numpy

    monkeypatch.setitem(sys.modules, "numpy", numpy if with_numpy else None)
    times = [5_000] * rows
    times[rows // 2] = 7_000_999

    assert _newest_ms(batch(times), None) == 7_000
    assert _newest_ms(batch(times), 6_999) == 7_000
    assert _newest_ms(batch(times), 7_001) == 7_001


def test_only_the_rows_of_a_slice_count():
    times = [9_000_000] * 2_000 + [3_000_000] * 2_000 + [9_000_000] * 2_000

    assert _newest_ms(batch(times).slice(2_000, 2_000), None) == 3_000


@pytest.mark.parametrize("times", [[], [None], [-1_000], [None] * 2_000])
def test_records_without_a_timestamp_leave_what_is_known(times):
    assert _newest_ms(batch(times), None) is None
    assert _newest_ms(batch(times), 4) == 4


def test_rows_without_a_timestamp_are_left_out():
    assert _newest_ms(batch([None, 8_000, None]), None) == 8
