"""The tables of the store, and checks for sinks in the same database.

A restored database takes store and sink back together. A batch in flight would then be
written on top of an older state, and the batches between would be lost. So a sink
checks that the store in its database has reached the attempt.
"""

from __future__ import annotations

import sqlalchemy as sa

from kafka_tx.errors import StateLostError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.database_failures import address
from kafka_tx.sql.dialects import ExactText, LongText
from kafka_tx.stored import RECORDS, SQL_SINKS
from kafka_tx.transactions.layout.records import MAX_PATH_LENGTH
from kafka_tx.transactions.layout.txid_layout import (
    CURRENT,
    NUMBERING,
    current_of,
    numbering_of,
)
from kafka_tx.transactions.ownership.refusals import AFTER_A_LOSS, LEFT_BEHIND

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


def check_store_beside(
    connection: sa.Connection, attempt: TransactionAttempt, what: str
) -> bool:
    """Refuse an attempt that is newer than its own store, if that is in this database.

    A txid is written while it is the first in line, under its owner's epoch. Returns
    whether the store is in this database, and was not copied elsewhere since.

    Raises:
        StateLostError: The store has not come as far: the database went back.
        StateCorruptedError, FormatError: A record of the store cannot be read.
    """
    if not attempt.numbering or not _has_store(connection):
        return False
    query = sa.select(STATE.c.path, STATE.c.value).where(
        STATE.c.id == attempt.source, STATE.c.path.in_((NUMBERING, CURRENT))
    )
    texts: dict[str, str] = {r.path: r.value for r in connection.execute(query)}
    where = {"store": address(connection.engine.url), "id": attempt.source}
    numbering = numbering_of(texts, **where)
    if numbering is None or numbering.name != attempt.numbering or numbering.moved_to:
        return False
    current = current_of(texts, **where)
    owner = sa.select(OWNER.c.epoch).where(OWNER.c.id == attempt.source)
    epoch = connection.scalar(owner) or 0
    if attempt.txid > current or attempt.epoch > epoch:
        raise StateLostError(
            f"attempt {attempt} is newer than the store of '{attempt.source}', which is"
            f" in the same database as {what}: it is at txid {current} of epoch"
            f" {epoch}. Nothing was written. {LEFT_BEHIND.format(**where)}"
            f" {AFTER_A_LOSS}",
            **where,
        )
    return True


def _has_store(connection: sa.Connection) -> bool:
    known = connection.info.get(_IS_HERE)
    if known is None:
        known = all(has_table(connection, table) for table in (STATE, OWNER))
        connection.info[_IS_HERE] = known
    return bool(known)
