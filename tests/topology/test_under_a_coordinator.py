"""Spouts, attempts and the transaction coordinator together, with failures anywhere."""

import random
from collections import Counter

import pytest

from kafka_tx.errors import FailedException
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt
from kafka_tx.topology.declare.memory_spouts import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
)
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator
from kafka_tx.transactions.coordinator.pacing import Pacing
from kafka_tx.transactions.layout.txid_layout import Door
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader
from tests.local_engine import LocalEngine, run_commit, run_processing

WORDS = [f"w{n % 5}" for n in range(60)]
chance = random.Random()
state: dict = {}
"""The sink: totals, what they were before, and the txid they belong to."""


def sometimes_fail():
    if chance.random() < 0.08:
        raise FailedException("by chance")


class Pass(BasicBolt):
    fields = ("word",)

    def execute(self, row, collector):
        if chance.random() < 0.005:
            raise FailedException("by chance")
        collector.emit((row.word,))


class Count(BatchBolt):
    fields = ("word", "count")

    def prepare(self, context, collector):
        self.collector = collector
        self.counts: Counter[str] = Counter()

    def execute(self, row):
        self.counts[row.word] += 1

    def finish_batch(self):
        sometimes_fail()
        for pair in self.counts.items():
            self.collector.emit(pair)


class Update(BatchBolt):
    """Starts from the previous totals when its txid is stored already."""

    def prepare(self, context, collector):
        self.txid = context.attempt.txid
        self.counts: Counter[str] = Counter()

    def execute(self, row):
        self.counts[row.word] += row.count

    def finish_batch(self):
        sometimes_fail()
        if state["txid"] not in (self.txid, self.txid - 1):
            raise AssertionError((state["txid"], self.txid))
        if state["txid"] == self.txid - 1:
            state["previous"] = state["totals"]
        state.update(txid=self.txid, totals=state["previous"] + self.counts)
        sometimes_fail()


class Driver:
    """Carries out what the coordinator asks for, at once; restarts at any time."""

    def __init__(self, topology, pending):
        self.topology, self.pending = topology, pending
        self.store: dict[str, str] = {}
        self.restarts = self.now = 0
        self.committed: list[int] = []

    def restart(self):
        self.restarts += 1
        self.topology.spout.open()
        reader = LedgerReader("memory:", "t", Door.TRANSACTIONAL)
        self.coordinator: TransactionCoordinator = TransactionCoordinator(
            self.topology.spout.mode,
            Pacing(max_pending=self.pending, idle_pause_ms=1),
            reader,
            reader.read(dict(self.store), self.restarts),
        )
        self.processed: dict = {}

    def run(self, ready):
        self.now += 5_000  # no replay waits for longer
        actions = self.coordinator.tick(self.now, is_ready=ready)
        while actions:
            actions = [*actions[1:], *(self._do(actions[0]) or [])]

    def _do(self, action):
        return getattr(self, "_" + type(action).__name__.lower())(action)

    def _initialize(self, asked):
        spout, txid = self.topology.spout, asked.attempt.txid
        metadata = spout.initialize_transaction(txid, asked.previous)
        empty = spout.is_empty(metadata)
        return self.coordinator.initialized(asked.attempt, metadata, is_empty=empty)

    def _write(self, asked):
        self.store.update(asked.put)
        for path in asked.delete:
            self.store.pop(path, None)
        return self.coordinator.stored(asked.write_id)

    def _startbatch(self, asked):
        attempt = asked.attempt
        batch = self.topology.spout.batch(attempt, asked.metadata)
        processed = run_processing(self.topology, attempt, batch, LocalEngine())
        if processed.failure is not None:
            return self.coordinator.failed(attempt, str(processed.failure))
        self.processed[attempt] = processed
        return self.coordinator.processed(attempt)

    def _startcommit(self, asked):
        processed = self.processed.pop(asked.attempt)
        run_commit(processed)
        if processed.failure is not None:
            reason = str(processed.failure)
            return self.coordinator.commit_failed(asked.attempt, reason)
        return self.coordinator.committed(asked.attempt)

    def _cancel(self, asked):
        for attempt in asked.attempts:
            if attempt in self.processed:
                self.processed.pop(attempt).abandon()

    def _transactioncommitted(self, done):
        self.committed.append(done.attempt.txid)
        self.topology.spout.committed(done.attempt.txid, done.metadata)


@pytest.mark.parametrize("pending", [1, 3])
@pytest.mark.parametrize(
    "kind", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout]
)
@pytest.mark.parametrize("seed", range(10))
def test_every_row_counts_once_whatever_fails(kind, pending, seed):
    chance.seed(seed)
    state.update(txid=0, totals=Counter(), previous=Counter())
    rows = [(word,) for word in WORDS]
    spout = kind({0: rows[:20], 1: rows[20:45], 2: rows[45:]}, ("word",), 3)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 2)
    builder.set_bolt("pass", Pass).shuffle_grouping("spout")
    builder.set_bolt("count", Count, 2).fields_grouping("pass", ["word"])
    builder.set_committer_bolt("update", Update).global_grouping("count")
    driver = Driver(builder.build(), pending)
    driver.restart()

    for step in range(300):
        if isinstance(spout, OpaqueMemoryTransactionalSpout) and step < 100:
            spout.set_lost(chance.randrange(3), lost=chance.random() < 0.5)
            for partition in range(3) if step == 99 else ():
                spout.set_lost(partition, lost=False)
        if chance.random() < 0.03:
            driver.restart()
        driver.run(spout.is_ready())
    for _ in range(100):  # the commit phase of the last batch may have failed
        if len(driver.committed) < state["txid"]:
            driver.run(spout.is_ready())

    assert state["totals"] == Counter(WORDS)
    assert driver.committed == list(range(1, state["txid"] + 1))
