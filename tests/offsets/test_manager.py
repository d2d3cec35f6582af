import random
from time import process_time

import pytest

from kafka_tx.errors import ConfigError, OutOfOrderError
from kafka_tx.model import (
    Broker,
    CommittedOffset,
    LogBounds,
    OffsetRange,
    TopicPartition,
)
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.manager_answers import GiveUp
from kafka_tx.offsets.retry import BackOff
from kafka_tx.offsets.unfinished import PartitionRules
from tests.offsets.managing import LOG, ORDERS, emit, emitting, manager, span

# --- planning and emitting ----------------------------------------------------------


def test_fresh_records_are_planned_in_order_up_to_the_log_end():
    made = manager()

    assert emit(made, max_offsets=400).ranges == (span(0, 400),)
    assert emit(made).ranges == (span(400, 1_000),)
    assert not emit(made)


def test_planning_changes_nothing():
    made = emitting(10)
    made.fail(4, now_ms=0)

    plans = [made.plan(LOG, max_offsets=5, now_ms=0) for _ in range(2)]

    assert plans[0] == plans[1]
    assert plans[0].ranges == (span(4, 5), span(10, 14))


def test_due_retries_go_before_fresh_records():
    made = emitting(10, back_off=BackOff(initial_delay_ms=100))
    made.fail(4, now_ms=0)

    assert emit(made, max_offsets=1, now_ms=99).ranges == (span(10, 11),)
    assert emit(made, max_offsets=1, now_ms=100).ranges == (span(4, 5),)
    assert made.counts.retried == 1


def test_retries_are_joined_into_runs():
    made = emitting(10)
    for offset in (5, 4, 7):
        made.fail(offset, now_ms=0)

    assert emit(made, max_offsets=3).ranges == (span(4, 6), span(7, 8))


def test_a_store_that_asks_for_a_pause_still_gets_retries():
    made = emitting(10)
    made.fail(4, now_ms=0)

    assert made.plan(LOG, max_offsets=9, now_ms=0, fresh=False).ranges == (span(4, 5),)


def test_a_range_beyond_the_next_offset_is_refused():
    made = emitting(10)

    with pytest.raises(OutOfOrderError, match="10 is the next offset of orders-0"):
        made.emitted(span(11, 12), now_ms=0)


def test_a_range_of_another_partition_is_refused():
    other = OffsetRange(TopicPartition("orders", 1), 0, 5)

    with pytest.raises(ConfigError, match="orders-1"):
        emitting(10).ack(other)


def test_no_more_than_the_allowed_offsets_are_uncommitted():
    made = manager(max_uncommitted_offsets=100)

    emit(made)

    assert (made.uncommitted, made.emitted_to) == (100, 100)
    made.ack(span(50, 100))
    assert not emit(made)
    made.ack(span(0, 10))
    assert emit(made).ranges == (span(100, 110),)


def test_a_retry_goes_through_though_no_fresh_record_may():
    made = manager(max_uncommitted_offsets=100)
    emit(made)

    made.fail(99, now_ms=0)

    assert emit(made).ranges == (span(99, 100),)


def test_holes_are_no_uncommitted_records():
    made = manager(max_uncommitted_offsets=100)
    emit(made)

    made.passed(span(0, 100), present=[(0, 1), (99, 100)])

    assert made.uncommitted == 2
    assert emit(made).ranges == (span(100, 198),)


# --- acknowledging ------------------------------------------------------------------


def test_the_commit_stops_at_the_first_unfinished_record():
    made = emitting(10)

    for offset in (0, 1, 3, 9):
        made.ack(offset)

    assert made.last_completed_offset == 2
    assert made.next_to_commit() == CommittedOffset(2, ((3, 4), (9, 10)))


def test_an_answered_range_counts_only_what_was_unfinished():
    made = emitting(10)
    made.ack(4)

    assert made.ack(span(0, 6)) == 5
    assert made.counts.completed == 6


