"""Stores that come back different under a living job: older, or empty."""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from integration.cluster.processes.zookeeper import ProcessZooKeeper
from integration.cluster.running import running
from integration.cluster.topics import fresh_name
from kafka_tx import assembly
from kafka_tx.errors import StateLostError
from kafka_tx.model import BatchMetadata, CommittedOffset, OffsetRange
from kafka_tx.sql.maps import TransactionalMap
from kafka_tx.sql.tables import append_rows
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.zookeeper.offsets import ZooKeeperOffsetStore
from tests.conformance.sink_suite import attempt
from tests.sql.test_sqlite_file import P0, ROWS, OfOffsets

WITHIN_S = 60.0
"""A store that is away is retried for two minutes."""


class OfBatches:
    """Plans and commits a batch of one record with each step, as a planner does."""

    def __init__(self, url):
        self.ledger = Ledger(assembly.retrying_store(url, "job"))
        self.epoch, self.txid = self.ledger.acquire(), self.ledger.load().txid

    def step(self):
        txid = self.txid + 1
        wanted = (OffsetRange(P0, self.txid, txid),)
        self.ledger.plan(self.epoch, BatchMetadata(txid, wanted))
        self.ledger.commit(self.epoch, txid, 0)
        self.txid = txid

    def poll(self):
        self.ledger.load()

    def close(self):
        self.ledger.close()


class OfCounts:
    """Counts with each step, in a map whose store is elsewhere."""

    def __init__(self, url):
        self.map, self.txid = TransactionalMap(url, "counts"), 0

    def step(self):
        self.txid += 1
        self.map.update(attempt(self.txid), ROWS)

    def poll(self):
        self.map.get(["all"])

    def close(self):
        self.map.close()


class OfPositions(OfOffsets):
    """Stores the offsets of an at-least-once topology with each step."""

    store: Any

    def close(self):
        self.store.close()


class OfTable:
    """Appends a row with each step, over a connection of its own."""

    def __init__(self, url):
        self.url, self.txid = url, 0

    def step(self):
        self.txid += 1
        append_rows(self.url, "lines", attempt(self.txid), ROWS)


class OfNodes(OfPositions):
    def __init__(self, url):
        self.store, self.offset = ZooKeeperOffsetStore(url, "spout"), 0
        self.store.acquire()


@pytest.fixture(scope="module")
def keeper():
    with running(ProcessZooKeeper()) as server:
        yield server


@pytest.fixture
def begin():
    """Make a job; it is closed after the test."""
    with ExitStack() as ending:
        yield lambda use, url: ending.enter_context(closing(use(url)))


def told(step):
    """What a step is stopped by, before a store that is away would be given up."""
    began = time.monotonic()
    with pytest.raises(StateLostError) as caught:
        step()
    assert time.monotonic() - began < WITHIN_S
    return str(caught.value)


@pytest.mark.parametrize(
    "kept", [True, pytest.param(False, marks=pytest.mark.all)], ids=["older", "empty"]
)
def test_a_zookeeper_that_came_back_with_less_stops_the_job(
    keeper, begin, tmp_path, kept, caplog
):
    url = f"zookeeper://{keeper.hosts}/{fresh_name('jobs')}"
    jobs = [begin(OfBatches, url), begin(OfNodes, url)]
    for job in jobs:
        job.step()
    place = tmp_path / "kept" if kept else None
    if place is not None:
        keeper.keep_data(place)
    for job in jobs:
        job.step()

    keeper.come_back_with(place)

    with caplog.at_level(logging.WARNING):
        texts = [told(job.step) for job in jobs]
        texts += [told(job.step) for job in jobs]
        texts += [told(jobs[0].poll)]
    assert all("Nothing was written" in text for text in texts)
    assert f"ZooKeeper {keeper.hosts} went back: its last transaction is" in caplog.text


@pytest.mark.all
def test_a_zookeeper_that_came_back_with_all_goes_on_at_once(keeper, begin):
    url = f"zookeeper://{keeper.hosts}/{fresh_name('jobs')}"
    jobs = [begin(OfBatches, url), begin(OfNodes, url)]
    for job in jobs:
        job.step()

    keeper.restart()

    for job in jobs:
        job.step()
    assert jobs[0].ledger.load().txid == 2
    assert jobs[1].store.load([P0]) == {P0: CommittedOffset(2)}


def lose_all_tables(job, url):
    """Remove them under a living job: it tells, and makes none of them again."""
    job.step()
    job.step()

    remove_tables(url)

    for call in (job.step, job.step, job.poll):
        text = told(call)
        assert "are gone" in text
        assert "restore the newest state of the database" in text
    with connected(url) as connection:
        assert not sa.inspect(connection).get_table_names()


@pytest.mark.parametrize("use", [OfBatches, OfCounts, OfPositions])
@pytest.mark.parametrize("fixture", ["postgresql", "sqlite"])
def test_tables_that_are_gone_are_told_and_not_made_again(
    use, fixture, begin, request, tmp_path
):
    file = f"sqlite:///{tmp_path}/state.db"
    url = file if fixture == "sqlite" else request.getfixturevalue(fixture)
    job = begin(use, url)
    lose_all_tables(job, url)


def test_a_table_that_is_made_anew_for_its_next_batch_is_told(postgresql):
    job = OfTable(postgresql)
    job.step()
    job.step()

    remove_tables(postgresql)

    for _ in range(2):
        assert "was left at txid 2" in told(job.step)


@contextmanager
def connected(url):
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def remove_tables(url):
    with connected(url) as connection:
        known = sa.MetaData()
        known.reflect(connection)
        known.drop_all(connection)


@pytest.mark.parametrize("use", [OfBatches, OfCounts, OfPositions])
def test_a_database_that_was_put_back_from_a_copy_stops_the_job(
    use, begin, postgresql, postgresql_server
):
    name = make_url(postgresql).database
    job = begin(use, postgresql)
    job.step()
    postgresql_server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE datname = '{name}'"
    )
    postgresql_server.execute(f"CREATE DATABASE {name}_copy TEMPLATE {name}")
    job.step()

    postgresql_server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    postgresql_server.execute(f"ALTER DATABASE {name}_copy RENAME TO {name}")

    for _ in range(2):
        told(job.step)


@pytest.mark.parametrize("use", [OfBatches, OfCounts, OfPositions])
def test_a_copy_that_was_written_over_a_file_in_use_stops_the_job(use, begin, tmp_path):
    """``cp`` keeps the file and forgets the log beside it."""
    file = tmp_path / "state.db"
    job = begin(use, f"sqlite:///{file}")
    job.step()
    with connected(f"sqlite:///{file}") as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(file, tmp_path / "copy")
    job.step()
    with connected(f"sqlite:///{file}") as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    shutil.copyfile(tmp_path / "copy", file)

    for _ in range(2):
        told(job.step)
