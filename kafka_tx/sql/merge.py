"""Writes one row for each key into a map's table, many rows with each statement.

Measured with batches of 100,000 keys into a table of a million (rows/s of processor
time, SQLite): one statement a row 0.1 M; ``executemany`` 0.1 M in arrival order, 0.3 M
in key order, 0.45 M in key order without rowids; a temporary table, or JSON, 0.4 M;
statements of 300 rows in key order 0.6 M and more. PostgreSQL (rows/s): ``executemany``
40 k, statements of 1,000 rows 75 k, ``unnest`` 185 k, COPY into a temporary table and
one statement from there 240 k.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.csv
import sqlalchemy as sa
from sqlalchemy import exc

from kafka_tx.sql.dialects import ROWS_PER_STATEMENT, LongText, chunks, upsert
from kafka_tx.sql.map_table import MapTable
from kafka_tx.sql.mysql import MYSQL
from kafka_tx.sql.reducers import MERGES

INCOMING = "kafka_tx_incoming"

_COMBINED = {
    "sum": "{old} + {new}",
    "max": "greatest({old}, {new})",
    "min": "least({old}, {new})",
    "last": "{new}",
}
_SQLITE_WORDS = {"greatest": "max", "least": "min"}
_OF_TEXTS = (
    "CASE WHEN {0}(CAST({{old}} AS BINARY), CAST({{new}} AS BINARY))"
    " = CAST({{old}} AS BINARY) THEN {{old}} ELSE {{new}} END"
)
"""By their bytes, as elsewhere: MySQL's collations fold case or trailing blanks."""


class _Insert:
    """The parts of an INSERT that merges, in the words of the dialect."""

    def __init__(
        self, connection: sa.Connection, to: MapTable, merge: str, txid: int
    ) -> None:
        dialect = connection.dialect
        self._quote = dialect.identifier_preparer.quote_identifier
        self._is_mysql = dialect.name in MYSQL
        self.table = self._quote(to.table.name)
        self.place = "?" if dialect.paramstyle == "qmark" else "%s"
        names = ["key", "value", *(["txid"] if to.has_txid else [])]
        self.head = f"INSERT INTO {self.table} ({', '.join(map(self._quote, names))})"
        self.txid = f", {txid:d}" if to.has_txid else ""
        combined = _COMBINED[merge]
        word, _, is_compared = combined.partition("(")
        is_text = isinstance(to.table.c.value.type, LongText)
        if self._is_mysql and is_compared and is_text:
            combined = _OF_TEXTS.format(word)
        if dialect.name == "sqlite":
            for word, other in _SQLITE_WORDS.items():
                combined = combined.replace(word, other)
        self.tail = self._tail(to, combined)

    def _tail(self, to: MapTable, combined: str) -> str:
        old, new = self._old("value"), self._new("value")
        merged = combined.format(old=old, new=new)
        changes = {}
        if to.is_opaque:  # first: MySQL assigns from left to right
            changes["previous"] = (
                f"CASE WHEN {self._old('txid')} = {self._new('txid')}"
                f" THEN {self._old('previous')} ELSE {old} END"
            )
            merged = merged if merged == new else f"coalesce({merged}, {new})"
        changes["value"] = merged
        if to.has_txid:
            changes["txid"] = self._new("txid")
        sets = ", ".join(
            f"{self._quote(name)} = {to_}" for name, to_ in changes.items()
        )
        if self._is_mysql:
            return f" ON DUPLICATE KEY UPDATE {sets}"
        return f" ON CONFLICT ({self._quote('key')}) DO UPDATE SET {sets}"

    def _old(self, name: str) -> str:
        return f"{self.table}.{self._quote(name)}"

    def _new(self, name: str) -> str:
        quoted = self._quote(name)
        return f"VALUES({quoted})" if self._is_mysql else f"excluded.{quoted}"


_Writer = Callable[[sa.Connection, MapTable, pa.Table, _Insert], None]


def merge_rows(
    connection: sa.Connection, to: MapTable, rows: pa.Table, merge: str, txid: int
) -> None:
    """Insert rows, or merge them into those that exist, in the caller's transaction.

    ``rows`` has ``key`` and ``value``, no key twice, best in key order. Opaque: the
    first write of ``txid`` keeps what was there as ``previous``.
    """
    writer = _writer(connection, len(rows))
    if writer is None:
        _read_and_replace(connection, to, rows, merge, txid)
    elif len(rows):
        writer(connection, to, rows, _Insert(connection, to, merge, txid))


