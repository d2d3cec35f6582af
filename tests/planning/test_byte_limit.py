"""Batches of about so many bytes, from samples of what they would read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_tx.errors import FetchError
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.planning.byte_limit import ByteLimit
from kafka_tx.testing import ManualClock

P0, P1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
SECONDS = 1_000


class Log:
    """Records whose size is a function of their partition and offset."""

    def __init__(self, size_of, keeps=lambda _: True):
        self.size_of = size_of
        self.keeps = keeps
        self.asked: list[OffsetRange] = []
        self.is_away = False

    def read(self, wanted):
        self.asked.append(wanted)
        if self.is_away:
            raise FetchError("nobody answers")
        offsets = [o for o in range(wanted.start, wanted.end) if self.keeps(o)]
        sizes = [self.size_of(wanted.topic_partition, o) for o in offsets]
        if offsets:
            columns = {
                "key": pa.array([None] * len(offsets), pa.binary()),
                "value": pa.array([b"v" * size for size in sizes]),
                "offset": pa.array(offsets, pa.int64()),
            }
            yield pa.record_batch(columns)


@pytest.fixture
def clock():
    return ManualClock()


def taken(limit, starts, ends):
    found = limit.ends(starts, ends)
    assert set(found) == set(ends)
    return [found[p] - starts[p] for p in sorted(starts)]


def test_as_many_offsets_are_taken_as_fit(clock):
    limit = ByteLimit(50_000, lambda: Log(lambda *_: 100), clock)

    assert taken(limit, {P0: 7, P1: 0}, {P0: 10_007, P1: 30_000}) == [125, 375]


def test_a_small_batch_is_taken_whole(clock):
    limit = ByteLimit(50_000, lambda: Log(lambda *_: 100), clock)

    assert taken(limit, {P0: 0, P1: 5}, {P0: 400, P1: 5}) == [400, 0]


def test_each_topic_has_its_own_size(clock):
    log = Log(lambda partition, _: 1_000 if partition.topic == "u" else 10)
    limit = ByteLimit(505_000, lambda: log, clock)

    found = taken(limit, {P0: 0, OTHER: 0}, {P0: 1_000, OTHER: 1_000})

    assert found == [500, 500]


def test_a_partition_with_one_huge_record_gets_it(clock):
    limit = ByteLimit(1_000, lambda: Log(lambda *_: 5_000_000), clock)

    assert taken(limit, {P0: 0, P1: 0}, {P0: 3, P1: 9}) == [1, 1]


def test_records_that_grow_within_the_batch_are_noticed(clock):
    """The first ones are small; those in the middle count, too."""
    log = Log(lambda _, offset: 10 if offset < 100 else 1_000)
    limit = ByteLimit(505_000, lambda: log, clock)

    (count,) = taken(limit, {P0: 0}, {P0: 1_000_000})

    assert count == 1_000
    middle = 50_500 // 2
    assert [r.start for r in log.asked] == [0, middle]


def test_offsets_without_records_count_as_empty(clock):
    """After compaction one of ten is left."""
    log = Log(lambda *_: 1_000, keeps=lambda offset: offset % 10 == 9)
    limit = ByteLimit(100_000, lambda: log, clock)

    assert taken(limit, {P0: 0}, {P0: 5_000}) == [1_000]


def test_a_range_in_which_nothing_is_left_is_taken(clock):
    limit = ByteLimit(10, lambda: Log(lambda *_: 1, keeps=lambda _: False), clock)

    assert taken(limit, {P0: 0}, {P0: 10}) == [10]


def test_where_nothing_can_be_read_a_kibibyte_is_assumed_or_the_last_size(clock):
    log = Log(lambda *_: 100)
    log.is_away = True
    limit = ByteLimit(10_240, lambda: log, clock)

    assert taken(limit, {P0: 0}, {P0: 5_000}) == [10]
    log.is_away = False
    assert taken(limit, {P0: 10}, {P0: 5_000}) == [102]
    log.is_away = True
    assert taken(limit, {P0: 112}, {P0: 5_000}) == [102]


def test_far_below_the_limit_samples_are_rare(clock):
    log = Log(lambda *_: 100)
    limit = ByteLimit(1_000_000, lambda: log, clock)
    at = 0
    for _ in range(10):
        assert taken(limit, {P0: at}, {P0: at + 10}) == [10]
        at += 10
    assert len(log.asked) == 2

    clock.sleep_ms(10 * SECONDS)
    assert taken(limit, {P0: at}, {P0: at + 10}) == [10]

    assert len(log.asked) == 4


def test_of_many_partitions_the_fullest_are_read(clock):
    log = Log(lambda *_: 100)
    limit = ByteLimit(100_000, lambda: log, clock)
    partitions = [TopicPartition("t", n) for n in range(50)]

    ends = {p: 1 + p.partition for p in partitions}
    found = limit.ends(dict.fromkeys(partitions, 0), ends)

    assert 950 <= sum(found.values()) <= 1_050
    assert [r.topic_partition.partition for r in log.asked[:4]] == [49, 48, 47, 46]
    assert len(log.asked) == 8


def test_nothing_to_read_asks_nobody(clock):
    log = Log(lambda *_: 100)
    limit = ByteLimit(10, lambda: log, clock)

    assert taken(limit, {P0: 5}, {P0: 5}) == [0]
    assert log.asked == []
