"""Permits: each task asks the driver before it begins a commit phase.

A Spark job can end before its tasks: if the job is cancelled, or loses a task, the
worker that runs a committer goes on. So each task of a commit phase asks the driver
before its first line of user code, and reports when it is done. The end of its process
counts as a report, too. A phase is over when no task may begin it any more, and every
task that has begun has ended.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import ETIMEDOUT
from itertools import count

from kafka_tx.errors import FailedException, TransactionError
from kafka_tx.logs import event_log
from kafka_tx.metrics.connections import BoundedConnections
from kafka_tx.model import TransactionAttempt, host_port
from kafka_tx.running.task_reports import DriverAddress


class Permits:
    """Which tasks may commit, and which of them work. A holder is a number, used once.

    ::

        open(1:7)  ask(a) → yes   ask(b) → yes   done(a)    ask(a again) → no
        close(1:7) → (b,)         is_over → no   ended(b)   is_over → yes
    """

    def __init__(self) -> None:
        self._open: set[TransactionAttempt] = set()
        self._holders: dict[int, tuple[TransactionAttempt, str]] = {}
        self._done: set[tuple[TransactionAttempt, str]] = set()

    def open(self, attempt: TransactionAttempt) -> None:
        """Begin the commit phase of this attempt."""
        self._open.add(attempt)

    def ask(self, holder: int, attempt: TransactionAttempt, task: str) -> bool:
        """Whether a task may begin: the phase is open, and no run works or is done.

        Spark runs a task again if its first run seems lost: two runs must not work at
        the same time. Spark also runs a task again if its output was lost: other tasks
        may have committed rows of the first run.
        """
        if attempt not in self._open or (attempt, task) in self._done:
            return False
        if (attempt, task) in self._holders.values():
            return False
        self._holders[holder] = (attempt, task)
        return True

    def done(self, holder: int) -> None:
        """Mark a holder's task as done: it may not begin again."""
        attempt, task = self._holders[holder]
        if attempt in self._open:
            self._done.add((attempt, task))

    def ended(self, holder: int) -> None:
        """Remove a holder whose task or process has ended. Harmless twice."""
        self._holders.pop(holder, None)

    def close(self, attempt: TransactionAttempt) -> tuple[int, ...]:
        """Let no more tasks begin; returns the holders that still work."""
        self._open.discard(attempt)
        self._done = {each for each in self._done if each[0] != attempt}
        return self.holders(attempt)

    def holders(self, attempt: TransactionAttempt) -> tuple[int, ...]:
        """The holders that have begun for an attempt and not ended."""
        return tuple(h for h, (of, _) in self._holders.items() if of == attempt)

    def is_over(self, attempt: TransactionAttempt) -> bool:
        """Whether the attempt's commit phase can write nothing any more."""
        return attempt not in self._open and not self.holders(attempt)


BEAT_S = 5.0
"""Seconds between two heartbeats of the driver."""

SILENCE_S = 30.0
"""Seconds without a heartbeat after which a task ends its process."""

YES, NO, BEAT, END, DONE = b"y", b"n", b".", b"x", b"d"
_CONNECT_WITHIN_S = 30.0
_ANSWER_WITHIN_S = 10.0
_PAUSE_S = 0.1
_EXIT_CODE = 70


@dataclass(frozen=True, slots=True)
class PermitAddress:
    """The permit server's address. Pickled; requests without the token are ignored."""

    host: str
    port: int
    token: str


def _leave() -> None:
    """End this process at once, so that it writes nothing more."""
    os._exit(_EXIT_CODE)


@contextmanager
def permit(
    address: PermitAddress,
    attempt: TransactionAttempt,
    task: str,
    *,
    silence_s: float = SILENCE_S,
    leave: Callable[[], None] = _leave,
) -> Iterator[None]:
    """Run the body only if the driver allows it, and only as long as it does.

    If the phase is given up, or no heartbeat comes for ``silence_s``, another thread
    calls ``leave``, which ends the process.

    Raises:
        FailedException: The commit phase was given up before this task began, or an
            earlier run of the task is done or still works.
        TransactionError: The driver cannot be reached.
    """
    request = {"token": address.token, "attempt": str(attempt), "task": task}
    connection, is_allowed = _ask(address, request, silence_s)
    try:
        if not is_allowed:
            raise FailedException(
                f"the commit phase of attempt {attempt} was given up before task {task}"
                " began in it, or the task has run in it before"
            )
        with _watched(connection, leave):
            yield
            with suppress(OSError):
                connection.sendall(DONE)
    finally:
        connection.close()


def _ask(
    address: PermitAddress, request: dict[str, str], silence_s: float
) -> tuple[socket.socket, bool]:
    """Ask until the driver answers: it ends the oldest connection of too many."""
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    while True:
        connection = _connect(address)
        answer = _answer(connection, request, silence_s)
        if answer or time.monotonic() > deadline:
            return connection, answer == YES
        connection.close()
        time.sleep(_PAUSE_S)


def _connect(address: PermitAddress) -> socket.socket:
    deadline = time.monotonic() + _CONNECT_WITHIN_S
    while True:
        try:
            return socket.create_connection((address.host, address.port), BEAT_S)
        except OSError as error:
            if time.monotonic() > deadline:
                raise TransactionError(
                    "a task of a commit phase must reach the driver, to ask whether it"
                    f" may begin, and {host_port(address.host, address.port)} does not"
                    f" answer ({error}). Let executors connect to the driver"
                    " (spark.driver.host, firewalls), or put the committers on the"
                    " driver (.on_driver())."
                ) from error
            time.sleep(1)


