"""Leader epochs as short JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.offsets.leader_epochs import packed, unpacked
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark
from kafka_tx.transactions.layout.batch_records import (
    Committed,
    batch_record,
    position_records,
)

WIDE = [TopicPartition("orders", n) for n in range(1_000)]

partitions = st.builds(
    TopicPartition, st.sampled_from(["a", "b-1"]), st.integers(0, 30)
)


@given(st.dictionaries(partitions, st.integers(0, 4)))
def test_epochs_are_read_back_as_they_were(epochs):
    assert unpacked(json.loads(json.dumps(packed(epochs)))) == epochs


@given(st.dictionaries(partitions, st.integers(0, 4)), st.randoms())
def test_their_order_does_not_change_the_text(epochs, chance):
    items = list(epochs.items())
    chance.shuffle(items)
    assert json.dumps(packed(dict(items))) == json.dumps(packed(epochs))


def test_a_topic_names_the_common_epoch_first_and_then_the_exceptions():
    epochs = dict.fromkeys(WIDE[:20], 5) | {WIDE[3]: 6, WIDE[4]: 6, WIDE[9]: 2}
    del epochs[WIDE[15]]

    assert packed(epochs) == {"orders": [[5, "0-14,16-19"], [2, "9"], [6, "3-4"]]}


def of_a_mark(epochs):
    positions = dict.fromkeys(WIDE, 123_456)
    mark = TransactionMark("q", 1, 1, leader_epochs=epochs)
    return json.dumps(SourceOffset(positions, mark).to_json())


def of_a_note(epochs):
    positions = dict.fromkeys(WIDE, 123_456)
    return json.dumps(SourceOffset(positions, noted_epochs=epochs).to_json())


def of_a_position(epochs):
    committed = Committed(1, dict.fromkeys(WIDE, 123_456), leader_epochs=epochs)
    return "".join(position_records(committed).values())


def of_a_batch(epochs):
    ranges = [OffsetRange(p, 123, 123_456, None, epochs.get(p)) for p in WIDE]
    return batch_record(BatchMetadata(1, tuple(ranges)))


@pytest.mark.parametrize("text", [of_a_mark, of_a_note, of_a_position, of_a_batch])
def test_shared_epochs_of_1000_partitions_add_less_than_a_hundredth(text):
    assert len(text(dict.fromkeys(WIDE, 7))) < 1.01 * len(text({}))


@pytest.mark.parametrize("text", [of_a_mark, of_a_note, of_a_position, of_a_batch])
def test_epochs_that_differ_by_broker_add_less_than_a_quarter(text):
    by_broker = {partition: 7 + partition.partition % 3 for partition in WIDE}
    assert len(text(by_broker)) < 1.25 * len(text({}))
