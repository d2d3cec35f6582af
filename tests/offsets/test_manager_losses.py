"""What a partition manager does about records that are gone."""

from dataclasses import replace

import pytest

from kafka_tx.errors import DataLossError
from kafka_tx.model import CommittedOffset, LogBounds, LogPosition
from kafka_tx.offsets.loss import LossReason, OutOfRange
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.retry import BackOff
from kafka_tx.offsets.unfinished import PartitionRules
from tests.offsets.managing import LOG, ORDERS, emit, emitting, manager, span


def lost(manager):
    return {reason: n for reason, n in manager.counts.lost.items() if n}


# --- what the log lost --------------------------------------------------------------


def test_a_trimmed_log_drops_failed_and_unread_records_and_counts_them():
    made = emitting(10)
    made.fail(4, now_ms=0)
    made.ack(span(0, 4))
    made.ack(span(5, 10))

    made.trim(30)

    assert lost(made) == {LossReason.TRIMMED: 1 + 20}
    assert made.next_to_commit() == CommittedOffset(30)
    assert emit(made, bounds=LogBounds(30, 40)).ranges == (span(30, 40),)


@pytest.mark.parametrize("outcome", ["ack", "fail", "release"])
def test_a_record_in_flight_below_the_log_start_is_lost_only_if_it_fails(outcome):
    made = emitting(10)

    made.trim(6)
    assert made.last_completed_offset == 6  # it holds nothing back
    assert sum(made.counts.lost.values()) == 0
    getattr(made, outcome)(span(0, 6), *([] if outcome == "ack" else [0]))

    assert sum(made.counts.lost.values()) == (0 if outcome == "ack" else 6)
    assert made.counts.completed == (6 if outcome == "ack" else 0)
    assert made.waiting == 0


def test_a_failed_record_that_was_compacted_is_lost_and_no_hole():
    made = emitting(10)
    made.fail(4, now_ms=0)

    made.passed(span(3, 6), present=[])

    assert lost(made) == {LossReason.COMPACTED: 1}
    assert made.counts.holes == 2


def test_a_log_start_that_seems_to_go_back_changes_nothing():
    made = emitting(10)
    made.trim(6)

    made.trim(2)

    assert (made.last_completed_offset, made.emitted_to) == (6, 10)


def test_what_an_earlier_owner_completed_is_not_lost():
    made = manager(completed=((20, 30),))

    made.trim(25)

    assert lost(made) == {LossReason.TRIMMED: 20}
    assert made.emitted_to == 30


def test_a_log_that_was_cut_stops_when_the_policy_is_to_fail():
    made = emitting(10, out_of_range=OutOfRange.FAIL)

    with pytest.raises(DataLossError, match="from 10 to 5.*created again"):
        made.plan(LogBounds(0, 5), max_offsets=5, now_ms=0)

    assert (made.emitted_to, made.pending, made.generation) == (10, 10, 1)


@pytest.mark.parametrize(("failed", "log_start", "wanted"), [([], 12, 10), ([4], 5, 4)])
def test_a_trimmed_log_stops_when_the_policy_is_to_fail(failed, log_start, wanted):
    """Nothing is stored beyond the records: the next start finds the loss, too."""
    made = emitting(10, out_of_range=OutOfRange.FAIL)
    made.ack(span(0, 4))
    made.ack(span(5, 10))
    made.ack(span(4, 5)) if not failed else made.fail(4, now_ms=0)

    for _ in range(2):
        with pytest.raises(DataLossError, match=f"out_of_range.* was {wanted} but"):
            made.plan(LogBounds(log_start, 20), max_offsets=5, now_ms=0)

    assert lost(made) == {}
    stored = made.next_to_commit()
    assert stored is not None
    assert stored.offset == wanted


def test_records_in_flight_may_complete_below_the_start_of_a_log_or_stop_it():
    made = emitting(10, out_of_range=OutOfRange.FAIL)

    emit(made, bounds=LogBounds(6, 10))
    made.ack(span(0, 5))
    emit(made, bounds=LogBounds(6, 10))
    made.fail(5, now_ms=0)

    with pytest.raises(DataLossError, match="was 5 but"):
        emit(made, bounds=LogBounds(6, 10))


@pytest.mark.parametrize("policy", ["earliest", "nearest"])
def test_what_was_completed_of_a_cut_log_is_not_read_again(policy, caplog):
    made = emitting(10, out_of_range=OutOfRange.parse(policy))
    made.ack(span(0, 10))
    made.committed(CommittedOffset(10))

    plan = emit(made, bounds=LogBounds(0, 7))

    assert plan.ranges == ()
    assert plan.generation == 2
    assert made.counts.skipped[LossReason.CUT] == 3
    assert made.next_to_commit() == CommittedOffset(7)
    assert (
        "was read to 10, and its log ends at 7 or goes on there with other"
        in caplog.text
    )
    assert emit(made, bounds=LogBounds(0, 9)).ranges == (span(7, 9),)