def _answer(
    connection: socket.socket, request: dict[str, str], silence_s: float
) -> bytes:
    """The driver's answer; empty: the connection has ended."""
    connection.settimeout(silence_s)
    try:
        connection.sendall(json.dumps(request).encode() + b"\n")
        return connection.recv(1)
    except OSError:
        return b""


@contextmanager
def _watched(connection: socket.socket, leave: Callable[[], None]) -> Iterator[None]:
    """Call ``leave`` if the driver orders it, or is gone, before the body ends."""
    is_over, deciding = threading.Event(), threading.Lock()

    def watch() -> None:
        with suppress(OSError):
            while connection.recv(1) == BEAT:
                pass
        with deciding:
            if not is_over.is_set():
                leave()

    watcher = threading.Thread(target=watch, name="kafka-tx permit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with deciding:
            is_over.set()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        watcher.join(BEAT_S)


logger = event_log(__name__)

_LINE_BYTES = 4096


class PermitServer:
    """Gives permits to the tasks of commit phases; each working task has a connection.

    If a connection is closed, or reset by the other machine, its task is done or its
    process has ended. If a connection is lost, the task notices that, too, and ends its
    process within ``SILENCE_S``. Until then the task counts as working.

    Raises:
        ConfigError: The server cannot listen at the driver's address and ports.
    """

    def __init__(self, driver: DriverAddress) -> None:
        self._permits = Permits()
        self._changed = threading.Condition()
        self._connections: dict[int, socket.socket] = {}
        self._numbers = count(1)
        self._is_closed = False
        token = secrets.token_hex(16)
        self._server = driver.listen(
            lambda host, port: _server((host, port), token, self._serve)
        )
        port = self._server.server_address[1]
        self.address = PermitAddress(driver.host, port, token)
        threading.Thread(
            target=self._server.serve_forever, name="kafka-tx permits", daemon=True
        ).start()

    @contextmanager
    def phase(self, attempt: TransactionAttempt) -> Iterator[PermitAddress]:
        """Let tasks of this attempt work during the body, then wait for their ends.

        Also if the body raises: tasks that still work then get the order to end.
        """
        with self._changed:
            self._permits.open(attempt)
        try:
            yield self.address
        finally:
            self.give_up(attempt)
            with self._changed:
                self._changed.wait_for(
                    lambda: self._permits.is_over(attempt) or self._is_closed
                )

    def give_up(self, attempt: TransactionAttempt) -> None:
        """Let no more tasks of this attempt begin; end those that work. Harmless."""
        with self._changed:
            holders = self._permits.close(attempt)
            for holder in holders:
                with suppress(OSError, KeyError):
                    self._connections[holder].sendall(END)

    def close(self) -> None:
        """Stop listening and waiting for tasks. Harmless twice."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    # --- a thread for each connection ---

    def _serve(self, connection: socket.socket, request: dict[str, str]) -> None:
        holder = next(self._numbers)
        attempt = TransactionAttempt.parse(request["attempt"])
        with self._changed:
            may = self._permits.ask(holder, attempt, request["task"])
            self._connections[holder] = connection
        try:
            with suppress(OSError):
                connection.sendall(YES if may else NO)
            if may:
                self._accompany(connection, attempt, holder)
        finally:
            with self._changed:
                del self._connections[holder]
                self._permits.ended(holder)
                self._changed.notify_all()

    def _accompany(
        self, connection: socket.socket, attempt: TransactionAttempt, holder: int
    ) -> None:
        """Send heartbeats until the task has ended."""
        connection.settimeout(BEAT_S)
        try:
            while said := _heard(connection):
                if said == DONE:
                    with self._changed:
                        self._permits.done(holder)
        except ConnectionResetError:
            return
        except OSError as error:
            logger.warning(
                "a task cannot be heard any more (%s): it counts as working for %s s,"
                " in which it ends itself",
                *(error, SILENCE_S),
                attempt=attempt,
            )
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, SILENCE_S + BEAT_S)


def _heard(connection: socket.socket) -> bytes:
    """The next byte of a task, with heartbeats until it comes; empty: none will."""
    while True:
        try:
            return connection.recv(1)
        except TimeoutError as error:
            if error.errno == ETIMEDOUT:  # of the connection, not of ``settimeout``
                raise
            connection.sendall(BEAT)


def _server(
    where: tuple[str, int], token: str, serve: object
) -> socketserver.TCPServer:
    class Handler(socketserver.StreamRequestHandler):
        server: Server

        def handle(self) -> None:
            try:
                request = json.loads(self.rfile.readline(_LINE_BYTES))
                is_ours = secrets.compare_digest(str(request["token"]), token)
            except (ValueError, KeyError, TypeError, OSError):
                return
            if is_ours and self.server.admit(self.connection):
                _keep_alive(self.connection)
                serve(self.connection, request)  # type: ignore[operator]

    class Server(BoundedConnections, socketserver.TCPServer):
        block_on_close = False

    return Server(where, Handler)


def _keep_alive(connection: socket.socket) -> None:
    """Let the operating system notice a lost machine within ``SILENCE_S``."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 10),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", int(SILENCE_S * 1000)),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
