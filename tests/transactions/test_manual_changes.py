"""What is left of a position that a person changes."""

import pytest

from kafka_tx.errors import StateError
from kafka_tx.model import BatchMetadata, TopicPartition
from kafka_tx.transactions.layout.batch_records import batch_record
from kafka_tx.transactions.layout.txid_layout import Door, Numbering
from kafka_tx.transactions.ledger.ledger import Committed, LedgerState
from kafka_tx.transactions.ledger.manual_changes import forgotten, moved, skipping
from kafka_tx.transactions.ownership.memory import MemoryStore

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
STATE = LedgerState(3, Committed(7, {A: 10, B: 20}, {"a": "id-a", "b": "id-b"}), {})


def test_of_a_topic_that_is_forgotten_nothing_stays_and_of_others_everything():
    left = forgotten(STATE, {"a"}, 5)

    assert left == Committed(7, {B: 20}, {"b": "id-b"}, 5)


def test_a_number_that_a_checkpoint_decided_stays_doubtful():
    committed = Committed(7, {A: 10}, {"a": "id-a"}, by_checkpoint=True)
    decided = LedgerState(3, committed, {})

    assert forgotten(decided, {"a"}, 5).by_checkpoint
    assert moved(decided, {A: 3}, {}, 5).by_checkpoint
    assert not moved(decided, {A: 3}, {}, 5, txid=9).by_checkpoint


def test_offsets_that_are_set_count_for_the_topics_of_these_ids():
    assert moved(STATE, {A: 3}, {"a": "new"}, 5) == Committed(
        7, {A: 3, B: 20}, {"a": "new", "b": "id-b"}, 5
    )


def test_offsets_that_are_set_without_an_id_count_for_whatever_exists():
    assert moved(STATE, {A: 3}, {}, 5) == Committed(7, {A: 3, B: 20}, {"b": "id-b"}, 5)


def test_offsets_of_a_topic_that_became_another_go():
    more = TopicPartition("a", 1)
    state = LedgerState(3, Committed(7, {A: 10, more: 11}, {"a": "old"}), {})

    assert moved(state, {A: 3}, {"a": "new"}, 5).offsets == {A: 3}


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_only_the_first_batch_that_is_stored_can_be_skipped(mode):
    """Also the stored first plan of an opaque topology, which may be none any more."""
    store = MemoryStore("memory:", "jobs")
    plan = {"meta/1": batch_record(BatchMetadata(1, (), mode=mode))}
    later = {"meta/2": batch_record(BatchMetadata(2, ()))}
    store.acquire({**Numbering("name", Door.TRANSACTIONAL).record, **plan, **later})

    assert skipping(store, 1)[1] == []
    with pytest.raises(StateError, match="only txid 1"):
        skipping(store, 2)
