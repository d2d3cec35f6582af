"""Times that Python cannot show."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.kafka.dead_letter_form import FIRST_MS, LAST_MS, TIME, time_of, timed
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.running.at_least_once.dead_letters import records_of
from kafka_tx.running.task_reader import with_python_times
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


@pytest.mark.parametrize("beyond", [YEAR_0_US, LAST_US + 1, 2**63 - 1, -(2**63) + 1])
def test_dead_letters_know_each_time(beyond):
    times = [
        record.timestamp_ms for _, record in records_of(batch(5_000, beyond, None))
    ]
    assert times == [5, beyond // 1_000, None]


@pytest.mark.parametrize("time_ms", [1, -1, -1_500, FIRST_MS, LAST_MS, None])
def test_a_time_that_can_be_written_needs_no_header(time_ms):
    assert timed(time_ms) == (time_ms, [])
    assert time_of({}, time_ms) == time_ms


@pytest.mark.parametrize("time_ms", [0, FIRST_MS - 1, LAST_MS + 1, -(2**63)])
def test_a_time_that_cannot_be_written_stands_in_a_header(time_ms):
    written, [(name, value)] = timed(time_ms)
    assert (written, name) == (None, TIME)
    assert value is not None
    assert time_of({name: value.decode()}, 5) == time_ms


def test_a_header_that_is_no_time_changes_none():
    assert time_of({TIME: "yesterday"}, 5) == 5


def milliseconds(column, zone=None):
    value = pa.array(["v"] * len(column))
    return OutBatch.of("t", value, timestamp=column, zone=zone).columns["timestamp"]


@pytest.mark.parametrize(
    ("zone", "hours"),
    [
        ("UTC", 0),
        ("Z", 0),
        ("+08:00", 8),
        ("UTC+8", 8),
        ("GMT-3:30", -3.5),
        ("UT+1", 1),
    ],
)
def test_a_zone_may_be_an_offset(zone, hours):
    noon = pa.array([43_200_000_001, None], pa.timestamp("us"))
    expected = [43_200_000 - int(hours * 3_600_000), None]
    assert milliseconds(noon, zone).to_pylist() == expected


@pytest.mark.parametrize("zone", [None, "", "PST", "nowhere", "../etc", "+99:00"])
def test_an_unknown_zone_is_refused_with_the_cast(zone):
    with pytest.raises(ConfigError, match="Cast it in the query"):
        milliseconds(pa.array([1], pa.timestamp("us")), zone)


def test_a_time_beyond_the_years_of_python_is_refused_with_the_cast():
    with pytest.raises(ConfigError, match="years 1 to 9999"):
        milliseconds(pa.array([LAST_US + 1], pa.timestamp("us")), "UTC")
