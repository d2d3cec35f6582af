"""The table of a map: ``key``, ``value``, and columns that a replay needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from kafka_tx.errors import ConfigError, harmless
from kafka_tx.sql.dialects import LongBytes, LongText, Utf8Key
from kafka_tx.sql.state_tables import OURS
from kafka_tx.sql.values import LONGEST_MYSQL_KEY

LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")

BYTEWISE = "C"
"""PostgreSQL's collation by code point: the order of SQLite and of Arrow."""

_KEYS: dict[type, sa.types.TypeEngine[Any]] = {
    str: sa.Text()
    .with_variant(sa.Text(collation=BYTEWISE), "postgresql")
    .with_variant(Utf8Key(LONGEST_MYSQL_KEY), "mysql", "mariadb"),
    int: sa.BigInteger(),
    bytes: sa.LargeBinary().with_variant(
        sa.VARBINARY(LONGEST_MYSQL_KEY), "mysql", "mariadb"
    ),
}
_VALUES: dict[type, sa.types.TypeEngine[Any]] = {
    int: sa.BigInteger(),
    float: sa.Double(),
    str: LongText().with_variant(sa.Text(collation=BYTEWISE), "postgresql"),
    bytes: LongBytes(),
}
_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary()}
_SQLITE_STORES = {int: "integer", float: "real", str: "text", bytes: "blob"}


@dataclass(frozen=True)
class MapTable:
    """One map's table.

    ``table`` has ``key``, ``value``, from transactional on ``txid``, opaque
    ``previous``. The types are Arrow's.
    """

    table: sa.Table
    key_type: pa.DataType
    value_type: pa.DataType

    @property
    def metadata(self) -> sa.MetaData:
        """The metadata of the table, which may get other tables."""
        return self.table.metadata

    @property
    def is_opaque(self) -> bool:
        """Whether rows keep the value before the last transaction."""
        return "previous" in self.table.c

    @property
    def has_txid(self) -> bool:
        """Whether rows keep the last transaction."""
        return "txid" in self.table.c


def map_table(name: str, kind: str, key: type, value: type) -> MapTable:
    """Describe the table; nothing is made in a database yet. Raises ConfigError."""
    check_table_name(name)
    _check_type("key", key, _KEYS)
    _check_type("value", value, _VALUES)
    metadata = sa.MetaData()
    is_opaque = kind == "opaque map"
    columns: list[sa.schema.SchemaItem] = [
        sa.Column("key", _KEYS[key], autoincrement=False),
        sa.Column("value", _VALUES[value], nullable=is_opaque),
        sa.PrimaryKeyConstraint("key", name=own_name(name, "key")),
        _stored_as("value", value),
    ]
    if is_opaque:
        columns += [sa.Column("previous", _VALUES[value])]
        removed = sa.Index(
            own_name(name, "removed"), "key", sqlite_where=sa.text("value IS NULL")
        )
        removed.dialect_options["postgresql"]["where"] = sa.text("value IS NULL")
        where = ("sqlite", "postgresql")  # others would keep an index of every row
        removed.ddl_if(dialect=where)  # type: ignore[arg-type] # a tuple is legal
        columns += [removed]
    if kind != "plain map":
        columns += [sa.Column("txid", sa.BigInteger, nullable=False)]
    quoted = quoted_name(name, quote=True)
    table = sa.Table(quoted, metadata, *columns, sqlite_with_rowid=False)
    return MapTable(table, _ARROW[key], _ARROW[value])


def check_table_name(name: str, option: str = "name") -> str:
    """Return the name if databases take it, and it is not ours; raises ConfigError."""
    is_text = isinstance(name, str)
    if not is_text or not LEGAL_NAME.fullmatch(name) or name.lower().startswith(OURS):
        raise ConfigError.illegal(
            option,
            harmless(name),
            "a table's name: a letter or _, then up to 59 letters, digits or _; not"
            " beginning with kafka_tx_",
        )
    return name


def own_name(table: str, what: str) -> str:
    """A name of ours beside a table, which no table has and every database takes."""
    return f"{OURS}{sha256(table.encode()).hexdigest()[:16]}_{what}"


def _check_type(option: str, given: type, legal: dict[type, Any]) -> None:
    if given not in legal:
        names = ", ".join(kind.__name__ for kind in legal)
        raise ConfigError.illegal(option, given, names)


def _stored_as(column: str, kind: type) -> sa.schema.SchemaItem:
    """Raise for integers that SQLite would silently store as floats."""
    legal = f"typeof({column}) IN ('{_SQLITE_STORES[kind]}', 'null')"
    return sa.CheckConstraint(legal).ddl_if(dialect="sqlite")
