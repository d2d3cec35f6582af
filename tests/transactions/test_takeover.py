"""Becoming an owner on a draft first: nothing is fenced or written until it is sure."""

import uuid

import pytest

from kafka_tx.errors import (
    FencedError,
    OwnerLivesError,
    StateConflictError,
    StateUnavailableError,
)
from kafka_tx.transactions.layout.records import encode
from kafka_tx.transactions.layout.txid_layout import CURRENT, OWNER
from kafka_tx.transactions.ownership.guarded_writes import take_over
from kafka_tx.transactions.ownership.memory import MemoryStore
from kafka_tx.transactions.ownership.takeover import (
    TAKEOVER_TRIES,
    DraftingStore,
    taken_over,
)

FIRST, SECOND, THIRD = (encode(CURRENT, n) for n in (1, 2, 3))


@pytest.fixture
def store():
    return MemoryStore(uuid.uuid4().hex, "orders")


@pytest.fixture
def owner(store):
    """The epoch of the one that is at work."""
    epoch = take_over(store)
    store.write(epoch, {CURRENT: FIRST, "meta/1": "a"})
    return epoch


def rehearsed(store):
    """A new owner that has found the first batch done."""
    made = DraftingStore(store)
    made.draft()
    epoch = take_over(made)
    made.write(epoch, {CURRENT: SECOND}, ["meta/1"], expect={CURRENT: FIRST})
    return made


def test_until_it_is_performed_it_is_seen_by_nobody_else(store, owner):
    before = store.snapshot()

    new = rehearsed(store)

    assert (new.epoch(), new.get(CURRENT), new.get("meta/1")) == (
        owner + 1,
        SECOND,
        None,
    )
    assert store.snapshot() == before


def test_then_all_of_it_is_stored_and_what_follows_too(store, owner):
    new = rehearsed(store)
    draft = new.read()

    new.publish()

    assert (store.epoch(), store.read()) == (owner + 1, draft)
    with pytest.raises(FencedError):
        store.write(owner, {})
    new.write(owner + 1, {CURRENT: THIRD})
    assert store.get(CURRENT) == THIRD


@pytest.mark.parametrize("put", [{CURRENT: SECOND}, {"meta/2": "b"}, {"meta/1": "c"}])
def test_an_owner_that_went_on_meanwhile_is_not_fenced(store, owner, put):
    new = rehearsed(store)
    store.write(owner, put)

    with pytest.raises(StateConflictError):
        new.publish()

    store.write(owner, {"meta/3": "d"})


def test_an_owner_that_came_meanwhile_is_not_fenced(store, owner):
    new = rehearsed(store)
    other = take_over(store)

    with pytest.raises(StateConflictError):
        new.publish()

    store.write(other, {"a": "1"})


def test_a_tool_that_came_meanwhile_is_noticed(store, owner):
    new = rehearsed(store)
    store.acquire()  # leaves no word

    with pytest.raises(StateConflictError):
        new.publish()

    assert store.get(CURRENT) == FIRST


@pytest.mark.parametrize("lost", ["acquire", "write"])
def test_an_answer_that_was_lost_is_asked_for_again(store, owner, monkeypatch, lost):
    new = rehearsed(store)
    call = getattr(store, lost)

    def lose(*given, **more):
        monkeypatch.setattr(store, lost, call)
        call(*given, **more)
        raise StateUnavailableError("no answer")

    monkeypatch.setattr(store, lost, lose)
    with pytest.raises(StateUnavailableError):
        new.publish()
    new.publish()

    assert (store.epoch(), store.get(CURRENT)) == (owner + 1, SECOND)


def test_who_is_quicker_than_a_start_each_time_stays_the_owner(store, owner):
    new, seen = DraftingStore(store), []

    def judge():
        take_over(new)
        seen.append(new.get(CURRENT))
        store.write(owner, {CURRENT: encode(CURRENT, len(seen) + 1)})

    with pytest.raises(OwnerLivesError, match="is at work"):
        taken_over(new, judge)

    assert seen == [encode(CURRENT, n + 1) for n in range(TAKEOVER_TRIES)]
    assert store.get(OWNER)
    store.write(owner, {})
