"""The store in a SQL database: SQLite, PostgreSQL, or another one of SQLAlchemy.

Two tables hold every id: ``kafka_tx_state`` (id, path, value) and ``kafka_tx_owner``
(id, epoch). Every write locks the owner's row first, so writers of one id come one
after the other and the epoch cannot move under them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import closing
from operator import itemgetter
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from kafka_tx.config import check_id
from kafka_tx.errors import StateConflictError, StateError
from kafka_tx.protocols import NOTHING, Expected, Paths, Texts
from kafka_tx.sql.database import Database
from kafka_tx.sql.dialects import chunks, upsert
from kafka_tx.sql.offsets import OFFSETS, OWNERS, offset_in
from kafka_tx.sql.progress import PROGRESS, progress_table
from kafka_tx.sql.state_tables import OWNER, STATE, STORE, has_table
from kafka_tx.stored import SQL_SINKS
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.records import check_path, check_value
from kafka_tx.transactions.ownership.memory import (
    MemorySnapshot,
    MemoryStore,
    Positions,
    StoredId,
)
from kafka_tx.transactions.ownership.refusals import conflict, fenced
from kafka_tx.transactions.ownership.store_base import StateOfId


def stored_ids(url: str) -> list[str]:
    """Every id with records or offsets, ascending. Makes nothing, changes nothing.

    Raises:
        ConfigError: The URL cannot be used.
        StateUnavailableError: The database does not answer or is locked.
        StateCorruptedError: The file is damaged or no database.
        StateError: There is no such SQLite file, or the database refuses.
    """
    found: set[str] = set()
    with closing(_existing(url)) as database, database.reading(_NONE) as connection:
        for table in (STATE, OFFSETS):
            if has_table(connection, table):
                found |= set(connection.scalars(sa.select(table.c.id).distinct()))
    return sorted(found)


def stored_states(url: str, ids: Collection[str] = ()) -> dict[str, StoredId]:
    """The state of these ids, or of all, in four queries; raises as ``stored_ids``."""
    with closing(_existing(url)) as database, database.reading(_NONE) as connection:
        tables = {
            table.name: _rows_by_id(connection, table, ids)
            for table in (STATE, OWNER, OFFSETS, OWNERS)
        }
    found = sorted(tables[STATE.name].keys() | tables[OFFSETS.name].keys())
    return {id_: _stored(database.url, id_, tables) for id_ in found}


def _rows_by_id(
    connection: sa.Connection, table: sa.Table, ids: Collection[str]
) -> dict[str, list[sa.RowMapping]]:
    if not has_table(connection, table):
        return {}
    query = sa.select(table)
    if ids:
        query = query.where(table.c.id.in_(ids))
    found: dict[str, list[sa.RowMapping]] = {}
    for row in connection.execute(query).mappings():
        found.setdefault(row["id"], []).append(row)
    return found


def _stored(
    url: str, id_: str, tables: Mapping[str, Mapping[str, list[sa.RowMapping]]]
) -> StoredId:
    texts, owner, rows, owners = (tables[t].get(id_, []) for t in tables)
    try:
        epoch = int(owner[0]["epoch"]) if owner else 0
    except (TypeError, ValueError) as error:
        at = records.Place(OWNER.name, url, id_)
        return StoredId.unreadable(url, id_, records.corrupted(str(error), at))

    def positions() -> Positions:
        if not rows:
            return 0, {}
        offsets = dict(offset_in(row, url) for row in rows)
        text = owners[0]["owners"] if owners else None
        at = records.Place(OWNERS.name, url, id_)
        return records.decode_owners(text, at).last, offsets

    texts = sorted(texts, key=itemgetter("path"))
    values = {row["path"]: row["value"] for row in texts}
    now = MemorySnapshot(epoch, values)
    return StoredId(MemoryStore.copy_of(url, id_, now), positions)


def _existing(url: str) -> Database:
    """The database; connecting would make a missing SQLite file."""
    database = Database(url)
    file = make_url(database.url).database
    if database.dialect != "sqlite" or not file or file.startswith("file:"):
        return database
    if not Path(file).exists():
        raise StateError(
            f"there is no store {database.url}: the file does not exist. A job makes"
            " it on its first run, where its option tx.store says; a relative path"
            " begins in the folder the job was started in.",
            store=database.url,
        )
    return database


_NONE = sa.MetaData()
"""No table is made."""

_OF: sa.BindParameter[str] = sa.bindparam("of")
_PATHS: sa.BindParameter[list[str]] = sa.bindparam("paths", expanding=True)
_EPOCH = sa.select(OWNER.c.epoch).where(OWNER.c.id == _OF)
_LOCKED_EPOCH = _EPOCH.with_for_update()
_TEXTS = sa.select(STATE.c.path, STATE.c.value).where(STATE.c.id == _OF)
_SOME_TEXTS = _TEXTS.where(STATE.c.path.in_(_PATHS))
_DELETION = sa.delete(STATE).where(STATE.c.id == _OF, STATE.c.path.in_(_PATHS))
# Made once: SQLAlchemy takes as long to make and hash a statement as to run it.

_SETTINGS = sa.text(
    "SELECT current_setting('synchronous_commit'),"
    " current_setting('synchronous_standby_names'),"
    " (SELECT count(*) FROM pg_stat_replication)"
)


def forgets(url: str) -> str:
    """Why a crash or failover may lose commits; empty: no reason is known.

    Only PostgreSQL is asked; it answers every user. Raises: as ``stored_ids``.
    """
    with closing(Database(url)) as database:
        if database.dialect != "postgresql":
            return ""
        with database.reading(_NONE) as connection:
            return _weakness(*connection.execute(_SETTINGS).one())


def _weakness(commit: str, names: str, standbys: int) -> str:
    if commit == "off":
        return (
            "synchronous_commit is off: a crash loses the last commits. Set it to on"
            " for the store's user: ALTER ROLE … SET synchronous_commit = on"
        )
    if standbys and (not names or commit == "local"):
        return (
            f"{standbys} standby servers follow asynchronously: a failover to one of"
            " them loses the last commits. Set synchronous_standby_names, and"
            " synchronous_commit to on"
        )
    return ""


def clock_ahead_s(url: str) -> float | None:
    """Seconds that PostgreSQL's clock is ahead of ours; None: another database."""
    with closing(Database(url)) as database:
        if database.dialect != "postgresql":
            return None
        with database.reading(_NONE) as connection:
            return float(connection.execute(_CLOCK).scalar_one()) - time.time()