@pytest.mark.parametrize("policy", ["earliest", "nearest"])
def test_a_cut_log_goes_on_at_its_end_and_emits_what_was_in_flight_again(policy):
    made = emitting(10, out_of_range=OutOfRange.parse(policy))
    made.ack(span(0, 4))

    plan = emit(made, bounds=LogBounds(0, 7))

    assert plan.ranges == (span(4, 7),)
    assert made.counts.lost[LossReason.CUT] == 3
    made.ack(span(4, 7), generation=plan.generation)
    assert made.next_to_commit() == CommittedOffset(7)


def test_a_cut_is_stored_over_a_write_whose_answer_was_lost():
    made = emitting(10)
    made.committed(CommittedOffset(0))
    made.ack(span(8, 10))
    assert made.next_to_commit() == CommittedOffset(0, ((8, 10),))  # it may be stored

    emit(made, bounds=LogBounds(0, 7))

    assert made.next_to_commit() == CommittedOffset(0)
    assert made.stored is None
    made.committed(CommittedOffset(0))
    assert made.next_to_commit() is None


def test_a_cut_is_stored_also_if_an_older_write_arrives_after_it():
    """Its epoch would tell the next run that the log was cut, once more."""
    made = emitting(10, LogBounds(0, 10, "id-1", 1))
    made.ack(span(0, 10))
    written = made.next_to_commit()

    emit(made, bounds=LogBounds(0, 7, "id-1", 2))
    made.committed(written)
    emit(made, bounds=LogBounds(0, 10, "id-1", 2))
    made.ack(span(7, 10), generation=2)

    assert made.next_to_commit() == replace(written, leader_epoch=2)


def test_a_new_leader_with_the_same_log_changes_nothing():
    """Whoever asked for the bounds has compared the epochs: the end takes them in."""
    made = emitting(10, LogBounds(0, 10, "id-1", 1))

    plan = emit(made, bounds=LogBounds(0, 12, "id-1", 2))

    assert [(new.start, new.end) for new in plan.ranges] == [(10, 12)]
    assert (plan.generation, made.leader_epoch) == (1, 2)


def test_answers_about_the_log_before_it_was_cut_are_ignored():
    made = emitting(10)
    emit(made, bounds=LogBounds(0, 7))

    assert made.ack(3, generation=1) == 0
    made.fail(span(3, 5), 0, generation=1)
    made.release(4, 0, generation=1)
    made.passed(span(0, 7), [], generation=1)

    assert (made.counts.completed, made.counts.failed) == (0, 0)
    assert (made.pending, made.waiting) == (7, 0)


FORMER, LATTER = LogBounds(0, 1_000, "former"), LogBounds(0, 1_000, "latter")


@pytest.mark.parametrize("end", [5, 10, 1_000])
@pytest.mark.parametrize("is_reported", [False, True])
def test_the_log_of_another_topic_is_begun_anew_however_long_it_is(end, is_reported):
    made = emitting(10, FORMER)
    made.ack(span(0, 4))
    if is_reported:
        made.saw_topic("latter")
        assert made.next_to_commit() is None  # 4 means nothing in the new log

    emission = emit(made, max_offsets=5, bounds=replace(LATTER, end=end))

    assert emission.ranges == (span(0, 5),)
    assert lost(made) == {LossReason.RECREATED: 6}
    assert (made.generation, made.is_recreated) == (2, False)
    assert made.next_to_commit() == CommittedOffset(0, topic_id="latter")


@pytest.mark.parametrize("bounds", [FORMER, replace(LATTER, topic_id=None)])
def test_nothing_is_emitted_of_a_log_that_may_be_of_a_topic_that_is_gone(bounds):
    made = emitting(10, FORMER)

    made.saw_topic("latter")

    assert emit(made, bounds=bounds).ranges == ()
    assert made.is_recreated
    assert made.emitted_to == 10


def test_nothing_is_emitted_of_a_log_of_which_nobody_tells_whose_it_is():
    made = emitting(10, FORMER)

    assert emit(made, bounds=LogBounds(0, 20)).ranges == ()
    assert emit(made, bounds=LogBounds(0, 20, "former")).ranges == (span(10, 20),)


def test_a_topic_that_was_not_known_is_that_of_the_first_bounds():
    made = emitting(10)

    assert emit(made, bounds=LogBounds(0, 20, "former")).ranges == (span(10, 20),)
    assert made.position == LogPosition(20, "former")


def test_a_topic_that_is_the_one_it_reads_already_is_no_news():
    made = emitting(10, LATTER)

    made.saw_topic("latter")
    made.saw_topic(None)

    assert not made.is_recreated