@pytest.mark.parametrize("late", [3, 10, 10_000], ids=["twice", "next", "never"])
def test_late_double_and_unknown_acks_are_ignored(late):
    made = emitting(10)
    made.ack(3)

    assert made.ack(late) == 0
    assert (made.counts.completed, made.pending) == (1, 9)


def test_a_late_ack_of_a_record_that_waits_for_its_retry_completes_it():
    made = emitting(1)
    made.fail(0, now_ms=0)

    assert made.ack(0) == 1
    assert not made.plan(LogBounds(0, 1), max_offsets=9, now_ms=10**9)
    assert made.waiting == 0


def test_what_a_range_did_not_hold_is_completed():
    made = emitting(10)

    assert made.passed(span(0, 10), present=[(2, 3), (5, 7)]) == 7

    assert made.next_to_commit() == CommittedOffset(2, ((3, 5), (7, 10)))
    assert made.counts.holes == 7


def test_a_reader_that_stopped_early_completes_only_what_it_passed():
    made = emitting(10)

    made.passed(span(0, 4), present=[])

    assert made.last_completed_offset == 4


def test_a_retry_of_a_record_that_was_compacted_meanwhile_ends():
    made = emitting(10)
    made.fail(4, now_ms=0)
    (retry,) = emit(made, max_offsets=1).ranges

    made.passed(retry, present=[])

    made.ack(span(0, 10))
    assert made.last_completed_offset == 10


def test_many_records_complete_one_by_one_in_random_order():
    offsets = list(range(500_000))
    random.Random(3).shuffle(offsets)
    made = manager(max_uncommitted_offsets=None)
    made.emitted(span(0, 500_000), now_ms=0)

    started = process_time()
    for offset in offsets:
        made.ack(offset)

    assert process_time() - started < 4  # 1 s; a list that moves takes 8 s
    assert made.last_completed_offset == 500_000


def test_a_batch_of_a_hundred_thousand_completes_within_a_millisecond():
    seconds = []
    for made in [manager() for _ in range(5)]:
        started = process_time()
        made.emitted(span(0, 100_000), now_ms=0)
        made.ack(span(0, 100_000))
        seconds.append(process_time() - started)
        assert made.last_completed_offset == 100_000

    assert min(seconds) < 0.001


# --- failing ------------------------------------------------------------------------


def test_a_failed_record_holds_the_commit_back_until_it_is_done():
    made = emitting(10)
    made.fail(4, now_ms=0)
    made.ack(span(0, 4))
    made.ack(span(5, 10))

    assert made.next_to_commit().offset == 4
    emit(made, max_offsets=1)
    made.ack(4)
    assert made.next_to_commit().offset == 10


def test_a_failed_range_spares_what_was_done():
    made = emitting(10)
    made.ack(4)

    made.fail(span(0, 10), now_ms=0)

    assert emit(made, max_offsets=9).ranges == (span(0, 4), span(5, 10))
    assert made.counts.failed == 9


@pytest.mark.parametrize("late", [3, 4, 10_000], ids=["done", "waits", "never"])
def test_late_double_and_unknown_fails_are_ignored(late):
    made = emitting(10)
    made.ack(3)
    made.fail(4, now_ms=0)

    assert made.fail(late, now_ms=0) == []
    assert (made.counts.failed, made.waiting) == (1, 1)


def test_a_poison_record_is_given_up_after_its_retries_and_then_passed():
    made = emitting(10, back_off=BackOff(limit=2))
    made.ack(span(0, 4))
    made.ack(span(5, 10))

    answers = []
    for _ in range(3):
        answers.append(made.fail(4, now_ms=0))
        emit(made, max_offsets=1)

    assert answers == [[], [], [GiveUp(span(4, 5), attempts=3)]]
    assert made.last_completed_offset == 4  # until its dead letter is safe
    made.ack(4)
    assert made.last_completed_offset == 10
    assert made.counts.given_up == 1