_CLOCK = sa.text("SELECT extract(epoch FROM clock_timestamp())")


class SqlStore(StateOfId):
    """A Store in any database that SQLAlchemy reaches.

    SQLite: a file, made on first use, in WAL mode and synchronised on every write; a
    writer waits up to 10 s for another. Values are stored as given, up to the
    database's limit (1 GB and more).
    """

    def __init__(self, url: str, id: str) -> None:  # noqa: A002 - the seam's word
        self._database = Database(url)
        super().__init__(self._database.url, check_id(id))
        self.retry_ms = self._database.retry_policy.limit_ms

    def acquire(
        self, put: Texts = NOTHING, *, above: int = 0, expect: Expected = None
    ) -> int:
        """As ``Store.acquire``."""
        try:
            return self._raise_epoch(put, above, expect)
        except StateConflictError:  # somebody else made the row; now it can be locked
            return self._raise_epoch(put, above, expect)

    def epoch(self) -> int:
        """As ``Store.epoch``."""
        with self._database.reading(STORE) as connection:
            return connection.scalar(_EPOCH, {"of": self.id}) or 0

    def read(self, prefix: str = "") -> dict[str, str]:
        """As ``Store.read``; a snapshot."""
        query = _TEXTS
        if prefix:  # roughly; some databases take upper case for lower case here
            query = query.where(STATE.c.path.startswith(prefix, autoescape=True))
        with self._database.reading(STORE) as connection:
            rows = connection.execute(query, {"of": self.id}).all()
        return {path: v for path, v in sorted(rows) if path.startswith(prefix)}

    def get(self, path: str) -> str | None:
        """As ``Store.get``."""
        with self._database.reading(STORE) as connection:
            return self._values(connection, [check_path(path)]).get(path)

    def write(
        self, epoch: int, put: Texts, delete: Paths = (), *, expect: Expected = None
    ) -> None:
        """As ``Store.write``, in one database transaction."""
        gone = [check_path(path) for path in delete]
        rows = self._rows(put)
        with self._database.writing(STORE) as connection:
            stored = self._locked_epoch(connection) or 0
            if stored != epoch or not stored:
                raise fenced(self, held=epoch, stored=stored)
            self._check_expected(connection, expect or {})
            for some in chunks(gone):
                connection.execute(_DELETION, {"of": self.id, "paths": some})
            upsert(connection, STATE, rows)

    def sinks(self, numbering: str) -> dict[str, int]:
        """Maps and tables of the same database; see ``Store.sinks``."""
        progress = progress_table(sa.MetaData())
        with self._database.reading(STORE) as connection:
            if not has_table(connection, progress):
                return {}
            columns = progress.c.name, progress.c.txid, progress.c.format
            query = sa.select(*columns).where(progress.c.numbering == numbering)
            rows = connection.execute(query).all()
        for row in rows:
            what = f"the row '{row.name}' of {PROGRESS} in {self.url}"
            SQL_SINKS.check(row.format, what, store=self.url, id=row.name)
        return {row.name: row.txid for row in rows}

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""
        self._database.close()

    def _raise_epoch(self, put: Texts, above: int, expect: Expected) -> int:
        rows = self._rows(put)
        with self._database.writing(STORE) as connection:
            stored = self._locked_epoch(connection)
            epoch = max(stored or 0, above) + 1
            if stored is None:
                self._make_row(connection, epoch)
            else:
                is_ours = OWNER.c.id == self.id
                connection.execute(sa.update(OWNER).where(is_ours).values(epoch=epoch))
            self._check_expected(connection, expect or {})
            upsert(connection, STATE, rows)
            return epoch

    def _rows(self, put: Texts) -> list[dict[str, str]]:
        return [
            {"id": self.id, "path": check_path(p), "value": check_value(p, value)}
            for p, value in put.items()
        ]

    def _locked_epoch(self, connection: sa.Connection) -> int | None:
        """The stored epoch, ours to change until the transaction ends."""
        return connection.scalar(_LOCKED_EPOCH, {"of": self.id})

    def _make_row(self, connection: sa.Connection, epoch: int) -> None:
        try:
            connection.execute(sa.insert(OWNER).values(id=self.id, epoch=epoch))
        except sa.exc.IntegrityError as error:
            raise conflict(self, OWNER.name) from error

    def _check_expected(
        self, connection: sa.Connection, expect: Mapping[str, str | None]
    ) -> None:
        found = self._values(connection, [check_path(path) for path in expect])
        for path, value in expect.items():
            if found.get(path) != value:
                raise conflict(self, path)

    def _values(self, connection: sa.Connection, paths: list[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for some in chunks(paths):
            given = {"of": self.id, "paths": some}
            rows = connection.execute(_SOME_TEXTS, given)
            found.update((path, value) for path, value in rows)
        return found
