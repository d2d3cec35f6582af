"""Column types and upserts in the SQL dialect of each database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite


def exact_text(length: int) -> sa.types.TypeEngine[str]:
    """Short ASCII text that is compared character by character, for keys."""
    of_mysql = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return sa.String(length).with_variant(of_mysql, "mysql", "mariadb")


class Utf8Key(sa.types.TypeDecorator[str]):
    """Text in MySQL and MariaDB as its bytes: compared and ordered by code point.

    Their collations fold case, accents or trailing blanks; those that fold nothing have
    other names in each. Tables of earlier versions have a column of text: it is read.
    """

    impl = mysql.VARBINARY
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: object) -> Any:  # noqa: ANN401, ARG002
        """As it is stored."""
        return None if value is None else value.encode()

    def process_result_value(self, value: Any, dialect: object) -> str | None:  # noqa: ANN401, ARG002
        """As it was."""
        return bytes(value).decode() if isinstance(value, (bytes, bytearray)) else value


LONG_TEXT = sa.Text().with_variant(
    mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb"
)
"""Text of any length."""
LONG_BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
"""Bytes of any length."""


ROWS_PER_STATEMENT = 300
"""600 values: under the limit of 999 that old SQLites have."""

_Row = TypeVar("_Row")


def chunks(values: list[_Row]) -> Iterator[list[_Row]]:
    """Lists of at most ``ROWS_PER_STATEMENT``."""
    for begin in range(0, len(values), ROWS_PER_STATEMENT):
        yield values[begin : begin + ROWS_PER_STATEMENT]


def upsert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Insert ``rows``, or overwrite those whose primary key exists.

    Every row names every column; no key comes twice. Runs in the caller's transaction.
    A database without an upsert (not SQLite, PostgreSQL, MySQL, MariaDB) gets a DELETE
    of the keys and an INSERT.
    """
    if not rows:
        return
    dialect = connection.dialect.name
    found = _upserting(dialect, table)
    if found is not None:
        connection.execute(found, rows)
        return
    keys = [column.name for column in table.primary_key]
    same = sa.and_(*(table.c[n] == sa.bindparam(f"key_{n}") for n in keys))
    gone = [{f"key_{n}": row[n] for n in keys} for row in rows]
    connection.execute(sa.delete(table).where(same), gone)
    connection.execute(sa.insert(table), rows)


@lru_cache(maxsize=16)
def _upserting(dialect: str, table: sa.Table) -> sa.Insert | None:
    """The statement that inserts or overwrites; None: the database has none."""
    keys = [column.name for column in table.primary_key]
    others = [column.name for column in table.columns if column.name not in keys]
    statement: sa.Insert | None = None
    if dialect in {"sqlite", "postgresql"}:
        module = sqlite if dialect == "sqlite" else postgresql
        insert = module.insert(table)
        statement = insert.on_conflict_do_update(
            index_elements=keys, set_={n: insert.excluded[n] for n in others}
        )
    if dialect in {"mysql", "mariadb"}:
        added = mysql.insert(table)
        values = {n: added.inserted[n] for n in others}
        statement = added.on_duplicate_key_update(values)
    return statement
