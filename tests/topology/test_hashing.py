import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.topology.declare.groupings import hash_columns, hash_value, hash_values

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)


@pytest.mark.parametrize(
    "strategy",
    [
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.text(),
        st.binary(),
        st.booleans(),
        st.dates(),
        st.datetimes(),
        st.decimals(allow_nan=False, allow_infinity=False, places=3, max_value=10**9),
        st.lists(st.integers(0, 9), max_size=3),
    ],
)
def test_a_column_hashes_as_its_values_do(strategy):
    @given(st.lists(strategy | st.none(), min_size=1, max_size=20))
    def check(values):
        column = pa.array(values)
        expected = [hash_values((value,)) for value in values]
        assert hash_columns([column]).tolist() == expected

    check()


@given(st.lists(st.tuples(SCALARS, SCALARS), min_size=1, max_size=10))
def test_several_fields_hash_together_and_in_order(rows):
    for row in rows:
        assert hash_values(row) == hash_values(tuple(row))
        if hash_value(row[0]) != hash_value(row[1]):
            assert hash_values(row) != hash_values(row[::-1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (2, Decimal("2.00")),
        (0.5, Decimal("0.5")),
        (Decimal("1.10"), Decimal("1.1")),
        (7, np.int32(7)),
        (1.5, np.float64(1.5)),
        (b"a", bytearray(b"a")),
        (Decimal("sNaN"), float("nan")),
        ((1, 2), [1, 2]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (
            datetime(2020, 1, 1, 12, tzinfo=UTC),
            datetime(2020, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        ),
    ],
)
def test_equal_values_hash_equally(one, other):
    assert hash_value(one) == hash_value(other)


@pytest.mark.parametrize("digits", [4_300, 4_301, 5_000])
def test_numbers_that_are_too_long_for_a_text_are_hashed(digits):
    """Python makes no text of an integer of more than 4,300 digits."""
    number = 10 ** (digits - 1)

    hashes = [hash_value(each) for each in (number, -number, number + 1)]

    assert len(set(hashes)) == 3
    assert hashes[:2] == [hash_value(Decimal(each)) for each in (number, -number)]


def test_a_number_that_is_too_large_for_an_int_is_hashed():
    one, other = Decimal("1e999999999"), Decimal("10e999999998")

    assert hash_value(one) == hash_value(other)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 200], pa.int16()),
        pa.array([1, 2, 200], pa.uint64()),
        pa.array([1, 2, 200], pa.float64()),
        pa.array([1, 2, 200], pa.decimal128(9, 2)),
        pa.array([1, 2, 200]).dictionary_encode(),
    ],
)
def test_the_type_of_a_column_does_not_matter(column):
    assert hash_columns([column]).tolist() == [hash_values((n,)) for n in (1, 2, 200)]


def test_text_columns_of_any_encoding_hash_alike():
    words = ["the", "", "quick", None, "ünïcode"]
    plain = hash_columns([pa.array(words)])

    assert (hash_columns([pa.array(words, pa.large_string())]) == plain).all()
    assert (hash_columns([pa.array(words).dictionary_encode()]) == plain).all()


def test_slices_hash_as_the_rows_they_hold():
    column = pa.array([f"k{n % 3}" for n in range(10)])

    whole = hash_columns([column])

    assert (hash_columns([column.slice(3, 4)]) == whole[3:7]).all()


def test_nanosecond_times_and_huge_numbers_have_a_hash():
    ns = pa.array([1_600_000_000_123_456_789], pa.timestamp("ns"))
    micros = datetime(2020, 9, 13, 12, 26, 40, 123456, UTC)

    assert hash_columns([ns]).tolist() == [hash_values((micros,))]
    assert hash_value(2**200) == hash_value(2**200)
    assert hash_value(2**200) != hash_value(2**201)
    assert hash_columns([pa.array([2**64 - 1], pa.uint64())]).tolist() == [
        hash_values((2**64 - 1,))
    ]


@pytest.mark.parametrize(
    "value",
    [time(1, 2), UUID(int=5), date(2020, 1, 1), timedelta(1), Decimal("NaN"), 1e300],
)
def test_every_legal_type_has_a_64_bit_hash(value):
    assert 0 <= hash_value(value) < 2**64


def test_a_value_without_a_stable_form_is_refused():
    with pytest.raises(TypeError, match="cannot be grouped by a value of type set"):
        hash_value({1, 2})


def test_the_hash_is_the_same_in_another_process_with_another_salt():
    script = (
        "from kafka_tx.topology.declare.groupings import hash_values;"
        "print(hash_values(('word', 7, None, 1.5, b'x')))"
    )

    runs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert runs == {str(hash_values(("word", 7, None, 1.5, b"x")))}


def test_keys_spread_evenly_over_tasks():
    hashes = hash_columns([pa.array([f"key-{n}" for n in range(30_000)])])

    for tasks in (2, 3, 4, 5, 8):
        counts = np.bincount((hashes % np.uint64(tasks)).astype(int))
        assert counts.min() > 0.95 * 30_000 / tasks
