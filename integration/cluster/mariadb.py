"""A MariaDB server in a temporary directory, run by a user who may run one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pymysql

from integration.cluster.child import Child, WorkDirectory
from integration.cluster.debian import mariadb_program
from integration.cluster.waiting import HOST, free_port, wait_until

OWNER = "mysql"
"""The system's user when we are root."""


class MariaDbServer:
    """One server. ``start`` returns when it takes connections.

    Its defaults are Debian's: names and texts fold case, and ``REPEATABLE READ``.

    Raises:
        ProgramMissingError: MariaDB is not installed.
    """

    def __init__(self) -> None:
        self._program = mariadb_program("mariadbd")
        self._port = free_port()
        self._work = WorkDirectory("mariadb")
        self._user = OWNER if os.geteuid() == 0 else None
        self._child: Child | None = None

    def url(self, database: str = "test") -> str:
        """The address of a database for SQLAlchemy."""
        return f"mysql+pymysql://root@{HOST}:{self._port}/{database}"

    def start(self) -> None:
        data = self._work.path / "data"
        if not data.exists():
            self._make(data)
        settings = {
            "datadir": data,
            "tmpdir": self._work.path,
            "socket": self._work.path / "socket",
            "pid-file": self._work.path / "pid",
            "port": self._port,
            "bind-address": HOST,
            "innodb-flush-log-at-trx-commit": 2,  # outlives the server, not the machine
            "innodb-buffer-pool-size": "64M",
            "skip-log-bin": 1,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        child = Child(
            [self._program, "--no-defaults", *options],
            self._work.path / "output.log",
            directory=self._work.path,
            user=self._user,
        )
        self._child = child
        wait_until(
            "MariaDB takes connections",
            lambda: self.execute("SELECT 1"),
            complain=lambda: None if child.is_running else child.tail(),
        )

    def kill(self) -> None:
        """SIGKILL; connections break. ``start`` brings it back with its data."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def stop(self) -> None:
        """End it and delete its data. Harmless when repeated."""
        self.kill()
        self._work.delete()

    def execute(self, *statements: str) -> bool:
        """Run statements as root, outside any transaction."""
        with (
            pymysql.connect(
                host=HOST, port=self._port, user="root", autocommit=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
        return True

    def _make(self, data: Path) -> None:
        if self._user is not None:
            shutil.chown(self._work.path, self._user, self._user)
        subprocess.run(
            [
                mariadb_program("mariadb-install-db"),
                *("--no-defaults", f"--datadir={data}", "--skip-test-db"),
                "--auth-root-authentication-method=normal",
            ],
            cwd=self._work.path,
            env={**os.environ, "TMPDIR": str(self._work.path)},
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
            stdout=subprocess.DEVNULL,
            check=True,
        )
