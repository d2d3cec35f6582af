"""The row that says which attempt a map or table holds, locked while it is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kafka_tx.errors import ConfigError, ReplayDiffersError, StateLostError
from kafka_tx.model import ATTEMPTS_PER_EPOCH, TransactionAttempt
from kafka_tx.offsets.owners import LOST_BY
from kafka_tx.sql.dialects import exact_text, upsert
from kafka_tx.sql.state_tables import check_store_beside
from kafka_tx.transactions.admission import following, is_written

NEVER = TransactionAttempt(0, 0)

_left: dict[tuple[str, str], TransactionAttempt] = {}
"""The attempt that this process wrote last, by database and name: for its owner only.

Where the store is in the same database, that is asked instead.
"""


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
        sa.Column("numbering", exact_text(32), nullable=True),
        sa.Column("source", exact_text(200), nullable=True),
    )


@dataclass(frozen=True)
class Progress:
    """Reads and moves the progress of one name, inside the caller's transaction.

    Attributes:
        table: As ``progress_table`` made it.
        name: Of the map or table.
        kind: What it is; a name keeps its kind.
        is_opaque: Whether a replay may hold other records.
        address: Of the database, without secrets.
    """

    table: sa.Table
    name: str
    kind: str
    is_opaque: bool
    address: str

    def stored(
        self, connection: sa.Connection, *, lock: bool = False
    ) -> TransactionAttempt:
        """The attempt that wrote last; 0:0 before the first.

        Raises:
            ConfigError: The name belongs to another kind of state.
        """
        row = self._row(connection, lock=lock)
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
            AnotherNumberingError: The name counts the txids of another numbering.
            StateLostError: The database went back since this process wrote, or since
                the attempt began.
            ConfigError: The name belongs to another kind of state, the attempt is
                opaque and the state is not, or the txid is below 1.
        """
        if attempt.txid < 1:
            raise ConfigError.illegal("txid", attempt.txid, "1 and above")
        row = self._row(connection, lock=True)
        stored = _newest(row) if row else NEVER
        what = f"{self.kind} '{self.name}'"
        if not check_store_beside(connection, attempt, what):
            self._check_left(attempt, stored, what)
        is_replay = is_written(attempt, stored, what=what, is_opaque=self.is_opaque)
        next_ = following(attempt, stored)
        names = ("txid", "attempt_id", "epoch", "plan", "numbering", "source")
        written = {name: getattr(next_, name) for name in names}
        if row is None:
            first = {"name": self.name, "kind": self.kind}
            connection.execute(sa.insert(self.table).values(**first, **written))
            return is_replay
        if is_replay and not self.is_opaque:
            if attempt.epoch == stored.epoch:
                return is_replay
            written["attempt_id"] = row.attempt_id
            written["plan"] = attempt.plan or stored.plan
        connection.execute(
            sa.update(self.table)
            .where(self.table.c.name == self.name)
            .values(**written)
        )
        return is_replay

    def left(self, attempt: TransactionAttempt) -> None:
        """The attempt is committed: remember it as this process's newest."""
        _left[self.address, self.name] = attempt

    def _check_left(
        self, attempt: TransactionAttempt, stored: TransactionAttempt, what: str
    ) -> None:
        """Refuse to write on top of a state that is older than this owner left it.

        The attempts of an owner rise. A lower one is of another owner, to which a store
        that went back gave the same epoch.
        """
        left = _left.get((self.address, self.name), NEVER)
        is_owner = (attempt.numbering, attempt.epoch) == (left.numbering, left.epoch)
        is_owner = is_owner and attempt >= left
        if not attempt.numbering or not is_owner or stored.txid >= left.txid:
            return
        raise StateLostError(
            f"{what} was left at txid {left.txid} by this process and is at txid"
            f" {stored.txid} now: its database {LOST_BY}. Nothing was written, and what"
            " came between is missing there. Put the database right before you start"
            " again, or from copies of one time all that the job writes and the store"
            " of its id. A query that writes nothing else can read again what is"
            f" missing: look where txid {stored.txid} ended, let the tx.id of each of"
            " its sources go on there with `kafka-tx offsets set`, and start with a new"
            " checkpointLocation",
            store=self.address,
            id=self.name,
        )

    def _row(
        self, connection: sa.Connection, *, lock: bool = False
    ) -> sa.Row[Any] | None:
        query = sa.select(self.table).where(self.table.c.name == self.name)
        row = connection.execute(query.with_for_update() if lock else query).first()
        if row is not None and row.kind != self.kind:
            raise ConfigError.illegal(
                "name",
                self.name,
                f"a name of its own: here is a {row.kind} with this name, wanted is"
                f" a {self.kind}",
            )
        return row


def _newest(row: sa.Row[Any]) -> TransactionAttempt:
    """What a row is compared with: a replay leaves the attempt, and is newer itself."""
    return TransactionAttempt(
        row.txid,
        max(row.attempt_id, (row.epoch or 0) * ATTEMPTS_PER_EPOCH),
        source=row.source or "",
        plan=row.plan or "",
        numbering=row.numbering or "",
    )


def writings_table(metadata: sa.MetaData) -> sa.Table:
    """``kafka_tx_writings``: what the last attempt wrote, in short, for each map.

    For each table: which call has written it.
    """
    return sa.Table(
        "kafka_tx_writings",
        metadata,
        sa.Column("name", exact_text(200), primary_key=True),
        sa.Column("digest", exact_text(64), nullable=False),
    )


@dataclass(frozen=True)
class Writings:
    """Tells a second writer of an attempt from a repetition by the first writer.

    Attributes:
        table: As ``writings_table`` made it.
        name: Of the map or table.
    """

    table: sa.Table
    name: str

    def stored(self, connection: sa.Connection) -> str | None:
        """The digest that is stored."""
        query = sa.select(self.table.c.digest).where(self.table.c.name == self.name)
        found: str | None = connection.execute(query).scalar()
        return found

    def remember(self, connection: sa.Connection, digest: str) -> None:
        """Store the digest of this attempt's writes."""
        upsert(connection, self.table, [{"name": self.name, "digest": digest}])

    def compare(
        self, connection: sa.Connection, attempt: TransactionAttempt, digest: str
    ) -> None:
        """The attempt that is stored writes again: it must be the same.

        Raises:
            ReplayDiffersError: It is not.
        """
        if self.stored(connection) in (None, digest):
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
