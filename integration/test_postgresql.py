"""The PostgreSQL server of the tests takes transactions and survives a kill."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlalchemy

from integration.cluster.postgresql import PostgresServer
from integration.cluster.running import running
from kafka_tx import TransactionAttempt
from kafka_tx.sql.tables import append_rows


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


@pytest.mark.parametrize("opaque", [False, True])
def test_rows_are_appended_under_any_legal_name(postgresql, opaque):
    names = ["100%", "%(x)s", "count(1)", 'a "b"', "a:b", "select", "Größe", "a.b, c"]
    rows = pa.table({name: [n] for n, name in enumerate(names)})
    table = "appended"

    for number in (1, 2):
        attempt = TransactionAttempt(1, number)
        append_rows(postgresql, table, attempt, rows, opaque=opaque)

    engine = sqlalchemy.create_engine(postgresql)
    found = sqlalchemy.Table(table, sqlalchemy.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        (row,) = connection.execute(sqlalchemy.select(found)).all()
    engine.dispose()
    assert tuple(row)[: len(names)] == tuple(range(len(names)))
