"""The suites of stores, maps and tables on a MariaDB, with its defaults.

Stores are retried, as they are where they are used: InnoDB ends one of two transactions
that would wait for each other.
"""

from __future__ import annotations

import datetime as dt
import itertools
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from functools import partial
from operator import add
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from integration.cluster.mariadb import MariaDbServer
from integration.cluster.running import running
from integration.sizes import size
from integration.stored import sets, texts
from integration.stored.jobs import go_on
from integration.stored.sets import RELEASE
from integration.stores import maps
from integration.stores.maps import ODD, content
from integration.stores.test_came_back import (
    OfBatches,
    OfCounts,
    OfPositions,
    lose_all_tables,
)
from integration.stores.test_database_rights import doctor, grants, work
from integration.stores.test_stores import opened
from kafka_tx.clock import SystemClock
from kafka_tx.errors import (
    ConfigError,
    StateConflictError,
    StateError,
    StateUnavailableError,
)
from kafka_tx.sql import awake, mysql
from kafka_tx.sql.database import Database
from kafka_tx.sql.maps import NonTransactionalMap, OpaqueMap, TransactionalMap
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.sql.tables import append_rows
from kafka_tx.transactions.ownership.retry_policy import (
    RetryingOffsetStore,
    RetryingStore,
    RetryPolicy,
)
from tests.conformance.crash_suite import CrashSuite
from tests.conformance.offset_store_suite import OffsetStoreSuite
from tests.conformance.outage_suite import OutageSuite
from tests.conformance.rewinding import Rewound
from tests.conformance.sink_suite import SinkSuite, attempt
from tests.conformance.store_suite import StoreSuite
from tests.conformance.test_sinks import SqlSink

FIRST, SECOND = attempt(1), attempt(2)
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001
MICRO = MOMENT.replace(microsecond=1)
_numbers = itertools.count()

open_map = maps.open_map


@pytest.fixture(scope="module")
def server():
    with running(MariaDbServer()) as made:
        yield made


@pytest.fixture
def url(server):
    name = f"jobs{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name}")
    yield f"{server.url(name)}?ssl_disabled=true"  # settings of TLS take 30 ms to read
    server.execute(f"DROP DATABASE {name}")


class TestStore(StoreSuite):
    large, paths = size(300_000, StoreSuite.large), size(1_500, StoreSuite.paths)

    @pytest.fixture
    def open_store(self, url):
        policy = RetryPolicy(SystemClock())
        yield from opened(
            lambda id_="orders": RetryingStore(SqlStore(url, id_), policy)
        )


@pytest.mark.all
def test_jobs_of_the_release_go_on(url, tmp_path):
    sets.copied(RELEASE, tmp_path, url)

    go_on(RELEASE, url, url)

    texts.read_back_from_sql(url)


@pytest.mark.all
class TestStoreInSeveralProcesses(CrashSuite):
    @pytest.fixture
    def store_url(self, url):
        return url


class TestOffsetStore(OffsetStoreSuite):
    @pytest.fixture
    def open_offsets(self, url):
        policy = RetryPolicy(SystemClock())
        yield from opened(
            lambda: RetryingOffsetStore(SqlOffsetStore(url, "orders"), policy)
        )

    @pytest.fixture
    def rewound(self, url):
        rewound = Rewound(url)
        yield rewound
        rewound.close()


@pytest.mark.all
class TestOutage(OutageSuite):
    @pytest.fixture
    def own(self):
        with running(MariaDbServer()) as own:
            own.execute("CREATE DATABASE test")
            yield own

    @pytest.fixture
    def open_store(self, own):
        yield from opened(lambda: SqlStore(own.url(), "orders"))

    @pytest.fixture
    def outage(self, own):
        def kill_and_start():
            own.kill()
            own.start()

        return kill_and_start


class AsSink(SinkSuite):
    kind: type[TransactionalMap] | None = None

    @pytest.fixture
    def open_sink(self, url):
        return partial(SqlSink, url, self.kind, self.takes_back)


@pytest.mark.all
class TestTransactionalMapAsSink(AsSink):
    kind = TransactionalMap


