"""Which numbering an id's txids are of, and which door may go on with it."""

from __future__ import annotations

import re
import uuid

import pytest

from kafka_tx.errors import FencedError, StateCorruptedError, StateError
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.transactions.layout.txid_layout import (
    NUMBERING,
    Door,
    numbered,
    numbering_of,
)
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from kafka_tx.transactions.ledger.ledger_repair import examine
from kafka_tx.transactions.ownership.memory import MemoryStore

P0 = TopicPartition("orders", 0)


@pytest.fixture
def open_store():
    name = uuid.uuid4().hex
    return lambda id_="orders": MemoryStore(name, id_)


def name_in(store: MemoryStore) -> str:
    found = numbering_of(store.read(), store.url, store.id)
    assert found is not None
    return found.name


def planned(ledger: Ledger) -> int:
    """Let a new owner plan txid 1."""
    epoch = ledger.acquire()
    ledger.plan(epoch, BatchMetadata(1, (OffsetRange(P0, 0, 5),)))
    return epoch


@pytest.mark.parametrize("first", ["plan", "adopt"])
def test_a_numbering_is_named_by_the_first_write_and_stays(open_store, first):
    ledger = Ledger(open_store())
    assert ledger.load().numbering == ""
    if first == "adopt":
        ledger.adopt(ledger.acquire(), Committed(0, {P0: 0}))
    epoch = planned(ledger)
    name = ledger.load().numbering

    ledger.commit(epoch, 1, 0)
    ledger.adopt(ledger.acquire(), Committed(7, {P0: 9}))

    assert re.fullmatch("[0-9a-f]{12}", name)
    assert Ledger(open_store()).load().numbering == name == name_in(open_store())


def test_a_store_that_begins_anew_has_another_numbering(open_store):
    planned(Ledger(open_store("a")))
    planned(Ledger(open_store("b")))

    assert name_in(open_store("a")) != name_in(open_store("b"))


def test_a_position_may_be_taken_over_with_its_numbering(open_store):
    ledger = Ledger(open_store())
    planned(ledger)

    ledger.adopt(ledger.acquire(), Committed(4, {P0: 9}), "feedfeedfeed")

    assert ledger.load().numbering == "feedfeedfeed"


def test_the_other_process_of_an_owner_writes_on_no_other_numbering(open_store):
    """Its own memory may be of a store that was replaced since."""
    planning, listening = Ledger(open_store()), Ledger(open_store())
    epoch = planned(planning)
    assert listening.load().txid == 0
    planning.adopt(epoch, Committed(0, {P0: 0}), "feedfeedfeed")
    planning.plan(epoch, BatchMetadata(1, (OffsetRange(P0, 0, 3),)))

    listening.commit(epoch, 1, 0)

    committed = planning.load().committed
    assert committed is not None
    assert committed.offsets == {P0: 3}


def test_owners_of_a_topology_go_on_with_its_numbering(open_store):
    store = open_store()
    first = numbered(store, store.acquire())

    again = numbered(store, store.acquire())

    assert again == first == store.read()
    assert numbering_of(first, "", "") is not None


def test_an_owner_that_was_overtaken_names_nothing(open_store):
    store = open_store()
    epoch = store.acquire()
    open_store().acquire()

    with pytest.raises(FencedError):
        numbered(store, epoch)

    assert open_store().read() == {}


def test_a_topology_refuses_the_id_of_a_source_and_another_id_is_new(open_store):
    planned(Ledger(open_store()))
    store = open_store()
    before = store.read()

    with pytest.raises(StateError, match="'orders' .* that of a source"):
        numbered(store, store.acquire())

    assert store.read() == before
    other = open_store("orders-2")
    found = numbering_of(numbered(other, other.acquire()), "", "")
    assert found is not None
    assert found.door is Door.TRANSACTIONAL
    assert store.read() == before


def test_a_source_refuses_the_id_of_a_topology(open_store):
    store = open_store("words")
    before = numbered(store, store.acquire())

    with pytest.raises(StateError, match="'words' .* of a transactional topology"):
        Ledger(store).load()

    assert store.read() == before


@pytest.mark.parametrize("door", [Door.SOURCE, Door.TRANSACTIONAL])
def test_a_numbering_that_cannot_be_read_is_not_named_anew(open_store, door):
    if door is Door.SOURCE:
        planned(Ledger(open_store()))
    store = open_store()
    store.write(store.acquire(), {NUMBERING: "garbage"})
    before = store.read()

    ways = {Door.SOURCE: Ledger(store).load}
    goes_on = ways.get(door, lambda: numbered(store, store.epoch()))
    with pytest.raises(StateCorruptedError, match=NUMBERING):
        goes_on()

    assert store.read() == before


def test_repair_finds_nothing_wrong_with_a_topology_and_names_what_is(open_store):
    store = open_store("words")
    numbered(store, store.acquire())

    assert examine(store).problems == {}
    store.write(store.epoch(), {"meta/5": '{"w": 1}'})

    found = examine(store)
    assert set(found.problems) == {"meta/5", "currtx"}
    assert found.repair is None


def test_repair_gives_a_numbering_that_cannot_be_read_a_new_name(open_store):
    ledger, store = Ledger(open_store()), open_store()
    ledger.adopt(ledger.acquire(), Committed(3, {P0: 9}))
    store.write(store.epoch(), {NUMBERING: "garbage"})

    repair = examine(store).repair

    assert repair is not None
    store.write(store.epoch(), repair.put, repair.delete)
    assert ledger.load().txid == 3
    assert ledger.load().numbering
