"""The SQL store on a PostgreSQL that fails and refuses."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy import make_url

from integration.cluster.postgresql import PostgresServer
from integration.cluster.running import running
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.stored import sets, texts
from integration.stored.jobs import go_on
from integration.stored.sets import RELEASE
from kafka_tx.errors import StateConflictError, StateError, StateUnavailableError
from kafka_tx.sql.store import SqlStore
from tests.conformance.outage_suite import OutageSuite


@pytest.fixture
def open_store():
    stores = []

    def open_one(url):
        stores.append(SqlStore(url, "orders"))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


def connect(url):
    address = make_url(url)
    return psycopg.connect(
        host=address.host,
        port=address.port,
        user=address.username,
        dbname=address.database,
    )


class TestOutage(OutageSuite):
    @pytest.fixture
    def server(self):
        with running(PostgresServer()) as server:
            yield server

    @pytest.fixture
    def open_store(self, open_store, server):
        return lambda: open_store(server.url())

    @pytest.fixture
    def outage(self, server):
        def kill_and_start():
            server.kill()
            server.start()

        return kill_and_start


@pytest.mark.all
def test_jobs_of_the_release_go_on(postgresql, tmp_path):
    sets.copied(RELEASE, tmp_path, postgresql)

    go_on(RELEASE, postgresql, postgresql)

    texts.read_back_from_sql(postgresql)


def test_a_writer_that_is_stuck_is_waited_for_and_then_told(open_store, postgresql):
    store = open_store(postgresql)
    epoch = store.acquire()

    with connect(postgresql) as stuck:
        stuck.execute("SELECT * FROM kafka_tx_owner FOR UPDATE")
        began = time.monotonic()

        with pytest.raises(StateUnavailableError, match="lock timeout"):
            store.write(epoch, {"a": "1"})

        assert 8 < time.monotonic() - began < 30
        assert store.read() == {}
        stuck.rollback()
    store.write(epoch, {"a": "1"})


@contextmanager
def once_somebody_waits(url, release):
    """Give a lock back as soon as another connection waits for it."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    )

    def watch():
        with connect(url) as database:
            database.autocommit = True
            wait_until(
                "somebody waits", lambda: database.execute(waiting).fetchone() != (0,)
            )
        release()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(watch)
        yield
        done.result()


def test_a_writer_waits_for_another_and_then_goes_on(open_store, postgresql):
    store = open_store(postgresql)
    epoch = store.acquire()

    with connect(postgresql) as other:
        other.execute("SELECT * FROM kafka_tx_owner FOR UPDATE")
        with once_somebody_waits(postgresql, other.rollback):
            store.write(epoch, {"a": "1"})

    assert store.get("a") == "1"


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_a_start_that_waits_for_a_writer_sees_what_it_wrote(
    open_store, postgresql, level
):
    """Whatever the level of isolation that the database gives to transactions."""
    given = level.replace(" ", "\\ ")  # libpq takes the blank for the next option
    url = f"{postgresql}?options={quote(f'-c default_transaction_isolation={given}')}"
    store = open_store(url)
    epoch, starting = store.acquire({"a": "1"}), open_store(url)
    assert starting.read() == {"a": "1"}

    with connect(postgresql) as other:
        other.execute("SELECT * FROM kafka_tx_owner FOR UPDATE")
        other.execute("UPDATE kafka_tx_state SET value = '2'")
        with (
            once_somebody_waits(postgresql, other.commit),
            pytest.raises(StateConflictError),
        ):
            starting.acquire(expect={"a": "1"})

    store.write(epoch, {"a": "3"}, expect={"a": "2"})
    assert store.read() == {"a": "3"}


def test_a_database_that_does_not_exist_is_named(open_store, postgresql_server):
    with pytest.raises(StateError, match='"nosuch" does not exist') as caught:
        open_store(postgresql_server.url("nosuch")).acquire()

    assert not caught.value.retryable


def test_a_user_without_rights_is_told_what_is_missing(
    open_store, postgresql, postgresql_server
):
    reader = fresh_name("reader")
    postgresql_server.execute(f'CREATE ROLE "{reader}" LOGIN')
    url = make_url(postgresql).set(username=reader).render_as_string()
    owner = open_store(postgresql)

    with pytest.raises(
        StateError, match="lacks a right.*GRANT USAGE, CREATE"
    ) as caught:
        open_store(url).acquire()
    assert not caught.value.retryable

    owner.acquire()
    with pytest.raises(StateError, match="permission denied"):
        open_store(url).read()


def test_a_server_that_is_away_is_told_as_unavailable(open_store):
    with pytest.raises(StateUnavailableError, match=r"127\.0\.0\.1") as caught:
        open_store("postgresql+psycopg://me:s3cret@127.0.0.1:1/x").acquire()

    assert "s3cret" not in str(caught.value)