@pytest.mark.all
class TestOpaqueMapAsSink(AsSink):
    kind, takes_back = OpaqueMap, True


class TestTableAsSink(AsSink):
    pass


@pytest.mark.all
class TestOpaqueTableAsSink(AsSink):
    takes_back = True


@pytest.mark.parametrize("kind", [NonTransactionalMap, TransactionalMap, OpaqueMap])
@pytest.mark.parametrize(
    ("reducer", "merged"),
    [
        ("sum", 12),
        *(
            pytest.param(*each, marks=pytest.mark.all)
            for each in (("max", 9), ("last", 3))
        ),
    ],
)
def test_keys_are_told_apart_by_every_character(open_map, kind, reducer, merged):
    state = open_map(kind)
    keys = [*ODD, "a", "A", "a ", "ä", "a\u0308", "ß", "ss", "x" * 255, "é" * 255]

    for given, value in ((FIRST, 9), (SECOND, 3)):
        rows = pa.table({"key": keys, "value": [value] * len(keys)})
        state.update(given, rows, reducer)

    assert content(state) == dict.fromkeys(keys, merged)
    assert list(content(state)) == sorted(keys)
    assert state.get(["a ", "A"]) == {"a ": merged, "A": merged}


def test_a_key_that_is_too_long_is_refused_and_leaves_nothing(open_map):
    state = open_map(TransactionalMap)
    rows = pa.table({"key": ["a", "x" * 4_000], "value": [1, 1]})

    with pytest.raises(ConfigError, match=r"'key', row 1 .*\(4000 bytes\)"):
        state.update(FIRST, rows)

    assert content(state) == {}


@pytest.mark.parametrize("kind", [TransactionalMap, OpaqueMap])
def test_bytes_come_back_as_they_were(open_map, kind):
    state = open_map(kind, key=bytes, value=bytes)
    pairs = {b"": b"", b"\x00\xff": b"\xff" * 100_000, b"a": b"a", b"a ": b"A"}

    rows = pa.table({"key": [*pairs], "value": [*pairs.values()]})
    state.update(FIRST, rows, "last")

    assert content(state) == pairs


@pytest.mark.parametrize(("reducer", "kept"), [("max", "b "), ("min", "B")])
def test_texts_are_compared_by_every_character(open_map, reducer, kept):
    """As within a batch, which executors compare: however batches are cut."""
    state = open_map(TransactionalMap, value=str)

    for txid, text in enumerate(("b", "B", "b "), 1):
        rows = pa.table({"key": ["a"], "value": [text]})
        state.update(attempt(txid), rows, reducer)

    assert content(state) == {"a": kept}


def test_the_kernel_ends_a_connection_whose_server_is_gone(url):
    with closing(Database(url)) as database, database._here().connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        made = driver._sock
        assert driver._read_timeout == mysql.STATEMENT_S
        patience = {
            name: made.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"))
            for name in ("USER_TIMEOUT", "KEEPIDLE", "KEEPINTVL", "KEEPCNT")
        }
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

    assert patience["USER_TIMEOUT"] <= 30_000
    assert patience["KEEPIDLE"] + patience["KEEPINTVL"] * patience["KEEPCNT"] <= 30


@pytest.mark.all
def test_work_within_a_batch_may_take_longer_than_an_idle_transaction(
    open_map, monkeypatch
):
    monkeypatch.setattr(awake, "AWAKE_S", 0.05)
    monkeypatch.setattr(mysql, "IDLE_IN_TRANSACTION_S", 5)
    state = open_map(TransactionalMap)

    with state.batch(FIRST) as batch:
        time.sleep(6)
        for n in range(200):  # beside what is sent to keep it open
            batch.update(pa.table({"key": [f"k{n}"], "value": [n]}))

    assert content(state) == {f"k{n}": n for n in range(200)}


