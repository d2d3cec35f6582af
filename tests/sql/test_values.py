"""Values in SQLite, and what MySQL has no room for."""

import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.sql.values import check_map, check_values
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
