import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.errors import ConfigError
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.planning.split import is_delayed, rate_limit, task_ranges

SPARK = json.loads((Path(__file__).parent / "spark_splits.json").read_text())
A, B, C = (TopicPartition("orders", number) for number in range(3))


def offset_range(partition, start, end):
    return OffsetRange(TopicPartition("orders", partition), start, end)


# --- rate_limit ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", SPARK["rateLimit"], ids=lambda case: str(case["limit"])
)
def test_a_limit_is_shared_as_spark_shares_it(case):
    starts = {TopicPartition("orders", p): start for p, start, _ in case["partitions"]}
    ends = {TopicPartition("orders", p): end for p, _, end in case["partitions"]}

    limited = rate_limit(case["limit"], starts, ends)

    assert list(limited.values()) == case["ends"]


def test_a_small_partition_is_not_starved_by_a_large_one():
    assert rate_limit(10, {A: 0, B: 0}, {A: 1_000_000, B: 3}) == {A: 9, B: 1}


def test_a_partition_without_a_start_is_not_limited():
    assert rate_limit(10, {A: 0}, {A: 100, B: 50}) == {A: 10, B: 50}


def test_an_end_below_the_start_is_left_for_the_caller_to_judge():
    assert rate_limit(10, {A: 100, B: 0}, {A: 40, B: 100}) == {A: 40, B: 10}


def test_with_nothing_to_read_every_end_stays():
    assert rate_limit(10, {A: 5}, {A: 5}) == {A: 5}


# --- is_delayed ---------------------------------------------------------------------


def delayed(available, *, waited_ms, last_batch_ms=1_000):
    return is_delayed(
        100,
        {A: 10, B: 0},
        {A: 10 + available, B: 0},
        now_ms=1_000 + waited_ms,
        last_batch_ms=last_batch_ms,
        max_delay_ms=60_000,
    )


def test_a_batch_waits_until_enough_is_available():
    assert delayed(99, waited_ms=0)
    assert not delayed(100, waited_ms=0)


def test_a_batch_does_not_wait_longer_than_the_maximum_delay():
    assert delayed(99, waited_ms=59_999)
    assert not delayed(99, waited_ms=60_000)


def test_the_first_batch_of_a_process_never_waits():
    assert not delayed(0, waited_ms=0, last_batch_ms=None)


def test_a_clock_set_back_still_lets_a_full_batch_through():
    assert not delayed(100, waited_ms=-500)


# --- task_ranges --------------------------------------------------------------------


@pytest.mark.parametrize("case", SPARK["taskRanges"], ids=str)
def test_a_batch_is_cut_into_tasks_as_spark_cuts_it(case):
    tasks = task_ranges(
        [offset_range(*wanted) for wanted in case["ranges"]],
        min_partitions=case["minPartitions"],
        max_records=case["maxRecordsPerPartition"],
    )

    assert tasks == [offset_range(*task) for task in case["tasks"]]


def test_without_wishes_each_partition_with_records_is_one_task():
    ranges = [offset_range(0, 0, 10), offset_range(1, 7, 7), offset_range(2, 1, 2)]

    assert task_ranges(ranges) == [ranges[0], ranges[2]]


def test_a_part_that_is_exactly_one_half_rounds_up():
    # 5/8 of 4 parts is 2.5: Java rounds it to 3, Python's round() would say 2.
    tasks = task_ranges(
        [offset_range(0, 0, 50), offset_range(1, 0, 30)], min_partitions=4
    )

    assert [len(task) for task in tasks] == [16, 17, 17, 15, 15]


@pytest.mark.parametrize(
    ("wish", "named"),
    [({"min_partitions": 0}, "minPartitions"), ({"max_records": -1}, "maxRecords")],
)
def test_a_bound_below_one_is_refused_by_name(wish, named):
    with pytest.raises(ConfigError, match=named):
        task_ranges([offset_range(0, 0, 10)], **wish)


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 1_000), st.integers(0, 5_000)), min_size=1, max_size=6
    ),
    min_partitions=st.none() | st.integers(1, 40),
    max_records=st.none() | st.integers(100, 6_000),
)
def test_tasks_cover_the_batch_once_in_order(spans, min_partitions, max_records):
    ranges = [offset_range(p, start, start + n) for p, (start, n) in enumerate(spans)]

    tasks = task_ranges(ranges, min_partitions=min_partitions, max_records=max_records)

    joined: list[OffsetRange] = []
    for task in tasks:
        assert len(task) > 0
        assert max_records is None or len(task) <= max_records
        if joined and joined[-1].topic_partition == task.topic_partition:
            assert joined[-1].end == task.start
            joined[-1] = OffsetRange(task.topic_partition, joined[-1].start, task.end)
        else:
            joined.append(task)
    assert joined == [wanted for wanted in ranges if len(wanted)]


@pytest.mark.parametrize("wished", [10**11, 2**63])
def test_more_tasks_than_offsets_are_one_for_each_offset(wished):
    pieces = task_ranges([offset_range(0, 5, 15)], min_partitions=wished)

    assert [(piece.start, piece.end) for piece in pieces] == [
        (n, n + 1) for n in range(5, 15)
    ]