def test_another_topic_stops_when_the_policy_is_to_fail():
    made = emitting(10, FORMER, out_of_range=OutOfRange.FAIL)

    for _ in range(2):
        with pytest.raises(DataLossError, match="deleted and created again"):
            emit(made, bounds=LATTER)


# --- max_offset_behind --------------------------------------------------------------


def test_an_ack_gives_up_what_has_failed_too_far_behind():
    late = BackOff(initial_delay_ms=1_000)
    made = emitting(1_000, max_offset_behind=100, back_off=late)
    made.fail(3, now_ms=0)
    made.ack(span(0, 3))
    made.ack(span(4, 100))
    emit(made)

    made.ack(103)
    assert (made.last_completed_offset, lost(made)) == (3, {})
    made.ack(104)

    assert (made.last_completed_offset, lost(made)) == (100, {LossReason.BEHIND: 1})


def test_no_record_is_too_far_behind_before_it_was_tried():
    """The answers of a chunk come at once: the first record's may come last."""
    made = emitting(1_000, max_offset_behind=100)
    assert made.emitted_to == 100
    made.ack(span(1, 100))
    assert not emit(made)

    for _ in range(2):  # bolts have no time for it, twice
        made.release(span(0, 1), now_ms=0)
        assert emit(made).ranges == (span(0, 1),)
    made.ack(0)
    assert emit(made).ranges == (span(100, 200),)

    assert (made.last_completed_offset, lost(made)) == (100, {})


def test_records_that_wait_are_passed_over_quickly():
    """Tens of thousands that failed alone: a plan looks for the first that has not."""
    late = BackOff(initial_delay_ms=1_000)
    made = manager(max_offset_behind=100_000, back_off=late)
    log = LogBounds(0, 10**6)
    emit(made, bounds=log, max_offsets=100_000)
    for offset in range(0, 100_000, 2):
        made.fail(offset, 0)
    made.ack(1)
    looked = []
    runs = type(made._unfinished.window.pending)
    bits_of = runs._bits_of

    def counted(self, block):
        looked.append(block)
        return bits_of(self, block)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "_bits_of", counted)
        plan = made.plan(log, max_offsets=10**6, now_ms=0)

    assert plan.fresh == span(100_000, 100_003)
    assert len(looked) < 10


def test_a_record_that_fails_again_too_far_behind_is_lost_and_holds_nothing_back():
    late = BackOff(initial_delay_ms=1_000)
    made = emitting(1_000, max_offset_behind=100, back_off=late)
    made.fail(span(0, 2), now_ms=0)
    made.ack(span(2, 100))
    emit(made)
    assert made.emitted_to == 200

    again = made.plan(LOG, max_offsets=10, now_ms=10**9, fresh=False)
    made.emitted(*again.ranges, 10**9)
    made.fail(span(0, 2), now_ms=10**9)

    assert (made.last_completed_offset, lost(made)) == (100, {LossReason.BEHIND: 2})
    assert made.waiting == 0


def test_a_partition_without_any_success_is_hopeless_after_too_many_failures():
    made = emitting(1_000, max_offset_behind=2)

    made.fail(span(0, 2), now_ms=0)
    assert not made.is_hopeless
    emit(made)
    made.fail(2, now_ms=0)

    assert made.is_hopeless
    made.ack(3)
    assert not made.is_hopeless


def test_a_hole_in_flight_below_the_log_start_is_not_lost_if_its_read_fails():
    made = emitting(10)
    made.trim(5)

    made.passed(span(0, 10), [(7, 8)])
    made.fail(span(0, 7), 0)

    assert (made.counts.holes, sum(made.counts.lost.values())) == (9, 0)


def test_attempts_survive_a_restart():
    rules = PartitionRules(back_off=BackOff(limit=2))
    made = emitting(10, back_off=rules.back_off)
    made.ack(span(0, 3))
    made.ack(span(4, 10))
    assert made.fail(3, now_ms=0) == []
    kept = made.next_to_commit()
    assert kept is not None
    assert kept.failures == ((3, 4, 1),)
    made.committed(kept)
    assert made.next_to_commit() is None

    again = PartitionManager(ORDERS, rules, kept, stored=kept)
    emit(again, bounds=LogBounds(0, 10))
    assert again.fail(3, now_ms=0) == []
    (gone,) = restarted(again, rules).fail(3, now_ms=0)

    assert gone.attempts == 3


def restarted(former, rules):
    kept = former.next_to_commit()
    again = PartitionManager(ORDERS, rules, kept, stored=kept)
    emit(again, bounds=LogBounds(0, 10))
    return again


def test_only_so_many_attempts_are_kept_and_none_of_what_is_done():
    made = emitting(1_000, back_off=BackOff())
    for offset in range(1, 1_000, 2):
        made.fail(offset, now_ms=0)
    made.ack(1)
    kept = made.next_to_commit()

    assert kept is not None
    assert len(kept.failures) == 100
    assert kept.failures[0] == (3, 4, 1)
