"""A server whose clients cannot use up this process, whatever they send."""

from __future__ import annotations

import socket
import sys
import time
from socketserver import BaseRequestHandler, ThreadingMixIn
from threading import Lock
from typing import Any

from kafka_tx.logs import event_log

logger = event_log(__name__)

MOST_CONNECTIONS = 64


class BoundedConnections(ThreadingMixIn):
    """One thread for each connection, and at most ``MOST_CONNECTIONS`` of them.

    One more closes the oldest, so that silent clients never keep out others. So does a
    request that is not over after ``answers_within_s``, however many bytes have come. A
    client that disconnects or sends nonsense appears in the debug log only. This class
    comes before the server class among the bases.

    A name that has addresses of both kinds means the IPv4 one, as in Spark's JVM.

    Raises:
        OSError: The server cannot listen there.
    """

    answers_within_s = 5.0

    daemon_threads = True
    request_queue_size = 1024
    """Connections that may wait to be accepted; one more waits a second or longer."""

    def __init__(
        self, where: tuple[str, int], handler: type[BaseRequestHandler]
    ) -> None:
        self._open: dict[socket.socket, float] = {}
        self._open_lock = Lock()
        found = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)
        self.address_family: int = min(family for family, *_ in found)
        super().__init__(where, handler)  # type: ignore[call-arg] # of the server class

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's
        """Answer on a thread; end the oldest connection if there are too many."""
        with self._open_lock:
            self._open[request] = time.monotonic()
            oldest = next(iter(self._open))
            is_full = len(self._open) > MOST_CONNECTIONS
            if is_full:
                del self._open[oldest]
        if is_full:
            _end(oldest)
        super().process_request(request, client_address)

    def admit(self, request: socket.socket) -> bool:
        """Exempt a client that has shown who it is; False: its connection has ended."""
        with self._open_lock:
            return self._open.pop(request, None) is not None

    def service_actions(self) -> None:
        """End requests that last too long; the server calls it twice a second."""
        latest = time.monotonic() - self.answers_within_s
        with self._open_lock:
            late = [each for each, since in self._open.items() if since < latest]
            for each in late:
                del self._open[each]
        for each in late:
            _end(each)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - socketserver's
        """The connection is over."""
        with self._open_lock:
            self._open.pop(request, None)
        super().shutdown_request(request)  # type: ignore[misc] # of the server class

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - socketserver's
        """Keep clients' errors out of stderr."""
        logger.debug("request of %s failed: %s", client_address, sys.exception())


def _end(connection: socket.socket) -> None:
    """Wake up the thread that waits for the connection and will close it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        logger.debug("the connection was over already")
