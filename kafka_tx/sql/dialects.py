"""Column types and upserts in the SQL dialect of each database.

A dialect is imported where its database is used: each takes 0.6 to 2 MB of a process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from kafka_tx.sql.mysql import MYSQL

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect


class _OtherInMySql(sa.types.TypeDecorator[Any]):
    """A plain type that has another form in MySQL and MariaDB."""

    def load_dialect_impl(self, dialect: Dialect) -> sa.types.TypeEngine[Any]:
        """The type in this database."""
        if dialect.name not in MYSQL:
            return self.impl_instance
        from sqlalchemy.dialects import mysql

        found: sa.types.TypeEngine[Any] = self.in_mysql(mysql)
        return found

    def in_mysql(self, mysql: Any) -> Any:  # noqa: ANN401 - untyped
        """The type of the dialect's module."""
        raise NotImplementedError


class ExactText(_OtherInMySql):
    """Short ASCII text that is compared character by character, for keys."""

    impl = sa.String
    cache_ok = True

    def in_mysql(self, mysql: Any) -> Any:  # noqa: ANN401
        """Its length is in characters."""
        length = self.impl_instance.length  # type: ignore[attr-defined]
        return mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")


class LongText(_OtherInMySql):
    """Text of any length."""

    impl = sa.Text
    cache_ok = True

    def in_mysql(self, mysql: Any) -> Any:  # noqa: ANN401
        """Up to 4 GB."""
        return mysql.LONGTEXT(charset="utf8mb4")


class LongBytes(_OtherInMySql):
    """Bytes of any length."""

    impl = sa.LargeBinary
    cache_ok = True

    def in_mysql(self, mysql: Any) -> Any:  # noqa: ANN401
        """Up to 4 GB."""
        return mysql.LONGBLOB()


class Utf8Key(sa.types.TypeDecorator[str]):
    """Text in MySQL and MariaDB as its bytes: compared and ordered by code point.

    Their collations fold case, accents or trailing blanks; those that fold nothing have
    other names in each. Tables of earlier versions have a column of text: it is read.
    """

    impl = sa.VARBINARY
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: object) -> Any:  # noqa: ANN401, ARG002
        """As it is stored."""
        return None if value is None else value.encode()

    def process_result_value(self, value: Any, dialect: object) -> str | None:  # noqa: ANN401, ARG002
        """As it was."""
        return bytes(value).decode() if isinstance(value, (bytes, bytearray)) else value


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
        insert: Any = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
        statement = insert.on_conflict_do_update(
            index_elements=keys, set_={n: insert.excluded[n] for n in others}
        )
    if dialect in MYSQL:
        from sqlalchemy.dialects import mysql

        added = mysql.insert(table)
        values = {n: added.inserted[n] for n in others}
        statement = added.on_duplicate_key_update(values)
    return statement
