"""One database behind a SQLAlchemy URL: waits, connections, transactions, SQLite."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.pool import ConnectionPoolEntry

from kafka_tx.clock import SystemClock
from kafka_tx.errors import ConfigError, StateLostError, StateUnavailableError
from kafka_tx.sql import mysql, postgresql
from kafka_tx.sql.database_failures import address, translate
from kafka_tx.sql.state_tables import OURS, check_columns
from kafka_tx.transactions.ownership.refusals import AFTER_A_FILE, unpicklable
from kafka_tx.transactions.ownership.retry_policy import DEFAULT_MS, RetryPolicy


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """Our own parameters of a database's URL.

    Attributes:
        retry_for_ms: How long calls retry while the database is away; 0: one try.
        silence_ms: PostgreSQL with psycopg: how long a connection may be silent before
            another connection asks the server about it; 0 never asks.
    """

    retry_for_ms: int = DEFAULT_MS
    silence_ms: int = 8_000

    @classmethod
    def taken_from(cls, url: URL, option: str) -> tuple[URL, Waits]:
        """The URL without our parameters, and their values; raises ConfigError."""
        names = [field.name for field in fields(cls)]
        given = {
            name: _number(name, url.query[name], option)
            for name in names
            if name in url.query
        }
        return url.difference_update_query(names), replace(cls(), **given)


def _number(name: str, text: str | tuple[str, ...], option: str) -> int:
    if not (isinstance(text, str) and text.isascii() and text.isdecimal()):
        raise ConfigError.illegal(
            f"{option}: {name}", text, "milliseconds, such as 120000; 0 switches it off"
        )
    return int(text)


IDLE_CONNECTIONS = 4
"""How many idle connections a pool keeps open.

Nobody waits for another one's: more are opened, and closed when they are given back.
"""


class _Connections(sa.QueuePool):
    """Idle connections; one that is given back after all were left is closed."""

    __module__ = sa.QueuePool.__module__  # the name of its logger begins with it
    are_left = False

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self.are_left:  # asked last: whoever leaves says so before it closes them
            self.dispose()


class Pool:
    """Connections that several users share; closed with the last user."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._users = weakref.WeakSet[object]()
        self._leaving = threading.Lock()

    def used_by(self, user: object) -> Pool:
        """Keep the connections open for one more user."""
        self._users.add(user)
        return self

    def left_by(self, user: object) -> None:
        """Close the connections, unless others use them."""
        with _LOCK:
            self._users.discard(user)
            if self._users:
                return
        self.leave_connections()

    def leave_connections(self) -> None:
        """Close idle connections now, and those in use when they are given back."""
        with self._leaving:
            pool = self.engine.pool
            assert isinstance(pool, _Connections)
            pool.are_left = True
            self.engine.dispose()  # and go on with a new pool


_LOCK = threading.Lock()
_SHARED = weakref.WeakValueDictionary[tuple[int, Hashable], Pool]()


def shared(key: Hashable, user: object, make: Callable[[], sa.Engine]) -> Pool:
    """The pool of this process under a key, made if there is none.

    The key has everything that makes connections differ, passwords included. ``user``
    leaves the pool later.
    """
    with _LOCK:
        here = os.getpid(), key
        pool = _SHARED.get(here)
        if pool is None:
            pool = _SHARED[here] = Pool(make())
        return pool.used_by(user)


def _forget_parents() -> None:
    """Give a forked process its own pools and an unlocked lock."""
    global _LOCK
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_forget_parents)


BUSY_TIMEOUT_S = 10
"""How long a statement waits for another writer; then the store is unavailable."""

WRITES = "kafka_tx_writes"
"""The execution option of a connection that takes the write lock as it begins."""

_File = tuple[int, int]
"""Device and number."""


