"""Waiting for servers, and ports for them to listen on."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"
CHECK_EVERY_S = 0.05
PATIENT_S = 600
"""For what surely comes, also where seven sessions of Spark begin on two cores."""

SERVER_PORTS = range(15_000, 32_000)
"""Below the range that outgoing connections take theirs from, so that the port of a
server that is down for a moment is still free when it comes back."""


class NotReadyError(RuntimeError):
    """A server did not reach the wanted state in time, or ended before."""


def wait_until(
    what: str,
    claim: Callable[[], object],
    *,
    timeout_s: float = PATIENT_S,
    complain: Callable[[], str | None] = lambda: None,
) -> None:
    """Wait until ``claim`` gives something true; its exceptions mean "not yet".

    ``complain`` may give a reason for which waiting on is useless.

    Raises:
        NotReadyError: The time is up, or there was a complaint.
    """
    deadline = time.monotonic() + timeout_s
    last: object = "no answer"
    while time.monotonic() < deadline:
        try:
            if claim():
                return
        except Exception as error:  # noqa: BLE001 - not ready yet, in any way
            last = error
        if complaint := complain():
            raise NotReadyError(f"{what}: {complaint}")
        time.sleep(CHECK_EVERY_S)
    raise NotReadyError(f"{what}: not within {timeout_s:.0f} s; last: {last}")


_mine: set[int] = set()


def free_port() -> int:
    """A port of this machine that nothing listens on.

    It is this process's as long as it lives: nobody else is given it, also while its
    server is yet to be started, or down.
    """
    while True:
        port = random.choice(SERVER_PORTS)
        if port not in _mine and _is_unused(port) and _is_reserved(port):
            _mine.add(port)
            return port


def _is_unused(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _is_reserved(port: int) -> bool:
    """Whether this process could lock the port's byte of a file that all open."""
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _reservations() -> int:
    """The file's descriptor; closing it would free all ports.

    Runs whose temporary files lie elsewhere have the same file: a machine has its ports
    once.
    """
    place = Path("/tmp", f"kafka-tx-ports-{os.getuid()}")
    return os.open(place, os.O_WRONLY | os.O_CREAT)


def is_listening(port: int) -> bool:
    """Whether a connection to this port of this machine is accepted."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def zookeeper_serves(port: int) -> bool:
    """Whether a ZooKeeper on this machine answers as one that takes requests."""
    with socket.create_connection((HOST, port), timeout=1.0) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    return b"Mode:" in answer
