"""Repairing a topology's records: each damage leads to the right txid, or to none."""

from __future__ import annotations

import pytest

from kafka_tx.model import SpoutBatch
from kafka_tx.transactions.layout.batch_records import batch_record
from kafka_tx.transactions.layout.records import encode
from kafka_tx.transactions.layout.txid_layout import Door, Numbering
from kafka_tx.transactions.ledger.ledger_reading import stored_batches
from kafka_tx.transactions.ledger.ledger_repair import examine
from kafka_tx.transactions.ownership.memory import MemoryStore


def chain(current, *txids):
    """The records of a topology whose next txid is ``current``."""
    metas = {
        f"meta/{n}": batch_record(SpoutBatch(n, (), json={"0": {"end": n}}))
        for n in txids
    }
    numbering = Numbering("0123456789ab", Door.TRANSACTIONAL).record
    currtx = {"currtx": encode("currtx", current)} if current else {}
    return metas | numbering | currtx


@pytest.fixture
def store_of(request):
    def store(texts):
        made = MemoryStore(request.node.name, "job")
        made.write(made.acquire(), texts)
        return made

    return store


@pytest.mark.parametrize(
    "texts", [chain(0), chain(0, 1, 2), chain(2, 1), chain(344, 343, 344, 345)]
)
def test_a_sound_chain_has_no_problems(store_of, texts):
    assert not examine(store_of(texts)).problems


@pytest.mark.parametrize(
    ("texts", "committed", "planned", "given_up"),
    [
        (chain(344, 128, 343), 343, [343], ()),
        (chain(344, 128, 343, 344, 346), 343, [343, 344], (346,)),
        (chain(3, 2, 3) | {"currtx": "?"}, 2, [2, 3], ()),
        (chain(3, 2, 3) | {"currtx": encode("currtx", "x")}, 2, [2, 3], ()),
        (chain(0, 7, 8), 7, [7, 8], ()),
        (chain(3, 2, 3, 4) | {"meta/3": "?"}, 2, [2], (3, 4)),
        (chain(3, 2, 3) | {"meta/x": encode("batch", 1)}, 2, [2, 3], ()),
        (chain(3, 2, 3) | {"numbering": "?"}, 2, [2, 3], ()),
    ],
)
def test_the_readable_records_tell_the_right_txid(
    store_of, texts, committed, planned, given_up
):
    store = store_of(texts)
    found = examine(store)
    assert found.repair is not None, found.problems

    store.write(1, found.repair.put, found.repair.delete)

    state = stored_batches(store)
    assert (state.txid, sorted(state.planned)) == (committed, planned)
    assert found.repair.given_up == given_up
    assert not examine(store).problems


@pytest.mark.parametrize(
    "texts",
    [
        chain(344, 128, 129),
        chain(3, 2) | {"meta/2": "?"},
        chain(3, 2, 3) | {"meta/2": "?", "currtx": "?"},
        chain(0, 5) | {"meta/5": "?"},
        {path: text for path, text in chain(3).items() if path != "meta/2"},
    ],
)
def test_what_no_record_tells_is_not_made_up(store_of, texts):
    found = examine(store_of(texts))

    assert found.problems
    assert found.repair is None
