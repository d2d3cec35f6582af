"""The thread of a transactional spout, as the runner asks it."""

from __future__ import annotations

import threading

import pytest

from kafka_tx.errors import ComponentError, ConfigError
from kafka_tx.running.serial_worker import SerialWorker
from kafka_tx.running.transactional.spout_thread import Poll, SpoutThread
from kafka_tx.topology.declare.spouts import Spout

WITHIN_S = 60


def answer(thread, question=0):
    """What the spout answers, however late."""
    while (poll := thread.poll(1, question)) is None:
        pass
    return poll


@pytest.fixture
def thread_of():
    worker = SerialWorker("spout")
    yield lambda spout, watch=lambda: None: SpoutThread(worker, spout, "spout", watch)
    assert worker.close(WITHIN_S)


class Asked(Spout):
    """Is never ready, and answers with what a function returns or raises."""

    def __init__(self, answer):
        self.answer = answer

    def is_ready(self):
        return False

    def is_drained(self):
        return self.answer()


def test_a_spout_that_did_not_know_whether_it_is_drained_is_asked_again(thread_of):
    answers = [None, False, True]
    thread = thread_of(Asked(lambda: answers.pop(0)))

    found = [answer(thread, question) for question in (1, 2, 3)]

    assert found == [Poll(), Poll(), Poll(drained_at=3)]


def test_a_late_answer_is_of_its_own_question(thread_of):
    may_answer = threading.Event()
    thread = thread_of(Asked(lambda: may_answer.wait(WITHIN_S)))
    assert thread.poll(1, 1) is None
    may_answer.set()

    assert answer(thread, 2) == Poll(drained_at=1)
    assert answer(thread, 3) == Poll(drained_at=3)


def test_a_time_out_of_the_spout_itself_is_an_error_like_any_other(thread_of):
    """It is not taken for an answer that has yet to come."""

    def raises():
        raise TimeoutError("of its own")

    with pytest.raises(ComponentError, match="of its own"):
        answer(thread_of(Asked(raises)), 1)


def test_polls_of_the_logs_do_not_pile_up_and_none_begins_once_it_is_to_close(
    thread_of,
):
    """The spout hangs for a while: one poll waits for it, and the close drops it."""
    begun, may_go_on, polls, calls = (
        threading.Event(),
        threading.Event(),
        list[None](),
        list[str](),
    )

    class Slow(Spout):
        def is_ready(self):
            begun.set()
            return may_go_on.wait(WITHIN_S)

        def close(self):
            calls.append("close")

    thread = thread_of(Slow(), lambda: polls.append(None))
    thread.open("a")
    assert thread.poll(1) is None
    assert begun.wait(WITHIN_S)
    for _ in range(3):
        thread.watch()
    may_go_on.set()
    answer(thread)
    answer(thread)
    assert len(polls) == 1

    may_go_on.clear()
    begun.clear()
    assert thread.poll(1) is None
    assert begun.wait(WITHIN_S)
    thread.watch()
    assert not thread.close(0)
    may_go_on.set()
    assert thread.close(WITHIN_S)

    assert (len(polls), calls[0]) == (1, "close")


def test_a_poll_of_the_logs_that_fails_is_logged_and_the_spout_goes_on(
    thread_of, caplog
):
    def fails():
        raise ValueError("no such log")

    thread = thread_of(Asked(lambda: True), fails)

    thread.watch()

    assert answer(thread, 1) == Poll(drained_at=1)
    assert "no such log" in str(caplog.records[-1].exc_info)


class Counted(Spout):
    """Counts how often it is opened and closed."""

    def __init__(self):
        self.calls = list[str]()

    def open(self):
        self.calls.append("open")

    def close(self):
        self.calls.append("close")


def a_thread(spout):
    return SpoutThread(SerialWorker("spout"), spout, "spout", lambda: None)


def test_who_was_refused_closes_nothing_that_others_have_opened():
    spout = Counted()
    reader, refused = a_thread(spout), a_thread(spout)
    reader.open("a")
    with pytest.raises(ConfigError, match="'a' still reads .* stop that topology"):
        refused.open("b")
    assert reader.close(WITHIN_S)

    assert refused.close(WITHIN_S)

    assert spout.calls == ["open", "close"]


def test_behind_a_call_that_outlives_its_topology_the_error_says_when_to_start():
    class Waiting(Counted):
        def committed(self, txid, metadata):
            may_end.wait(WITHIN_S)

    spout, may_end = Waiting(), threading.Event()
    ended, refused, next_one = (a_thread(spout) for _ in range(3))
    ended.open("a")
    ended.committed(1, {})
    assert not ended.close(0.01)

    with pytest.raises(ConfigError, match="wait until the spout's call returns"):
        refused.open("a")

    may_end.set()
    assert ended.close(WITHIN_S)
    next_one.open("a")
    assert [each.close(WITHIN_S) for each in (refused, next_one)] == [True, True]
