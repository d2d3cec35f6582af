"""The row that says which attempt a map or table holds, locked while it is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kafka_tx.errors import ConfigError, ReplayDiffersError
from kafka_tx.model import ATTEMPTS_PER_EPOCH, TransactionAttempt
from kafka_tx.sql.columns import exact_text
from kafka_tx.sql.upsert import upsert
from kafka_tx.sql.values import is_counted
from kafka_tx.transactions.refusals import check_plan

NEVER = TransactionAttempt(0, 0)

CLOCK_IDS = 10**15
"""Releases that stored no epoch took attempt ids in ``for_each_transaction`` from a
clock: microseconds since 1970, from 2001 on above this. No owner made them."""


def progress_table(metadata: sa.MetaData) -> sa.Table:
    """``kafka_tx_progress``: one row for each map or table written in transactions."""
    return sa.Table(
        "kafka_tx_progress",
        metadata,
        sa.Column("name", exact_text(200), primary_key=True),
        sa.Column("kind", exact_text(20), nullable=False),
        sa.Column("txid", sa.BigInteger, nullable=False),
        sa.Column("attempt_id", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=True),
        sa.Column("plan", exact_text(16), nullable=True),
    )


def newest(txid: int, attempt_id: int, epoch: int | None) -> TransactionAttempt:
    """What a row of ``progress_table`` is to be compared with.

    ``epoch`` is the newest owner's that wrote or replayed, so never below the attempt's
    own: otherwise a release that knows no such column wrote last, and an id of a clock
    must not look like an owner that nobody can overtake.
    """
    if epoch is None or epoch < attempt_id // ATTEMPTS_PER_EPOCH:
        return TransactionAttempt(txid, attempt_id if attempt_id < CLOCK_IDS else 0)
    return TransactionAttempt(txid, max(attempt_id, epoch * ATTEMPTS_PER_EPOCH))


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
        row = self._row(connection, columns.txid, columns.attempt_id, lock=lock)
        return TransactionAttempt(row.txid, row.attempt_id) if row else NEVER

    def enter(self, connection: sa.Connection, attempt: TransactionAttempt) -> bool:
        """Write the attempt; tell whether an earlier one of the txid had written.

        The row stays locked until the transaction ends, so that writers of one name
        come one after the other. A transactional replay leaves the attempt that wrote,
        and makes its owner the newest.

        Raises:
            FencedError: A newer owner has written; opaque: or a later attempt of the
                same txid.
            OutOfOrderError: A later txid has written.
            ReplayDiffersError: The txid was written from other records.
            ConfigError: The name belongs to another kind of state, or the txid is
                below 1.
        """
        if attempt.txid < 1:
            raise ConfigError.illegal("txid", attempt.txid, "1 and above")
        columns = self.table.c
        wanted = columns.txid, columns.attempt_id, columns.epoch, columns.plan
        row = self._row(connection, *wanted, lock=True)
        stored = newest(row.txid, row.attempt_id, row.epoch) if row else NEVER
        what = f"{self.kind} '{self.name}'"
        is_replay = is_counted(attempt, stored, what=what, is_opaque=self.is_opaque)
        written = {
            "attempt_id": attempt.attempt_id,
            "epoch": attempt.epoch,
            "plan": attempt.plan,
        }
        if row is None:
            first = {"name": self.name, "kind": self.kind, "txid": attempt.txid}
            connection.execute(sa.insert(self.table).values(**first, **written))
            return is_replay
        if is_replay and not self.is_opaque:
            check_plan(what, attempt.txid, attempt.plan, row.plan or "")
            if attempt.epoch == stored.epoch:
                return is_replay
            if stored.attempt_id:  # else a clock's, which does not go with an epoch
                written["attempt_id"] = row.attempt_id
        connection.execute(
            sa.update(self.table)
            .where(columns.name == self.name)
            .values(txid=attempt.txid, **written)
        )
        return is_replay

    def _row(
        self,
        connection: sa.Connection,
        *wanted: sa.ColumnElement[Any],
        lock: bool,
    ) -> sa.Row[Any] | None:
        columns = self.table.c
        query = sa.select(columns.kind, *wanted).where(columns.name == self.name)
        row = connection.execute(query.with_for_update() if lock else query).first()
        if row is not None and row.kind != self.kind:
            raise ConfigError.illegal(
                "name",
                self.name,
                f"a name of its own: here is a {row.kind} with this name, wanted is"
                f" a {self.kind}",
            )
        return row


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
            f"map '{self.name}' holds attempt {attempt} already, with other rows: it"
            f" has two writers. The first write of txid {attempt.txid} is committed;"
            " this second one changed nothing. Leave the first write as it is, and give"
            " the second one a map of its own, with another name; then start again. Do"
            f" not join the two: the replay of txid {attempt.txid} would leave out what"
            " is joined to the first. Where tasks of one bolt are the writers, the rows"
            f" that the map shows with txid {attempt.txid} are the first one's",
            id=self.name,
            txid=attempt.txid,
        )
