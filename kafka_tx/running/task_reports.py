"""Reports of tasks: short JSON lines to a socket of the driver, each confirmed."""

from __future__ import annotations

import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_tx.running.report_server import ReportServer

_TAKEN = b"+"
"""What the listener answers when it has taken a report."""

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - the last resort; senders need the token
_SEND_TIMEOUT_S = 1.0
_TRIES = 3
_PAUSE_S = 0.05

logger = logging.getLogger(__name__)


class ReportListener:
    """Takes reports in the driver's process; those without its token are not even read.

    Args:
        host: Where executors find the driver.
        take: Called with each report, on a thread of its own. What a stranger made up
            may be anything: ``ValueError``, ``KeyError`` and ``TypeError`` are ignored.
        name: Of the threads.
        bind: The address to listen on, where it is another one. If neither is this
            machine's (behind NAT), it listens on all of them.

    Raises:
        OSError: It cannot listen at all.
    """

    def __init__(
        self,
        host: str,
        take: Callable[[dict[str, Any]], None],
        name: str,
        *,
        bind: str | None = None,
    ) -> None:
        self._token = secrets.token_hex(16)
        self._take = take
        self._server = self._listen([bind or host, host, _EVERY_ADDRESS])
        port = self._server.server_address[1]
        self.address = f"{host}:{port}:{self._token}"
        """For ``send_report``."""
        threading.Thread(
            target=self._server.serve_forever, name=name, daemon=True
        ).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _listen(self, addresses: list[str]) -> ReportServer:
        from kafka_tx.running.report_server import ReportServer

        refusal = OSError("no address")
        for address in addresses:
            try:
                return ReportServer(address, self._token, self._read, _TAKEN)
            except OSError as error:
                refusal = error
        raise refusal

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
            raise ConnectionError("the driver did not take what it was told")
