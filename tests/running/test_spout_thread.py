"""The thread of a transactional spout, as the runner asks it."""

from __future__ import annotations

import threading

import pytest

from kafka_tx.errors import ComponentError
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
    yield lambda spout: SpoutThread(worker, spout, "spout", lambda: None)
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
