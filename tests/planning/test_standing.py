"""What a look at a partition means for a position, and when it is believed."""

from typing import Any

import pytest

from kafka_tx.model import LogBounds, TopicPartition, Unavailable
from kafka_tx.planning.standing import Finding, Settling, stand

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SAME: Any = {"former_id": "a", "topic_id": "a"}
OTHER: Any = {"former_id": "a", "topic_id": "b"}


@pytest.mark.parametrize(
    ("log", "ids", "finding", "next_offset"),
    [
        ((0, 10), SAME, Finding.WITHIN, 10),
        ((10, 10), SAME, Finding.WITHIN, 10),
        ((0, 99), {}, Finding.WITHIN, 10),
        ((12, 20), SAME, Finding.TRIMMED, 12),
        ((0, 7), SAME, Finding.CUT, 7),
        ((0, 7), {}, Finding.CUT, 7),
        ((0, 7), {"former_id": "a"}, Finding.CUT, 7),
        ((0, 7), OTHER, Finding.ANEW, 0),
        ((0, 10), OTHER, Finding.ANEW, 0),
        ((3, 99), OTHER, Finding.ANEW, 3),
    ],
)
def test_ids_decide_first_then_positions(log, ids: Any, finding, next_offset):
    standing = stand(10, LogBounds(*log), **ids)

    assert (standing.finding, standing.next_offset) == (finding, next_offset)


def test_what_does_not_answer_keeps_its_position():
    for silent in (None, Unavailable("no leader")):
        standing = stand(10, silent, **SAME)

        assert (standing.finding, standing.next_offset) == (Finding.UNANSWERED, 10)
        assert not standing.means_loss


def test_another_topic_that_does_not_answer_starts_at_its_beginning():
    standing = stand(10, None, **OTHER)

    assert (standing.finding, standing.next_offset) == (Finding.ANEW, 0)


def test_a_partition_out_of_sight_keeps_its_position():
    standing = stand(10, None, exists=False, **SAME)

    assert (standing.finding, standing.next_offset) == (Finding.DELETED, 10)
    assert standing.means_loss


def test_trimmed_offsets_are_lost_and_cut_ones_were_read():
    trimmed = stand(10, LogBounds(12, 20))
    cut = stand(10, LogBounds(0, 7))

    assert (trimmed.lost, trimmed.cut) == (2, 0)
    assert (cut.lost, cut.cut) == (0, 3)


def test_a_log_that_seems_too_short_is_believed_after_ten_seconds():
    settling = Settling()
    short = stand(10, LogBounds(0, 7))

    seen = [settling.believes(P0, short, ms) for ms in (0, 9_999, 10_000)]

    assert seen == [False, False, True]


def test_an_answer_in_between_that_holds_the_position_begins_the_wait_anew():
    settling = Settling()
    short, long = stand(10, LogBounds(0, 7)), stand(10, LogBounds(0, 10))

    assert not settling.believes(P0, short, 0)
    assert settling.believes(P0, long, 5_000)
    assert not settling.believes(P0, short, 10_000)
    assert settling.believes(P0, short, 20_000)


def test_silence_in_between_does_not():
    settling = Settling()
    short, silent = stand(10, LogBounds(0, 7)), stand(10, None)

    assert not settling.believes(P0, short, 0)
    assert settling.believes(P0, silent, 5_000)
    assert settling.believes(P0, short, 10_000)


def test_partitions_and_findings_wait_each_for_itself():
    settling = Settling()
    short, gone = stand(10, LogBounds(0, 7)), stand(10, None, exists=False)

    assert not settling.believes(P0, short, 0)
    assert not settling.believes(P1, short, 10_000)
    assert not settling.believes(P0, gone, 10_000)
    assert settling.believes(P0, gone, 11_000)
    settling.forget(P0)
    assert not settling.believes(P0, gone, 11_001)


def test_what_retention_took_counts_at_once():
    assert Settling().believes(P0, stand(10, LogBounds(12, 20)), 0)
