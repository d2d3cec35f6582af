"""Partitions in turn, retries first, and when to commit."""

import pytest

from kafka_tx.model import CommittedOffset, LogBounds, TopicPartition
from kafka_tx.offsets.emitting import Candidate, CommitTimer, RoundRobin
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.unfinished import PartitionRules


@pytest.fixture
def turns():
    return RoundRobin()


def candidates(*ends, fresh=True):
    return [
        Candidate(
            PartitionManager(
                TopicPartition("t", number), PartitionRules(), CommittedOffset(0)
            ),
            LogBounds(0, end),
            fresh,
        )
        for number, end in enumerate(ends)
    ]


def spans(emissions):
    return [
        (e.range.topic_partition.partition, e.range.start, e.range.end)
        for e in emissions
    ]


def test_a_chunk_takes_an_equal_share_of_each_partition(turns):
    emissions = turns.chunk(candidates(100, 100), room=10, now_ms=0)

    assert spans(emissions) == [(0, 0, 5), (1, 0, 5)]


def test_room_that_one_partition_does_not_need_goes_to_the_others(turns):
    emissions = turns.chunk(candidates(2, 100), room=10, now_ms=0)

    assert spans(emissions) == [(0, 0, 2), (1, 0, 5), (1, 5, 8)]


def test_the_next_chunk_begins_where_the_last_one_ended(turns):
    two = candidates(100, 100)

    first = turns.chunk(two, room=1, now_ms=0)
    second = turns.chunk(two, room=1, now_ms=0)

    assert spans(first) + spans(second) == [(0, 0, 1), (1, 0, 1)]


def test_nothing_is_emitted_without_records(turns):
    assert turns.chunk(candidates(0, 0), room=10, now_ms=0) == []
    assert turns.chunk([], room=10, now_ms=0) == []


def test_a_fill_of_several_ranges_is_emitted_whole_before_the_next_partition(turns):
    two = candidates(10, 10)
    turns.chunk(two, room=20, now_ms=0)
    for offset in (3, 5):
        two[0].manager.fail(offset, now_ms=0)
    two[1].manager.fail(7, now_ms=0)

    emissions = turns.chunk(two, room=4, now_ms=0)

    assert spans(emissions) == [(0, 3, 4), (0, 5, 6), (1, 7, 8)]


def test_retries_go_first_also_where_fresh_records_are_held_back(turns):
    one = candidates(20)
    turns.chunk(one, room=10, now_ms=0)
    one[0].manager.fail(4, now_ms=0)

    held = [Candidate(one[0].manager, one[0].bounds, fresh=False)]
    emissions = turns.chunk(held, room=10, now_ms=0)

    assert spans(emissions) == [(0, 4, 5)]
    assert spans(turns.chunk(one, room=3, now_ms=0)) == [(0, 10, 13)]


def test_what_had_no_room_is_planned_again_and_not_forgotten(turns):
    two = candidates(10, 10)
    turns.chunk(two, room=20, now_ms=0)
    for offset in (1, 3, 5):
        two[0].manager.fail(offset, now_ms=0)

    emissions = [turns.chunk(two, room=1, now_ms=0) for _ in range(3)]

    assert [span for each in emissions for span in spans(each)] == [
        (0, 1, 2),
        (0, 3, 4),
        (0, 5, 6),
    ]


# --- commits --------------------------------------------------------------------------


def test_a_commit_is_due_when_the_interval_has_passed():
    timer = CommitTimer(2_000, now_ms=10_000)

    assert not timer.is_due(11_999)
    assert timer.is_due(12_000)
    assert timer.wait_ms(11_500) == 500


def test_a_commit_is_due_when_the_clock_was_set_backwards():
    timer = CommitTimer(2_000, now_ms=10_000)

    assert timer.is_due(9_999)
    timer.committed(9_999)
    assert not timer.is_due(9_999)
    assert timer.wait_ms(9_999) == 2_000
