"""A PostgreSQL server in a temporary directory, run by a user who may run one."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psycopg

from integration.cluster.child import ServerProcess, state_of
from integration.cluster.debian import postgresql_directory
from integration.cluster.proxy import Proxy
from integration.cluster.waiting import HOST, NotReadyError, wait_until

OWNER = "postgres"
"""The database's superuser, and the system's user when we are root."""

QUICK = ("fsync=off", "full_page_writes=off")
"""What is committed outlives the server, but not the machine."""

STILL_ENDING = "shared memory block"
"""What a server says when processes of a killed one have not noticed yet."""

WITHIN_S = 60.0


class PostgresServer(ServerProcess):
    """One server. ``start`` returns when it takes connections.

    Raises:
        ProgramMissingError: PostgreSQL is not installed.
    """

    def __init__(self) -> None:
        self._programs = postgresql_directory()
        super().__init__("postgresql", OWNER)

    @property
    def port(self) -> int:
        """The same for ever."""
        return self._port

    @property
    def pid(self) -> int:
        """Of the server that runs now."""
        assert self._child is not None
        return self._child.pid

    def url(self, database: str = "postgres", proxy: Proxy | None = None) -> str:
        """The address of a database for SQLAlchemy, through a proxy if given."""
        port = self._port if proxy is None else proxy.port
        return f"postgresql+psycopg://{OWNER}@{HOST}:{port}/{database}"

    def start(self) -> None:
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                return self._start()
            except NotReadyError as error:
                if STILL_ENDING not in str(error) or time.monotonic() > deadline:
                    raise

    def shut_down(self) -> None:
        """End it in order, breaking connections; ``start`` brings it back."""
        if self._child is not None:
            self._child.interrupt()
            self._child = None

    def pause(self) -> None:
        """Freeze all its processes: connections stay open and silent."""
        if self._child is not None:
            self._child.pause()  # it starts no more backends
        self._signal(signal.SIGSTOP)
        wait_until(
            "all stand still",
            lambda: {"T", "Z", ""}.issuperset(map(state_of, self._groups())),
        )

    def unpause(self) -> None:
        """Go on; harmless when it is not paused."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for group in self._groups():
            with contextlib.suppress(ProcessLookupError):  # a backend that has ended
                os.killpg(group, number)

    def _groups(self) -> list[int]:
        """Of the server and of its backends, which have their own."""
        if self._child is None:
            return []
        children = Path(f"/proc/{self._child.pid}/task/{self._child.pid}/children")
        backends = [int(pid) for pid in children.read_text().split()]
        return [self._child.pid, *backends]

    def execute(self, statement: str, database: str = "postgres") -> bool:
        """Run one statement as superuser, outside any transaction."""
        with psycopg.connect(
            host=HOST, port=self._port, user=OWNER, dbname=database, autocommit=True
        ) as connection:
            connection.execute(statement.encode())
        return True

    def follow(self, port: int) -> None:
        """Begin as an asynchronous standby of the server there, and start."""
        self._prepare(
            "pg_basebackup",
            *("-D", str(self._work.path / "data"), "-h", HOST, "-p", str(port)),
            *("-U", OWNER, "-R", "-X", "stream", "-c", "fast", "--no-sync"),
        )
        self.start()

    def promote(self) -> None:
        """End following: take writes."""
        self.execute("SELECT pg_promote(true)")

    def _start(self) -> None:
        data = self._work.path / "data"
        if not data.exists():
            self._prepare(
                "initdb",
                *("-D", str(data), "-U", OWNER, "-A", "trust", "-E", "UTF8"),
                *("--locale=C", "--no-sync"),
            )
        settings = (
            f"listen_addresses={HOST}",
            f"port={self._port}",
            f"unix_socket_directories={self._work.path}",
            "max_connections=300",
            "max_prepared_transactions=10",
            "dynamic_shared_memory_type=mmap",  # in its data: gone with them
            *QUICK,
        )
        options = [word for setting in settings for word in ("-c", setting)]
        self._serve(
            [self._programs / "postgres", "-D", data, *options],
            lambda: self.execute("SELECT 1"),
        )

    def _prepare(self, program: str, *arguments: str) -> None:
        self._run([self._programs / program, *arguments])
