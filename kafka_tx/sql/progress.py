"""The row that says which attempt a map or table holds, locked while it is changed."""

from __future__ import annotations

from math import isclose
from typing import Any, NamedTuple

import sqlalchemy as sa

from kafka_tx.errors import (
    ConfigError,
    ReplayDiffersError,
    StateLostError,
    StateUnavailableError,
)
from kafka_tx.model import ATTEMPTS_PER_EPOCH, TransactionAttempt
from kafka_tx.offsets.owners import LOST_BY
from kafka_tx.sinks.admission import attempt_to_store, is_written
from kafka_tx.sql.dialects import ExactText
from kafka_tx.sql.state_tables import check_store
from kafka_tx.stored import SQL_SINKS

NEVER = TransactionAttempt(0, 0)

PROGRESS = "kafka_tx_progress"

_left: dict[tuple[str, str], tuple[TransactionAttempt, str]] = {}
"""The attempt that this process wrote last, and its digest, by database and name.

The attempt says that a database went back, to its owner only. Where the store is in the
same database, that is asked instead.
"""


def progress_table(metadata: sa.MetaData) -> sa.Table:
    """``kafka_tx_progress``: one row for each map or table written in transactions."""
    return sa.Table(
        PROGRESS,
        metadata,
        sa.Column("name", ExactText(200), primary_key=True),
        sa.Column("kind", ExactText(20), nullable=False),
        sa.Column("txid", sa.BigInteger, nullable=False),
        sa.Column("attempt_id", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("plan", ExactText(16), nullable=False),
        sa.Column("numbering", ExactText(32), nullable=False),
        sa.Column("source", ExactText(200), nullable=False),
        sa.Column("digest", ExactText(64), nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
    )


class Found(NamedTuple):
    """The state that an attempt finds before it writes.

    ``is_replay``: the txid was written before. ``digest`` is the one that this very
    attempt has stored, or has given in this process without being stored, as a
    transactional replay; empty: it wrote nothing.
    """

    is_replay: bool
    digest: str = ""


class Progress:
    """Reads and moves the progress of one name, inside the caller's transaction.

    ``metadata`` gets the table ``kafka_tx_progress``. A name keeps its kind.
    """

    def __init__(
        self,
        metadata: sa.MetaData,
        name: str,
        kind: str,
        *,
        is_opaque: bool,
        address: str,
    ) -> None:
        self._table = progress_table(metadata)
        self._is_ours = self._table.c.name == name
        self._name = name
        self._kind = kind
        self._is_opaque = is_opaque
        self._address = address
        self._is_alone = False

    def check_name(self, connection: sa.Connection) -> None:
        """Refuse a row of another version, and a name that is another one's here.

        Asked once.

        A database that does not tell capital letters apart would give both one table.
        The first name stays: only the second is refused, with ConfigError. Raises also
        FormatError.
        """
        if self._is_alone:
            return
        query = sa.select(self._table.c.format).where(self._is_ours)
        self._check_format(connection.execute(query).first())
        if not _folds_names(connection):
            self._is_alone = True
            return
        is_same = sa.func.lower(self._table.c.name) == self._name.lower()
        rows = connection.execute(sa.select(self._table).where(is_same)).all()
        has_written = any(row.name == self._name for row in rows)
        for row in rows:
            if row.name != self._name:
                what = f"{row.kind} '{row.name}', at txid {row.txid} of '{row.source}'"
                raise _same_name(self._name, row.name, what, both=has_written)
        if not has_written and connection.dialect.name == "sqlite":
            for table in sa.inspect(connection).get_table_names():
                if table != self._name and table.lower() == self._name.lower():
                    raise _same_name(self._name, table, f"table '{table}'", both=False)
        self._is_alone = True

    def _check_format(self, row: sa.Row[Any] | None) -> None:
        if row is not None:
            what = f"the row '{self._name}' of {PROGRESS} in {self._address}"
            SQL_SINKS.check(row.format, what, store=self._address, id=self._name)

    def stored(self, connection: sa.Connection) -> TransactionAttempt:
        """The attempt that wrote last; 0:0 before the first. Raises ConfigError."""
        row = self._row(connection)
        return TransactionAttempt(row.txid, row.attempt_id) if row else NEVER

    def enter(self, connection: sa.Connection, attempt: TransactionAttempt) -> Found:
        """Write the attempt; return the state before it.

        The row stays locked until the transaction ends, so that writers of one name
        come one after the other. A transactional replay leaves the attempt that wrote,
        and makes its owner the newest.

        Raises: as ``is_written``, and
            StateLostError: The database went back since this process wrote, or since
                the attempt began.
            StateUnavailableError: Another writer has just made the first write.
            ConfigError: The name belongs to another kind of state, or the database
                takes it for another one's; or the txid is below 1.
        """
        if attempt.txid < 1:
            raise ConfigError.illegal("txid", attempt.txid, "1 and above")
        # before the row, which is not locked while it is absent: others write now
        left = self._newest_here[0]
        row = self._row(connection, lock=True)
        self.check_name(connection)  # reads as of now or later, not as of before
        stored = _newest(row) if row else NEVER
        what = f"{self._kind} '{self._name}'"
        if not check_store(connection, attempt, what):
            self._check_left(attempt, left, stored, what)
        is_replay = is_written(attempt, stored, what=what, is_opaque=self._is_opaque)
        next_ = attempt_to_store(attempt, stored)
        names = ("txid", "attempt_id", "epoch", "plan", "numbering", "source")
        written = {name: getattr(next_, name) for name in names}
        written["format"] = SQL_SINKS.number
        if row is None:
            first = {"name": self._name, "kind": self._kind, "digest": ""}
            try:
                connection.execute(sa.insert(self._table).values(**first, **written))
            except sa.exc.IntegrityError as error:
                raise self._raced(what) from error
            return Found(is_replay)
        found = Found(is_replay, self._digest(row, attempt) if is_replay else "")
        if is_replay and not self._is_opaque:
            if attempt.epoch == stored.epoch:
                return found
            written["attempt_id"] = row.attempt_id
            written["plan"] = attempt.plan or stored.plan
        connection.execute(sa.update(self._table).where(self._is_ours).values(written))
        return found

    def remember(self, connection: sa.Connection, digest: str) -> None:
        """Store the digest of the writes, to know this writer of the attempt again."""
        stored = sa.update(self._table).where(self._is_ours).values(digest=digest)
        connection.execute(stored)

    def left(self, attempt: TransactionAttempt, digest: str) -> None:
        """The attempt is committed: remember it as this process's newest."""
        _left[self._address, self._name] = attempt, digest

    @property
    def _newest_here(self) -> tuple[TransactionAttempt, str]:
        return _left.get((self._address, self._name), (NEVER, ""))

    def _digest(self, row: sa.Row[Any], attempt: TransactionAttempt) -> str:
        """As of ``Found``, of a replay."""
        if attempt == TransactionAttempt(row.txid, row.attempt_id):
            return str(row.digest)
        left, digest = self._newest_here
        is_same = (attempt, attempt.numbering) == (left, left.numbering)
        return digest if is_same and not self._is_opaque else ""

    def _raced(self, what: str) -> StateUnavailableError:
        """Another writer made the row first; the next try finds it, and locks it."""
        return StateUnavailableError(
            f"another writer made the first write of {what} at the same moment. Nothing"
            " was written, and this write is tried again",
            store=self._address,
            id=self._name,
        )

    def _check_left(
        self,
        attempt: TransactionAttempt,
        left: TransactionAttempt,
        stored: TransactionAttempt,
        what: str,
    ) -> None:
        """Refuse to write on top of a state that is older than this owner left it.

        The attempts of an owner rise. A lower one is of another owner, to which a
        restored store gave the same epoch.
        """
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
            store=self._address,
            id=self._name,
        )

    def _row(
        self, connection: sa.Connection, *, lock: bool = False
    ) -> sa.Row[Any] | None:
        query = sa.select(self._table).where(self._is_ours)
        row = connection.execute(query.with_for_update() if lock else query).first()
        self._check_format(row)
        if row is not None and row.kind != self._kind:
            raise ConfigError.illegal(
                "name",
                self._name,
                f"a name of its own: here is a {row.kind} with this name, wanted is"
                f" a {self._kind}",
            )
        return row


_FOLDS = "kafka_tx_folds_names"


def _folds_names(connection: sa.Connection) -> bool:
    """Whether the database finds a table by a name in other letters; asked once."""
    known = connection.info.get(_FOLDS)
    if known is None:
        known = sa.inspect(connection).has_table(PROGRESS.upper())
        connection.info[_FOLDS] = known
    return bool(known)


def _same_name(name: str, other: str, what: str, *, both: bool) -> ConfigError:
    advice = (
        f"Nothing was written. If you mean '{other}', write its name as it stands here."
        " Else choose a name that differs in more than capital letters"
    )
    if both:
        advice = (
            "Nothing was written now. Both names were written before, so the table"
            f" holds the rows of both. If '{other}' is only a former name of this one,"
            f" remove the row named '{other}' from {PROGRESS}. Else stop both jobs and"
            " compute both results again, under names that differ in more than capital"
            " letters"
        )
    return ConfigError.illegal(
        "name",
        name,
        f"a name of its own: this database takes it for that of {what}",
        f"{advice}.",
    )


def _newest(row: sa.Row[Any]) -> TransactionAttempt:
    """The attempt to compare with; a replay leaves it, and is newer itself."""
    return TransactionAttempt(
        row.txid,
        max(row.attempt_id, row.epoch * ATTEMPTS_PER_EPOCH),
        source=row.source,
        plan=row.plan,
        numbering=row.numbering,
    )


def digest_of(exact: str, floats: float) -> str:
    """The digest of a map's writes: of a hash, and a sum that stands for all floats."""
    return f"{exact[:40]} {floats:.14e}"


def check_same(name: str, attempt: TransactionAttempt, stored: str, now: str) -> None:
    """Raise ReplayDiffersError if an attempt that was stored has written other rows.

    Digests of ``digest_of``. Version 0.3.0 stored others, which are not compared.
    """
    exact, _, floats = stored.partition(" ")
    if not floats:
        return
    exact_now, _, floats_now = now.partition(" ")
    is_near = isclose(float(floats), float(floats_now), rel_tol=1e-10, abs_tol=1e-9)
    if exact == exact_now and is_near:
        return
    raise ReplayDiffersError(
        f"attempt {attempt} has given map '{name}' other rows already: the map"
        f" has two writers. The first write of txid {attempt.txid} is committed;"
        " this second one changed nothing. Leave the first write as it is, and give"
        " the second one a map of its own, with another name; then start again. Do"
        f" not join the two: the replay of txid {attempt.txid} would leave out what"
        " is joined to the first. Where tasks of one bolt are the writers, the rows"
        f" that the map shows with txid {attempt.txid} are the first one's",
        id=name,
        txid=attempt.txid,
    )
