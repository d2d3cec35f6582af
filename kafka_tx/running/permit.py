"""The executor's side of permits: ask before a commit phase begins in a task."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kafka_tx.errors import FailedException, TransactionError
from kafka_tx.model import TransactionAttempt

BEAT_S = 5.0
"""How often the driver says that it is there."""

SILENCE_S = 30.0
"""A task that hears nothing for so long ends its process: it may be given up."""

YES, NO, BEAT, END = b"y", b"n", b".", b"x"
_CONNECT_WITHIN_S = 30.0
_EXIT_CODE = 70


@dataclass(frozen=True, slots=True)
class PermitAddress:
    """Where to ask. Pickled; the token keeps strangers out."""

    host: str
    port: int
    token: str


def _leave() -> None:
    """End this process: what it would still write must not be written."""
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
    """Let the body run if the driver allows it, and only as long as it does.

    Args:
        address: Of the driver.
        attempt: Whose commit phase it is.
        task: Which of its tasks.
        silence_s: Without a word from the driver for so long ``leave`` is called.
        leave: Called, on another thread, when the phase is given up: ends the process.

    Raises:
        FailedException: The commit phase was given up before this task began.
        TransactionError: The driver cannot be reached.
    """
    connection = _connect(address)
    try:
        asked = {"token": address.token, "attempt": str(attempt), "task": task}
        if not _is_allowed(connection, asked, silence_s):
            raise FailedException(
                f"the commit phase of attempt {attempt} was given up before task {task}"
                " began in it"
            )
        with _watched(connection, leave):
            yield
    finally:
        connection.close()


def _connect(address: PermitAddress) -> socket.socket:
    deadline = time.monotonic() + _CONNECT_WITHIN_S
    while True:
        try:
            return socket.create_connection((address.host, address.port), BEAT_S)
        except OSError as error:
            if time.monotonic() > deadline:
                raise TransactionError(
                    "a task of a commit phase must reach the driver, to ask whether it"
                    f" may begin, and {address.host}:{address.port} does not answer"
                    f" ({error}). Let executors connect to the driver"
                    " (spark.driver.host, firewalls), or put the committers on the"
                    " driver (.on_driver())."
                ) from error
            time.sleep(1)


def _is_allowed(
    connection: socket.socket, asked: dict[str, str], silence_s: float
) -> bool:
    connection.settimeout(silence_s)
    try:
        connection.sendall(json.dumps(asked).encode() + b"\n")
        return connection.recv(1) == YES
    except OSError:
        return False


@contextmanager
def _watched(connection: socket.socket, leave: Callable[[], None]) -> Iterator[None]:
    """Call ``leave`` when the driver says so, or is gone, before the body ends."""
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
