"""A Redis server in a temporary directory, which keeps each write on its disk."""

from __future__ import annotations

import socket

from integration.cluster.child import Child, WorkDirectory
from integration.cluster.debian import redis_program
from integration.cluster.waiting import HOST, free_port, wait_until


class RedisServer:
    """One server. ``start`` returns when it answers.

    Raises:
        ProgramMissingError: Redis is not installed.
    """

    def __init__(self) -> None:
        self._program = redis_program()
        self._port = free_port()
        self._work = WorkDirectory("redis")
        self._child: Child | None = None

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
        child = Child(
            [self._program, *map(str, options)],
            self._work.path / "output.log",
            directory=self._work.path,
        )
        self._child = child
        wait_until(
            "Redis answers",
            self._answers,
            complain=lambda: None if child.is_running else child.tail(),
        )

    def kill(self) -> None:
        """SIGKILL; ``start`` brings it back with its data."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def stop(self) -> None:
        """End it and delete its data. Harmless when repeated."""
        self.kill()
        self._work.delete()

    def _answers(self) -> bool:
        with socket.create_connection((HOST, self._port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")  # not while it loads