def test_a_record_whose_dead_letter_failed_is_given_up_again_and_counted_once():
    made = emitting(1, back_off=BackOff(limit=0))
    made.fail(0, now_ms=0)

    assert made.fail(0, now_ms=0) == [GiveUp(span(0, 1), attempts=2)]
    assert made.counts.given_up == 1


def test_a_range_is_given_up_as_a_range():
    made = emitting(1_000, back_off=BackOff(limit=0))

    assert made.fail(span(0, 1_000), now_ms=0) == [GiveUp(span(0, 1_000), attempts=1)]


def test_released_records_come_again_at_once_and_count_no_failure():
    made = emitting(10, back_off=BackOff(initial_delay_ms=1_000, limit=0))
    made.fail(3, now_ms=0)
    made.ack(4)

    made.release(span(0, 10), now_ms=0)

    assert emit(made, max_offsets=10).retries == (span(0, 3), span(5, 10))
    assert made.counts.failed == 1


# --- committing ---------------------------------------------------------------------


def test_nothing_is_committed_twice():
    made = emitting(10)
    made.ack(span(0, 5))

    offered = made.next_to_commit()
    made.committed(offered)

    assert made.next_to_commit() is None
    assert made.committed_to == 5
    made.ack(7)
    assert made.next_to_commit() == CommittedOffset(5, ((7, 8),))


def test_a_commit_that_failed_is_offered_again():
    made = emitting(10)
    made.ack(0)

    assert made.next_to_commit() == made.next_to_commit() == CommittedOffset(1)


def test_a_start_that_is_not_in_the_store_is_committed_before_any_record():
    made = manager(start=700)

    assert made.next_to_commit() == CommittedOffset(700)
    stored = CommittedOffset(700)
    assert manager(start=700, stored=stored).next_to_commit() is None


def test_a_new_deployment_signs_what_it_takes_over():
    made = manager(start=7, stored=CommittedOffset(7, (), "old"), topology_id="new")

    assert made.next_to_commit() == CommittedOffset(7, (), "new")


def test_a_record_says_who_wrote_it_and_which_broker_led():
    rules = PartitionRules(topology_id="wc-7", topology_name="wc")
    made = PartitionManager(ORDERS, rules, CommittedOffset(3))

    made.leader = Broker("kafka-2", 9092)

    assert made.next_to_commit() == CommittedOffset(
        3, (), "wc-7", "wc", Broker("kafka-2", 9092)
    )


def test_only_the_lowest_runs_beyond_the_commit_are_stored():
    made = emitting(10)
    for offset in (2, 4, 6):
        made.ack(offset)

    assert made.next_to_commit(max_runs=2).completed == ((2, 3), (4, 5))


def test_what_was_completed_beyond_the_commit_is_not_emitted_again():
    made = manager(start=2, completed=((3, 5), (900, 1_000)))

    ranges = [emit(made).ranges for _ in range(3)]

    assert ranges == [(span(2, 3),), (span(5, 900),), ()]
    made.ack(span(2, 900))
    assert made.next_to_commit() == CommittedOffset(1_000)


# --- what is shown ------------------------------------------------------------------


def test_the_next_retry_and_the_oldest_record_are_known():
    made = manager(back_off=BackOff(initial_delay_ms=50))
    emit(made, max_offsets=5, now_ms=7)

    made.fail(4, now_ms=20)

    assert made.next_due_ms == 70
    assert made.oldest_pending_since_ms == 7


def test_the_text_form_names_the_partition_and_its_position():
    assert repr(emitting(10)) == (
        "PartitionManager(orders-0, emitted_to=10, last_completed_offset=0,"
        " committed_to=None, pending=10)"
    )


@pytest.mark.parametrize("option", ["max_uncommitted_offsets", "max_offset_behind"])
def test_a_bound_below_one_is_refused_by_name(option):
    with pytest.raises(ConfigError, match=option):
        manager(**{option: 0})