def _writer(connection: sa.Connection, rows: int) -> _Writer | None:
    dialect = connection.dialect
    has_places = dialect.paramstyle in {"qmark", "format", "pyformat"}
    if dialect.name == "postgresql" and dialect.driver == "psycopg":
        return _copied if rows > ROWS_PER_STATEMENT else _in_statements
    if dialect.name in {"sqlite", "postgresql", *MYSQL} and has_places:
        return _in_statements
    return None


def _in_statements(
    connection: sa.Connection, _to: MapTable, rows: pa.Table, insert: _Insert
) -> None:
    keys, values = chunks(rows["key"].to_pylist()), chunks(rows["value"].to_pylist())
    place = f"({insert.place}, {insert.place}{insert.txid})"
    for some_keys, some_values in zip(keys, values, strict=True):
        given: list[Any] = [None] * (2 * len(some_keys))
        given[::2], given[1::2] = some_keys, some_values
        places = ", ".join([place] * len(some_keys))
        connection.exec_driver_sql(
            f"{insert.head} VALUES {places}{insert.tail}", tuple(given)
        )


def _copied(
    connection: sa.Connection, to: MapTable, rows: pa.Table, insert: _Insert
) -> None:
    kinds = {
        name: to.table.c[name].type.compile(connection.dialect)
        for name in ("key", "value")
    }
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    # it stays with the connection, which maps of other types share
    incoming = f"{INCOMING}_{crc32(columns.encode()):08x}"
    connection.exec_driver_sql(
        f"CREATE TEMPORARY TABLE IF NOT EXISTS {incoming} ({columns})"
        " ON COMMIT DELETE ROWS"
    )
    connection.exec_driver_sql(f"TRUNCATE {incoming}")
    copy_rows(connection, incoming, rows)
    connection.exec_driver_sql(
        f"{insert.head} SELECT key, value{insert.txid} FROM {incoming}{insert.tail}"  # noqa: S608
    )


def copy_rows(connection: sa.Connection, table: str, rows: pa.Table) -> None:
    """COPY into a table of PostgreSQL with psycopg."""
    names = ", ".join(map(_quoted, rows.column_names))
    statement = (
        f"COPY {_quoted(table)} ({names}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
    )
    text = io.BytesIO()
    options = pa.csv.WriteOptions(include_header=False, quoting_style="all_valid")
    pa.csv.write_csv(_as_text(rows), text, options)
    dbapi_error = connection.dialect.loaded_dbapi.Error
    try:
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(text.getbuffer())
    except dbapi_error as error:  # went past SQLAlchemy, which would have wrapped it
        raise exc.DBAPIError.instance(
            statement, None, error, dbapi_error, dialect=connection.dialect
        ) from error


def _quoted(name: str) -> str:
    """A name for a statement without parameters: SQLAlchemy doubles % in its own."""
    return '"' + name.replace('"', '""') + '"'


def _as_text(rows: pa.Table) -> pa.Table:
    """Bytes in PostgreSQL's hexadecimal form; CSV has none."""
    for index, column in enumerate(rows.columns):
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            texts = [None if v is None else rf"\x{v.hex()}" for v in column.to_pylist()]
            name = rows.column_names[index]
            rows = rows.set_column(index, name, pa.array(texts, pa.string()))
    return rows


def _read_and_replace(
    connection: sa.Connection, to: MapTable, rows: pa.Table, merge: str, txid: int
) -> None:
    keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
    stored: dict[Any, Any] = {}
    for some in chunks(keys):
        query = sa.select(to.table).where(to.table.c.key.in_(some))
        stored.update((row["key"], row) for row in connection.execute(query).mappings())
    written = []
    for key, given in zip(keys, values, strict=True):
        old = stored.get(key)
        value = None if old is None else old["value"]
        is_merged = value is not None and given is not None
        row = {"key": key, "value": MERGES[merge](value, given) if is_merged else given}
        if to.is_opaque:
            is_same = old is not None and old["txid"] == txid
            row["previous"] = old["previous"] if old and is_same else value
        if to.has_txid:
            row["txid"] = txid
        written.append(row)
    for some in chunks(written):
        upsert(connection, to.table, some)