class SqliteFile:
    """Makes an engine's connections, and compares their file with the one at the path.

    An open connection goes on writing to a file that was removed or replaced, without
    an error. So each connection notes which file it opened.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._path = ""
        self._opened: _File | None = None

    def listen(self, engine: Engine) -> None:
        """Look after all connections of an engine."""
        event.listen(engine, "connect", self._connected)
        event.listen(engine, "begin", self._begun)

    def _connected(self, connection: Any, _record: object) -> None:  # noqa: ANN401
        connection.isolation_level = None  # we say BEGIN ourselves
        _keep_a_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        (_, _, self._path), *_ = connection.execute("PRAGMA database_list")
        self._opened = self._opened or self._at_path()

    def _begun(self, connection: Connection) -> None:
        """Begin, then check that the transaction is on the right file."""
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
        found = self._at_path()
        if found != self._opened:
            what = "removed" if found is None else "replaced by another one"
            raise StateLostError(
                f"the file of {self._address} was {what} while it was in use. Nothing"
                f" was written. {AFTER_A_FILE}",
                store=self._address,
                path=self._path,
            )

    def _at_path(self) -> _File | None:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


def _keep_a_log(connection: Any) -> None:  # noqa: ANN401 - DB-API
    """Switch a new file to WAL mode; SQLite itself does not wait for others here."""
    gives_up_at = time.monotonic() + BUSY_TIMEOUT_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_locked or time.monotonic() > gives_up_at:
                raise
            time.sleep(0.01)
        else:
            return  # some file systems cannot have a WAL, and SQLite raises nothing


_T = TypeVar("_T")

_CONNECT_ARGS: dict[str, dict[str, Any]] = {
    "sqlite": {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
    "postgresql": {
        "client_encoding": "utf8",  # whatever the database's: it translates or refuses
        **postgresql.CONNECT_ARGUMENTS,
    },
    **dict.fromkeys(mysql.MYSQL, mysql.CONNECT_ARGUMENTS),
}

_ISOLATION = {"postgresql": "READ COMMITTED"}
"""Whatever the server's default: a writer that waited for a lock must see what was
written meanwhile. MySQL and MariaDB show that at each level, as they take the snapshot
at the first read after the lock."""


class Database:
    """Connections to one database, opened when first used.

    The driver's errors become ours, with the address and without the password. Threads
    may share an object. Objects of one process share their connections to a server
    (``Pool``); each opens a SQLite file. A forked process opens its own.
    """

    def __init__(self, url: str, option: str = "tx.store") -> None:
        self._url, self._waits = Waits.taken_from(_parse(url, option), option)
        self._option = option
        self._pool: Pool | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ready: set[sa.MetaData] = set()

    def __repr__(self) -> str:
        return f"Database({self.url!r})"

    def __reduce__(self) -> NoReturn:
        unpicklable(self)

    @property
    def url(self) -> str:
        """The address without the password; a SQLite file with its whole path."""
        return address(self._url)

    @property
    def dialect(self) -> str:
        """Which kind of database: ``sqlite``, ``postgresql``, ``mysql`` and so on."""
        return self._url.get_backend_name()

    @property
    def retry_policy(self) -> RetryPolicy:
        """For repeatable calls, while the database is unavailable."""
        return RetryPolicy(SystemClock(), self._waits.retry_for_ms)

    @contextmanager
    def retried(self, make: Callable[[], AbstractContextManager[_T]]) -> Iterator[_T]:
        """Enter it, retried while the database is away; the block runs once."""
        with ExitStack() as stack:
            yield self.retry_policy(lambda: stack.enter_context(make()))

    @contextmanager
    def reading(self, tables: sa.MetaData) -> Iterator[sa.Connection]:
        """A connection for one consistent read; ``tables`` exist (made if missing).

        Raises:
            StateUnavailableError: The database does not answer or is locked.
            StateLostError: SQLite: the file is no longer the one that was opened.
            StateCorruptedError: The file is damaged or no database.
            StateError: The database refuses: rights, path, password, disk.
        """
        with self._translated():
            self._make(tables)
            with self._connect(writes=False) as connection:
                yield connection

    @contextmanager
    def writing(self, tables: sa.MetaData) -> Iterator[sa.Connection]:
        """A connection in a transaction, committed at the end, rolled back on an error.

        SQLite takes the write lock at the beginning, so that values that are read
        inside stay true until the commit. Raises: as ``reading``.
        """
        with self._translated():
            self._make(tables)
            with self._connect(writes=True) as connection, connection.begin():
                yield connection

    def close(self) -> None:
        """Release connections. Calling it twice is harmless; a later call reopens."""
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.left_by(self)
            elif self._pool is not None:
                self._pool.engine.dispose(close=False)  # the parent's connections
            self._pool = None
            self._ready.clear()

    def _connect(self, *, writes: bool) -> sa.Connection:
        connection = self._here().connect()
        if not writes and self.dialect == "postgresql":
            # each statement has a snapshot of its own anyway: saves BEGIN and ROLLBACK
            return connection.execution_options(isolation_level="AUTOCOMMIT")
        return connection.execution_options(**{WRITES: writes})

    def _here(self) -> sa.Engine:
        with self._lock:
            if self._pool is not None and self._pid != os.getpid():
                self._pool.engine.dispose(close=False)  # the parent's connections
                self._pool = None
            if self._pool is None:
                self._pool = self._open()
                self._pid = os.getpid()
            return self._pool.engine

    def _open(self) -> Pool:
        def make() -> sa.Engine:
            return _engine(self._url, self._option, self._waits)

        if self.dialect == "sqlite":  # each object notices when its file is replaced
            return Pool(make()).used_by(self)
        return shared((self._url, self._waits.silence_ms), self, make)

    def _make(self, tables: sa.MetaData) -> None:
        """Create missing tables, once in each process; several may do so at once."""
        if tables in self._ready:
            return
        with self._connect(writes=False) as connection:
            existing = set(sa.inspect(connection).get_table_names())
            for name in sorted(existing & set(tables.tables)):
                if name.startswith(OURS):
                    check_columns(connection, tables.tables[name])
        if not set(tables.tables) <= existing:
            for _ in tables.tables:  # while each try finds one that another made
                with suppress(exc.DBAPIError):
                    self._create(tables)
                    break
            else:
                self._create(tables)
        self._ready.add(tables)

    def _create(self, tables: sa.MetaData) -> None:
        with self._connect(writes=True) as connection, connection.begin():
            tables.create_all(connection, checkfirst=True)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except exc.SQLAlchemyError as error:
            translated = translate(error, self._url)
            if isinstance(translated, StateUnavailableError):
                self._leave_connections()
            # The driver's own words are in the text; its traceback would bury them.
            raise translated from None

    def _leave_connections(self) -> None:
        """Retry on new connections: old ones may lead to a former primary."""
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.leave_connections()


def _parse(text: str, option: str) -> URL:
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError):  # their texts may hold the password
        raise _malformed(option) from None
    if "@" in (url.host or ""):
        raise _malformed(option)
    if url.get_backend_name() == "sqlite":
        return _sqlite_file(url, option)
    if url.get_backend_name() == "postgres":
        raise ConfigError(
            f"option '{option}' is {address(url)!r}: write postgresql:// instead of"
            " postgres://",
            option=option,
        )
    if url.drivername == "postgresql" and not find_spec("psycopg2"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername in mysql.MYSQL and not find_spec("MySQLdb"):
        return url.set(drivername=f"{url.drivername}+pymysql")
    return url


def _malformed(option: str) -> ConfigError:
    return ConfigError(
        f"option '{option}' is no SQLAlchemy URL; legal: dialect://user:password@host"
        ":port/database, with every special character of the password written as"
        " %XX, or sqlite:///file",
        option=option,
    )


def _sqlite_file(url: URL, option: str) -> URL:
    file = url.database
    if not file or file == ":memory:" or url.query.get("mode") == "memory":
        raise ConfigError.illegal(
            option,
            address(url),
            "sqlite:///file",
            "A SQLite database in memory is gone with its connection; use memory:",
        )
    if file.startswith("file:"):
        return url
    return url.set(database=str(Path(file).absolute()))


def _engine(url: URL, option: str, waits: Waits) -> sa.Engine:
    backend = url.get_backend_name()
    given = _CONNECT_ARGS.get(backend, {})
    if url.drivername.endswith("+pymysql"):
        given = {**given, "read_timeout": mysql.HANDSHAKE_S}
    arguments = {name: each for name, each in given.items() if name not in url.query}
    try:
        engine = sa.create_engine(
            url,
            connect_args=arguments,
            isolation_level=_ISOLATION.get(backend),
            poolclass=_Connections,
            pool_pre_ping=backend != "sqlite",
            pool_size=IDLE_CONNECTIONS,
            max_overflow=-1,
        )
    except (exc.ArgumentError, ImportError) as error:
        raise ConfigError(
            f"option '{option}' is {address(url)!r} and cannot be used"
            f" ({error}). Install the driver that the URL names; for PostgreSQL:"
            " pip install 'kafka-tx[postgresql]', for MySQL and MariaDB:"
            " pip install 'kafka-tx[mysql]'",
            option=option,
        ) from None
    if backend == "sqlite":
        SqliteFile(address(url)).listen(engine)
    if backend == "postgresql":
        postgresql.listen(engine, waits.silence_ms)
    if backend in mysql.MYSQL:
        mysql.listen(engine)
    return engine
