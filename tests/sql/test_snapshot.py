"""One value that counts every batch once."""

import pickle

import pytest

from kafka_tx.errors import ConfigError, ReplayDiffersError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import NonTransactionalMap, OpaqueMap, TransactionalMap
from kafka_tx.sql.snapshot import SnapshotValue

FIRST, SECOND = TransactionAttempt(1, 10), TransactionAttempt(2, 20)
SECOND_AGAIN = TransactionAttempt(2, 21)
KINDS = pytest.mark.parametrize(
    "kind", [NonTransactionalMap, TransactionalMap, OpaqueMap]
)


def add(number):
    return lambda value: (value or 0) + number


@pytest.fixture
def snapshot(tmp_path):
    opened = []

    def make(kind, **types):
        opened.append(kind(f"sqlite:///{tmp_path}/state.db", "total", **types))
        return SnapshotValue(opened[-1])

    yield make
    for state in opened:
        state.close()


@KINDS
def test_it_begins_with_nothing_and_counts_batches(kind, snapshot):
    total = snapshot(kind)
    assert total.get() is None

    assert total.update(FIRST, add(5))
    assert total.update(SECOND, add(2))

    assert total.get() == 7
    assert pickle.loads(pickle.dumps(total)).get() == 7


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(NonTransactionalMap, 107), (TransactionalMap, 7), (OpaqueMap, 105)],
)
def test_a_replay_counts_as_the_map_says(kind, expected, snapshot):
    total = snapshot(kind)
    total.update(FIRST, add(5))
    total.update(SECOND, add(2))

    counts_again = total.update(SECOND_AGAIN, add(100))

    assert counts_again == (kind is not TransactionalMap)
    assert total.get() == expected


@pytest.mark.parametrize("kind", [TransactionalMap, OpaqueMap])
def test_the_same_attempt_counts_once(kind, snapshot):
    total = snapshot(kind)
    total.update(FIRST, add(5))

    counts_again = total.update(FIRST, add(5))

    assert counts_again == (kind is OpaqueMap)
    assert total.get() == 5


@pytest.mark.parametrize("kind", [TransactionalMap, OpaqueMap])
@pytest.mark.parametrize("value", [5, 0.5, "a", b"a"])
def test_another_value_of_the_same_attempt_is_a_second_writer(kind, value, snapshot):
    total = snapshot(kind, value=type(value))
    total.set(FIRST, value)

    for other in (value * 2, None):
        with pytest.raises(ReplayDiffersError):
            total.set(FIRST, other)

    assert total.set(FIRST, value) == (kind is OpaqueMap)
    assert total.get() == value


@KINDS
def test_it_is_set_and_removed(kind, snapshot):
    total = snapshot(kind, value=str)
    total.set(FIRST, "old")

    total.set(SECOND, None)

    assert total.get() is None


def test_an_opaque_replay_brings_back_what_was_removed(snapshot):
    total = snapshot(OpaqueMap)
    total.set(FIRST, 5)
    total.set(SECOND, None)

    total.update(SECOND_AGAIN, add(1))

    assert total.get() == 6


def test_maps_with_other_keys_are_refused(snapshot):
    with pytest.raises(ConfigError, match="a map with key=int"):
        snapshot(TransactionalMap, key=int)
