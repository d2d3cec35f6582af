"""What becomes of records when their chunk is lost, times out or cannot be buried."""

from __future__ import annotations

import time
from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from integration.promptness import promptly
from kafka_tx.errors import (
    BrokerUnavailableError,
    DataLossError,
    DeliveryError,
    TransactionError,
)
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    CommittedOffset,
    LogBounds,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.offsets.emitting import Candidate, RoundRobin
from kafka_tx.offsets.loss import LossReason, OutOfRange
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.retry import BackOff
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.planned_topic import damaged
from kafka_tx.running.at_least_once import record_outcomes
from kafka_tx.running.at_least_once.counts import SpoutMetrics
from kafka_tx.running.at_least_once.dead_letters import Buried, LetterUnreadError
from kafka_tx.running.at_least_once.in_flight_chunk import InFlightChunk
from kafka_tx.running.at_least_once.record_outcomes import (
    DEAD_LETTER_AGAIN_MS,
    LOGGED_REASONS,
    RecordOutcomes,
)
from kafka_tx.testing import ManualClock
from kafka_tx.topology.at_least_once.chunks import Settled
from kafka_tx.topology.at_least_once.lineage import runs_of
from kafka_tx.topology.run.messages import RootsFailed

P0 = TopicPartition("t", 0)
BOUNDS = LogBounds(0, 10, topic_id="first", leader_epoch=1)
UNREAD = LetterUnreadError("not in the log")
DAMAGED_MS = 30_000
"""How long a partition with damaged records pauses."""


class Letters:
    """Answers each letter as told; None: it is written."""

    def __init__(self, *errors):
        self.errors: list[Exception | None] = list(errors)
        self.dead_letters: list[Any] = []

    def write(self, dead_letter, answer):
        records = dead_letter.records
        self.dead_letters.append(dead_letter)
        error = self.errors.pop(0) if self.errors else None
        answer(records, error or Buried(((records.start, records.end),)))

    @property
    def ranges(self):
        return [(each.records.start, each.records.end) for each in self.dead_letters]


class EndedChunk:
    """Says itself what its trees came to."""

    def __init__(self, completed=(), failed=(), facts=None, untried=(), left=()):
        self._ended = [np.array(each, np.int64) for each in (completed, untried, left)]
        self.failed = list(failed)
        self.facts = facts or {}

    def settle(self, first_root, end):
        roots = [failure.roots for failure in self.failed]
        failed = np.unique(np.concatenate([np.empty(0, np.int64), *roots]))
        completed, untried, left = self._ended
        return Settled(runs_of(completed), failed, untried, left)


def chunk(completed=(), failed=(), facts=None, untried=(), left=()) -> Any:
    return EndedChunk(completed, failed, facts, untried, left)


def failure(roots, component="work", reason="bad luck"):
    return RootsFailed(component, reason, np.array(roots, np.int64))


class Case:
    def __init__(self, dead_letters=None, **rules):
        start = CommittedOffset(0, topic_id="first", leader_epoch=1)
        self.manager = PartitionManager(P0, PartitionRules(**rules), start)
        self.bounds = BOUNDS
        self.is_open = True
        self.clock = ManualClock()
        self.fetch_failed: list[TopicPartition] = []
        self.read: list[OffsetRange] = []
        self.events: SimpleQueue[Any] = SimpleQueue()
        self.metrics = SpoutMetrics("job", MetricsRegistry())
        poller: Any = SimpleNamespace(
            parts=SimpleNamespace(dead_letters=dead_letters),
            fetch_failed=self.saw_failed_fetch,
            was_read=self.read.append,
            metrics=self.metrics,
            unburied=self.unburied,
        )
        self.outcomes = RecordOutcomes({"spout": poller}, self.events.put, self.clock)

    def saw_failed_fetch(self, partition, damage):
        self.fetch_failed.append(partition)
        return self.now_ms + (DAMAGED_MS if damage else 0)

    def unburied(self, emission, given_up):
        if not self.is_open:
            return []
        return emission.manager.unburied(given_up, emission.generation, self.bounds)

    def send(self, first_root=0, room=100):
        candidates = [Candidate(self.manager, self.bounds)]
        emissions = RoundRobin().chunk(candidates, room=room, now_ms=self.now_ms)
        started = InFlightChunk(
            TransactionAttempt(1, 1), "spout", first_root, emissions, self.now_ms
        )
        self.outcomes.sent(started)
        return started

    @property
    def now_ms(self):
        return self.clock.monotonic_ms()

    def due(self):
        plan = self.manager.plan(self.bounds, max_offsets=100, now_ms=self.now_ms)
        return [(run.start, run.end) for run in plan.retries]

    def drain(self):
        while not self.events.empty():
            self.events.get()()

    def write_again(self):
        """The dead letters that are due a moment later, and their answers."""
        self.clock.advance(DEAD_LETTER_AGAIN_MS)
        self.outcomes.write_again()
        self.drain()


