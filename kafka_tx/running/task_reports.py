"""Reports of tasks: short JSON lines to a socket of the driver, which confirms each."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from socketserver import StreamRequestHandler, TCPServer
from typing import Any, TypeVar

from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log
from kafka_tx.metrics.connections import BoundedConnections

_TAKEN = b"+"
"""What the listener answers when it has taken a report."""

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - the last resort; senders need the token
_SEND_TIMEOUT_S = 1.0
_TRIES = 3
_PAUSE_S = 0.05

PORTS = "spark.kafka_tx.driver.ports"
"""Spark's configuration for the ports that executors reach the driver at."""

logger = event_log(__name__)

_Server = TypeVar("_Server")


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where executors reach this process, and where it listens for them.

    Attributes:
        host: As executors know it.
        bind: The address to listen on, where it is another one.
        ports: The first free one of them is taken; 0 stands for any.
    """

    host: str
    bind: str = ""
    ports: Sequence[int] = (0,)

    @classmethod
    def of(cls, config: Callable[[str], str | None]) -> DriverAddress:
        """From Spark's configuration.

        Raises:
            ConfigError: ``spark.kafka_tx.driver.ports`` names no ports.
        """
        host = config("spark.driver.host") or "127.0.0.1"
        ports = _ports(config(PORTS))
        return cls(host, config("spark.driver.bindAddress") or host, ports)

    def listen(self, make: Callable[[str, int], _Server], *others: str) -> _Server:
        """A server on the first address and port that are free.

        Args:
            make: Makes it, or raises an OSError.
            others: Addresses to be tried where ``bind`` is not this machine's.

        Raises:
            OSError: None is free.
        """
        refusal = OSError("no address")
        for address in (self.bind or self.host, *others):
            for port in self.ports:
                try:
                    return make(address, port)
                except OSError as error:
                    refusal = error
        raise refusal


def _ports(text: str | None) -> Sequence[int]:
    if text is None:
        return (0,)
    first, _, last = text.partition("-")
    with suppress(ValueError):
        found = range(int(first), int(last or first) + 1)
        if found and 0 < found[0] <= found[-1] < 1 << 16:
            return found
    raise ConfigError.illegal(PORTS, text, "a port or two, as in 40000-40019")


class ReportListener:
    """Takes reports in the driver's process; those without its token are not even read.

    Args:
        driver: Where executors find the driver. If its addresses are not this machine's
            (behind NAT), it listens on all of them.
        take: Called with each report, on a thread of its own. What a stranger made up
            may be anything: ``ValueError``, ``KeyError`` and ``TypeError`` are ignored.
        name: Of the threads.

    Raises:
        OSError: It cannot listen at all.
    """

    def __init__(
        self,
        driver: DriverAddress,
        take: Callable[[dict[str, Any]], None],
        name: str,
    ) -> None:
        from kafka_tx.running.task_reports import ReportServer

        self._token = secrets.token_hex(16)
        self._take = take

        def make(address: str, port: int) -> ReportServer:
            return ReportServer((address, port), self._token, self._read, _TAKEN)

        self._server = driver.listen(make, driver.host, _EVERY_ADDRESS)
        port = self._server.server_address[1]
        self.address = f"{driver.host}:{port}:{self._token}"
        """For ``send_report``."""
        threading.Thread(
            target=self._server.serve_forever, name=name, daemon=True
        ).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _read(self, line: bytes) -> bool:
        try:
            self._take(json.loads(line))
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        return True


def send_report(address: str, report: Mapping[str, object]) -> None:
    """Send a report and wait until it was taken; tries again a few times (executor).

    Raises:
        OSError: Nobody listens there, the way is blocked, or it was not taken.
    """
    host, port, token = address.rsplit(":", 2)
    line = f"{token}\n{json.dumps(report)}\n".encode()
    for number in range(1, _TRIES + 1):
        try:
            return _send((host, int(port)), line)
        except OSError as error:
            if number == _TRIES:
                raise
            logger.debug("a report did not arrive, trying again: %s", error)
            time.sleep(number * _PAUSE_S)
    return None


def _send(where: tuple[str, int], line: bytes) -> None:
    with socket.create_connection(where, _SEND_TIMEOUT_S) as sender:
        sender.sendall(line)
        if sender.recv(1) != _TAKEN:
            raise ConnectionError("the driver did not accept the report of a task")


_LONGEST_TOKEN = 64
_LONGEST_REPORT = 1 << 20


class ReportServer(BoundedConnections, TCPServer):
    """Listens from when it is made; ``serve_forever`` answers.

    Args:
        where: An address of this machine, and a port; 0: any that is free.
        token: What every sender says first.
        read: Takes a report; False where it is none.
        taken: Answered when it was taken.

    Raises:
        OSError: It cannot listen there.
    """

    request_queue_size = 1024  # all tasks of a stage may end at once

    def __init__(
        self,
        where: tuple[str, int],
        token: str,
        read: Callable[[bytes], bool],
        taken: bytes,
    ) -> None:
        self.token, self.taken = token, taken
        self.read = read
        super().__init__(where, _Handler)


class _Handler(StreamRequestHandler):
    server: ReportServer
    timeout = 5  # seconds for a client that connects and says nothing

    def handle(self) -> None:
        said = self.rfile.readline(_LONGEST_TOKEN).strip()
        if not secrets.compare_digest(said, self.server.token.encode()):
            return
        if self.server.read(self.rfile.readline(_LONGEST_REPORT)):
            self.wfile.write(self.server.taken)
