"""A real PostgreSQL that fails over to a standby that is behind, under a living job."""

from __future__ import annotations

import pyarrow as pa
import pytest

from integration.cluster.postgresql import PostgresServer
from integration.cluster.proxy import Proxy
from integration.cluster.running import running
from integration.cluster.waiting import wait_until
from kafka_tx.clock import SystemClock
from kafka_tx.errors import StateError, StateLostError
from kafka_tx.model import (
    BatchMetadata,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.sql.maps import TransactionalMap
from kafka_tx.sql.store import SqlStore, forgets
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership.retry_policy import RetryingStore, RetryPolicy

P0 = TopicPartition("orders", 0)


class Job:
    """Batches of ten records, counted by a map in the store's database."""

    def __init__(self, url):
        self.map = TransactionalMap(url, "totals")
        store = SqlStore(url, "job")
        self.ledger = Ledger(
            RetryingStore(store, RetryPolicy(SystemClock(), store.retry_ms))
        )
        self.epoch = self.ledger.acquire()
        self.txid = self.ledger.load().txid

    def plan(self):
        begin = self.txid * 10
        self.txid += 1
        ranges = (OffsetRange(P0, begin, begin + 10),)
        self.ledger.plan(self.epoch, BatchMetadata(self.txid, ranges))

    def write(self):
        numbering = self.ledger.load().numbering
        attempt = TransactionAttempt(
            self.txid,
            self.epoch * 10**12 + self.txid,
            source="job",
            numbering=numbering,
        )
        rows = pa.table({"key": ["all"], "value": [10]})
        self.map.update(attempt, rows)

    def batch(self):
        self.plan()
        self.write()
        self.ledger.commit(self.epoch, self.txid, 0)

    def close(self):
        self.ledger.close()
        self.map.close()


@pytest.fixture
def failover():
    """A primary, a standby that follows it, and the proxies between and before them."""
    with running(PostgresServer()) as primary:
        replication, front = Proxy(primary.port), Proxy(primary.port)
        with running(replication), running(front):
            standby = PostgresServer()
            try:
                standby.follow(replication.port)
                yield primary, standby, replication, front
            finally:
                standby.stop()


def test_a_failover_to_a_standby_that_is_behind_stops_the_job_and_loses_nothing(
    failover,
):
    primary, standby, replication, front = failover
    url = primary.url(proxy=front)
    job = Job(url)
    for _ in range(3):
        job.batch()
    wait_until("the standby has it", lambda: total_at(standby) == 30)
    assert "follow asynchronously" in forgets(url)
    replication.cut()
    for _ in range(3):
        job.batch()
    job.plan()

    primary.kill()
    standby.promote()
    front.target = standby.port

    with pytest.raises(StateLostError):
        job.write()
    with pytest.raises(StateLostError):
        job.ledger.commit(job.epoch, job.txid, 0)
    again = Job(url)
    assert again.ledger.load().txid == 3
    for _ in range(4):
        again.batch()
    assert again.map.get(["all"]) == {"all": 70}
    for each in (job, again):
        each.close()


def total_at(server):
    totals = TransactionalMap(server.url(), "totals")
    try:
        return totals.get(["all"]).get("all")
    except StateError:  # it follows, and has no tables yet
        return None
    finally:
        totals.close()
