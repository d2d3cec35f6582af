import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration.promptness import promptly
from kafka_tx.errors import ConfigError
from kafka_tx.offsets.retry import BackOff, Failure, RetryQueue

DOUBLING = BackOff(initial_delay_ms=100, multiplier=2, max_delay_ms=1_000)


def fail_and_start(queue, offset, now_ms, times):
    for _ in range(times):
        queue.failed(offset, offset + 1, now_ms)
        queue.started(offset, offset + 1)


# --- BackOff ------------------------------------------------------------------------


def test_delays_grow_by_the_multiplier_up_to_the_maximum():
    assert [DOUBLING.delay_ms(k) for k in range(1, 7)] == [
        100,
        200,
        400,
        800,
        1_000,
        1_000,
    ]


def test_a_delay_saturates_instead_of_overflowing():
    steep = BackOff(initial_delay_ms=1, multiplier=1e300, max_delay_ms=sys.maxsize)

    assert steep.delay_ms(1_000_000) == sys.maxsize
    assert BackOff(initial_delay_ms=0, multiplier=1e300).delay_ms(1_000_000) == 0


def test_a_delay_costs_the_same_after_any_number_of_failures():
    assert promptly(lambda: DOUBLING.delay_ms(10**8), 0.1) == 1_000


def test_a_limit_counts_retries_and_not_the_first_try():
    assert [BackOff(limit=2).allows(k) for k in (1, 2, 3)] == [True, True, False]
    assert not BackOff(limit=0).allows(1)
    assert BackOff().allows(10**9)


@pytest.mark.parametrize(
    "illegal",
    [
        {"initial_delay_ms": -1},
        {"max_delay_ms": -1},
        {"multiplier": 0.5},
        {"multiplier": float("nan")},
        {"limit": -1},
    ],
    ids=lambda illegal: next(iter(illegal)),
)
def test_an_illegal_setting_is_refused_by_name(illegal):
    with pytest.raises(ConfigError, match=next(iter(illegal))):
        BackOff(**illegal)


# --- RetryQueue ---------------------------------------------------------------------


def test_a_failed_record_is_due_after_its_delay_and_not_before():
    queue = RetryQueue(DOUBLING)
    queue.failed(7, 8, now_ms=0)

    assert queue.due(99, 10) == []
    assert queue.due(100, 10) == [(7, 8)]
    assert queue.next_due_ms() == 100


def test_a_due_record_stays_due_until_its_retry_starts():
    queue = RetryQueue(DOUBLING)
    queue.failed(7, 8, now_ms=0)

    assert queue.due(500, 10) == queue.due(500, 10) == [(7, 8)]
    assert queue.started(7, 8) == 1
    assert queue.due(500, 10) == []


def test_the_count_of_failures_survives_the_start_of_a_retry():
    queue = RetryQueue(DOUBLING)
    fail_and_start(queue, 7, now_ms=0, times=2)

    assert queue.failures(7) == 2
    assert queue.failed(7, 8, now_ms=1_000) == [Failure(7, 8, 3, may_retry=True)]


def test_a_second_failure_waits_its_own_delay_though_the_first_was_due_long_ago():
    queue = RetryQueue(DOUBLING)
    fail_and_start(queue, 7, now_ms=0, times=1)

    queue.failed(7, 8, now_ms=5_000)

    assert queue.due(5_199, 10) == []
    assert queue.next_due_ms() == 5_200


def test_the_longest_due_comes_first_whatever_its_offset():
    queue = RetryQueue(DOUBLING)
    queue.failed(90, 92, now_ms=0)
    queue.failed(10, 12, now_ms=5)

    assert queue.due(1_000, 3) == [(90, 92), (10, 11)]


def test_a_range_that_failed_together_stays_one_run():
    queue = RetryQueue(DOUBLING)

    assert queue.failed(0, 100_000, now_ms=0) == [Failure(0, 100_000, 1, True)]
    assert queue.due(100, 1_000_000) == [(0, 100_000)]


def test_a_range_with_different_histories_is_counted_by_part():
    queue = RetryQueue(BackOff(limit=2))
    fail_and_start(queue, 5, now_ms=0, times=2)

    assert queue.failed(4, 7, now_ms=0) == [
        Failure(4, 5, 1, may_retry=True),
        Failure(5, 6, 3, may_retry=False),
        Failure(6, 7, 1, may_retry=True),
    ]
    assert list(queue.waiting) == [(4, 5), (6, 7)]


