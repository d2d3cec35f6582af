"""Stores and maps behind PgBouncer in transaction mode, and beside its other users."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa

import kafka_tx
from integration.cluster.pooler import Pooler
from integration.cluster.running import running
from kafka_tx.errors import StateUnavailableError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql import awake
from kafka_tx.sql import postgresql as of_kafka_tx
from kafka_tx.sql.database import Database
from kafka_tx.sql.store import SqlStore

WITHIN_S = 50
TIMEOUT = "idle_in_transaction_session_timeout"


@pytest.fixture(scope="module")
def pooler(postgresql_server) -> Iterator[Pooler]:
    with running(Pooler(postgresql_server)) as started:
        yield started


@pytest.fixture
def pooled(pooler, postgresql) -> str:
    """A fresh database, through the pooler."""
    url: str = pooler.url(postgresql.rpartition("/")[2])
    return url


def neighbour(url: str) -> psycopg.Connection:
    """A program that knows nothing of us."""
    return psycopg.connect(url.replace("+psycopg", ""), prepare_threshold=None)


def test_several_stores_and_maps_share_the_few_connections(pooled):
    def write(name):
        store = SqlStore(pooled, name)
        total = kafka_tx.TransactionalMap(pooled, f"total_{name}")
        epoch = store.acquire()
        for txid in range(1, 13):
            store.write(epoch, {"currtx": str(txid)})
            attempt = TransactionAttempt.of(txid, epoch=epoch, number=1)
            total.update(attempt, pa.table({"key": ["a"], "value": [1]}))
        found[name] = store.get("currtx"), total.get(["a"])
        store.close()
        total.close()

    found: dict[str, object] = {}
    names = [f"w{n}" for n in range(4)]
    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)

    assert found == dict.fromkeys(names, ("12", {"a": 12}))


def test_nothing_of_ours_stays_with_the_neighbours(pooled):
    store = SqlStore(pooled, "job")
    store.write(store.acquire(), {"currtx": "1"})
    store.close()

    with neighbour(pooled) as one, neighbour(pooled) as other:
        for connection in (one, other):  # in a transaction each: on both servers
            assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)
            shown = connection.execute("SHOW idle_in_transaction_session_timeout")
            assert shown.fetchone() == ("0",)
            prepared = connection.execute("SELECT count(*) FROM pg_prepared_statements")
            assert prepared.fetchone() == (0,)


def test_a_neighbour_that_has_our_server_process_now_is_not_ended(pooled, monkeypatch):
    monkeypatch.setattr(of_kafka_tx, "_POOLED_SILENCES", 1)
    database = Database(pooled)
    with database.reading(sa.MetaData()) as ours:
        driver: Any = ours.connection.dbapi_connection
        ours.rollback()
        with neighbour(pooled) as other:
            other.execute("CREATE TEMPORARY TABLE kept ON COMMIT DROP AS SELECT 7 AS n")

            assert driver.is_over(1)

            assert other.execute("SELECT n FROM kept").fetchone() == (7,)
    database.close()


@pytest.mark.parametrize("through", ["pooler", "server"])
def test_work_within_a_batch_may_take_longer_than_an_idle_transaction(
    through, pooled, postgresql, monkeypatch
):
    monkeypatch.setattr(awake, "AWAKE_S", 0.2)
    monkeypatch.setitem(of_kafka_tx._SESSION, TIMEOUT, "5s")
    url = pooled if through == "pooler" else postgresql
    total = kafka_tx.TransactionalMap(url, "total")

    with total.batch(TransactionAttempt(1, 1)) as batch:
        time.sleep(6)  # a call to another service, say
        batch.update(pa.table({"key": ["a"], "value": [1]}))

    assert total.get(["a"]) == {"a": 1}
    total.close()


def test_a_transaction_that_stood_still_says_so(postgresql, monkeypatch):
    monkeypatch.setattr(awake, "AWAKE_S", 60.0)
    monkeypatch.setitem(of_kafka_tx._SESSION, TIMEOUT, "500ms")
    total = kafka_tx.TransactionalMap(postgresql, "total")

    def stands_still():
        with total.batch(TransactionAttempt(1, 1)) as batch:
            time.sleep(1.5)
            batch.update(pa.table({"key": ["a"], "value": [1]}))

    with pytest.raises(StateUnavailableError, match="nothing happened for too long"):
        stands_still()

    assert total.get(["a"]) == {}
    total.close()
