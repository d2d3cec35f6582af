import pickle

import pytest

from kafka_tx.errors import ConfigError, FailedException
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.declare.memory_spouts import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
)

ATTEMPT = TransactionAttempt(1, 1)
BOTH = pytest.mark.parametrize(
    "kind", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout]
)


def numbers(*partitions):
    return [[(n,) for n in partition] for partition in partitions]


def rows(spout, metadata):
    source = pickle.loads(pickle.dumps(spout.batch(ATTEMPT, metadata)))
    return [row[0] for block in source.read(0, 1, {}) for row in block]


@BOTH
def test_batches_take_at_most_so_many_rows_of_each_partition(kind):
    spout = kind(numbers(range(5), [10]), ("n",), 2)

    first = spout.initialize_transaction(1, None)
    second = spout.initialize_transaction(2, first)
    third = spout.initialize_transaction(3, second)
    fourth = spout.initialize_transaction(4, third)

    assert first == {"0": [0, 2], "1": [0, 1]}
    assert [rows(spout, m) for m in (first, second, third, fourth)] == [
        [0, 1, 10],
        [2, 3],
        [4],
        [],
    ]
    assert fourth == {"0": [5, 0], "1": [1, 0]}


@BOTH
def test_a_replay_holds_the_same_rows_although_more_came_since(kind):
    spout = kind({"a": [(1,)]}, ("n",), 5)
    metadata = spout.initialize_transaction(1, None)

    spout.append("a", [(2,)])

    assert rows(spout, metadata) == [1]
    assert rows(spout, spout.initialize_transaction(2, metadata)) == [2]


@BOTH
def test_only_the_rows_of_the_batch_travel(kind):
    spout = kind(numbers(range(100_000)), ("n",), 2)
    metadata = spout.initialize_transaction(1, None)

    assert len(pickle.dumps(spout.batch(ATTEMPT, metadata))) < 500


@BOTH
def test_a_spout_is_ready_while_rows_wait_and_again_after_an_append(kind):
    spout = kind(numbers([1], [2, 3]), ("n",), 1)
    assert spout.is_ready()

    first = spout.initialize_transaction(1, None)
    assert spout.is_ready()
    assert not spout.is_exhausted

    second = spout.initialize_transaction(2, first)
    assert not spout.is_ready()
    assert spout.is_exhausted
    assert not spout.is_empty(second)

    spout.append(0, [(4,)])
    assert spout.is_ready()


@BOTH
def test_a_spout_that_is_opened_again_is_ready_for_what_was_never_committed(kind):
    spout = kind(numbers([1]), ("n",), 1)
    spout.initialize_transaction(1, None)

    spout.open()

    assert spout.is_ready()


def test_a_batch_that_is_planned_anew_makes_the_spout_ready_again():
    spout = OpaqueMemoryTransactionalSpout(numbers([1, 2]), ("n",), 1)
    first = spout.initialize_transaction(1, None)
    spout.initialize_transaction(2, first)
    assert not spout.is_ready()

    spout.initialize_transaction(1, None)

    assert spout.is_ready()


@BOTH
def test_a_batch_without_rows_is_known_to_be_empty(kind):
    spout = kind(numbers([1]), ("n",), 1)
    first = spout.initialize_transaction(1, None)

    assert not spout.is_empty(first)
    assert spout.is_empty(spout.initialize_transaction(2, first))


def test_a_lost_partition_takes_part_with_nothing_and_catches_up_later():
    spout = OpaqueMemoryTransactionalSpout(numbers([1, 2], [8, 9]), ("n",), 1)
    first = spout.initialize_transaction(1, None)

    spout.set_lost(1)
    second = spout.initialize_transaction(2, first)
    spout.set_lost(1, lost=False)
    third = spout.initialize_transaction(3, second)

    assert second == {"0": [1, 1], "1": [1, 0]}
    assert [rows(spout, m) for m in (first, second, third)] == [[1, 8], [2], [9]]


def test_rows_of_a_void_plan_are_there_again_once_their_partition_is_found():
    spout = OpaqueMemoryTransactionalSpout(numbers([1], [8, 9]), ("n",), 2)
    spout.initialize_transaction(1, None)
    spout.set_lost(1)
    first = spout.initialize_transaction(1, None)
    assert not spout.is_ready()

    spout.set_lost(1, lost=False)

    assert spout.is_ready()
    assert rows(spout, spout.initialize_transaction(2, first)) == [8, 9]


def test_a_partition_that_is_lost_from_the_start_waits_outside():
    spout = OpaqueMemoryTransactionalSpout(numbers([1], [8]), ("n",), 1)
    spout.set_lost(1)

    assert spout.initialize_transaction(1, None) == {"0": [0, 1]}
    assert not spout.is_ready()
    assert not spout.is_exhausted


def test_rows_of_a_partition_that_was_lost_since_fail_the_attempt():
    spout = OpaqueMemoryTransactionalSpout(numbers([1], [8]), ("n",), 1)
    metadata = spout.initialize_transaction(1, None)

    spout.set_lost(1)

    with pytest.raises(FailedException, match="partition 1 is lost"):
        rows(spout, metadata)


@BOTH
def test_what_was_read_is_told(kind):
    spout = kind(numbers([1, 2], []), ("n",), 5)
    facts: dict = {}

    source = spout.batch(ATTEMPT, spout.initialize_transaction(1, None))
    list(source.read(0, 1, facts))

    assert facts == {"0": {"records": 2}, "1": {"records": 0}}


@BOTH
@pytest.mark.parametrize("row", [(1, 2), (), "x"])
def test_a_row_that_does_not_fit_the_fields_is_refused(kind, row):
    with pytest.raises(ConfigError, match="one value for each of: n"):
        kind([[row]], ("n",), 1)


@BOTH
def test_a_batch_must_take_something(kind):
    with pytest.raises(ConfigError, match="take_per_partition"):
        kind({}, ("n",), 0)


def test_a_partition_that_is_not_there_any_more_has_no_rows():
    spout = MemoryTransactionalSpout({"a": [(1,)]}, ("n",), 1)

    metadata = spout.initialize_transaction(2, {"gone": [3, 2]})

    assert metadata == {"gone": [5, 0], "a": [0, 1]}
    assert rows(spout, metadata) == [1]
