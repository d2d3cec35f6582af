"""A checkpoint under another ``tx.id``, without one for a while, or over another store.

Each text is followed to the letter; what was read is held against what was produced.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kafka_tx.errors import CheckpointDisagreesError
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.options.source import parse_source
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.microbatches import MicroBatches
from kafka_tx.source.questions import Question
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.transactions.ledger import ledger
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership.memory import MemoryStore

P0 = TopicPartition("t", 0)
MODES = pytest.mark.parametrize("mode", ["transactional", "opaque"])


class Query:
    """One checkpoint, run with what each call says, until all is read.

    Attributes:
        read: The offsets that its function was given, in that order.
        attempts: Numbering and txid of each batch.
    """

    def __init__(self, cluster: Any, clock: Any, mode: str) -> None:
        self.cluster, self.clock, self.mode = cluster, clock, mode
        self.store = uuid.uuid4().hex
        self.checkpoint: SourceOffset | None = None
        self.read: list[int] = []
        self.attempts: list[tuple[str, int]] = []

    def produce(self, end: int) -> None:
        self.cluster.set(0, 0, end)

    def run(self, tx_id: str = "orders", **options: str) -> None:
        self._go_on(self.planner(tx_id, **options))

    def planner(self, tx_id: str = "orders", **options: str) -> MicroBatches:
        given = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "t",
            "startingOffsets": "earliest",
            **({"tx.id": tx_id, "tx.mode": self.mode} if tx_id else {}),
            **{name.replace("__", "."): value for name, value in options.items()},
        }
        config = parse_source(given, streaming=True)
        if config.transactions is None:
            return MicroBatches(config, self.cluster, self.clock)
        ledger = Ledger(MemoryStore(self.store, tx_id))
        return TransactionalMicroBatches(
            config, config.transactions, self.cluster, self.clock, ledger
        )

    def _go_on(self, planner: Any) -> None:
        if self.checkpoint is not None:  # Spark keeps text
            self.checkpoint = SourceOffset.from_json(self.checkpoint.to_json())
        start = self.checkpoint or planner.initial()
        while (end := planner.latest(start, everything=True)) != start:
            for wanted in planner.ranges(start, end):
                self.read += range(wanted.start, wanted.end)
            if isinstance(planner, TransactionalMicroBatches):
                answer = planner.number(Question("q", 0, start, end))
                self.attempts.append((answer.numbering, answer.txid))
                planner.finished(end)
            start = end
        self.checkpoint = start

    def refused(self, *args: str, **options: str) -> str:
        """What a run says that must not begin; the case, then the text."""
        before = list(self.read)
        with pytest.raises(CheckpointDisagreesError) as error:
            self.run(*args, **options)
        assert self.read == before
        return f"{error.value.fields['case']}: {error.value}"


@pytest.fixture
def query(cluster, clock, monkeypatch) -> Callable[[str], Query]:
    names = iter(["first", "second", "third"])
    monkeypatch.setattr(ledger, "new_name", lambda: next(names))

    def begun(mode: str) -> Query:
        made = Query(cluster, clock, mode)
        made.produce(10)
        made.run()
        made.produce(17)
        return made

    return begun


@MODES
def test_a_renamed_tx_id_is_refused_and_set_back(query, mode):
    job = query(mode)

    refusal = job.refused("orders-v2", startingOffsets="latest")

    assert refusal.startswith("renamed")
    assert "Set tx.id back" in refusal
    assert "Do not start with a new checkpointLocation" in refusal
    job.refused("orders-v2", tx__onDisagreement="store")
    job.run()
    assert job.read == list(range(17))
    assert job.attempts == [("first", 1), ("first", 2)]


@MODES
@pytest.mark.parametrize("idle", [False, True])
def test_a_tx_id_is_renamed_where_the_checkpoint_decides_for_one_run(query, mode, idle):
    """Sinks know the numbering: they go on with the txid that follows."""
    job = query(mode)
    if idle:  # nothing new in that one run
        job.produce(10)

    job.run("orders-v2", tx__onDisagreement="checkpoint")
    job.produce(20)
    job.run("orders-v2")

    assert job.read == list(range(20))
    assert [name for name, _ in job.attempts] == ["first"] * len(job.attempts)
    assert [n for _, n in job.attempts] == list(range(1, len(job.attempts) + 1))


@pytest.mark.parametrize("decides", ["error", "store", "checkpoint"])
def test_the_checkpoint_of_another_id_decides_nothing(query, cluster, clock, decides):
    job, other = query("transactional"), Query(cluster, clock, "transactional")
    other.store = job.store
    other.run("payments")

    refusal = job.refused("payments", tx__onDisagreement=decides)

    assert refusal.startswith("foreign")
    assert "Set tx.id back" in refusal
    assert "start with a new" not in refusal
    job.run()
    assert job.read == list(range(17))


@MODES
def test_a_tx_id_taken_away_and_given_again_goes_on_at_the_checkpoint(query, mode):
    job = query(mode)
    job.run(tx_id="")
    job.produce(20)

    refusal = job.refused()

    assert refusal.startswith("unnumbered")
    assert "the checkpoint is newer" in refusal.lower()
    assert "tx.onDisagreement=checkpoint" in refusal
    assert "onDisagreement=store" not in refusal
    job.refused(tx__onDisagreement="store")
    job.run(tx__onDisagreement="checkpoint")
    assert job.read == list(range(20))
    assert job.attempts == [("first", 1), ("first", 2)]


@MODES
def test_a_topic_made_anew_before_a_run_without_tx_id_is_read_once(query, mode):
    """Its offsets begin again: smaller or equal ones are not older."""
    job = query(mode)
    job.cluster.ids["t"] = "former"
    job.produce(20)
    job.run()
    job.cluster.ids["t"] = "new"
    job.produce(4)
    job.run(tx_id="", failOnDataLoss="false")
    assert job.read[20:] == list(range(4))
    job.produce(6)

    refusal = job.refused()

    assert refusal.startswith("unnumbered")
    job.run(tx__onDisagreement="checkpoint")
    assert job.read[20:] == list(range(6))


@MODES
def test_a_checkpoint_without_tx_id_of_a_former_topic_is_the_older_one(query, mode):
    job = query(mode)
    job.cluster.ids["t"] = "former"
    job.produce(20)
    job.run(tx_id="")
    older = job.checkpoint
    job.run(tx__onDisagreement="checkpoint")
    job.cluster.ids["t"] = "new"
    job.produce(4)
    job.run(failOnDataLoss="false")
    job.checkpoint = older

    assert job.refused().startswith("behind")


@MODES
@pytest.mark.parametrize("is_used", [False, True], ids=["empty", "begun"])
def test_another_store_is_refused_and_the_checkpoint_brings_its_numbering(
    query, cluster, clock, mode, is_used
):
    """As where the default was a file of the current folder, and that is another."""
    job = query(mode)
    right, job.store = job.store, uuid.uuid4().hex
    if is_used:
        other = Query(cluster, clock, mode)
        other.store = job.store
        for records in (17, 18, 19):
            other.produce(records)
            other.run()
        assert other.attempts == [("second", 1), ("second", 2), ("second", 3)]

    refusal = job.refused()

    assert refusal.startswith("another" if is_used else "empty")
    assert "Do not start with a new checkpointLocation" in refusal
    assert right != job.store
    job.run(tx__onDisagreement="checkpoint")
    job.produce(20)
    job.run()
    assert job.read == list(range(20))
    assert {name for name, _ in job.attempts} == {"first"}
    assert [n for _, n in job.attempts] == [1, 2, 3]


@MODES
def test_a_batch_keeps_its_txid_whatever_another_numbering_has_come_to(
    query, cluster, clock, mode
):
    """Sinks may have it: under another txid they would take it again."""
    job = query(mode)
    start = job.checkpoint
    job.produce(20)
    end = job.planner().latest(start, everything=True)
    assert (end.mark.numbering, end.mark.txid) == ("first", 2)

    other = Query(cluster, clock, mode)
    for records in (21, 22, 23, 24):
        other.produce(records)
        other.run()
    assert [txid for _, txid in other.attempts] == [1, 2, 3, 4]
    job.store = other.store
    planner = job.planner(tx__onDisagreement="checkpoint")

    assert planner.ranges(start, end) == [OffsetRange(P0, 10, 20)]
    answer = planner.number(Question("query", 1, start, end))
    assert (answer.numbering, answer.txid) == ("first", 2)


def test_a_store_that_is_the_right_one_again_goes_on(query):
    job = query("transactional")
    right, job.store = job.store, uuid.uuid4().hex
    job.refused()

    job.store = right
    job.run()

    assert job.read == list(range(17))
    assert job.attempts == [("first", 1), ("first", 2)]
