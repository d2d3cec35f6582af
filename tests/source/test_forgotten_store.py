"""A store put back from a copy, under sinks that remember more, and what is told."""

import shutil

import pyarrow as pa
import pytest

from kafka_tx.errors import FencedError, OutOfOrderError
from kafka_tx.model import TransactionAttempt
from kafka_tx.options.source import parse_source
from kafka_tx.source.questions import Question
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Ledger


class World:
    """A query, its store and its map as files that can be copied and put back."""

    def __init__(self, cluster, clock, work, mode):
        self.cluster, self.clock, self.work, self.mode = cluster, clock, work, mode
        self.url = f"sqlite:///{work}/map.db"
        self.kind = OpaqueMap if mode == "opaque" else TransactionalMap
        self.end = 0

    def produce(self, count):
        self.end += count
        self.cluster.set(0, 0, self.end)

    def run(self):
        """One run with a new checkpoint, over all there is."""
        options = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "t",
            "startingOffsets": "earliest",
            "tx.id": "job",
            "tx.mode": self.mode,
        }
        config = parse_source(options, streaming=True)
        assert config.transactions is not None
        ledger = Ledger(SqlStore(f"sqlite:///{self.work}/store.db", "job"))
        planner = TransactionalMicroBatches(
            config, config.transactions, self.cluster, self.clock, ledger
        )
        state = self.kind(self.url, "counts")
        try:
            start, n = planner.initial(), 0
            while (end := planner.latest(start, everything=True)) is not start:
                self.write(planner, state, Question("q", n, start, end))
                start, n = end, n + 1
        finally:
            planner.close()
            state.close()

    def write(self, planner, state, question):
        count = sum(map(len, planner.ranges(question.start, question.end)))
        answer = planner.number(question)
        attempt = TransactionAttempt.of(answer.txid, epoch=answer.epoch, number=1)
        state.update(attempt, pa.table({"key": ["all"], "value": [count]}))

    def total(self):
        state = self.kind(self.url, "counts")
        try:
            return state.get(["all"])["all"]
        finally:
            state.close()

    def copy(self):
        for name in ("store", "map"):
            shutil.copy(self.work / f"{name}.db", self.work / f"{name}.copy")

    def put_back(self, name):
        for file in self.work.glob(f"{name}.db*"):
            file.unlink()
        shutil.copy(self.work / f"{name}.copy", self.work / f"{name}.db")


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_a_store_that_forgot_is_told_and_both_are_put_back(
    cluster, clock, tmp_path, mode, right
):
    world = World(cluster, clock, tmp_path, mode)
    for count in (10, 5):
        world.produce(count)
        world.run()
    world.copy()
    for count in (3, 4, 2):
        world.produce(count)
        world.run()
    assert world.total() == 24

    world.produce(1)
    shutil.copy(tmp_path / "store.db", tmp_path / "store.right")
    world.put_back("store")
    with pytest.raises((FencedError, OutOfOrderError)) as error:
        world.run()
    assert "restore both from copies that were made together" in str(error.value)
    assert world.total() == 24

    if right:  # "set tx.store to the right one"
        shutil.copy(tmp_path / "store.right", tmp_path / "store.copy")
    else:
        world.put_back("map")
    world.put_back("store")
    world.run()
    assert world.total() == 25
