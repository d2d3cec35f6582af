"""The JSON of offsets."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.model import AtOffset, Earliest, Latest, TopicPartition
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark, parse_positions

MARK = TransactionMark(id="job", txid=3, epoch=2)

positions = st.dictionaries(
    st.builds(
        TopicPartition,
        st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
        st.integers(0, 10_000),
    ),
    st.integers(0, 2**62),
    max_size=20,
)


@given(positions, st.one_of(st.none(), st.just(MARK)))
def test_an_offset_survives_sparks_log(found, mark):
    offset = SourceOffset(found, mark)

    read = SourceOffset.from_json(json.loads(json.dumps(offset.to_json())))

    assert read == offset


def test_it_contains_sparks_own_form():
    offset = SourceOffset({TopicPartition("b", 10): 1, TopicPartition("b", 2): 7}, MARK)

    assert json.dumps(offset.to_json()) == (
        '{"b": {"2": 7, "10": 1}, "_kafka_tx": '
        '{"v": 3, "id": "job", "txid": 3, "epoch": 2}}'
    )


def test_a_note_is_a_name_that_sparks_own_source_reads_over():
    partition = TopicPartition("b", 0)
    offset = SourceOffset(
        {partition: 7}, begins={partition: 3}, noted_ids={"b": "mZkF", "a": "1"}
    )

    data = json.loads(json.dumps(offset.to_json()))

    (name,) = data.keys() - {"b"}
    assert name == (
        '_kafka_tx {"v": 3, "begins": {"b": {"0": 3}}, '
        '"topic_ids": {"a": "1", "b": "mZkF"}}'
    )
    assert data == {"b": {"0": 7}, name: {}}
    read = SourceOffset.from_json(data)
    assert (read, read.begins) == (offset, offset.begins)
    assert read.topic_ids == {"b": "mZkF", "a": "1"}
    copied = parse_positions("startingOffsets", json.dumps(data))
    assert copied == {partition: AtOffset(7)}


def test_an_offset_of_sparks_own_source_has_no_mark():
    offset = SourceOffset.from_json({"orders": {"0": 250}})

    assert offset == SourceOffset({TopicPartition("orders", 0): 250})


def test_positions_may_be_the_first_offset_and_both_ends():
    found = parse_positions("startingOffsets", '{"t": {"0": 0, "1": -1, "2": -2}}')

    assert found == {
        TopicPartition("t", 0): AtOffset(0),
        TopicPartition("t", 1): Latest(),
        TopicPartition("t", 2): Earliest(),
    }
