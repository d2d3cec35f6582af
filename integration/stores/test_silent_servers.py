"""Stores and maps over connections that die without a word, and on busy servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy.engine import make_url

from integration.cluster.postgresql import PostgresServer
from integration.cluster.proxied import proxies_to
from integration.cluster.proxy import Proxy
from integration.cluster.running import running
from integration.cluster.waiting import wait_until
from kafka_tx import assembly
from kafka_tx.errors import StateGivenUpError, StateUnavailableError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.database import Database
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.state_tables import OWNER, STORE
from kafka_tx.sql.store import SqlStore
from kafka_tx.sql.tables import append_rows

GIVES_UP_WITHIN_S = 30
QUICKLY = "silence_ms=1000&connect_timeout=2"
ROWS = pa.table({"key": ["a", "b"], "value": [1, 2]})


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL to hurt; heal what you break."""
    with running(PostgresServer()) as server:
        yield server


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with proxies_to(server.port) as (proxy,):
        yield proxy


@pytest.fixture
def url(server, proxy):
    """A database of its own for each run of a test, behind the proxy."""
    name = f"test_{uuid4().hex[:12]}"
    server.execute(f"CREATE DATABASE {name}")
    return f"{server.url(name, proxy)}?{QUICKLY}"


def seconds_of(call):
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_a_write_on_a_silent_connection_gives_up_in_time(url, proxy):
    store = SqlStore(url, "orders")
    epoch = store.acquire()
    proxy.half_open()

    def write():
        with pytest.raises(StateUnavailableError):
            store.write(epoch, {"a": "1"})

    assert seconds_of(write) < GIVES_UP_WITHIN_S
    assert proxy.swallowed
    proxy.heal()
    store.write(epoch, {"a": "2"})
    assert store.read() == {"a": "2"}
    store.close()


def test_a_query_goes_on_when_the_network_does(url, proxy):
    store = assembly.retrying_store(url, "orders")
    epoch = store.acquire()
    proxy.half_open()
    timer = threading.Timer(4, proxy.heal)
    timer.start()

    store.write(epoch, {"a": "1"})

    timer.join()
    assert store.read() == {"a": "1"}
    store.close()


@pytest.mark.parametrize("kind", [TransactionalMap, OpaqueMap])
def test_a_commit_whose_answer_was_lost_is_looked_up(kind, url, proxy):
    """The server commits or not, as luck has it; the map counts once."""
    counts = kind(url, "counts")
    counts.update(TransactionAttempt(1, 1), ROWS)

    def cut_off() -> None:
        with counts.batch(TransactionAttempt(2, 2)) as batch:
            batch.update(ROWS)
            proxy.half_open()

    with pytest.raises(StateUnavailableError):
        cut_off()
    proxy.heal()
    counts.update(TransactionAttempt(2, 2), ROWS)

    assert counts.get(["a", "b"]) == {"a": 2, "b": 4}
    assert counts.last_attempt() == TransactionAttempt(2, 2)
    counts.close()


def test_a_frozen_server_is_waited_for(url, server):
    counts = TransactionalMap(url, "counts")
    counts.update(TransactionAttempt(1, 1), ROWS)
    server.pause()
    timer = threading.Timer(4, server.unpause)
    timer.start()

    counts.update(TransactionAttempt(2, 1), ROWS)

    timer.join()
    assert counts.get(["a"]) == {"a": 2}
    counts.close()


def test_a_slow_statement_is_no_silence(url):
    store = SqlStore(url, "orders")
    store.acquire()
    with store._database._connect(writes=False) as connection:
        connection.exec_driver_sql("SELECT pg_sleep(3)")
    store.close()


def test_rows_are_appended_once_though_the_server_restarts(url, server):
    append_rows(url, "done", TransactionAttempt(1, 1), ROWS)
    server.kill()
    timer = threading.Timer(1, server.start)
    timer.start()

    append_rows(url, "done", TransactionAttempt(2, 1), ROWS)
    timer.join()

    assert not append_rows(url, "done", TransactionAttempt(2, 2), ROWS)


