"""SQLite's connections: durable, with a log of their own, and on the file at the path.

An open connection goes on writing to a file that was removed, or that another one has
replaced, and nothing tells it. So each connection keeps which file it has opened.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from kafka_tx.errors import StateLostError
from kafka_tx.transactions.refusals import AFTER_A_FILE

BUSY_TIMEOUT_S = 10
"""How long a statement waits for another writer before the store is unavailable."""

WRITES = "kafka_tx_writes"
"""The execution option of a connection that takes the write lock as it begins."""

_File = tuple[int, int]
"""Device and number."""


class SqliteFile:
    """Makes an engine's connections, and compares their file with the one at the path.

    Args:
        address: Of the database, for errors.
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
        """Begin, and then make sure that it is a transaction on the right file."""
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
    """Switch a new file to its log; SQLite itself does not wait for others here."""
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
            return  # perhaps without one: some file systems cannot keep it