def test_a_writer_that_stands_still_in_a_batch_holds_up_nobody(open_map, monkeypatch):
    monkeypatch.setattr(awake, "AWAKE_S", 600.0)
    monkeypatch.setattr(mysql, "IDLE_IN_TRANSACTION_S", 2)
    frozen, successor = (open_map(TransactionalMap) for _ in range(2))
    successor.update(FIRST, pa.table({"key": ["a"], "value": [1]}))

    def stands_still():
        with frozen.batch(SECOND) as batch:
            successor.update(
                attempt(2, epoch=2), pa.table({"key": ["a"], "value": [1]})
            )
            batch.update(pa.table({"key": ["a"], "value": [5]}))

    with pytest.raises(StateUnavailableError):
        stands_still()

    assert content(successor) == {"a": 2}


def test_a_first_batch_reads_what_the_former_owner_wrote_meanwhile(open_map):
    former, owner = (open_map(OpaqueMap) for _ in range(2))
    former.update(FIRST, pa.table({"key": ["a"], "value": [1]}))
    former.update(SECOND, pa.table({"key": ["a"], "value": [10]}))

    def takes_over():
        rows = pa.table({"key": ["a"], "value": [100]})
        owner.update(attempt(2, epoch=2), rows, add)

    with ThreadPoolExecutor(1) as pool:
        with former.batch(attempt(2, number=2)) as batch:
            taking_over = pool.submit(takes_over)
            time.sleep(1)  # it waits for the lock by now; if not, it has to do less
            batch.update(pa.table({"key": ["other"], "value": [5]}))
        taking_over.result()

    assert content(owner) == {"a": 101}


def test_an_opaque_replay_takes_everything_back(open_map):
    state = open_map(OpaqueMap)
    keys = [*ODD, *(f"k{n}" for n in range(1_000))]
    rows = pa.table({"key": keys, "value": [1] * len(keys)})
    state.update(FIRST, rows)
    with state.batch(SECOND) as batch:
        batch.update(rows)
        batch.update(rows)
        batch.remove(keys[1:])
    assert content(state) == {keys[0]: 3}

    again = attempt(2, number=2)
    state.update(again, pa.table({"key": ["new", ""], "value": [5, 5]}))

    assert content(state) == dict.fromkeys(keys, 1) | {"": 6, "new": 5}


COLUMNS = {
    "text": ["🙂 ключ ", "x" * 70_000, None],
    "bytes": [b"\x00\xff", b"x" * 70_000, None],
    "number": [2**62, -1, None],
    "double": [0.1, -1e300, None],
    "yes": [True, False, None],
    "day": [dt.date(1900, 1, 1), dt.date(2024, 2, 29), None],
    "at": [dt.datetime(2024, 1, 1, 1, 2, 3, 456789), None, None],  # noqa: DTZ001
    "cents": [Decimal("12345678901234567890.123456"), Decimal("-0.000001"), None],
}


def test_values_of_a_table_come_back_as_they_were(url):
    rows = pa.table({name: pa.array(values) for name, values in COLUMNS.items()})
    utc = pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None, None])
    rows = rows.append_column("utc", utc)

    assert append_rows(url, "orders", FIRST, rows)

    engine = sa.create_engine(url)
    with engine.connect() as db:
        found = db.execute(sa.text("SELECT * FROM orders")).mappings().all()
    engine.dispose()
    for name, values in COLUMNS.items():
        assert [row[name] for row in found] == values, name
    assert found[0]["utc"] == dt.datetime(2024, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("kind", "kept", "changed"),
    [
        ("DATETIME", MOMENT, MOMENT.replace(microsecond=500_000)),
        ("TIMESTAMP(3)", MOMENT.replace(microsecond=1_000), MICRO),
        ("DATETIME(6)", MICRO, None),
        ("FLOAT", 0.5, 0.1),
        ("DOUBLE(10, 2)", 1.5, 1.125),
        ("DECIMAL(10, 2)", 1.5, 1.125),
        ("INT", 3.0, 3.5),
        ("TINYINT", Decimal("3.0"), Decimal("3.5")),
        ("DOUBLE", 2**62, 2**53 + 1),
        ("DOUBLE", Decimal("0.25"), Decimal("1234567.12345678901")),
        ("VARCHAR(3)", "ä  ", "ä   "),
        ("CHAR(3)", "ä", "ä "),
        ("TINYTEXT", "ä".ljust(254), "ä".ljust(255)),
        ("BINARY(3)", b"ab\0", b""),
    ],
)
def test_a_column_of_others_that_would_change_a_value_is_named(
    url, kind, kept, changed
):
    engine = sa.create_engine(url)
    with engine.begin() as db:
        db.execute(sa.text(f"CREATE TABLE orders (x {kind})"))
    assert append_rows(url, "orders", FIRST, pa.table({"x": [kept]}))
    if changed is not None:
        with pytest.raises(ConfigError, match=r"'x', row 1 .*would change it"):
            append_rows(url, "orders", SECOND, pa.table({"x": [None, changed]}))
    with engine.connect() as db:
        assert db.execute(sa.text("SELECT x FROM orders")).scalars().all() == [kept]
    engine.dispose()


