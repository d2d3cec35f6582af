"""What ended an id last is kept beside its other records."""

import uuid

import pytest

from kafka_tx.config import check_id, derived_id
from kafka_tx.errors import StateCorruptedError
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.transactions.layout.stops import (
    STOP,
    Stop,
    last_stop,
    stop_id,
    store_stop,
)
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ledger.ledger_repair import examine
from kafka_tx.transactions.ownership.memory import MemoryStore


@pytest.fixture
def store():
    return MemoryStore(uuid.uuid4().hex, "job")


def test_the_last_one_is_found_again(store):
    store.acquire()

    assert last_stop(store) is None
    assert store_stop(store, Stop("state", "first", 1))
    assert store_stop(store, Stop("user", "second", 2))
    assert last_stop(store) == Stop("user", "second", 2)


def test_nobody_is_made_the_owner_for_it(store):
    assert not store_stop(store, Stop("kafka", "no broker", 1))
    assert (store.epoch(), store.read()) == (0, {})


def test_a_newer_owner_is_left_alone(store, monkeypatch):
    store.acquire()
    store.acquire()
    monkeypatch.setattr(store, "epoch", lambda: 1)

    assert not store_stop(store, Stop("user", "late", 1))
    assert last_stop(store) is None


def test_a_long_text_is_cut_and_lies_on_one_line(store):
    store.acquire()

    store_stop(store, Stop("user", "many\n words" * 200, 1))

    found = last_stop(store)
    assert found is not None
    assert len(found.error) == 500
    assert "\n" not in found.error


def test_one_that_cannot_be_read_says_so(store):
    store.write(store.acquire(), {STOP: "garbage"})

    with pytest.raises(StateCorruptedError):
        last_stop(store)


def test_the_ledger_does_not_mind_it(store):
    ledger = Ledger(store)
    epoch = ledger.acquire()
    ledger.plan(epoch, BatchMetadata(1, (OffsetRange(TopicPartition("t", 0), 0, 5),)))

    store_stop(store, Stop("user", "x", 1))
    ledger.commit(epoch, 1, completed_ms=2)

    assert ledger.load().txid == 1
    assert last_stop(store) == Stop("user", "x", 1)
    assert not examine(store).problems


@pytest.mark.parametrize("length", [1, 186, 187, 199, 200])
@pytest.mark.parametrize("suffix", [".at-least-once", ".dead-letters"])
def test_an_id_that_we_derive_is_always_legal_and_only_of_its_id(length, suffix):
    ids = ["x" * length, "x" * (length - 1) + "y"]
    derived = [check_id(derived_id(id_, suffix)) for id_ in ids]

    assert len({*derived, *ids}) == 4
    assert all(each.endswith(suffix) for each in derived)
    assert derived_id("job", suffix) == f"job{suffix}"
    assert stop_id("x" * 200) == derived_id("x" * 200, ".at-least-once")