def test_completed_records_are_acked_and_failed_ones_retried():
    case = Case()
    started = case.send()

    case.outcomes.finished(started, chunk([0, 1, 2, 4, 5, 6, 7, 8, 9], [failure([3])]))

    assert case.manager.counts.completed == 9
    assert case.due() == [(3, 4)]
    assert started not in case.outcomes


def test_what_was_no_record_is_not_counted_as_one():
    case = Case()
    started = case.send()
    facts = {"t-0": {"records": 7, "errors": [], "holes": [(2, 4), (9, 10)]}}

    case.outcomes.finished(started, chunk(range(10), facts=facts))

    counts = case.manager.counts
    assert (counts.completed, counts.holes, case.manager.pending) == (7, 3, 0)
    assert case.manager.last_completed_offset == 10


def test_a_fetch_that_failed_is_no_failure_of_the_records():
    case = Case()
    started = case.send()
    gone = failure(range(5, 10), "spout", "[KAFKA_TX_FETCH] silent")
    facts = {"t-0": {"records": 5, "errors": ["KAFKA_TX_FETCH"]}}

    case.outcomes.finished(started, chunk(range(5), [gone], facts))

    assert case.fetch_failed == [P0]
    assert case.read == []
    assert case.manager.counts.failed == 0
    assert case.due() == [(5, 10)]
    started = case.send()
    case.outcomes.finished(started, chunk(started.roots, [], {"t-0": {"records": 5}}))
    assert [str(each) for each in case.read] == ["t-0 [5, 10)"]


def test_fetches_of_one_partition_that_failed_in_a_chunk_are_one_failure_of_it():
    case = Case()
    started = case.send()
    gone = [failure([n], "spout", f"[KAFKA_TX_FETCH] no {n}") for n in range(9)]
    facts = {"t-0": {"records": 1, "errors": ["KAFKA_TX_FETCH"]}}

    case.outcomes.finished(started, chunk([9], gone, facts))

    assert case.fetch_failed == [P0]
    assert case.due() == [(0, 9)]


def test_a_scheme_that_cannot_read_a_record_is_no_failed_fetch():
    case = Case()
    started = case.send()

    case.outcomes.finished(
        started, chunk(range(1, 10), [failure([0], "spout", "no JSON")])
    )

    assert case.fetch_failed == []
    assert case.manager.counts.failed == 1


def test_a_chunk_that_is_lost_is_emitted_again_and_nothing_failed():
    case = Case()

    case.outcomes.lost(case.send(), "the worker died")

    assert case.due() == [(0, 10)]
    assert case.manager.counts.failed == 0


def test_a_record_that_is_lost_alone_has_failed():
    case = Case(max_uncommitted_offsets=1)

    case.outcomes.lost(case.send(), "the worker died")

    assert case.manager.counts.failed == 1


def test_what_comes_after_a_time_out_is_not_believed():
    case = Case()
    started = case.send()
    case.outcomes.timed_out(fallen(case, started), started.roots, "too slow")
    assert case.due() == [(0, 10)]

    case.outcomes.finished(started, chunk(range(10)))
    case.outcomes.unused(started)
    case.outcomes.lost(started, "late")

    counts = case.manager.counts
    assert (counts.completed, counts.failed) == (0, 10)
    assert case.metrics.timed_out == {P0: 10}


def test_records_that_no_bolt_was_given_are_emitted_again_and_have_not_failed():
    case = Case(back_off=BackOff(limit=0))
    started = case.send()

    answer = chunk(range(4), [failure([4])], untried=range(5, 10))
    assert case.outcomes.finished(started, answer) == 5

    counts = case.manager.counts
    assert (counts.completed, counts.failed, counts.given_up) == (5, 1, 1)
    assert case.due() == [(5, 10)]
    assert started not in case.outcomes