def test_times_are_utc_whatever_the_servers_zone(server, url):
    server.execute("SET GLOBAL time_zone = '+02:00'")
    try:
        engine = sa.create_engine(url)
        with engine.begin() as db:
            db.execute(sa.text("CREATE TABLE orders (at TIMESTAMP(6), ntz TIMESTAMP)"))
        aware = pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)])
        append_rows(url, "orders", FIRST, pa.table({"at": aware, "ntz": [MOMENT]}))
        with engine.connect() as db:
            found = "SELECT UNIX_TIMESTAMP(at), UNIX_TIMESTAMP(ntz) FROM orders"
            at, ntz = db.execute(sa.text(found)).one()
        engine.dispose()
    finally:
        server.execute("SET GLOBAL time_zone = DEFAULT")

    assert (at, ntz) == (Decimal("1767323045.000678"), 1767323045)


def test_strict_mode_is_on_whatever_the_server_says(server, url):
    server.execute("SET GLOBAL sql_mode = ''")
    try:
        rows = pa.table({"x": pa.array([Decimal(1)], pa.decimal128(3, 1))})
        assert append_rows(url, "orders", FIRST, rows)
        more = pa.table({"x": pa.array([Decimal(12345)], pa.decimal128(8, 1))})
        with pytest.raises(StateError, match="Out of range"):
            append_rows(url, "orders", SECOND, more)
    finally:
        server.execute("SET GLOBAL sql_mode = DEFAULT")


def test_names_that_differ_by_case_are_two_or_are_refused_by_name(open_map):
    open_map(TransactionalMap, "Counts").update(
        FIRST, pa.table({"key": ["a"], "value": [1]})
    )

    small = open_map(TransactionalMap, "counts")
    small.update(FIRST, pa.table({"key": ["a"], "value": [5]}))

    assert content(open_map(TransactionalMap, "Counts")) == {"a": 1}
    assert content(small) == {"a": 5}


@pytest.mark.parametrize("level", ["REPEATABLE-READ", "READ-COMMITTED"])
def test_two_writers_of_a_map_come_one_after_the_other(server, url, open_map, level):
    server.execute(f"SET GLOBAL tx_isolation = '{level}'")
    try:
        maps = [open_map(TransactionalMap) for _ in range(2)]
        maps[0].update(FIRST, pa.table({"key": ["a"], "value": [0]}))

        def count(state, number):
            given = attempt(2, number=number)
            return state.update(given, pa.table({"key": ["a"], "value": [1]}))

        with ThreadPoolExecutor(2) as pool:
            wrote = list(pool.map(count, maps, (1, 2)))
    finally:
        server.execute("SET GLOBAL tx_isolation = DEFAULT")

    assert sorted(wrote) == [False, True]
    assert content(maps[0]) == {"a": 1}


def test_a_start_that_waits_for_a_writer_sees_what_it_wrote(server, url):
    """Without a level set by kafka_tx: a read after the lock shows what was written."""
    server.execute("SET GLOBAL tx_isolation = 'REPEATABLE-READ'")
    try:
        with (
            closing(SqlStore(url, "orders")) as writer,
            closing(SqlStore(url, "orders")) as starting,
            closing(Database(url)) as database,
        ):
            writer.acquire({"a": "1"})
            assert starting.read() == {"a": "1"}
            with ThreadPoolExecutor(1) as pool:
                with database.writing(sa.MetaData()) as other:
                    other.exec_driver_sql("SELECT * FROM kafka_tx_owner FOR UPDATE")
                    other.exec_driver_sql("UPDATE kafka_tx_state SET value = '2'")
                    start = pool.submit(starting.acquire, expect={"a": "1"})
                    with pytest.raises(TimeoutError):
                        start.result(0.5)
                with pytest.raises(StateConflictError):
                    start.result()
    finally:
        server.execute("SET GLOBAL tx_isolation = DEFAULT")


