import pickle

import pytest

from kafka_tx.errors import ConfigError, StateError
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.transactions.ownership.memory import MemoryOffsetStore, MemoryStore


def test_two_objects_of_one_name_and_id_see_the_same_state():
    one, two = MemoryStore("shared", "orders"), MemoryStore("shared", "orders")

    one.write(one.acquire(), {"a": "1"})
    one.close()

    assert two.read() == {"a": "1"}
    assert two.epoch() == 1


def test_another_name_or_id_sees_nothing_of_it():
    store = MemoryStore("apart", "orders")

    store.write(store.acquire(), {"a": "1"})

    assert MemoryStore("apart", "others").read() == {}
    assert MemoryStore("elsewhere", "orders").read() == {}


def test_a_restored_snapshot_takes_values_and_epoch_back():
    store = MemoryStore("snapshots", "orders")
    first = store.acquire()
    store.write(first, {"a": "1"})
    before = store.snapshot()
    store.write(store.acquire(), {"a": "2", "b": "3"})

    store.restore(before)

    assert MemoryStore("snapshots", "orders").read() == {"a": "1"}
    assert store.epoch() == first


def test_a_snapshot_does_not_move_with_later_writes():
    store = MemoryStore("still", "orders")
    epoch = store.acquire()
    store.write(epoch, {"a": "1"})

    snapshot = store.snapshot()
    store.write(epoch, {"a": "2"}, ["b"])

    assert snapshot.values == {"a": "1"}


def test_the_url_names_the_memory():
    assert MemoryStore("", "orders").url == "memory:"
    assert MemoryStore("demo", "orders").url == "memory:demo"
    assert MemoryStore("demo", "orders").id == "orders"


def test_an_id_that_no_store_can_hold_is_refused():
    with pytest.raises(ConfigError, match="option 'tx"):
        MemoryStore("", "a/b")


def test_memory_stores_are_never_pickled():
    with pytest.raises(StateError, match="each process opens its own"):
        pickle.dumps(MemoryStore("", "orders"))
    with pytest.raises(StateError, match="each process opens its own"):
        pickle.dumps(MemoryOffsetStore())


def test_offsets_stay_for_partitions_that_are_not_written():
    store = MemoryOffsetStore()
    one, two = TopicPartition("orders", 0), TopicPartition("orders", 1)
    store.store({one: CommittedOffset(3), two: CommittedOffset(4)})

    store.store({one: CommittedOffset(5)})

    assert store.load([one, two, TopicPartition("orders", 2)]) == {
        one: CommittedOffset(5),
        two: CommittedOffset(4),
    }