def test_records_that_a_rich_bolt_neither_acked_nor_failed_wait_for_their_time_out():
    case = Case()
    started = case.send()
    case.outcomes.finished(started, chunk([0, 1, *range(4, 10)], left=[2, 3]))
    assert case.due() == []
    assert case.outcomes.open == 2

    assert fallen(case, started).left.tolist() == [2, 3]
    case.outcomes.timed_out(started, started.left, "not completed")

    assert case.due() == [(2, 4)]
    assert case.metrics.timed_out == {P0: 2}


def fallen(case, started):
    assert case.outcomes.rotate() == []
    assert case.outcomes.rotate() == [started]
    return started


def test_a_job_that_takes_its_time_is_waited_for():
    case = Case(back_off=BackOff(limit=0))
    started = fallen(case, case.send())

    case.outcomes.wait_for(started)
    case.outcomes.finished(started, chunk(range(10)))

    assert case.manager.counts.completed == 10


def test_records_of_a_job_that_never_ends_are_emitted_again():
    case = Case(back_off=BackOff(limit=0))
    started = fallen(case, case.send())

    case.outcomes.silent(started, "too slow")

    assert case.due() == [(0, 10)]
    assert case.manager.counts.failed == 0
    assert case.metrics.timed_out == {}


def test_only_the_record_that_a_bolt_does_not_give_back_has_failed():
    case = Case(back_off=BackOff(limit=0))
    started = case.send()

    for _ in range(2):  # the word comes again
        case.outcomes.hangs(started, np.array([3]), "work: not given back")
    case.outcomes.finished(started, chunk(range(10)))

    assert case.due() == [(0, 3), (4, 10)]
    assert (case.manager.counts.failed, case.metrics.timed_out) == (1, {P0: 1})


def test_of_several_records_in_one_batch_nobody_knows_which_one_hangs():
    case = Case(back_off=BackOff(limit=0))

    case.outcomes.hangs(case.send(), np.arange(3, 7), "work: not given back")

    assert case.due() == [(0, 10)]
    assert case.manager.counts.failed == 0


def test_a_bolt_that_hangs_with_a_row_of_no_record_fails_the_record_that_is_alone():
    case = Case(back_off=BackOff(limit=0))
    nobody = np.array([], np.int64)

    case.outcomes.hangs(case.send(), nobody, "work: not given back")
    assert case.manager.counts.failed == 0
    case.outcomes.hangs(case.send(room=1), nobody, "work: not given back")

    assert (case.manager.counts.failed, case.metrics.timed_out) == (1, {P0: 1})
    assert case.due() == [(1, 10)]


def test_a_row_of_no_record_that_fails_is_logged_once(caplog):
    case = Case()
    failures = [failure([0], reason="b"), failure([]), failure([0], reason="other")]

    for rest in (range(1, 10), ()):
        case.outcomes.finished(case.send(), chunk(rest, failures))

    assert [each.getMessage().partition(" (")[0] for each in caplog.records] == [
        "t-0 [0, 1) failed: work: b",
        "a row that comes from no record failed: work: bad luck",
    ]


def hopeless(dead_letters=None):
    case = Case(dead_letters, back_off=BackOff(limit=0))
    started = case.send()
    case.outcomes.finished(started, chunk(range(1, 10), [failure([0])]))
    return case


def test_without_dead_letters_the_hopeless_is_skipped_and_counted():
    case = hopeless()

    assert case.metrics.skipped == {P0: 1}
    assert case.manager.last_completed_offset == 10


def test_a_dead_letter_holds_the_commit_back_until_it_is_written():
    dead_letters = Letters()
    case = hopeless(dead_letters)
    assert case.manager.last_completed_offset == 0

    case.drain()

    assert case.manager.last_completed_offset == 10
    assert case.metrics.written == {P0: 1}
    (dead_letter,) = dead_letters.dead_letters
    assert (dead_letter.attempts, dead_letter.error) == (1, "work: bad luck")


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnavailableError("down"),
        DeliveryError("slow", code="_MSG_TIMED_OUT", retryable=True),
        DeliveryError("a broker is away", code="NOT_ENOUGH_REPLICAS", retryable=True),
    ],
)
def test_a_dead_letter_that_may_be_written_later_is_tried_again_after_a_pause(error):
    dead_letters = Letters()
    dead_letters.errors = [error]
    case = hopeless(dead_letters)
    case.drain()
    assert list(case.outcomes.wakes()) == [case.now_ms + DEAD_LETTER_AGAIN_MS]

    case.clock.advance(DEAD_LETTER_AGAIN_MS - 1)
    case.outcomes.write_again()
    assert len(dead_letters.dead_letters) == 1
    case.clock.advance(1)
    case.outcomes.write_again()
    case.drain()

    assert len(dead_letters.dead_letters) == 2
    assert list(case.outcomes.wakes()) == []
    assert case.manager.last_completed_offset == 10


