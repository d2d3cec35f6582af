import logging

import pytest

from kafka_tx.errors import FencedError, StateGivenUpError, StateUnavailableError
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.protocols import NOTHING
from kafka_tx.testing import ManualClock
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership.memory import MemoryStore
from kafka_tx.transactions.ownership.retry_policy import RetryingStore, RetryPolicy

BATCH = BatchMetadata(1, (OffsetRange(TopicPartition("t", 0), 0, 5),), {"t": "id"})


@pytest.fixture
def clock():
    return ManualClock()


def failing(times, answer="done", kind=StateUnavailableError):
    """A call that fails so often."""
    left = [times]

    def call():
        if left[0]:
            left[0] -= 1
            raise kind("the store is away", store="db")
        return answer

    return call


def test_what_comes_back_is_waited_for_and_said(clock, caplog):
    caplog.set_level(logging.WARNING)

    assert RetryPolicy(clock, 120_000)(failing(5)) == "done"

    assert clock.monotonic_ms() == 100 + 200 + 400 + 800 + 1600
    assert "try 1 failed, trying again for at most 120 s: the store" in caplog.text
    assert "answers again, at try 6" in caplog.text


def test_what_stays_away_is_given_up_in_time_and_not_retryable(clock):
    with pytest.raises(StateGivenUpError, match="the store is away") as raised:
        RetryPolicy(clock, 120_000)(failing(10**6))

    assert 110_000 <= clock.monotonic_ms() <= 120_000
    assert "retry_for_ms" in str(raised.value)
    assert not raised.value.retryable
    assert raised.value.fields == {"store": "db"}


def test_retries_inside_retries_do_not_take_twice_as_long(clock):
    retry_policy = RetryPolicy(clock, 120_000)

    with pytest.raises(StateGivenUpError):
        retry_policy(lambda: retry_policy(failing(10**6)))

    assert clock.monotonic_ms() <= 120_000


def test_without_time_for_retries_a_call_is_made_once(clock):
    with pytest.raises(StateUnavailableError):
        RetryPolicy(clock, 0)(failing(1))
    assert clock.monotonic_ms() == 0


def test_other_errors_are_told_at_once(clock):
    with pytest.raises(FencedError):
        RetryPolicy(clock, 120_000)(failing(1, kind=FencedError))
    assert clock.monotonic_ms() == 0


class LosingAnswers(MemoryStore):
    """Every other call is carried out, and its answer lost."""

    calls = 0

    def acquire(self, put=NOTHING, *, above=0, expect=None):
        acquire = super().acquire
        return self._lose(lambda: acquire(put, above=above, expect=expect))

    def write(self, epoch, put, delete=(), *, expect=None):
        write = super().write
        return self._lose(lambda: write(epoch, put, delete, expect=expect))

    def _lose(self, call):
        answer = call()
        self.calls += 1
        if self.calls % 2:
            raise StateUnavailableError("no answer came", store=self.url)
        return answer


def test_a_write_whose_answer_was_lost_is_looked_up(clock):
    store = LosingAnswers("lost", "orders")
    ledger = Ledger(RetryingStore(store, RetryPolicy(clock)))
    epoch = ledger.acquire()
    assert epoch == 2  # the first one was raised too

    ledger.plan(epoch, BATCH)
    store.calls = 0
    assert ledger.commit(epoch, 1, 0) is True  # it finds its own commit
    assert ledger.commit(epoch, 1, 0) is False  # which is told once

    committed = ledger.load().committed
    assert committed is not None
    assert (committed.txid, committed.offsets) == (1, {TopicPartition("t", 0): 5})


def test_a_former_owner_is_fenced_though_answers_are_lost(clock):
    store = LosingAnswers("fenced", "orders")
    ledger = Ledger(RetryingStore(store, RetryPolicy(clock)))
    epoch = ledger.acquire()
    MemoryStore("fenced", "orders").acquire()

    with pytest.raises(FencedError):
        ledger.plan(epoch, BATCH)
