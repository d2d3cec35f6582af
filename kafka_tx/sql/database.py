"""One database behind a SQLAlchemy URL: connections, transactions, durable SQLite."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, make_url

from kafka_tx.clock import SystemClock
from kafka_tx.errors import ConfigError, StateUnavailableError
from kafka_tx.sql import postgresql
from kafka_tx.sql.address import address
from kafka_tx.sql.database_failures import translate
from kafka_tx.sql.sqlite_file import BUSY_TIMEOUT_S, WRITES, SqliteFile
from kafka_tx.sql.upgrade import AddColumn, missing_columns
from kafka_tx.sql.waits import Waits
from kafka_tx.transactions.patience import Patience
from kafka_tx.transactions.refusals import unpicklable

_T = TypeVar("_T")

_CONNECT_ARGS: dict[str, dict[str, Any]] = {
    "sqlite": {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
    "postgresql": dict(postgresql.CONNECT_ARGUMENTS),
    "mysql": {"connect_timeout": 10},
    "mariadb": {"connect_timeout": 10},
}


class Database:
    """Connections to one database, opened when first used.

    Errors of the driver leave as errors of ours, with the address and without the
    password. Threads may share an object. A process that was forked with one opens
    connections of its own.
    """

    def __init__(self, url: str, option: str = "tx.store") -> None:
        self._url, self._waits = Waits.taken_from(_parse(url, option), option)
        self._option = option
        self._engine: sa.Engine | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ready: set[sa.MetaData] = set()
        self._up_to_date: set[sa.MetaData] = set()

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
    def patience(self) -> Patience:
        """For calls that may be made again while the database cannot be had."""
        return Patience(SystemClock(), self._waits.retry_for_ms)

    @contextmanager
    def patient(self, make: Callable[[], AbstractContextManager[_T]]) -> Iterator[_T]:
        """Enter what ``make`` gives, again while the database cannot be had.

        What the block does is done once.
        """
        with ExitStack() as stack:
            yield self.patience(lambda: stack.enter_context(make()))

    @contextmanager
    def reading(self, tables: sa.MetaData) -> Iterator[sa.Connection]:
        """A connection for one consistent look; ``tables`` exist (made if missing).

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

        SQLite: the write lock is taken at the beginning, so that what is read inside
        stays true until the commit. Tables of ours from an earlier release get the
        columns that have come since.

        Raises: as ``reading``.
        """
        with self._translated():
            self._make(tables)
            self._bring_up_to_date(tables)
            with self._connect(writes=True) as connection, connection.begin():
                yield connection

    def close(self) -> None:
        """Release connections. Calling it twice is harmless; a later call reopens."""
        with self._lock:
            if self._engine is not None and self._pid == os.getpid():
                _close_all(self._engine)
            elif self._engine is not None:
                self._engine.dispose(close=False)  # the parent's connections
            self._engine = None
            self._ready.clear()
            self._up_to_date.clear()

    def _connect(self, *, writes: bool) -> sa.Connection:
        connection = self._here().connect()
        return connection.execution_options(**{WRITES: writes})

    def _here(self) -> sa.Engine:
        with self._lock:
            if self._engine is not None and self._pid != os.getpid():
                self._engine.dispose(close=False)  # the parent's connections
                self._engine = None
            if self._engine is None:
                self._engine = _open(self._url, self._option, self._waits)
                self._pid = os.getpid()
            return self._engine

    def _make(self, tables: sa.MetaData) -> None:
        """Create missing tables, once for each process; two may try at a time."""
        if tables in self._ready:
            return
        with self._connect(writes=False) as connection:
            existing = set(sa.inspect(connection).get_table_names())
        if not set(tables.tables) <= existing:
            _in_a_race(lambda: self._create(tables))
        self._ready.add(tables)

    def _create(self, tables: sa.MetaData) -> None:
        with self._connect(writes=True) as connection, connection.begin():
            tables.create_all(connection, checkfirst=True)

    def _bring_up_to_date(self, tables: sa.MetaData) -> None:
        """Add columns that tables of ours lack, once for each process; as ``_make``."""
        if tables in self._up_to_date:
            return
        _in_a_race(lambda: self._add_columns(tables))
        self._up_to_date.add(tables)

    def _add_columns(self, tables: sa.MetaData) -> None:
        with self._connect(writes=False) as connection:
            missing = missing_columns(connection, tables)
        if missing:
            with self._connect(writes=True) as connection, connection.begin():
                for column in missing:
                    connection.execute(AddColumn(column))

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
        """Try again on new ones: old ones may be read-only or of a former primary."""
        with self._lock:
            if self._engine is not None and self._pid == os.getpid():
                _close_all(self._engine)


def _parse(text: str, option: str) -> URL:
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError):  # their texts may hold the password
        raise _malformed(option) from None
    if "@" in (url.host or ""):
        raise _malformed(option)
    if url.get_backend_name() == "sqlite":
        return _sqlite_file(url, option)
    if url.drivername == "postgresql" and not find_spec("psycopg2"):
        return url.set(drivername="postgresql+psycopg")
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


def _open(url: URL, option: str, waits: Waits) -> sa.Engine:
    backend = url.get_backend_name()
    arguments = {
        name: value
        for name, value in _CONNECT_ARGS.get(backend, {}).items()
        if name not in url.query
    }
    try:
        engine = sa.create_engine(
            url, connect_args=arguments, pool_pre_ping=backend != "sqlite"
        )
    except (exc.ArgumentError, ImportError) as error:
        raise ConfigError(
            f"option '{option}' is {address(url)!r} and cannot be used"
            f" ({error}). Install the driver that the URL names; for PostgreSQL:"
            " pip install 'kafka-tx[postgresql]'",
            option=option,
        ) from None
    if backend == "sqlite":
        SqliteFile(address(url)).listen(engine)
    if backend == "postgresql":
        postgresql.listen(engine, waits.silence_ms)
    return engine


def _close_all(engine: sa.Engine) -> None:
    """Close idle connections now, and those in use as soon as they are given back."""
    pool = engine.pool
    engine.dispose()
    event.listen(pool, "checkin", lambda _, record: record.invalidate())
    pool.dispose()  # what was given back meanwhile


def _in_a_race(change: Callable[[], None]) -> None:
    """Once more where it fails: another process has made something of it meanwhile."""
    try:
        change()
    except exc.DBAPIError:
        change()
