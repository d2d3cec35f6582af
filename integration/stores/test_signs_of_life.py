"""Starts that spare a living owner ask in the store; an idle owner writes nothing."""

import sqlite3
from contextlib import closing

import psycopg
import pytest

from kafka_tx.assembly import open_store
from kafka_tx.errors import FencedError, OwnerLivesError
from kafka_tx.testing import ManualClock
from kafka_tx.transactions.layout.txid_layout import ALIVE, CALL
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.zookeeper.client import ZooKeeperClient
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings
from tests.fake_cluster import FakeCluster
from tests.source.test_transactional import Job


class LivingClock(ManualClock):
    """Others go on while somebody sleeps."""

    def __init__(self):
        super().__init__()
        self.others = []

    def sleep_ms(self, duration_ms):
        super().sleep_ms(duration_ms)
        for other in self.others:
            other()


class Signs:
    """For each kind of store; ``url`` and ``written`` are of the subclass."""

    def written(self, url):
        raise NotImplementedError

    @pytest.fixture
    def job(self, url):
        job = Job(FakeCluster(), LivingClock())
        job.cluster.set(0, 0, 10)
        ledgers = []

        def ledger():
            ledgers.append(Ledger(open_store(url, job.name)))
            return ledgers[-1]

        job.ledger = ledger  # type: ignore[method-assign]
        yield job
        for each in ledgers:
            each.close()

    @pytest.fixture
    def owner(self, job):
        """An owner that has read all, and the end of what it has read."""
        run = job.start()
        end = run.latest(run.initial(), everything=True)
        run.finished(end)
        return run, end

    def bounded(self, job):
        run = job.start()
        run.prepare_available_now()
        return run

    def test_an_idle_owner_writes_nothing(self, job, owner, url):
        run, end = owner
        run.latest(end, everything=True)
        before = self.written(url)

        for _ in range(30):
            job.clock.sleep_ms(1_000)
            assert run.latest(end, everything=True) is end
            run.answer()

        assert self.written(url) == before

    def test_an_owner_that_lives_answers_once_and_stays(self, job, owner, url):
        run, end = owner
        job.clock.others.append(run.answer)
        with pytest.raises(OwnerLivesError):
            self.bounded(job).latest(end, everything=True)

        with closing(open_store(url, job.name)) as store:
            assert store.get(CALL) is None
            before = store.get(ALIVE)
            job.clock.sleep_ms(60_000)
            assert store.get(ALIVE) == before
        assert run.latest(end, everything=True) is end

    def test_a_frozen_owner_is_replaced_and_can_no_longer_answer(self, job, owner, url):
        run, end = owner
        job.cluster.set(0, 0, 20)
        self.bounded(job).latest(end, everything=True)

        with closing(open_store(url, job.name)) as store:
            assert store.get(CALL) is None
            before = store.read()[ALIVE]
            store.write(store.epoch(), {CALL: before})
            with pytest.raises(FencedError):
                run.answer()
            assert store.get(ALIVE) == before

    def test_a_late_answer_keeps_the_owner(self, job, owner, url, monkeypatch):
        run, end = owner
        job.cluster.set(0, 0, 20)
        bounded = self.bounded(job)
        publish = bounded._batches._ledger.publish

        def late():
            run.answer()
            job.clock.others.append(run.answer)
            publish()

        monkeypatch.setattr(bounded._batches._ledger, "publish", late)
        with pytest.raises(OwnerLivesError):
            bounded.latest(end, everything=True)

        assert run.latest(end, everything=True) != end


class TestSqlite(Signs):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path}/store.db"

    def written(self, url):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            return database.execute(
                "SELECT rowid, * FROM kafka_tx_state ORDER BY id, path"
            ).fetchall()


class TestPostgres(Signs):
    @pytest.fixture
    def url(self, postgresql):
        return postgresql

    def written(self, url):
        """With the transactions that have written and locked each row."""
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            tables = ("kafka_tx_state", "kafka_tx_owner")
            return [
                connection.execute(
                    f"SELECT xmin::text, xmax::text, t::text FROM {table} t ORDER BY t"
                ).fetchall()
                for table in tables
            ]


class TestZooKeeper(Signs):
    @pytest.fixture
    def url(self, zookeeper):
        return f"zookeeper://{zookeeper.hosts}/signs-of-life"

    def written(self, url):
        """Each write counts the version of the owner's node."""
        settings = ZooKeeperSettings.parse(url)
        with closing(ZooKeeperClient(settings)) as client:
            ids = client.children([settings.root])[settings.root]
            found = client.nodes(f"{settings.root}/{id_}/~owner" for id_ in ids)
            return {at: node.version for at, node in found.items()}
