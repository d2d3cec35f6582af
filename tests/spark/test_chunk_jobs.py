"""A chunk's job on its own thread: it answers once, also when it is cancelled."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from unittest.mock import Mock

import pytest
from py4j.clientserver import ClientServer
from pyspark import SparkContext

from kafka_tx.model import TransactionAttempt
from kafka_tx.options.topology import RunnerLimits
from kafka_tx.running.at_least_once.in_flight_chunk import InFlightChunk
from kafka_tx.spark.at_least_once.runner import ChunkJob
from kafka_tx.spark.versions.job_failures import JobLostError, SparkStoppedError

ATTEMPT = TransactionAttempt(3, 1)
WITHIN_S = 60


class Engine:
    """A cancelled job ends with an error, but only from the ``deaf``-th cancel on."""

    def __init__(self, deaf=1):
        self.entered, self.cancels = [], []
        self._deaf, self._is_heard = deaf, threading.Event()

    def enter(self, attempt):
        self.entered.append((attempt, threading.current_thread()))

    def close(self):
        pass

    def cancel(self, attempt):
        self.cancels.append(attempt)
        if len(self.cancels) >= self._deaf:
            self._is_heard.set()

    def run_until_cancelled(self):
        assert self._is_heard.wait(WITHIN_S)
        raise JobLostError("cancelled")


@pytest.fixture
def answers():
    return SimpleQueue()


def job(engine, run, answers):
    started = InFlightChunk(ATTEMPT, "spout", 0, (), 0)
    return ChunkJob(started, engine, run, answers.put)


def test_a_session_that_was_stopped_before_it_starts_is_named(answers, monkeypatch):
    monkeypatch.setattr(SparkContext, "_gateway", Mock(spec=ClientServer))
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)

    with pytest.raises(SparkStoppedError, match="with a new session"):
        job(Engine(), lambda: None, answers).start()

    assert answers.empty()


def test_its_result_is_the_answer_and_the_thread_carries_its_tags(answers):
    engine = Engine()
    made = job(engine, lambda: "chunk", answers)

    made.start()

    assert answers.get(timeout=WITHIN_S) == "chunk"
    ((attempt, thread),) = engine.entered
    assert attempt == ATTEMPT
    assert thread is not threading.current_thread()
    assert made.end(WITHIN_S)


def test_an_error_is_an_answer(answers):
    error = JobLostError("the worker died")

    def run():
        raise error

    job(Engine(), run, answers).start()

    assert answers.get(timeout=WITHIN_S) is error


def test_a_cancelled_job_still_answers_and_says_so(answers):
    engine = Engine()
    made = job(engine, engine.run_until_cancelled, answers)
    made.start()
    assert made.given_up_ms is None

    made.give_up(7)
    made.give_up(9)

    assert isinstance(answers.get(timeout=WITHIN_S), JobLostError)
    assert made.given_up_ms == 7


def test_a_job_that_overhears_a_cancel_is_cancelled_again(answers):
    engine = Engine(deaf=3)
    made = job(engine, engine.run_until_cancelled, answers)
    made.start()

    assert made.end(WITHIN_S)

    assert engine.cancels == [ATTEMPT] * 3


def test_a_job_that_never_ends_is_left_behind(answers):
    may_go = threading.Event()
    made = job(Engine(), lambda: may_go.wait(WITHIN_S), answers)
    made.start()

    assert not made.end(0.01)

    may_go.set()
    assert answers.get(timeout=WITHIN_S) is True


def test_by_default_little_is_in_flight():
    limits = RunnerLimits()

    assert (limits.chunks, limits.max_pending) == (2, None)
    assert limits.timeout_ms == 30_000
