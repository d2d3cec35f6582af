"""A socket on the driver that tasks send short words to: one line each, no reply."""

from __future__ import annotations

import json
import secrets
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from typing import Any

_SEND_TIMEOUT_S = 1.0
_LONGEST = 1 << 20


class WordDesk:
    """Takes words in the driver's process; those without its token are ignored.

    Args:
        host: Where executors find the driver.
        take: Called with each word, on a thread of the desk. What a stranger made up
            may be anything: ``ValueError``, ``KeyError`` and ``TypeError`` are ignored.
        name: Of the threads.
        bind: The address to listen on, where it is another one.

    Raises:
        OSError: It cannot listen there.
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
        desk = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = 5

            def handle(self) -> None:
                desk._read(self.rfile.readline(_LONGEST))

        self._server = socketserver.ThreadingTCPServer((bind or host, 0), Handler)
        self._server.daemon_threads = True
        port = self._server.server_address[1]
        self.address = f"{host}:{port}:{self._token}"
        """For ``send_word``."""
        threading.Thread(
            target=self._server.serve_forever, name=name, daemon=True
        ).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _read(self, line: bytes) -> None:
        try:
            word = json.loads(line)
            if secrets.compare_digest(str(word["token"]), self._token):
                self._take(word)
        except (ValueError, KeyError, TypeError):
            return


def send_word(address: str, word: Mapping[str, object]) -> None:
    """Send a word (executor).

    Raises:
        OSError: Nobody listens there, or the way is blocked.
    """
    host, port, token = address.rsplit(":", 2)
    with socket.create_connection((host, int(port)), _SEND_TIMEOUT_S) as sender:
        sender.sendall(json.dumps({"token": token, **word}).encode() + b"\n")
