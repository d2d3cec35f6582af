"""What a look at a partition means for a position, and when it is believed."""

import pytest

from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.position_checks import Finding, Settling, check_position
from kafka_tx.planning.log_bounds import EpochEnds
from kafka_tx.testing import MemoryLog

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TEN = LogPosition(10, "a")


def log(start: int, end: int, topic_id: str | None = "a") -> LogBounds:
    return LogBounds(start, end, topic_id)


@pytest.mark.parametrize(
    ("bounds", "was", "now", "finding", "next_offset"),
    [
        ((0, 10), "a", "a", Finding.WITHIN, 10),
        ((10, 10), "a", "a", Finding.WITHIN, 10),
        ((12, 20), "a", "a", Finding.TRIMMED, 12),
        ((0, 7), "a", "a", Finding.CUT, 7),
        ((0, 7), "a", "b", Finding.ANEW, 0),
        ((0, 10), "a", "b", Finding.ANEW, 0),
        ((3, 99), "a", "b", Finding.ANEW, 3),
        ((0, 99), None, "b", Finding.WITHIN, 10),
        ((0, 7), None, None, Finding.CUT, 7),
    ],
)
def test_ids_decide_first_then_offsets(bounds, was, now, finding, next_offset):
    check = check_position(LogPosition(10, was), log(bounds[0], bounds[1], now))

    assert (check.finding, check.next_offset) == (finding, next_offset)


@pytest.mark.parametrize(
    ("held", "reported", "ended", "finding", "next_offset"),
    [
        ((0, 99), 3, {}, Finding.WITHIN, 10),  # the leader that held it
        ((0, 99), 4, {3: 10}, Finding.WITHIN, 10),
        ((0, 99), 4, {3: 50}, Finding.WITHIN, 10),
        ((0, 99), 4, {3: 7}, Finding.CUT, 7),  # others took the offsets
        ((0, 8), 4, {3: 7}, Finding.CUT, 7),
        ((8, 99), 4, {3: 7}, Finding.CUT, 8),
        ((12, 99), 4, {3: 7}, Finding.TRIMMED, 12),
        ((0, 7), 4, {3: 10}, Finding.CUT, 7),  # it may not know its own end yet
        ((0, 99), 4, {2: 7}, Finding.UNANSWERED, 10),  # of another epoch
        ((0, 99), 2, {}, Finding.UNANSWERED, 10),  # told by a former leader
        ((0, 7), 2, {}, Finding.UNANSWERED, 10),
        ((0, 99), None, {}, Finding.WITHIN, 10),
    ],
)
def test_a_new_leader_says_where_the_log_of_a_position_ends(
    held, reported, ended, finding, next_offset
):
    bounds = LogBounds(held[0], held[1], "a", reported, ended)

    check = check_position(LogPosition(10, "a", 3), bounds)

    assert (check.finding, check.next_offset) == (finding, next_offset)
    assert (check.log is None) == (finding is Finding.UNANSWERED)


@pytest.mark.parametrize(("was", "now"), [(None, "a"), (None, None)])
def test_leader_epochs_of_topics_that_may_be_others_mean_nothing(was, now):
    check = check_position(LogPosition(10, was, 3), LogBounds(0, 99, now, 4))

    assert check.finding is Finding.WITHIN


def test_what_a_new_leader_says_is_no_old_answer():
    cut = check_position(LogPosition(10, "a", 3), LogBounds(0, 99, "a", 4, {3: 7}))
    short = check_position(LogPosition(10, "a", 3), LogBounds(0, 7, "a", 4, {3: 10}))

    assert Settling().believes(P0, cut, 0)
    assert not Settling().believes(P0, short, 0)
    assert (cut.cut, cut.log) == (3, LogBounds(0, 7, "a", 4, {3: 7}))


@pytest.mark.parametrize("bounds", [(0, 7), (0, 10), (12, 20)])
def test_a_log_of_which_nobody_tells_whose_it_is_proves_nothing(bounds):
    check = check_position(TEN, log(bounds[0], bounds[1], None))

    assert (check.finding, check.next_offset) == (Finding.UNANSWERED, 10)
    assert check.bounds is None, "nothing is read of it"


def test_what_does_not_answer_keeps_its_position():
    for silent in (None, Unavailable("no leader"), Unavailable("no leader", "a")):
        check = check_position(TEN, silent)

        assert (check.finding, check.next_offset) == (Finding.UNANSWERED, 10)
        assert not check.means_loss


def test_another_topic_that_does_not_answer_starts_at_its_beginning():
    check = check_position(TEN, Unavailable("no leader", "b"))

    assert (check.finding, check.next_offset) == (Finding.ANEW, 0)


def test_a_partition_out_of_sight_keeps_its_position():
    check = check_position(TEN, None, exists=False)

    assert (check.finding, check.next_offset) == (Finding.DELETED, 10)
    assert check.means_loss


def test_trimmed_offsets_are_lost_and_cut_ones_were_read():
    trimmed = check_position(TEN, log(12, 20))
    cut = check_position(TEN, log(0, 7))

    assert (trimmed.lost, trimmed.cut) == (2, 0)
    assert (cut.lost, cut.cut) == (0, 3)


def test_a_log_that_seems_too_short_is_believed_after_ten_seconds():
    settling = Settling()
    short = check_position(TEN, log(0, 7))

    seen = [settling.believes(P0, short, ms) for ms in (0, 9_999, 10_000)]

    assert seen == [False, False, True]


def test_an_answer_in_between_that_holds_the_position_begins_the_wait_anew():
    settling = Settling()
    short, long = check_position(TEN, log(0, 7)), check_position(TEN, log(0, 10))

    assert not settling.believes(P0, short, 0)
    assert settling.believes(P0, long, 5_000)
    assert not settling.believes(P0, short, 10_000)
    assert settling.believes(P0, short, 20_000)


def test_silence_in_between_does_not():
    settling = Settling()
    short, silent = check_position(TEN, log(0, 7)), check_position(TEN, None)

    assert not settling.believes(P0, short, 0)
    assert settling.believes(P0, silent, 5_000)
    assert settling.believes(P0, short, 10_000)


def test_partitions_and_findings_wait_each_for_itself():
    settling = Settling()
    short, gone = (
        check_position(TEN, log(0, 7)),
        check_position(TEN, None, exists=False),
    )

    assert not settling.believes(P0, short, 0)
    assert not settling.believes(P1, short, 10_000)
    assert not settling.believes(P0, gone, 10_000)
    assert settling.believes(P0, gone, 11_000)
    settling.forget(P0)
    assert not settling.believes(P0, gone, 11_001)


def test_where_an_epoch_ended_is_asked_again_of_a_topic_made_anew():
    """Its leaders begin with epoch 0, as those of the former topic did."""
    cluster = MemoryLog({"t": 1})
    ends = EpochEnds(cluster)

    def with_ends():
        bounds = cluster.bounds([P0])
        at = LogPosition(0, bounds[P0].topic_id, 0)
        return ends.completed(bounds, {P0: at})[P0]

    for end in (3, 7):
        cluster.create("t", 1)
        cluster.append_hole(P0, end)
        cluster.elect(P0)

        assert with_ends().epoch_ends == {0: end}


def test_what_retention_took_counts_at_once():
    assert Settling().believes(P0, check_position(TEN, log(12, 20)), 0)
