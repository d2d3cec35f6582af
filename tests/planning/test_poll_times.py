import pytest

from kafka_tx.planning.log_bounds import BUSY_POLL_MS, POLL_MS, SOON_MS, PollTimes


def polled(times, began_ms, took_ms=1, *, is_news=False):
    times.began(began_ms)
    times.ended(began_ms + took_ms, is_news=is_news)
    return times.due_ms(5_000) - began_ms - took_ms


def test_the_first_poll_is_due_at_once():
    assert PollTimes().due_ms(5_000) == 0


def test_polls_of_quiet_logs_become_rare_until_there_is_news():
    times = PollTimes()

    pauses = [polled(times, 10_000 * n) for n in range(1, 16)]

    assert pauses[:4] == [SOON_MS, 2 * SOON_MS, 4 * SOON_MS, 8 * SOON_MS]
    assert pauses[-1] == pauses[-2] > 10_000
    assert polled(times, 200_000, is_news=True) == SOON_MS
    assert polled(times, 300_000, 40, is_news=True) == POLL_MS


@pytest.mark.parametrize("partitions", [1, 25, 100, 5_000])
def test_records_in_quiet_logs_are_seen_within_the_documented_time(partitions):
    times = PollTimes()

    for now_ms in range(0, 2_000_000, 100_000):
        times.began(now_ms)
        times.ended(now_ms + 1, is_news=False)
        assert times.due_ms(partitions) - now_ms - 1 <= max(100, 4 * partitions)


def test_while_there_is_much_to_read_polls_are_rare_and_costly_ones_rarer():
    times = PollTimes()
    times.had_nothing = False

    assert polled(times, 1_000, is_news=True) == BUSY_POLL_MS
    assert polled(times, 9_000, 40, is_news=True) == 2_000
    assert polled(times, 20_000, 900, is_news=True) == 5_000


@pytest.mark.parametrize(("had_nothing", "pause_ms"), [(True, POLL_MS), (False, 1_000)])
def test_polls_that_fail_at_once_do_not_follow_each_other_at_once(
    had_nothing, pause_ms
):
    times = PollTimes()
    times.had_nothing = had_nothing
    polled(times, 1_000)

    for began_ms in (5_000, 6_000):
        times.began(began_ms)
        times.failed(began_ms + 1)
        assert times.due_ms(1) == began_ms + 1 + pause_ms

    assert polled(times, 9_000, is_news=True) == (SOON_MS if had_nothing else 1_000)
