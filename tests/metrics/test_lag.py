"""How long a partition has been behind."""

import doctest

from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.metrics import lag
from kafka_tx.metrics.lag import LagClock

MINUTE = 60_000


def test_the_worked_example_holds() -> None:
    assert doctest.testmod(lag).failed == 0


def test_nothing_waits_before_the_log_was_seen() -> None:
    assert LagClock().behind_ms(5, at_ms=MINUTE) == 0


def test_a_partition_that_keeps_up_is_never_behind() -> None:
    clock = LagClock()

    for minute in range(5):
        clock.saw_end(100 * minute, at_ms=minute * MINUTE)
        assert clock.behind_ms(100 * minute, at_ms=minute * MINUTE) == 0
    assert len(clock) == 0


def test_time_runs_while_the_committed_offset_stands_still() -> None:
    clock = LagClock()
    clock.saw_end(10, at_ms=0)

    clock.saw_end(10, at_ms=MINUTE)  # the same end again is no news
    clock.saw_end(500, at_ms=2 * MINUTE)

    assert clock.behind_ms(9, at_ms=3 * MINUTE) == 3 * MINUTE


def test_each_step_forward_is_measured_from_its_own_first_sight() -> None:
    clock = LagClock()
    clock.saw_end(10, at_ms=0)
    clock.saw_end(20, at_ms=MINUTE)
    clock.saw_end(30, at_ms=2 * MINUTE)

    behind = [clock.behind_ms(at, at_ms=3 * MINUTE) for at in (9, 10, 19, 20, 30)]

    assert behind == [3 * MINUTE, 2 * MINUTE, 2 * MINUTE, MINUTE, 0]


def test_a_log_that_ends_lower_than_before_is_another_log() -> None:
    clock = LagClock()
    clock.saw_end(1_000, at_ms=0)

    clock.saw_end(10, at_ms=MINUTE)

    assert clock.behind_ms(0, at_ms=2 * MINUTE) == MINUTE


def test_after_a_step_back_the_wait_counts_from_the_next_poll() -> None:
    clock = LagClock()
    clock.saw_end(100, at_ms=0)
    assert clock.behind_ms(100, at_ms=0) == 0

    clock.saw_end(100, at_ms=MINUTE)

    assert clock.behind_ms(40, at_ms=3 * MINUTE) == 2 * MINUTE


def test_a_clock_that_goes_backwards_gives_zero_and_no_negative_time() -> None:
    clock = LagClock()
    clock.saw_end(100, at_ms=MINUTE)

    assert clock.behind_ms(0, at_ms=0) == 0


def test_memory_stays_small_however_long_a_partition_is_behind() -> None:
    clock = LagClock(max_sights=64)

    for second in range(100_000):
        clock.saw_end(second + 1, at_ms=second * 1000)

    assert len(clock) <= 64
    assert clock.behind_ms(0, at_ms=100_000_000) == 100_000_000


polls = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 1_000)), min_size=1, max_size=60
)


@given(polls, st.integers(0, 300), st.integers(2, 8))
def test_it_never_says_more_than_all_polls_together_prove(
    steps: list[tuple[int, int]], committed: int, max_sights: int
) -> None:
    thinned, complete = LagClock(max_sights), LagClock(max_sights=1_000)
    end = now = 0
    first_sight: dict[int, int] = {}
    for grown, waited in steps:
        end, now = end + grown, now + waited
        thinned.saw_end(end, now)
        complete.saw_end(end, now)
        for offset in range(end - grown, end):
            first_sight[offset] = now

    proven = now - first_sight[committed] if committed < end else 0
    assert complete.behind_ms(committed, now) == proven
    assert 0 <= thinned.behind_ms(committed, now) <= proven