def test_a_spout_with_many_unwritten_dead_letters_is_crowded_until_they_are_written(
    monkeypatch,
):
    monkeypatch.setattr(record_outcomes, "MOST_UNWRITTEN", 3)
    down = [BrokerUnavailableError("down")] * 4
    case = Case(Letters(*down), back_off=BackOff(limit=0))
    started = case.send(room=8)

    case.outcomes.fail(started, started.roots[:1], "bad luck")
    case.outcomes.fail(started, started.roots[2:6], "a run of them is one letter")
    case.outcomes.fail(started, started.roots[6:7], "bad luck")
    case.drain()
    assert not case.outcomes.is_crowded("spout")
    case.outcomes.fail(started, started.roots[7:8], "bad luck")
    case.drain()
    assert case.outcomes.is_crowded("spout")

    case.write_again()
    assert not case.outcomes.is_crowded("spout")
    assert not case.outcomes.writes("spout")


def test_a_dead_letter_that_is_refused_ends_the_topology():
    dead_letters = Letters()
    dead_letters.errors = [DeliveryError("too large", code="MSG_SIZE_TOO_LARGE")]
    case = hopeless(dead_letters)

    with pytest.raises(DeliveryError):
        case.drain()


def all_given_up(dead_letters, **rules):
    case = Case(dead_letters, back_off=BackOff(limit=0), **rules)
    started = case.send()
    case.outcomes.fail(started, started.roots, "bad luck")
    return case


def test_only_the_records_that_are_gone_get_no_dead_letter_and_are_counted():
    dead_letters = Letters(UNREAD)
    case = all_given_up(dead_letters)
    case.bounds = replace(BOUNDS, log_start=5)
    case.drain()
    assert case.fetch_failed == [P0]

    case.write_again()

    assert dead_letters.ranges == [(0, 10), (5, 10)]
    assert case.manager.counts.lost[LossReason.TRIMMED] == 5
    assert case.metrics.written == {P0: 5}
    assert case.manager.last_completed_offset == 10


def test_a_policy_to_fail_stops_at_records_that_are_gone_before_their_dead_letter():
    case = all_given_up(Letters(UNREAD), out_of_range=OutOfRange.FAIL)
    case.drain()
    case.bounds = replace(BOUNDS, log_start=5)

    with pytest.raises(DataLossError, match="0 but consumer reset to 5"):
        case.write_again()

    assert case.manager.last_completed_offset == 0


def test_records_that_a_plan_found_gone_are_counted_when_their_letter_fails():
    case = all_given_up(Letters(UNREAD))
    case.bounds = replace(BOUNDS, log_start=10)
    assert case.due() == []

    case.drain()

    assert list(case.outcomes.wakes()) == []
    assert case.manager.counts.lost[LossReason.TRIMMED] == 10


def test_a_dead_letter_waits_until_the_log_tells_why_it_cannot_be_read():
    dead_letters = Letters(UNREAD, UNREAD, UNREAD)
    case = all_given_up(dead_letters)
    case.drain()

    for _ in range(3):
        case.write_again()

    assert dead_letters.ranges == [(0, 10)] * 4
    assert case.metrics.written == {P0: 10}


def test_a_dead_letter_of_a_damaged_record_waits_as_long_as_its_partition():
    damage = damaged(OffsetRange(P0, 0, 10), "damaged", 3, "one:9092", "")
    case = all_given_up(Letters(LetterUnreadError("damaged", damage=damage)))
    case.drain()

    assert case.fetch_failed == [P0]
    assert list(case.outcomes.wakes()) == [case.now_ms + DAMAGED_MS]


@pytest.mark.parametrize(
    "error", [UNREAD, DeliveryError("refused", code="INVALID_RECORD")]
)
def test_an_answer_about_the_former_topic_says_nothing_of_the_new_one(error):
    dead_letters = Letters(error)
    case = all_given_up(dead_letters)
    case.manager.saw_topic("second")
    case.bounds = LogBounds(0, 20, topic_id="second", leader_epoch=1)
    case.send(10)  # of the new topic

    case.drain()
    case.write_again()

    assert dead_letters.ranges == [(0, 10)]
    assert case.manager.last_completed_offset == 0
    assert case.manager.pending == 20
    assert case.manager.counts.lost[LossReason.RECREATED] == 10


