"""The row that says which attempt a map or table holds, locked while it is changed."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from kafka_tx.errors import ConfigError, ReplayDiffersError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.columns import exact_text
from kafka_tx.sql.upsert import upsert
from kafka_tx.sql.values import is_counted

NEVER = TransactionAttempt(0, 0)


def progress_table(metadata: sa.MetaData) -> sa.Table:
    """``kafka_tx_progress``: one row for each map or table written in transactions."""
    return sa.Table(
        "kafka_tx_progress",
        metadata,
        sa.Column("name", exact_text(200), primary_key=True),
        sa.Column("kind", exact_text(20), nullable=False),
        sa.Column("txid", sa.BigInteger, nullable=False),
        sa.Column("attempt_id", sa.BigInteger, nullable=False),
    )


@dataclass(frozen=True)
class Progress:
    """Reads and moves the progress of one name, inside the caller's transaction.

    Attributes:
        table: As ``progress_table`` made it.
        name: Of the map or table.
        kind: What it is; a name keeps its kind.
        is_opaque: Whether a replay may hold other records.
    """

    table: sa.Table
    name: str
    kind: str
    is_opaque: bool

    def stored(
        self, connection: sa.Connection, *, lock: bool = False
    ) -> TransactionAttempt:
        """The attempt that wrote last; 0:0 before the first.

        Raises:
            ConfigError: The name belongs to another kind of state.
        """
        columns = self.table.c
        query = sa.select(columns.kind, columns.txid, columns.attempt_id).where(
            columns.name == self.name
        )
        row = connection.execute(query.with_for_update() if lock else query).first()
        if row is None:
            return NEVER
        if row.kind != self.kind:
            raise ConfigError.illegal(
                "name",
                self.name,
                f"a name of its own: here is a {row.kind} with this name, wanted is"
                f" a {self.kind}",
            )
        return TransactionAttempt(row.txid, row.attempt_id)

    def enter(self, connection: sa.Connection, attempt: TransactionAttempt) -> bool:
        """Write the attempt; tell whether an earlier one of the txid had written.

        The row stays locked until the transaction ends, so that writers of one name
        come one after the other. A transactional replay writes nothing.

        Raises:
            OutOfOrderError: A later txid has written.
            FencedError: Opaque, and a later attempt of the same txid has written.
            ConfigError: The name belongs to another kind of state, or the txid is
                below 1.
        """
        if attempt.txid < 1:
            raise ConfigError.illegal("txid", attempt.txid, "1 and above")
        stored = self.stored(connection, lock=True)
        what = f"{self.kind} '{self.name}'"
        is_replay = is_counted(attempt, stored, what=what, is_opaque=self.is_opaque)
        if stored == NEVER:
            row = {"name": self.name, "kind": self.kind}
            connection.execute(
                sa.insert(self.table).values(
                    **row, txid=attempt.txid, attempt_id=attempt.attempt_id
                )
            )
        elif self.is_opaque or not is_replay:
            connection.execute(
                sa.update(self.table)
                .where(self.table.c.name == self.name)
                .values(txid=attempt.txid, attempt_id=attempt.attempt_id)
            )
        return is_replay


def writings_table(metadata: sa.MetaData) -> sa.Table:
    """``kafka_tx_writings``: what the last attempt wrote, in short, for each map."""
    return sa.Table(
        "kafka_tx_writings",
        metadata,
        sa.Column("name", exact_text(200), primary_key=True),
        sa.Column("digest", exact_text(64), nullable=False),
    )


@dataclass(frozen=True)
class Writings:
    """Tells a second writer of the same attempt from a repetition of the first.

    Attributes:
        table: As ``writings_table`` made it.
        name: Of the map.
    """

    table: sa.Table
    name: str

    def remember(self, connection: sa.Connection, digest: str) -> None:
        """Write down what this attempt has written."""
        upsert(connection, self.table, [{"name": self.name, "digest": digest}])

    def compare(
        self, connection: sa.Connection, attempt: TransactionAttempt, digest: str
    ) -> None:
        """The attempt that is stored writes again: it must be the same.

        Raises:
            ReplayDiffersError: It is not.
        """
        query = sa.select(self.table.c.digest).where(self.table.c.name == self.name)
        stored = connection.execute(query).scalar()
        if stored in (None, digest):
            return
        raise ReplayDiffersError(
            f"map '{self.name}' holds attempt {attempt} already, with other rows. Only"
            " the first writer of an attempt counts, so nothing was changed. Either"
            " several tasks or components write to one map: let one of them do it"
            " (global_grouping), or give each a map, a name, of its own. Or one batch"
            " updates the map several times: do it inside of one 'with"
            " map.batch(attempt)'",
            id=self.name,
            txid=attempt.txid,
        )
