"""PgBouncer in front of a PostgreSQL server, in transaction mode."""

from __future__ import annotations

from integration.cluster.child import ServerProcess
from integration.cluster.debian import pgbouncer_program
from integration.cluster.postgresql import OWNER, PostgresServer
from integration.cluster.waiting import HOST, is_listening


class Pooler(ServerProcess):
    """Hands a few connections of the server from one client's transaction to another's.

    Args:
        server: Runs.
        size: How many connections.

    Raises:
        ProgramMissingError: PgBouncer is not installed.
    """

    def __init__(self, server: PostgresServer, size: int = 2) -> None:
        self._program = pgbouncer_program()
        self._server = server
        self._size = size
        super().__init__("pgbouncer", OWNER)

    def url(self, database: str = "postgres") -> str:
        """The address of a database for SQLAlchemy."""
        return f"postgresql+psycopg://{OWNER}@{HOST}:{self._port}/{database}"

    def start(self) -> None:
        """Return when it takes connections."""
        settings = {
            "listen_addr": HOST,
            "listen_port": self._port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": self._size,
            "max_client_conn": 100,
        }
        lines = [
            "[databases]",
            f"* = host={HOST} port={self._server.port} user={OWNER}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        file = self._work.path / "pgbouncer.ini"
        file.write_text("\n".join(lines))
        file.chmod(0o644)
        self._serve([self._program, file], lambda: is_listening(self._port))
