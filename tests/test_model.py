"""What every room shares."""

from __future__ import annotations

import pytest

from kafka_tx.config import offset_ranges
from kafka_tx.errors import ConfigError
from kafka_tx.model import Broker, OffsetRange, TopicPartition, few


def test_logs_name_a_few_of_many_partitions():
    partitions = [TopicPartition("orders", n) for n in range(1_000)]

    assert few(partitions[:2]) == "orders-0, orders-1"
    assert few(partitions).endswith("orders-19 and 980 more")
    assert few([]) == "none"


@pytest.mark.parametrize(
    ("host", "text"),
    [("h1", "h1:9092"), ("::1", "[::1]:9092"), ("[::1]", "[::1]:9092")],
)
def test_a_broker_is_shown_as_clients_take_its_address(host, text):
    assert str(Broker(host)) == text


PLANNED = OffsetRange(TopicPartition("a-b", 0), 10, 20, "id")


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ("", [(10, 20)]),
        ("a-b-0:0-10", [(10, 20)]),
        ("a-b-0:12-15", [(10, 12), (15, 20)]),
        ("a-b-0:12-15@id", [(10, 12), (15, 20)]),
        ("a-b-0:12-15@another", [(10, 20)]),
        ("a-b-1:12-15", [(10, 20)]),
        ("a-b-0:0-11,a-b-0:19-99", [(11, 19)]),
        ("a-b-0:15-17,a-b-0:12-16,a-b-0:13-14", [(10, 12), (17, 20)]),
        ("a-b-0:10-20", []),
        ("a-b-0:0-99", []),
    ],
)
def test_a_range_without_others_is_the_rest_of_the_same_topic(others, left):
    found = PLANNED.without(offset_ranges("skipOffsets", others))

    assert [(part.start, part.end) for part in found] == left
    assert {part.topic_id for part in found} <= {"id"}


def test_an_empty_range_has_no_parts():
    assert PLANNED.between(10, 10).without([]) == []


def test_a_range_as_an_option_is_read_back():
    for wanted in (PLANNED, PLANNED.of_topic(None)):
        read = OffsetRange.of_option("skipOffsets", wanted.option)
        assert (read, read.topic_id) == (wanted, wanted.topic_id)


@pytest.mark.parametrize(
    "text", ["", "a", "a-0", "a-0:1", "a-0:2-2", "a-0:3-2", "0:1-2", "a-x:1-2"]
)
def test_other_texts_are_no_ranges(text):
    with pytest.raises(
        ConfigError, match="skipOffsets.*legal: TOPIC-PARTITION:FROM-TO"
    ):
        OffsetRange.of_option("skipOffsets", text)
