import pytest

from kafka_tx.config import BatchLimits
from kafka_tx.errors import ConfigError
from kafka_tx.model import TopicPartition
from kafka_tx.planning.split import RecordSize, limited_ends

A, B, C = (TopicPartition("t", n) for n in range(3))
STARTS = {A: 0, B: 100, C: 7}
ENDS = {A: 1_000, B: 600, C: 7}


def sizes(record_bytes=100.0, **limits):
    ends = limited_ends(STARTS, ENDS, BatchLimits(**limits), record_bytes)
    return [ends[p] - STARTS[p] for p in (A, B, C)]


def test_without_limits_a_batch_takes_everything():
    assert sizes() == [1_000, 500, 0]


def test_records_of_a_batch_are_shared_in_proportion():
    assert sizes(max_records=300) == [200, 100, 0]


def test_records_of_a_partition_are_limited_before():
    assert sizes(max_records_per_partition=50) == [50, 50, 0]
    assert sizes(max_records_per_partition=500, max_records=100) == [50, 50, 0]


def test_bytes_are_limited_by_the_usual_size_of_a_record():
    assert sizes(max_bytes=30_000) == [200, 100, 0]
    assert sizes(max_bytes=30_000, record_bytes=1_000.0) == [20, 10, 0]


def test_the_smaller_of_two_limits_counts():
    assert sizes(max_bytes=30_000, max_records=3_000) == [200, 100, 0]
    assert sizes(max_bytes=300_000, max_records=300) == [200, 100, 0]


def test_a_record_larger_than_the_limit_still_gets_through():
    assert sum(sizes(max_bytes=1, record_bytes=1e9)) >= 1


@pytest.mark.parametrize(
    "name", ["max_records", "max_records_per_partition", "max_bytes", "min_records"]
)
def test_a_limit_below_one_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        BatchLimits(**{name: 0})


def test_a_least_above_the_most_is_refused():
    with pytest.raises(
        ConfigError, match=r"\(6\) is higher than the maxOffsetsPerTrigger\(5\)"
    ):
        BatchLimits(min_records=6, max_records=5)


def test_the_size_of_a_record_follows_what_was_read():
    size = RecordSize()
    assert size.average_bytes == 1024

    size.observe(10, 1_000)
    assert size.average_bytes == 100

    for _ in range(50):
        size.observe(10, 5_000)
    assert size.average_bytes == pytest.approx(500, rel=0.01)


def test_empty_batches_say_nothing_about_the_size():
    size = RecordSize()
    size.observe(0, 0)
    assert size.average_bytes == 1024

    size.observe(10, 0)
    assert size.average_bytes == 1
