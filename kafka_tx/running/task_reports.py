"""Task reports: short JSON lines to a socket of the driver, which confirms each."""

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
"""The listener's answer to a report that it has taken."""

_CONNECT_WITHIN_S = 3.0
_ANSWER_WITHIN_S = 10.0
"""A driver may halt for some seconds, for Java's garbage or with its machine. Its
operating system takes connections meanwhile, so a blocked network is noticed sooner."""
_TRIES = 3
_PAUSE_S = 0.05

PORTS = "spark.kafka_tx.driver.ports"
"""The Spark setting for the ports at which executors reach the driver."""

_BIND = "spark.driver.bindAddress"

logger = event_log(__name__)

_Server = TypeVar("_Server")


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where executors reach this process, and where it listens for them.

    Attributes:
        host: The address that executors use.
        bind: The address to listen on; empty: ``host``.
        ports: The first free one is used; 0: any free port.
    """

    host: str
    bind: str = ""
    ports: Sequence[int] = (0,)

    @classmethod
    def of(cls, config: Callable[[str], str | None]) -> DriverAddress:
        """Read the addresses from Spark's configuration.

        There IPv6 addresses stand in brackets; sockets take them without.

        Raises:
            ConfigError: ``spark.kafka_tx.driver.ports`` names no ports.
        """
        host = (config("spark.driver.host") or "127.0.0.1").strip("[]")
        bind = (config(_BIND) or host).strip("[]")
        return cls(host, bind, _ports(config(PORTS)))

    def listen(self, make: Callable[[str, int], _Server], *others: str) -> _Server:
        """A server of ``make`` on the first address and port that are free.

        The ``others`` are addresses to try next, if ``bind`` is not one of this
        machine.

        Raises:
            ConfigError: No address and port is free.
        """
        refusal = OSError("no address")
        for address in (self.bind or self.host, *others):
            for port in self.ports:
                try:
                    return make(address, port)
                except OSError as error:
                    refusal = error
        raise self._refused(refusal) from refusal

    def _refused(self, refusal: OSError) -> ConfigError:
        first, last = self.ports[0], self.ports[-1]
        ports = f"{first}-{last}" if first else "any port"
        return ConfigError(
            "the driver must listen for its tasks, and the system refuses"
            f" {self.bind or self.host} with {ports}: {refusal}. If the ports are"
            f" taken, name more in {PORTS}: attach and each topology take one. If the"
            f" address is not one of this machine, set {_BIND} to one that is",
            option=PORTS,
            value=ports,
        )


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
    """Takes task reports in the driver's process; reports without its token are unread.

    If the driver's addresses are not this machine's (behind NAT), it listens on all
    addresses of this machine, of the same kind: IPv4 or IPv6.

    Args:
        take: Called with each report, on a thread of its own. ``ValueError``,
            ``KeyError`` and ``TypeError`` mark a malformed report, which is ignored.

    Raises:
        ConfigError: It can listen on no address.
    """

    def __init__(
        self,
        driver: DriverAddress,
        take: Callable[[dict[str, Any]], None],
        name: str,
    ) -> None:
        self._take = take
        token = secrets.token_hex(16)
        self._server = driver.listen(
            lambda *where: _ReportServer(where, token, self._read),
            driver.host,
            "::" if ":" in driver.host else "0.0.0.0",  # noqa: S104 - the last resort; senders need the token
        )
        port = self._server.server_address[1]
        self.address = f"{driver.host}:{port}:{token}"
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
    """Send a report from an executor and wait for its confirmation; three tries.

    Raises:
        OSError: No listener answers, the network is blocked, or the report is refused.
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
    with socket.create_connection(where, _CONNECT_WITHIN_S) as sender:
        sender.settimeout(_ANSWER_WITHIN_S)
        sender.sendall(line)
        if sender.recv(1) != _TAKEN:
            raise ConnectionError("the driver did not accept the report of a task")


_LONGEST_TOKEN = 64
_LONGEST_REPORT = 1 << 20


class _ReportServer(BoundedConnections, TCPServer):
    def __init__(
        self, where: tuple[str, int], token: str, read: Callable[[bytes], bool]
    ) -> None:
        self.token = token.encode()
        self.read = read
        super().__init__(where, _Handler)


class _Handler(StreamRequestHandler):
    server: _ReportServer

    def handle(self) -> None:
        said = self.rfile.readline(_LONGEST_TOKEN).strip()
        if not secrets.compare_digest(said, self.server.token):
            return
        if self.server.read(self.rfile.readline(_LONGEST_REPORT)):
            self.wfile.write(_TAKEN)
