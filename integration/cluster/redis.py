"""A Redis server in a temporary directory, which keeps each write on its disk."""

from __future__ import annotations

import socket

from integration.cluster.child import ServerProcess
from integration.cluster.debian import redis_program
from integration.cluster.waiting import HOST


class RedisServer(ServerProcess):
    """One server. ``start`` returns when it answers.

    Raises:
        ProgramMissingError: Redis is not installed.
    """

    def __init__(self) -> None:
        self._program = redis_program()
        super().__init__("redis")

    @property
    def url(self) -> str:
        """The same for ever."""
        return f"redis://{HOST}:{self._port}/0"

    def start(self) -> None:
        settings = {
            "port": self._port,
            "bind": HOST,
            "dir": self._work.path,
            "appendonly": "yes",
            "appendfsync": "always",
        }
        options = [word for name, to in settings.items() for word in (f"--{name}", to)]
        self._serve([self._program, *map(str, options)], self._answers)

    def _answers(self) -> bool:
        with socket.create_connection((HOST, self._port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")  # not while it loads
