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
from kafka_tx.sql.dialects import LONG_TEXT, exact_text
from kafka_tx.transactions.records import MAX_PATH_LENGTH
from kafka_tx.transactions.refusals import AFTER_A_LOSS, LEFT_BEHIND
from kafka_tx.transactions.txid_layout import (
    CURRENT,
    NUMBERING,
    current_of,
    numbering_of,
)

STORE = sa.MetaData()

STATE = sa.Table(
    "kafka_tx_state",
    STORE,
    sa.Column("id", exact_text(200), primary_key=True),
    sa.Column("path", exact_text(MAX_PATH_LENGTH), primary_key=True),
    sa.Column("value", LONG_TEXT, nullable=False),
)
OWNER = sa.Table(
    "kafka_tx_owner",
    STORE,
    sa.Column("id", exact_text(200), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
)

_IS_HERE = "kafka_tx_store_is_here"


def check_store_beside(
    connection: sa.Connection, attempt: TransactionAttempt, what: str
) -> bool:
    """Refuse an attempt that is newer than its own store, if that is in this database.

    A txid is written while it is the first in line, under its owner's epoch. Returns
    whether the store is in this database, and was not copied elsewhere since.

    Raises:
        StateLostError: The store has not come as far: the database went back.
        StateCorruptedError: A record of the store cannot be read.
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
        inspected = sa.inspect(connection)
        known = all(inspected.has_table(name) for name in (STATE.name, OWNER.name))
        connection.info[_IS_HERE] = known
    return bool(known)
