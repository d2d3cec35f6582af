"""Offsets are stored one commit after the other, beside the topology's thread."""

from __future__ import annotations

import threading

import pytest

from kafka_tx.assembly import SystemClock
from kafka_tx.errors import FencedError, StateCorruptedError, StateUnavailableError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import CommittedOffset, LogBounds, TopicPartition
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.running.at_least_once import offset_keeper
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper
from kafka_tx.testing import ManualClock
from kafka_tx.transactions.ownership.memory import MemoryOffsetStore

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
WITHIN_S = 60


class Offsets(MemoryOffsetStore):
    """Waits before each store until it may go on; fails as told."""

    def __init__(self):
        super().__init__()
        self.errors: list[Exception] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.claims: list[tuple[int, int]] = []
        self.stored: list[int] = []
        self.is_closed = False

    def acquire(self, task=0, tasks=1):
        self.claims.append((task, tasks))
        return 7

    def load(self, partitions):
        assert self.may_go.wait(WITHIN_S)
        return super().load(partitions)

    def store(self, offsets):
        assert self.may_go.wait(WITHIN_S)
        if self.errors:
            raise self.errors.pop(0)
        self.stored += [offset.offset for offset in offsets.values()]
        super().store(offsets)

    def close(self):
        self.is_closed = True


@pytest.fixture
def store():
    return Offsets()


@pytest.fixture
def registry():
    return MetricsRegistry()


@pytest.fixture
def keeper(store, registry):
    made = OffsetKeeper("job", store, registry, SystemClock())
    yield made
    store.may_go.set()
    assert made.close(WITHIN_S)


def offer(offset):
    manager = PartitionManager(P0, PartitionRules(), CommittedOffset(offset))
    return {manager: CommittedOffset(offset)}


def test_the_time_of_the_last_commit_is_shown_after_a_restart(keeper, store):
    keeper.store_now(offer(5))
    stored_ms = store.load([P0])[P0].committed_ms
    restarted, later = MetricsRegistry(), ManualClock(stored_ms + 60_000)
    again = OffsetKeeper("job", store, restarted, later)

    found = again.load([P0])

    def shown():
        return restarted.samples()["kafka_tx_last_commit_timestamp_seconds"]["job",]

    assert shown() == (stored_ms / 1000,)
    manager = PartitionManager(P0, PartitionRules(), found[P0], stored=found[P0])
    again.stored({manager: found[P0]}, {}, 0)  # it was written again, unchanged
    assert shown() == (stored_ms / 1000,)
    again.close(WITHIN_S)


def test_reading_an_older_offset_takes_no_later_commit_away(keeper, store, registry):
    at_ms = 1_700_000_000_000
    store.store({P1: CommittedOffset(3, committed_ms=at_ms)})
    keeper.store_now(offer(5))

    keeper.load([P1])

    (shown,) = registry.samples()["kafka_tx_last_commit_timestamp_seconds"]["job",]
    assert shown > at_ms / 1000


class Answer:
    def __init__(self):
        self.error: BaseException | None = None
        self.came = threading.Event()

    def __call__(self, error):
        self.error = error
        self.came.set()


def test_what_is_stored_can_be_loaded(keeper):
    keeper.store_now(offer(5))

    assert keeper.load([P0]) == {P0: CommittedOffset(5)}


def test_managers_and_metrics_learn_of_a_commit(keeper, registry):
    offers = offer(5)
    (manager,) = offers

    keeper.stored(offers, {P0: LogBounds(2, 9)}, began_ms=0)

    assert manager.committed_to == 5
    assert registry.samples()["kafka_tx_lag_records"]["job", "t", "0"] == (4,)


def test_what_was_loaded_is_shown_before_anything_is_stored(keeper, store, registry):
    store.store({P0: CommittedOffset(40, topic_id="id-1")})

    keeper.load([P0, TopicPartition("t", 1)])

    shown = registry.samples()["kafka_tx_committed_offset"]
    assert list(shown.values()) == [(40,)]


def test_asking_to_store_does_not_wait_and_keeps_the_order(keeper, store):
    store.may_go.clear()
    answers = [Answer() for _ in range(3)]

    for offset, answer in enumerate(answers):
        keeper.store(offer(offset), answer)
    assert not any(answer.came.is_set() for answer in answers)
    store.may_go.set()

    assert answers[-1].came.wait(WITHIN_S)
    assert store.stored == [0, 1, 2]
    assert [answer.error for answer in answers] == [None] * 3


@pytest.mark.parametrize(
    "error", [StateUnavailableError("away"), FencedError("another owner")]
)
def test_an_error_is_the_answer_and_the_next_commit_may_succeed(keeper, store, error):
    store.errors = [error]
    first, second = Answer(), Answer()

    keeper.store(offer(1), first)
    keeper.store(offer(2), second)

    assert second.came.wait(WITHIN_S)
    assert (first.error, second.error) == (error, None)
    assert store.stored == [2]


def test_an_error_of_a_commit_that_is_waited_for_goes_up(keeper, store):
    store.errors = [StateCorruptedError("no")]
    offers = offer(5)

    with pytest.raises(StateCorruptedError):
        keeper.store_now(offers)

    assert [manager.committed_to for manager in offers] == [None]


def test_a_store_that_hangs_is_waited_for_no_longer_than_that(
    keeper, store, monkeypatch
):
    monkeypatch.setattr(offset_keeper, "_WITHIN_S", 0.05)
    store.may_go.clear()

    with pytest.raises(StateUnavailableError, match="'job' did not answer within 0.05"):
        keeper.load([P0])


def test_a_store_that_tries_again_is_waited_for_as_long(store, registry):
    store.retry_ms = 600_000
    keeper = OffsetKeeper("job", store, registry, SystemClock())
    store.may_go.clear()

    keeper.ends_within(lambda: 0.05)
    with pytest.raises(StateUnavailableError, match="did not answer within 0.05"):
        keeper.load([P0])
    store.may_go.set()
    assert keeper.longest_s == 660
    assert keeper.close(WITHIN_S)


def test_it_becomes_the_owner_of_its_task(keeper, store):
    assert keeper.acquire(1, 3) == 7
    assert store.claims == [(1, 3)]


def test_a_store_without_a_limit_takes_all_runs(keeper, store):
    offset = CommittedOffset(0, ((2, 3), (4, 5)))
    assert keeper.fits(offset)

    store.fitting = lambda _: 1

    assert not keeper.fits(offset)


def test_the_end_comes_after_what_was_asked_for(store, registry):
    keeper = OffsetKeeper("job", store, registry, SystemClock())
    store.may_go.clear()
    keeper.store(offer(5), Answer())

    assert not keeper.close(0.01)
    store.may_go.set()
    assert keeper.close(WITHIN_S)

    assert store.stored == [5]
    assert store.is_closed
