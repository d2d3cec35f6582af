"""The PostgreSQL server of the tests takes transactions and survives a kill."""

from __future__ import annotations

import pytest
import sqlalchemy

from integration.cluster.postgresql import PostgresServer
from integration.cluster.running import running


def test_each_test_has_a_database_of_its_own(postgresql, postgresql_server):
    first = sqlalchemy.create_engine(postgresql)
    other = sqlalchemy.create_engine(postgresql_server.url())

    with first.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE mine (n int)"))

    with other.connect() as connection:
        tables = sqlalchemy.inspect(connection).get_table_names()
    assert tables == []
    first.dispose()
    other.dispose()


def test_a_killed_server_keeps_what_was_committed():
    with running(PostgresServer()) as server:
        server.execute("CREATE TABLE kept (n int)")
        server.kill()
        with pytest.raises(Exception, match="refused"):
            server.execute("SELECT 1")

        server.start()

        assert server.execute("SELECT n FROM kept")