FULL, READ_ONLY = "too many clients", "takes no writes now"


def healing(caplog, write, heal):
    """Heal in a second, but not before the fault was met: the log tells of it."""

    def heal_when_met():
        try:
            wait_until(f"'{write}' is logged", lambda: write in caplog.text)
        finally:
            heal()

    timer = threading.Timer(1, heal_when_met)
    timer.start()
    return timer


@pytest.mark.all
def test_a_server_full_of_clients_is_waited_for(url, server, caplog):
    crowd = []
    is_full = False
    while not is_full:
        try:
            crowd.append(_client(server))
        except psycopg.OperationalError as error:  # or one that took too long
            is_full = FULL in str(error)
    timer = healing(caplog, FULL, lambda: [client.close() for client in crowd])

    append_rows(url, "done", TransactionAttempt(1, 1), ROWS)

    timer.join()
    assert FULL in caplog.text


def test_a_read_only_database_is_waited_for_and_then_given_up(url, server, caplog):
    counts = TransactionalMap(url, "counts")
    counts.update(TransactionAttempt(1, 1), ROWS)
    name = make_url(url).database
    read_only = f"ALTER DATABASE {name} SET default_transaction_read_only = "
    counts.close()
    server.execute(read_only + "on")
    impatient = TransactionalMap(f"{url}&retry_for_ms=500", "counts")
    with pytest.raises(StateGivenUpError, match="read-only"):
        impatient.update(TransactionAttempt(2, 1), ROWS)
    impatient.close()
    caplog.clear()
    timer = healing(caplog, READ_ONLY, lambda: server.execute(read_only + "off"))

    counts.update(TransactionAttempt(2, 1), ROWS)

    timer.join()
    assert counts.get(["a"]) == {"a": 2}
    assert READ_ONLY in caplog.text
    counts.close()


def test_zookeeper_on_a_silent_connection_gives_up_and_comes_back(zookeeper):
    port = int(zookeeper.hosts.rpartition(":")[2])
    with proxies_to(port) as (proxy,):
        url = (
            f"zookeeper://{proxy.address}/silent"
            "?session_timeout_ms=3000&connection_timeout_ms=2000&retry_interval_ms=100"
        )
        patient = assembly.retrying_store(url, "orders")
        epoch = patient.acquire()
        proxy.half_open()
        impatient = assembly.open_store(url, "orders")

        def poll():
            with pytest.raises(StateUnavailableError):
                impatient.epoch()

        assert seconds_of(poll) < GIVES_UP_WITHIN_S
        timer = threading.Timer(3, proxy.heal)
        timer.start()
        patient.write(epoch, {"a": "1"})
        timer.join()
        assert patient.read() == {"a": "1"}
        proxy.half_open()
        assert seconds_of(patient.close) < GIVES_UP_WITHIN_S
        impatient.close()


def _client(server):
    return psycopg.connect(server.url().replace("+psycopg", ""), connect_timeout=60)


def test_a_dead_clients_lock_is_not_waited_for_long(url, proxy, server):
    """What was written and not committed when the network went is taken back."""
    store = assembly.retrying_store(url, "orders")
    epoch = store.acquire()
    database = Database(url)

    def cut_off() -> None:
        with database.writing(STORE) as connection:
            connection.execute(OWNER.update().values(epoch=99))
            proxy.half_open()

    with pytest.raises(StateUnavailableError):
        cut_off()
    proxy.heal()
    with database.reading(STORE):
        pass  # a new connection ends the old one's session

    wait_until("the lock is gone", lambda: store.epoch() == epoch)
    assert seconds_of(lambda: store.write(epoch, {"a": "1"})) < GIVES_UP_WITHIN_S
    store.close()
    database.close()
