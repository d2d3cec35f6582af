"""The PostgreSQL server of the tests takes transactions and survives a kill."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy

from integration.cluster.postgresql import PostgresServer
from integration.cluster.running import running
from integration.cluster.waiting import wait_until
from kafka_tx import TransactionAttempt
from kafka_tx.assembly import open_store
from kafka_tx.sql.database import IDLE_CONNECTIONS
from kafka_tx.sql.tables import append_rows


@pytest.mark.all
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


@pytest.mark.all
def test_a_killed_server_keeps_what_was_committed():
    with running(PostgresServer()) as server:
        server.execute("CREATE TABLE kept (n int)")
        maps = Path(f"/proc/{server.pid}/maps").read_text()
        assert "/dev/shm/PostgreSQL" not in maps, "it would stay behind"
        server.kill()
        with pytest.raises(psycopg.OperationalError, match=r"refused|terminated"):
            server.execute("SELECT 1")

        server.start()

        assert server.execute("SELECT n FROM kept")


def test_all_ids_of_a_process_share_few_connections(postgresql, postgresql_server):
    watching = sqlalchemy.create_engine(postgresql_server.url())
    ours = sqlalchemy.engine.make_url(postgresql).database
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = :ours"

    def connections():
        with watching.connect() as connection:
            return connection.scalar(sqlalchemy.text(count), {"ours": ours})

    stores = [open_store(postgresql, f"job-{number}") for number in range(20)]
    with ThreadPoolExecutor(10) as threads:
        assert list(threads.map(lambda store: store.acquire(), stores)) == [1] * 20

    wait_until(
        "what nobody uses is closed",
        lambda: connections() <= IDLE_CONNECTIONS,
    )
    for store in stores[1:]:
        store.close()
    assert stores[0].epoch() == 1
    assert connections() >= 1
    stores[0].close()
    wait_until("nobody is there", lambda: connections() == 0)
    watching.dispose()


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