def test_nan_is_refused_by_name(open_map):
    state = open_map(TransactionalMap, value=float)

    with pytest.raises((ConfigError, StateError), match="(?i)nan"):
        state.update(FIRST, pa.table({"key": ["a"], "value": [float("nan")]}))


@pytest.mark.all
def test_100_000_new_keys_are_ten_times_as_fast_as_one_upsert_a_row(url, open_map):
    size, few = 100_000, 1_000
    keys = [f"k{n:06}" for n in range(size)]
    state = open_map(TransactionalMap)
    state.update(FIRST, pa.table({"key": ["x"], "value": [1]}))
    engine = sa.create_engine(url)
    started = time.perf_counter()
    with engine.begin() as db:
        db.exec_driver_sql(
            "CREATE TABLE plain (k VARBINARY(255) PRIMARY KEY, v BIGINT)"
        )
        for key in keys[:few]:
            db.exec_driver_sql(
                "INSERT INTO plain VALUES (%s, 1) ON DUPLICATE KEY UPDATE v = v + 1",
                (key,),
            )
    engine.dispose()
    by_row = few / (time.perf_counter() - started)

    started = time.perf_counter()
    state.update(SECOND, pa.table({"key": keys, "value": [1] * size}))
    ours = size / (time.perf_counter() - started)

    print(f"{ours:,.0f} against {by_row:,.0f} keys/s")
    assert ours > 5 * by_row


@pytest.mark.parametrize("use", [OfBatches, OfCounts, OfPositions])
def test_tables_that_are_gone_are_told_and_not_made_again(use, url):
    with closing(use(url)) as job:
        lose_all_tables(job, url)


@pytest.fixture
def users(server, url):
    """Users without rights, by their names in the page, and the addresses for them."""
    made = sa.make_url(url)
    names = {who: f"{who}_{made.database}" for who in ("writer", "other")}
    for user in names.values():
        server.execute(f"CREATE USER {user}")
    urls = {
        who: made.set(username=user).render_as_string(hide_password=False)
        for who, user in names.items()
    }
    yield {**names, "jobs": str(made.database)}, urls
    for user in names.values():
        server.execute(f"DROP USER {user}")


@pytest.mark.all
def test_the_rights_of_the_page_are_enough(server, users):
    names, urls = users
    for_writer, for_other = grants(2, **names)
    server.execute(for_writer)
    work(urls["writer"], 1)
    server.execute(for_other)
    work(urls["other"], 2)

    assert all("can be written" in doctor(url) for url in urls.values())


def test_a_right_that_a_user_lacks_is_named(server, users):
    names, urls = users
    for_writer, for_other = grants(2, **names)
    server.execute(for_writer)
    work(urls["writer"], 1)
    server.execute(for_other.replace("INSERT, ", ""))
    with pytest.raises(StateError, match="command denied") as caught:
        work(urls["other"], 2)
    assert f"CREATE, INDEX ON {names['jobs']}.* TO {names['other']}" in str(
        caught.value
    )

    server.execute(for_other)
    work(urls["other"], 2)


def test_what_somebody_has_switched_off_is_named(server, users):
    names, urls = users
    server.execute(grants(2, **names)[0])
    work(urls["writer"], 1)
    store = SqlStore(f"{urls['writer']}?retry_for_ms=0", "job")
    server.execute("SET GLOBAL read_only = ON")
    try:
        with pytest.raises(StateUnavailableError, match="takes no writes now"):
            store.acquire()
    finally:
        server.execute("SET GLOBAL read_only = OFF")
    store.acquire()
    store.close()
    gone = SqlStore(
        str(sa.make_url(urls["writer"]).set(database="no_such_database")), "x"
    )
    with pytest.raises(StateError, match=r"denied|no such database"):
        gone.acquire()
    gone.close()