def test_two_neighbours_that_fail_together_keep_their_own_counts():
    queue = RetryQueue(BackOff(limit=1))
    fail_and_start(queue, 5, now_ms=0, times=1)

    assert queue.failed(5, 7, now_ms=0) == [
        Failure(5, 6, 2, may_retry=False),
        Failure(6, 7, 1, may_retry=True),
    ]


def test_a_completed_record_is_forgotten_with_its_count():
    queue = RetryQueue(DOUBLING)
    queue.failed(5, 8, now_ms=0)

    queue.completed(6, 7)

    assert queue.due(100, 10) == [(5, 6), (7, 8)]
    assert queue.failures(6) == 0
    queue.completed(0, 10)
    assert not queue
    assert queue.next_due_ms() is None


def test_the_next_due_time_is_that_of_a_record_that_still_waits():
    queue = RetryQueue(DOUBLING)
    queue.failed(5, 6, now_ms=0)
    queue.failed(7, 9, now_ms=30)

    queue.completed(5, 6)

    assert queue.next_due_ms() == 130


def test_released_records_are_due_at_once_and_keep_their_count():
    queue = RetryQueue(DOUBLING)
    fail_and_start(queue, 5, now_ms=0, times=3)

    queue.released(4, 6, now_ms=50)

    assert queue.due(50, 10) == [(4, 6)]
    assert (queue.failures(4), queue.failures(5)) == (0, 3)
    assert queue.knows(4)


def test_an_offset_that_comes_back_as_another_record_has_no_history():
    queue = RetryQueue(DOUBLING)
    queue.failed(0, 10, now_ms=0)

    assert queue.clear_from(4) == 6
    queue.failed(5, 6, now_ms=1_000)

    assert queue.due(1_050, 10) == [(0, 4)]
    assert queue.failures(5) == 1


def test_a_completed_record_that_fails_again_waits_from_its_new_failure():
    queue = RetryQueue(DOUBLING)
    queue.failed(0, 2, now_ms=0)
    queue.completed(1, 2)

    queue.failed(1, 2, now_ms=60)

    assert queue.due(100, 10) == [(0, 1)]
    assert queue.due(160, 10) == [(0, 1), (1, 2)]


class PlainQueue:
    """The same rules, one dictionary entry for each record."""

    def __init__(self, back_off):
        self.back_off, self.count, self.due = back_off, {}, {}

    def fail(self, offset, now_ms):
        self.count[offset] = self.count.get(offset, 0) + 1
        if self.back_off.allows(self.count[offset]):
            self.due[offset] = now_ms + self.back_off.delay_ms(self.count[offset])

    def complete(self, offset):
        self.count.pop(offset, None)
        self.due.pop(offset, None)


def apply_event(queue, plain, what, offsets, now_ms):
    """Give the same event to both."""
    if what == "start":
        start_due(queue, plain, now_ms, len(offsets))
    for offset in offsets:
        if what == "complete":
            queue.completed(offset, offset + 1)
            plain.complete(offset)
        elif offset in plain.due:
            continue  # neither may be told of a record that waits already
        elif what == "fail":
            queue.failed(offset, offset + 1, now_ms)
            plain.fail(offset, now_ms)
        elif what == "release":
            queue.released(offset, offset + 1, now_ms)
            plain.due[offset] = now_ms


def start_due(queue, plain, now_ms, at_most):
    for low, high in queue.due(now_ms, at_most):
        queue.started(low, high)
        assert all(plain.due.pop(offset) <= now_ms for offset in range(low, high))


EVENT = st.tuples(
    st.sampled_from(["fail", "start", "complete", "release"]),
    st.builds(lambda a, n: range(a, a + n), st.integers(0, 20), st.integers(1, 8)),
    st.integers(0, 150),
)


@given(st.lists(EVENT, max_size=30))
def test_the_queue_answers_like_one_entry_for_each_record(events):
    back_off = BackOff(initial_delay_ms=100, multiplier=2, max_delay_ms=300, limit=3)
    queue, plain, now_ms = RetryQueue(back_off), PlainQueue(back_off), 0
    for what, offsets, passed_ms in events:
        now_ms += passed_ms

        apply_event(queue, plain, what, offsets, now_ms)

        found = [x for low, high in queue.due(now_ms, 100) for x in range(low, high)]
        assert sorted(found) == sorted(x for x, at in plain.due.items() if at <= now_ms)
        assert [plain.due[x] for x in found] == sorted(plain.due[x] for x in found)
        assert queue.next_due_ms() == min(plain.due.values(), default=None)
        assert all(queue.failures(x) == plain.count.get(x, 0) for x in range(30))
