"""PostgreSQL connections that notice a server that is gone.

A connection can be dead without a word: a firewall dropped it, the host died, the
server is frozen. TCP notices a dead machine within 25 s (keepalives, tcp_user_timeout).
If a connection is silent and its machine answers, a new connection asks the server
whether it still works for the silent one. So a long statement may go on, and a wait for
a dead server ends.

Behind a pooler (such as PgBouncer in transaction mode) the process that served the last
transaction may serve another client by now. So none is ended there, settings last for a
transaction, and no statement is prepared on the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import event

if TYPE_CHECKING:
    import sqlalchemy as sa

CONNECT_ARGUMENTS: Mapping[str, int] = {
    "connect_timeout": 8,
    "tcp_user_timeout": 25_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}

_SESSION = {
    "lock_timeout": "10s",
    # A writer that was frozen in the middle must not keep its lock for ever.
    "idle_in_transaction_session_timeout": "60s",
    # So that the server too notices a client that is gone.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    # Times are sent in UTC, some without a zone.
    "timezone": "UTC",
}

_SELF = (
    "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
)
_IS_AT_WORK = (
    "SELECT state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'"
    " FROM pg_stat_activity WHERE pid = %s AND backend_start::text = %s"
)
_END = (
    "SELECT pg_terminate_backend(pid)"
    " FROM pg_stat_activity WHERE pid = %s AND backend_start::text = %s"
)

_T = TypeVar("_T")
_Wait = Generator[Any, Any, _T]
_Session = tuple[int, str]
"""A server process: its number and when it began."""

_POOLED_SILENCES = 10
"""After so many silences in a row a pooler's connection is closed: nobody knows which
server process works for it."""


def listen(engine: sa.Engine, silence_ms: int) -> None:
    """Make the engine's connections bounded in their waits."""
    event.listen(engine, "connect", _set_session)
    event.listen(engine, "begin", _set_transaction)
    if engine.dialect.driver == "psycopg" and silence_ms:
        connections = _BoundedConnections(silence_ms / 1000)
        event.listen(engine, "do_connect", connections.connect)


def _set_session(connection: Any, _record: object) -> None:  # noqa: ANN401 - DB-API
    """Bound the waits of a connection; behind a pooler, those of a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (served_by,) = cursor.fetchone()
        is_pooled = served_by != connection.info.backend_pid
        if not is_pooled:
            cursor.execute(_settings(connection, "false"))
    connection.commit()
    if is_pooled:
        connection.prepare_threshold = None
        connection.begins_with = _settings(connection, "true")


def _set_transaction(connection: sa.Connection) -> None:
    text = getattr(connection.connection.dbapi_connection, "begins_with", "")
    if text:
        connection.exec_driver_sql(text)


def _settings(connection: Any, only_here: str) -> str:  # noqa: ANN401 - DB-API
    """A statement that sets what the URL's ``options`` do not set."""
    given = (connection.info.options or "").lower()
    ours = {name: value for name, value in _SESSION.items() if name not in given}
    calls = ", ".join(f"set_config('{n}', '{v}', {only_here})" for n, v in ours.items())
    return f"SELECT {calls or 1}"


class _BoundedConnections:
    """Makes psycopg's connections, and asks about those that fall silent.

    An abandoned session is ended, at once or with the next new connection: it may hold
    locks for which everybody waits. Behind a pooler none is.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._abandoned: list[_Session] = []

    def connect(
        self,
        _dialect: object,
        _record: object,
        arguments: Sequence[Any],
        parameters: Mapping[str, Any],
    ) -> Any:  # noqa: ANN401 - its class is made late
        """Instead of the driver's own ``connect``."""

        def new() -> Any:  # noqa: ANN401
            return _bounded_connection().connect(*arguments, **parameters)

        connection = new()
        connection.silence_s = self._silence_s
        try:
            session: _Session = connection.execute(_SELF).fetchone()
            for gone in list(self._abandoned):
                connection.execute(_END, gone)
                with suppress(ValueError):  # another thread has ended it, too
                    self._abandoned.remove(gone)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        if session[0] == connection.info.backend_pid:
            connection.is_over = lambda _silences: self._is_over(session, new)
        else:
            connection.is_over = lambda silences: silences >= _POOLED_SILENCES
        return connection

    def _is_over(self, session: _Session, new: Callable[[], Any]) -> bool:
        """Ask the server, over another connection, whether a silent one is dead."""
        from psycopg import Error

        try:
            with new() as other:
                other.silence_s = self._silence_s
                row = other.execute(_IS_AT_WORK, session).fetchone()
                if row and row[0]:
                    return False
                other.execute(_END, session)
        except Error:
            self._abandoned.append(session)  # nobody answers there at all
        return True


@cache
def _bounded_connection() -> Any:  # noqa: ANN401 - a class made once psycopg is wanted
    import psycopg

    class BoundedConnection(psycopg.Connection[Any]):
        silence_s = 0.0
        begins_with = ""
        is_over: Callable[[int], bool] = staticmethod(lambda _silences: True)

        def wait(self, gen: Any, *args: Any, **more: Any) -> Any:  # noqa: ANN401
            if self.silence_s:
                gen = _watched(gen, self.silence_s, self._fell_silent)
            return super().wait(gen, *args, **more)

        def _fell_silent(self, silences: int) -> None:
            if self.is_over(silences):
                self.pgconn.finish()
                raise psycopg.OperationalError(
                    f"no word from the server for {self.silence_s:.0f} s, and it does"
                    " not work for this connection"
                )

    return BoundedConnection


def _watched(
    waiting: _Wait[_T], silence_s: float, fell_silent: Callable[[int], None]
) -> _Wait[_T]:
    """Drive one of psycopg's waits; call ``fell_silent`` if nothing comes for long.

    Its argument is how often in a row. The driver resumes a wait ten times a second
    without anything ready.
    """
    try:
        wanted = next(waiting)
        heard_at, silences = time.monotonic(), 0
        while True:
            ready = yield wanted
            if ready:
                heard_at, silences = time.monotonic(), 0
            elif time.monotonic() - heard_at > silence_s:
                silences += 1
                fell_silent(silences)
                heard_at = time.monotonic()
            wanted = waiting.send(ready)
    except StopIteration as end:
        result: _T = end.value
        return result
