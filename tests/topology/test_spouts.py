import pickle

import pytest

from kafka_tx.model import TransactionAttempt, Unavailable
from kafka_tx.topology.declare.spouts import (
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    Spout,
    TransactionalSpout,
)

ATTEMPT = TransactionAttempt(4, 1)


class Numbers(TransactionalSpout):
    """Batch n holds 10 numbers from 10 n on, dealt to the tasks in turn."""

    fields = ("n",)

    def initialize_transaction(self, txid, previous):
        return {"from": 10 if previous is None else previous["from"] + 10}

    def emit_batch(self, attempt, metadata, task, tasks):
        numbers = range(metadata["from"], metadata["from"] + 10)
        yield [(n,) for n in numbers if n % tasks == task]


class Shelves(PartitionedTransactionalSpout):
    fields = ("book",)

    def __init__(self, lost=(), shelves=("a", "b", "c")):
        self.lost, self.shelves = lost, shelves

    def partitions(self):
        return self.shelves

    def plan(self, partition, last):
        if partition in self.lost:
            return Unavailable("closed")
        return 0 if last is None else last + 10

    def empty_after(self, metadata):
        return metadata

    def read(self, partition, metadata, facts):
        facts["from"] = metadata
        yield [(f"{partition}{metadata + n}",) for n in range(2)]


def read(source, tasks):
    facts: dict = {}
    rows = [
        [row for block in source.read(task, tasks, facts) for row in block]
        for task in range(tasks)
    ]
    return rows, facts


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_tasks_of_a_spout_share_its_batch(tasks):
    spout = Numbers()
    metadata = spout.initialize_transaction(2, spout.initialize_transaction(1, None))
    source = pickle.loads(pickle.dumps(spout.batch(ATTEMPT, metadata)))

    shares, _ = read(source, tasks)

    assert sorted(row for share in shares for row in share) == [
        (n,) for n in range(20, 30)
    ]


def test_a_task_reads_every_nth_partition_in_the_order_of_the_plan():
    spout = Shelves()
    metadata = spout.initialize_transaction(1, None)
    source = pickle.loads(pickle.dumps(spout.batch(ATTEMPT, metadata)))

    shares, facts = read(source, 2)

    assert shares == [[("a0",), ("a1",), ("c0",), ("c1",)], [("b0",), ("b1",)]]
    assert facts == {name: {"from": 0} for name in "acb"}


def test_known_partitions_come_first_and_new_ones_last():
    spout = Shelves(shelves=("0", "a", "b"))

    metadata = spout.initialize_transaction(2, {"b": 0, "gone": 5, "a": 0})

    assert list(metadata.items()) == [("b", 10), ("gone", 15), ("a", 10), ("0", 0)]


def test_an_unavailable_partition_keeps_its_position_or_waits_outside():
    spout = Shelves(lost=("a", "b"))

    metadata = spout.initialize_transaction(2, {"a": 7})

    assert metadata == {"a": 7, "c": 0}


def test_a_replay_never_reads_a_partition_that_was_added_later():
    spout = Shelves(shelves=("a",))
    metadata = spout.initialize_transaction(1, None)

    spout.shelves = ("a", "b")

    shares, _ = read(spout.batch(ATTEMPT, metadata), 1)
    assert shares == [[("a0",), ("a1",)]]


def test_an_empty_batch_shows_that_a_spout_can_travel():
    for spout in (Numbers(), Shelves()):
        assert pickle.loads(pickle.dumps(spout.empty_batch())) is not None


def test_only_the_opaque_kind_is_opaque():
    assert TransactionalSpout().mode == "transactional"
    assert PartitionedTransactionalSpout().mode == "transactional"
    assert OpaquePartitionedTransactionalSpout().mode == "opaque"


def test_a_spout_is_ready_and_not_known_to_be_empty_unless_it_says_otherwise():
    spout = Numbers()

    assert spout.is_ready()
    assert not spout.is_empty({"from": 0})


def test_what_a_spout_must_override_is_not_there_otherwise():
    partitioned = PartitionedTransactionalSpout()
    for call in (
        lambda: Spout().initialize_transaction(1, None),
        lambda: Spout().batch(ATTEMPT, None),
        lambda: TransactionalSpout().emit_batch(ATTEMPT, None, 0, 1),
        partitioned.partitions,
        lambda: partitioned.plan("a", None),
        lambda: partitioned.empty_after(1),
        lambda: partitioned.read("a", 1, {}),
    ):
        with pytest.raises(NotImplementedError):
            call()
