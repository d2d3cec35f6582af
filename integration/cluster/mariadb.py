"""A MariaDB server in a temporary directory, run by a user who may run one."""

from __future__ import annotations

from pathlib import Path

import pymysql

from integration.cluster.child import ServerProcess
from integration.cluster.debian import mariadb_program
from integration.cluster.waiting import HOST

OWNER = "mysql"
"""The system's user when we are root."""


class MariaDbServer(ServerProcess):
    """One server. ``start`` returns when it takes connections.

    Its defaults are Debian's: names and texts fold case, and ``REPEATABLE READ``.

    Raises:
        ProgramMissingError: MariaDB is not installed.
    """

    def __init__(self) -> None:
        self._program = mariadb_program("mariadbd")
        super().__init__("mariadb", OWNER)

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
        self._serve(
            [self._program, "--no-defaults", *options],
            lambda: self.execute("SELECT 1"),
        )

    def execute(self, *statements: str) -> bool:
        """Run statements as root, outside any transaction."""
        with (
            pymysql.connect(
                host=HOST,
                port=self._port,
                user="root",
                autocommit=True,
                ssl_disabled=True,
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
        return True

    def _make(self, data: Path) -> None:
        command: list[str | Path] = [
            mariadb_program("mariadb-install-db"),
            *("--no-defaults", f"--datadir={data}", "--skip-test-db"),
            "--auth-root-authentication-method=normal",
        ]
        self._run(command, TMPDIR=str(self._work.path))
