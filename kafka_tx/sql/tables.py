"""Rows appended to a table once, with the txid in the same database transaction."""

from __future__ import annotations

import secrets
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.sql import quoted_name

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.admission import second_write
from kafka_tx.sql.database import Database
from kafka_tx.sql.dialects import LongBytes, LongText
from kafka_tx.sql.map_table import check_table_name, own_name
from kafka_tx.sql.merge import copy_rows
from kafka_tx.sql.mysql import MYSQL
from kafka_tx.sql.progress import Progress
from kafka_tx.sql.values import check_fits, check_values

TXID = "txid"
"""The column that an opaque table has beside the rows' own."""

ROWS_PER_INSERT = 10_000

_UTC = pa.timestamp("us", "UTC")
_KINDS: tuple[tuple[str, sa.types.TypeEngine[Any]], ...] = (
    ("is_boolean", sa.Boolean()),
    ("is_integer", sa.BigInteger()),
    ("is_floating", sa.Double()),
    ("is_string", LongText()),
    ("is_large_string", LongText()),
    ("is_binary", LongBytes()),
    ("is_large_binary", LongBytes()),
    ("is_date", sa.Date()),
)


def append_rows(
    url: str,
    table: str,
    attempt: TransactionAttempt,
    rows: pa.Table,
    *,
    opaque: bool = False,
) -> bool:
    """Append a batch's rows, any number, unless its txid is in the table already.

    The core of ``append_once``, which tells its results and errors. A table that exists
    must have the rows' columns by name. SQLite has no exact decimals: it stores them as
    text, and timestamps in UTC.
    """
    check_table_name(table, "table")
    database = Database(url, option="url")
    metadata = sa.MetaData()
    progress = Progress(
        metadata,
        table,
        "opaque table" if opaque else "transactional table",
        is_opaque=opaque,
        address=database.url,
    )
    call = secrets.token_hex(16)
    _check_columns(rows.column_names, database.dialect, opaque=opaque)
    check_values(rows, database.dialect)
    given, rows = rows, _plain(rows, database.dialect)
    if opaque:
        rows = _with_txid(rows, attempt.txid)
    to = _described(table, metadata, rows.schema, opaque=opaque)

    def whole() -> bool:
        with database.writing(metadata) as connection:
            is_replay, stored = progress.enter(connection, attempt)
            if stored not in ("", call):
                advice = "append the second to a table of its own"
                what = f"table '{table}'"
                raise second_write(attempt, what=what, option="table", advice=advice)
            if is_replay and not opaque:
                return False
            _check_fits(connection, database.url, to.name, given)
            progress.remember(connection, call)
            if is_replay:
                connection.execute(sa.delete(to).where(to.c[TXID] == attempt.txid))
            _insert(connection, to, rows)
            return True

    with closing(database):
        is_new = database.retry_policy(whole)
    progress.left(attempt, call)
    return is_new


_columns: dict[tuple[str, str], dict[str, sa.types.TypeEngine[Any]]] = {}
"""The columns of each table that this process writes: by database and name."""


def _check_fits(
    connection: sa.Connection, address: str, table: str, rows: pa.Table
) -> None:
    known, dialect = _columns.get((address, table)), connection.dialect.name
    if known is not None:
        with suppress(ConfigError):  # the table may have been changed since
            check_fits(rows, known, dialect)
            return
    seen = sa.inspect(connection).get_columns(table)
    found = {column["name"]: column["type"] for column in seen}
    check_fits(rows, found, dialect)
    _columns[address, table] = found


def _insert(connection: sa.Connection, to: sa.Table, rows: pa.Table) -> None:
    dialect = connection.dialect
    if dialect.name == "postgresql" and dialect.driver == "psycopg":
        copy_rows(connection, to.name, rows)
        return
    for some in rows.to_batches(max_chunksize=ROWS_PER_INSERT):
        if len(some):
            connection.execute(sa.insert(to), some.to_pylist())


def _described(
    table: str, metadata: sa.MetaData, schema: pa.Schema, *, opaque: bool
) -> sa.Table:
    columns = [
        sa.Column(quoted_name(field.name, quote=True), _kind_of(field))
        for field in schema
    ]
    index = [sa.Index(own_name(table, TXID), TXID)] if opaque else []
    return sa.Table(quoted_name(table, quote=True), metadata, *columns, *index)


def _check_columns(names: list[str], dialect: str, *, opaque: bool) -> None:
    taken = [*names, TXID] if opaque else names
    told_apart = [_as_told_apart(name, dialect) for name in taken]
    for name in names:
        if not name.strip() or told_apart.count(_as_told_apart(name, dialect)) > 1:
            ours = f" '{TXID}' is written by append_once." if opaque else ""
            raise ConfigError.illegal(
                "df",
                name,
                "columns with a name each, and none twice, as the database compares",
                f"All: {names}.{ours}",
            )


def _as_told_apart(column: str, dialect: str) -> str:
    """The name of a column as the database compares it."""
    folds = dialect in {"sqlite", *MYSQL}
    return column.lower() if folds else column


def _kind_of(field: pa.Field) -> sa.types.TypeEngine[Any]:
    if pa.types.is_timestamp(field.type):
        moment = sa.DateTime(timezone=field.type.tz is not None)
        return moment.with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    if pa.types.is_decimal(field.type):
        return sa.Numeric(field.type.precision, field.type.scale)
    for is_kind, kind in _KINDS:
        if getattr(pa.types, is_kind)(field.type):
            return kind
    raise ConfigError(
        f"column '{field.name}' is {field.type}, for which SQL databases have no common"
        " type. Select its members, or to_json of it",
        option=field.name,
        value=str(field.type),
    )


def _plain(rows: pa.Table, dialect: str) -> pa.Table:
    """The rows in types that every driver writes alike."""
    for index, field in enumerate(rows.schema):
        wanted = field.type
        if pa.types.is_timestamp(wanted) and wanted.tz is not None:
            wanted = _UTC
        if pa.types.is_decimal(wanted) and dialect == "sqlite":
            wanted = pa.string()
        if wanted != field.type:
            rows = rows.set_column(index, field.name, rows.column(index).cast(wanted))
    return rows


def _with_txid(rows: pa.Table, txid: int) -> pa.Table:
    return rows.append_column(TXID, pa.array([txid] * len(rows), pa.int64()))
