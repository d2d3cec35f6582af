"""Lets user code take its time within a transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlalchemy as sa

AWAKE_S = 20.0


@contextmanager
def kept_awake(connection: sa.Connection) -> Iterator[None]:
    """Keep the transaction open while the block runs; a no-op where nobody ends it.

    PostgreSQL and MariaDB end a transaction in which nothing happens for a minute,
    since its process may be frozen. A thread sends something now and then.
    """
    driver: Any = connection.connection.dbapi_connection

    def ask() -> None:
        with driver.cursor() as cursor:  # psycopg's threads share a connection
            cursor.execute("SELECT 1")

    is_postgresql = connection.dialect.name == "postgresql"
    touch = ask if is_postgresql else getattr(driver, "touch", None)
    if driver is None or touch is None:
        yield
        return
    has_ended = threading.Event()

    def keep() -> None:
        while not has_ended.wait(AWAKE_S):
            with suppress(Exception):
                touch()

    thread = threading.Thread(target=keep, name="kafka_tx-awake", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