def test_records_that_took_the_offsets_of_a_lost_end_are_read():
    case = all_given_up(Letters(UNREAD))
    case.bounds = LogBounds(0, 40, "first", 2, {1: 4})
    plan = case.manager.plan(cut_to(case.bounds, 4), max_offsets=99, now_ms=case.now_ms)
    assert [(run.start, run.end) for run in plan.retries] == [(0, 4)]

    case.drain()
    case.write_again()

    assert case.manager.emitted_to == 4
    assert case.manager.counts.lost[LossReason.CUT] == 6
    assert case.manager.counts.lost[LossReason.TRIMMED] == 0


def cut_to(bounds, end):
    return replace(bounds, end=end)


def test_the_letter_of_a_deleted_topic_stops_nothing_and_its_records_are_counted():
    case = all_given_up(Letters(UNREAD))
    case.drain()
    case.is_open = False
    case.manager.deleted()

    case.write_again()

    assert list(case.outcomes.wakes()) == []
    assert case.manager.counts.lost[LossReason.RECREATED] == 10


def test_records_of_a_dead_letter_that_compaction_removed_are_lost():
    class Compacted(Letters):
        def write(self, dead_letter, answer):
            answer(dead_letter.records, Buried(((0, 4), (6, 10))))

    case = all_given_up(Compacted())
    case.drain()

    assert case.manager.last_completed_offset == 10
    assert case.metrics.written == {P0: 8}
    assert case.manager.counts.lost[LossReason.COMPACTED] == 2


def test_what_bolts_were_not_given_was_not_read():
    case = Case()
    started = case.send()

    case.outcomes.finished(started, chunk(completed=[0, 1], untried=range(2, 10)))
    assert case.read == []
    started = case.send()
    case.outcomes.finished(started, chunk(completed=range(8)))

    assert [str(each) for each in case.read] == ["t-0 [2, 10)"]


def test_a_record_that_fails_repeatedly_has_failed_once_for_the_first_reason():
    letters = Letters()
    case = Case(letters, back_off=BackOff(limit=0))
    failures = [failure([4, 7], reason="b"), failure([4], reason="a")]
    failures.append(failure([3, 4, 5, 7], reason="c"))

    case.outcomes.finished(case.send(), chunk([0, 1, 2, 6, 8, 9], failures))

    found = [(each.records.start, each.error) for each in letters.dead_letters]
    assert found == [(4, "work: b"), (7, "work: b"), (3, "work: c"), (5, "work: c")]


def test_a_chunk_whose_records_each_have_a_reason_of_their_own_is_soon_settled():
    count = 40_000
    failures = [failure([n], reason=f"no user {n}") for n in range(count)]

    def settle():
        case = Case()
        case.bounds = replace(BOUNDS, end=count)
        case.outcomes.finished(case.send(room=count), chunk(failed=failures))
        return case

    done = promptly(settle, 5, time.thread_time)
    assert done.manager.counts.failed == count


def test_a_partition_on_which_nothing_ever_completes_ends_the_topology():
    case = Case(max_offset_behind=5)
    first = case.send()
    case.outcomes.fail(first, first.roots, "no such table")
    second = case.send()

    with pytest.raises(TransactionError, match="10 failures and not one record"):
        case.outcomes.fail(second, second.roots, "no such table")


def test_a_failure_is_logged_once_for_each_reason_and_names_the_records(caplog):
    case = Case()
    for _ in range(2):
        started = case.send()
        case.outcomes.fail(started, started.roots[:2], "bad luck")
        case.outcomes.fail(started, started.roots[4:5], "worse luck")
        case.outcomes.fail(started, started.roots[:1], "task 7 of <R at 0x7fe0>")
        case.outcomes.fail(started, started.roots[:1], "task 8 of <R at 0xa1>")

    assert [each.getMessage() for each in caplog.records] == [
        "t-0 [0, 2) failed: bad luck (logged once for this reason)"
        " [txid=1 attempt=1:1]",
        "t-0 [4, 5) failed: worse luck (logged once for this reason)"
        " [txid=1 attempt=1:1]",
        "t-0 [0, 1) failed: task 7 of <R at 0x7fe0> (logged once for this reason)"
        " [txid=1 attempt=1:1]",
    ]


def test_a_job_logs_a_bounded_number_of_reasons(caplog):
    case = Case()
    started = case.send()
    for number in range(2 * LOGGED_REASONS):
        case.outcomes.fail(started, started.roots[:1], f"bad{'!' * number}")

    assert len(caplog.records) == LOGGED_REASONS
