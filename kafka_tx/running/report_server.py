"""The socket of a ``ReportListener``; executors never import it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from socketserver import StreamRequestHandler, TCPServer

from kafka_tx.metrics.connections import BoundedConnections

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
