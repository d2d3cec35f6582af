from __future__ import annotations

import pytest

from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from kafka_tx.transactions.ledger.ledger_repair import examine
from kafka_tx.transactions.ownership.memory import MemoryStore

ORDERS = TopicPartition("orders", 0)
DONE, ENDS = 7, {7: 70, 8: 80, 9: 90}


@pytest.fixture
def store(request):
    """Txid 7 committed at 70; 8 and 9 planned, up to 80 and 90."""
    state = MemoryStore(request.node.name, "orders")
    ledger = Ledger(state)
    epoch = ledger.acquire()
    ledger.adopt(epoch, Committed(txid=DONE - 1, offsets={ORDERS: 60}))
    for txid, end in ENDS.items():
        ledger.plan(epoch, BatchMetadata(txid, (OffsetRange(ORDERS, end - 10, end),)))
    ledger.commit(epoch, DONE, completed_ms=5)
    return state


def repaired(store):
    found = examine(store)
    assert found.repair is not None
    store.write(1, found.repair.put, found.repair.delete)
    return found.repair, Ledger(store).load()


def test_a_sound_ledger_has_no_problems(store):
    found = examine(store)

    assert not found.problems
    assert found.repair is None


def test_an_empty_store_is_sound():
    assert not examine(MemoryStore("empty", "x")).problems


def test_a_lost_position_comes_from_the_ranges_that_were_committed_last(store):
    store.write(1, {"committed": "x"})

    repair, state = repaired(store)

    assert repair.source == "meta/7"
    assert state.txid == DONE
    assert state.committed.offsets == {ORDERS: 70}
    assert list(state.unfinished) == [8, 9]


def test_else_from_where_the_first_open_txid_begins(store):
    store.write(1, {"committed": "x"}, ["meta/7"])

    repair, state = repaired(store)

    assert repair.source == "meta/8"
    assert (state.txid, state.committed.offsets) == (DONE, {ORDERS: 70})
    assert list(state.unfinished) == [8, 9]


def test_a_lost_position_counts_the_last_batches_without_records():
    """As many as are stored: two. Spark's checkpoint names its batches by that."""
    store = MemoryStore("counting", "orders")
    ledger = Ledger(store)
    epoch = ledger.acquire()
    ledger.adopt(epoch, Committed(txid=1, offsets={ORDERS: 70}))
    for txid in (2, 3):
        empty = (OffsetRange(ORDERS, 70, 70),)
        ledger.plan(epoch, BatchMetadata(txid, empty, spark_batch=f"{txid}"))
        ledger.commit(epoch, txid, completed_ms=5)
    before = ledger.load().position
    store.write(epoch, {"committed": "x"})

    _, state = repaired(store)

    assert state.position.empty == before.empty == 2


@pytest.mark.parametrize("note", ["stop", "held", "alive", "call", "owner", "query"])
@pytest.mark.parametrize("more", [{}, {"committed": "x"}])
def test_a_note_by_which_nothing_is_decided_is_deleted(store, note, more):
    store.write(1, {note: "x", **more})

    repair, state = repaired(store)

    assert repair.delete == (note,)
    assert (state.txid, state.committed.offsets) == (DONE, {ORDERS: 70})
    assert list(state.unfinished) == [8, 9]
    assert not examine(store).problems


@pytest.mark.parametrize("path", ["asked", "query"])
@pytest.mark.parametrize("more", [{}, {"committed": "x"}])
def test_that_a_txid_was_asked_for_stays_known(store, path, more):
    store.write(1, {path: "x", **more})

    _, state = repaired(store)

    assert state.is_asked
    assert state.query is None
    assert (state.txid, state.position.offsets) == (DONE, {ORDERS: 70})


def test_a_damaged_note_hides_no_position_that_is_missing(store):
    store.write(1, {"stop": "x"}, ["committed"])

    repair, state = repaired(store)

    assert repair.source == "meta/7"
    assert (state.txid, state.position.offsets) == (DONE, {ORDERS: 70})
    assert not examine(store).problems


def test_metadata_after_an_unreadable_one_goes_too(store):
    store.write(1, {"meta/8": "x"})

    repair, state = repaired(store)

    assert repair.given_up == (8, 9)
    assert not state.unfinished
    assert state.committed.offsets == {ORDERS: 70}


@pytest.mark.parametrize("text", ["x", None])
def test_currtx_follows_the_position(store, text):
    put, gone = ({"currtx": text}, []) if text else ({}, ["currtx"])
    store.write(1, put, gone)

    repair, state = repaired(store)

    assert not repair.delete
    assert state.txid == DONE
    assert list(state.unfinished) == [8, 9]


def test_two_records_that_contradict_each_other_are_a_problem(store):
    store.write(1, {"currtx": Other().read()["currtx"]})

    found = examine(store)

    assert found.problems == {"currtx": "it says 3, 'committed' 8"}
    assert repaired(store)[1].txid == DONE


def test_a_record_under_another_name_is_a_problem(store):
    store.write(1, {"meta/9": store.read()["meta/8"]})

    assert examine(store).problems == {"meta/9": "it is the record of txid 8"}
    assert list(repaired(store)[1].unfinished) == [8]


def test_without_position_and_currtx_nothing_is_made_up(store):
    store.write(1, {"committed": "x", "currtx": "x"})

    found = examine(store)

    assert set(found.problems) == {"committed", "currtx"}
    assert found.repair is None


def test_records_of_topologies_are_checked_and_never_part_of_a_repair(store):
    store.write(1, {"coordinator/meta/3": "x"})

    found = examine(store)

    assert set(found.problems) == {"coordinator/meta/3"}
    assert found.repair is None


class Other(MemoryStore):
    """Another ledger, at txid 2."""

    def __init__(self):
        super().__init__("another", "orders")
        ledger = Ledger(self)
        ledger.adopt(ledger.acquire(), Committed(txid=2, offsets={}))
