"""Which partitions of a poller are awake, and how often the others are looked at."""

from __future__ import annotations

from kafka_tx.model import CommittedOffset, LogBounds, TopicPartition
from kafka_tx.offsets.loss import LossReason
from kafka_tx.planning import log_bounds
from kafka_tx.planning.log_bounds import SOON_MS
from tests.running.polling import P0, P1, complete_all, manager


def test_nothing_is_asked_of_partitions_that_have_nothing_to_do(case):
    complete_all(case)
    assert case.poller.is_idle
    assert set(case.poller.partitions.take_touched()) == set(
        case.poller.partitions.managers
    )
    assert not case.poller.partitions.take_touched()

    case.cluster.logs[P1] = LogBounds(0, 12)
    case.clock.advance(60_000)
    case.poll()

    assert [m.topic_partition for m in case.poller.partitions.awake] == [P1]
    assert not case.poller.is_idle
    assert case.emit() == ["t-1 [10, 12)"]


def find_empty(case):
    """Both logs are empty, and nothing is left to be stored."""
    for at in (P0, P1):
        case.cluster.logs[at] = LogBounds(0, 0)
        case.coordinator.managers[at].committed(CommittedOffset(0))
    case.poll()
    case.poller.commit_if_due(at_once=True)
    assert not case.poller.partitions.awake


def test_a_log_that_was_trimmed_or_cut_wakes_its_partition(case):
    find_empty(case)

    case.cluster.logs[P0] = LogBounds(5, 5)
    case.clock.advance(60_000)
    case.poll()

    assert [m.topic_partition for m in case.poller.partitions.awake] == [P0]


def test_other_records_where_all_was_read_wake_their_partition_and_are_read(case):
    for at in (P0, P1):
        case.cluster.logs[at] = LogBounds(0, 10, "id", 3)
    complete_all(case)
    case.cluster.logs[P0] = LogBounds(0, 15, "id", 4)
    case.cluster.epoch_ended[P0] = 6

    for _ in range(2):  # the second one is held against what was read
        case.clock.advance(60_000)
        case.poll()

    assert [m.topic_partition for m in case.poller.partitions.awake] == [P0]
    assert [case.emit(), case.emit()] == [[], ["t-0 [6, 15)"]]
    assert case.poller.partitions.managers[0].counts.skipped[LossReason.CUT] == 4


def test_of_a_partition_that_sleeps_only_the_end_is_asked(case):
    find_empty(case)
    case.clock.advance(log_bounds.WHOLE_POLL_MS - 1)
    asked = len(case.cluster.asked)

    case.poll()

    assert (len(case.cluster.asked), case.cluster.ends_asked) == (asked, 1)
    assert case.poller.is_idle


def test_the_start_of_a_quiet_log_is_shown_when_retention_moved_it(case):
    complete_all(case)
    case.cluster.logs[P0] = LogBounds(10, 10)

    case.clock.advance(log_bounds.WHOLE_POLL_MS)
    case.poll()

    starts = case.registry.samples()["kafka_tx_log_start_offset"]
    assert starts == {("job", "t", "0"): (10,), ("job", "t", "1"): (0,)}


def test_polls_of_logs_that_stay_quiet_become_rare(case, monkeypatch):
    monkeypatch.setattr(log_bounds, "_PAUSE_MS_EACH", 500)
    find_empty(case)
    pauses = []

    for _ in range(10):
        began_ms = case.clock.monotonic_ms()
        while case.poller.next_polls().logs == case.poller.ended_polls().logs + 1:
            case.clock.advance(2 * SOON_MS)
            case.poller.poll_if_due()
        case.take()
        pauses.append(case.clock.monotonic_ms() - began_ms)

    assert sorted(pauses) == pauses
    assert (pauses[0], pauses[-1]) == (2 * SOON_MS, 2 * 500)


def test_logs_are_polled_at_once_when_somebody_waits(case, monkeypatch):
    monkeypatch.setattr(log_bounds, "_PAUSE_MS_EACH", 60_000)
    find_empty(case)
    for _ in range(9):
        case.clock.advance(60_000)
        case.poll()
    case.clock.advance(1_000)
    polls = case.poller.next_polls().logs
    case.poller.poll_if_due()
    assert case.poller.next_polls().logs == polls

    case.poller.want_polls()

    assert case.poller.wakes_at_ms() <= case.clock.monotonic_ms() + 10
    case.poll()
    assert case.poller.next_polls().logs == polls + 1


def test_a_new_partition_is_polled_at_once(case):
    find_empty(case)
    new = TopicPartition("t", 2)
    case.cluster.logs[new] = LogBounds(0, 3)
    case.coordinator.managers[new] = manager(new)
    case.coordinator.partitions += (new,)
    case.poller.want_polls()
    case.poll()
    case.poller.refresh_if_due()
    case.take()

    case.poll()

    assert case.emit() == ["t-2 [0, 3)"]


def test_a_topic_made_anew_with_as_many_records_is_read_from_its_beginning(case):
    case.cluster.logs[P0] = LogBounds(0, 10, "former")
    complete_all(case)
    case.coordinator.due = True
    case.coordinator._take = lambda: case.coordinator.managers[P0].saw_topic("latter")

    case.clock.advance(60_000)
    case.poller.refresh_if_due()
    case.take()

    assert [m.topic_partition for m in case.poller.partitions.awake] == [P0]
    assert case.emit() == [], "what is known of its log is of the one that is gone"
    case.cluster.logs[P0] = LogBounds(0, 10, "latter")
    case.poll()
    case.poller.commit_if_due(at_once=True)
    assert case.emit() == ["t-0 [0, 10)"], "it does not fall asleep before"
