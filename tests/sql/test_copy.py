"""The text of PostgreSQL's COPY; real servers read it in ``integration``."""

from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from kafka_tx.sql.merge import copy_rows


def copied(rows):
    connection = MagicMock()
    connection.dialect.loaded_dbapi.Error = OSError
    cursor = connection.connection.driver_connection.cursor().__enter__()
    copy_rows(connection, "t", rows)
    return bytes(cursor.copy().__enter__().write.call_args[0][0])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_are_copied_as_digits_whatever_their_type(kind):
    rows = pa.table({"x": pa.array([b"C:\\\\x", rb"\101", b"", None], kind)})
    found = copied(rows).split(b"\n")
    assert found[:3] == [rb'"\x433a5c5c78"', rb'"\x5c313031"', rb'"\x"']
    assert found[3] == b""
