"""Values in SQLite, and what columns of other databases have no room for."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import types
from sqlalchemy.dialects import mysql, postgresql

from kafka_tx.errors import ConfigError
from kafka_tx.sql.values import check_fits, check_map, check_values
from tests.conformance.value_suite import ValueSuite


class TestSqlite(ValueSuite):
    has_nan = False

    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path}/values.db"


@pytest.mark.parametrize("key", ["k" * 1_025, "é" * 513, b"k" * 1_025])
def test_mysqls_keys_are_short(key):
    rows = pa.table({"key": [key[:-1], key], "value": [1, 1]})
    with pytest.raises(ConfigError, match="'key', row 1 .*102[56] bytes"):
        check_map(rows, "mysql")
    check_map(rows, "sqlite")
    check_map(rows.slice(0, 1), "mariadb")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_mysql_has_numbers_alone(value):
    with pytest.raises(ConfigError, match="mariadb has no such number"):
        check_values(pa.table({"x": [value]}), "mariadb")


CENTS, LONG = Decimal("0.25"), Decimal("1234567890.123456789")
SECOND = dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001
MICRO = SECOND.replace(microsecond=1)


@pytest.mark.parametrize(
    ("dialect", "kind", "kept", "changed"),
    [
        *(
            (dialect, kind, [SECOND.replace(microsecond=us)], [MICRO])
            for dialect, kind, us in (
                ("mariadb", mysql.DATETIME(), 0),
                ("mysql", mysql.TIMESTAMP(fsp=3), 999_000),
                ("postgresql", postgresql.TIMESTAMP(precision=0), 0),
                ("postgresql", postgresql.TIMESTAMP(precision=5), 999_990),
            )
        ),
        ("postgresql", postgresql.TIME(), [None], [MICRO]),
        ("mysql", mysql.FLOAT(), [0.5, 2**24], [0.1]),
        ("mysql", mysql.FLOAT(), [2**24, -(2**30)], [2**24 + 1]),
        ("mysql", mysql.FLOAT(), [CENTS, Decimal("1.1")], [LONG]),
        ("mysql", mysql.DOUBLE(10, 2), [1.25], [1.125]),
        ("mysql", mysql.INTEGER(), [3.0, None], [3.5]),
        ("mysql", mysql.TINYINT(), [Decimal("3.00")], [CENTS]),
        ("postgresql", types.BIGINT(), [-1e18, math.nan], [0.1]),
        ("postgresql", types.REAL(), [0.5, math.nan, math.inf], [0.1]),
        ("mysql", mysql.DECIMAL(10, 2), [42_514_964_408.77], [0.001]),
        ("postgresql", types.DOUBLE_PRECISION(), [2**53 - 1, 2**62], [2**53 + 1]),
        ("postgresql", types.DOUBLE_PRECISION(), [2**62], [2**63 - 1]),
        ("mysql", mysql.DOUBLE(), [CENTS, Decimal("123456.789012345")], [LONG]),
    ],
)
def test_what_a_column_of_others_would_change_is_refused(dialect, kind, kept, changed):
    def check(values):
        check_fits(pa.table({"x": pa.array(values)}), {"x": kind}, dialect)

    check(kept)
    with pytest.raises(ConfigError, match=r"'x', row 1 .*would change it"):
        check([kept[0], *changed])


@pytest.mark.parametrize(
    ("dialect", "kind"),
    [
        ("mariadb", mysql.DATETIME(fsp=6)),
        ("postgresql", postgresql.TIMESTAMP()),
        ("postgresql", postgresql.TIMESTAMP(precision=6)),
        ("oracle", types.DateTime()),
        ("mssql", types.FLOAT()),
    ],
)
def test_what_a_column_of_others_keeps_is_taken(dialect, kind):
    value = 0.1 if isinstance(kind, types.FLOAT) else MICRO
    check_fits(pa.table({"x": [None, value]}), {"x": kind}, dialect)


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_a_zone_changes_no_fraction(zone):
    times = pa.array([-1_000_000, 0, None, 10**15], pa.timestamp("us", zone))
    check_fits(pa.table({"x": times}), {"x": mysql.DATETIME()}, "mysql")


@given(st.integers(-(10**12), 10**12), st.integers(0, 4))
def test_a_double_of_few_digits_fits_a_column_with_as_many(digits, scale):
    rows = pa.table({"x": [float(f"{digits}e-{scale}")]})
    check_fits(rows, {"x": mysql.DECIMAL(20, scale)}, "mysql")
