"""The tables of the store, and what a sink in the same database asks them."""

from __future__ import annotations

import sqlalchemy as sa

from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.store_beside import check_store_beside, paths_beside
from kafka_tx.sql.database_failures import address
from kafka_tx.sql.dialects import ExactText, LongText
from kafka_tx.stored import RECORDS, SQL_SINKS
from kafka_tx.transactions.layout.records import MAX_PATH_LENGTH

STORE = sa.MetaData()

STATE = sa.Table(
    "kafka_tx_state",
    STORE,
    sa.Column("id", ExactText(200), primary_key=True),
    sa.Column("path", ExactText(MAX_PATH_LENGTH), primary_key=True),
    sa.Column("value", LongText(), nullable=False),
)
OWNER = sa.Table(
    "kafka_tx_owner",
    STORE,
    sa.Column("id", ExactText(200), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
)

OURS = "kafka_tx_"
"""Begins the names of all tables of ours, and of no table of a user."""

_IS_HERE = "kafka_tx_store_is_here"


def has_table(connection: sa.Connection, table: sa.Table) -> bool:
    """Whether the database has a table of ours.

    More columns than ours are fine. Raises FormatError: It has fewer, so that another
    version has made it.
    """
    if not sa.inspect(connection).has_table(table.name):
        return False
    check_columns(connection, table)
    return True


def check_columns(connection: sa.Connection, table: sa.Table) -> None:
    """As ``has_table``, of a table that exists."""
    try:
        connection.execute(sa.select(table).where(sa.false()))
    except sa.exc.DBAPIError:
        with connection.engine.connect() as other:  # a failure may end a transaction
            columns = sa.inspect(other).get_columns(table.name)
        if {column.name for column in table.columns} <= {c["name"] for c in columns}:
            raise
        url = address(connection.engine.url)
        kind = SQL_SINKS if "txid" in table.c else RECORDS
        kind.check(None, f"the table '{table.name}' in {url}", store=url)


def check_store(
    connection: sa.Connection, attempt: TransactionAttempt, what: str
) -> bool:
    """As ``check_store_beside``, of the store in this database, if there is one."""
    if not attempt.numbering or not _has_store(connection):
        return False
    query = sa.select(STATE.c.path, STATE.c.value).where(
        STATE.c.id == attempt.source, STATE.c.path.in_(paths_beside(attempt))
    )
    texts: dict[str, str] = {r.path: r.value for r in connection.execute(query)}
    owner = sa.select(OWNER.c.epoch).where(OWNER.c.id == attempt.source)
    epoch = connection.scalar(owner) or 0
    store = address(connection.engine.url)
    return check_store_beside(attempt, texts, epoch, what=what, store=store)


def _has_store(connection: sa.Connection) -> bool:
    known = connection.info.get(_IS_HERE)
    if known is None:
        known = all(has_table(connection, table) for table in (STATE, OWNER))
        connection.info[_IS_HERE] = known
    return bool(known)
