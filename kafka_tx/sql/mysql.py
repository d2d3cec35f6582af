"""Connections to MySQL and MariaDB: strict, and bounded in their waits."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

if TYPE_CHECKING:
    import sqlalchemy as sa

MYSQL = ("mysql", "mariadb")
"""What SQLAlchemy calls its dialect in URLs, and once it is connected."""
CONNECT_ARGUMENTS = {"connect_timeout": 10}
HANDSHAKE_S, STATEMENT_S = 10, 900
"""How long PyMySQL waits for each answer of a server that does not greet, or that has
stopped: the kernel of its machine, or a proxy, keeps the connection alive."""
IDLE_IN_TRANSACTION_S = 60
"""A writer that was frozen in the middle must not keep its lock for ever (MariaDB)."""

_DEAD_AFTER = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 25_000,
}
"""As for PostgreSQL, whose driver takes them: seconds, a number, milliseconds."""

_PING = b"\x01\0\0\0\x0e"
"""A packet of one byte, the first of its command: does the server live?"""


def listen(engine: sa.Engine) -> None:
    """Make the engine's connections strict, in UTC, and bounded in their waits."""
    bounds = "read_timeout" not in engine.url.query
    event.listen(engine, "connect", partial(_set_session, bounds=bounds))


def _set_session(connection: Any, _record: object, *, bounds: bool) -> None:  # noqa: ANN401 - DB-API
    # whatever the server's mode: what does not fit is refused, and not cut; and
    # whatever its zone: times are sent in UTC
    settings = "sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00'"
    if type(connection).__module__.startswith("pymysql"):
        if bounds:
            connection._read_timeout = STATEMENT_S
        _notice_the_dead(connection._sock)
        connection.touch = _toucher(connection)
        limit = f", idle_transaction_timeout = {IDLE_IN_TRANSACTION_S}"
        settings += f" /*M!100300 {limit} */"  # a comment for MySQL
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SET SESSION {settings}")


def _notice_the_dead(to_server: socket.socket) -> None:
    """Let the kernel end a connection whose other side is gone."""
    if to_server.family == socket.AF_UNIX:
        return
    to_server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _DEAD_AFTER.items():
        with suppress(AttributeError, OSError):  # macOS has other names
            to_server.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _toucher(connection: Any) -> Callable[[], None]:  # noqa: ANN401 - PyMySQL's
    """What another thread may call between two statements of the connection's owner."""
    lock, query = threading.Lock(), connection.query

    def locked(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        with lock:
            return query(*given, **named)

    def touch() -> None:
        with lock:  # as its ping does, but for the result: the owner may yet fetch it
            connection._write_bytes(_PING)
            connection._next_seq_id = 1
            connection._read_ok_packet()

    connection.query = locked
    return touch
