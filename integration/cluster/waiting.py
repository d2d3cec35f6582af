"""Waiting for servers, and ports for them to listen on."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable

HOST = "127.0.0.1"
LOOK_EVERY_S = 0.05

SERVER_PORTS = range(15_000, 32_000)
"""Below the range that outgoing connections take theirs from, so that the port of a
server that is down for a moment is still free when it comes back."""


class NotReadyError(RuntimeError):
    """A server did not reach the wanted state in time, or ended before."""


def wait_until(
    what: str,
    claim: Callable[[], object],
    *,
    timeout_s: float = 60.0,
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
        time.sleep(LOOK_EVERY_S)
    raise NotReadyError(f"{what}: not within {timeout_s:.0f} s; last: {last}")


def free_port() -> int:
    """A port of this machine that nothing listens on now."""
    while True:
        port = random.choice(SERVER_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port


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
