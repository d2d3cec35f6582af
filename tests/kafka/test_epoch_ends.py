"""Where leader epochs ended, as librdkafka tells it."""

import pytest

from kafka_tx.kafka.offset_requests import BEYOND, named_end
from kafka_tx.model import TopicPartition

P0 = TopicPartition("orders", 0)
TRUNCATED = "Partition log truncation detected at offset 4611686018427387904"
NO_EPOCH = "No epoch found less or equal to offset 4611686018427387904"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (f"{TRUNCATED}: broker end offset is 20 (offset leader epoch 0).", 20),
        (f"{TRUNCATED}: broker end offset is 0 (offset leader epoch 0).", 0),
        (f"{NO_EPOCH}: broker end offset is -1 (offset leader epoch -1).", BEYOND),
        ("something else", BEYOND),
    ],
)
def test_offsets_alone_decide_where_no_epochs_are_told(text, end, caplog):
    """Old message formats have none: their partitions are read on."""
    assert named_end(P0, text) == end
    is_warned = "do not report where a leader epoch ended" in caplog.text
    assert is_warned == (end == BEYOND)
