"""When a poller looks, refreshes, emits and commits; its thread is the test's own."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import pytest

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    StateCorruptedError,
    StateUnavailableError,
)
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    CommittedOffset,
    Latest,
    LogBounds,
    OffsetRange,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.loss import LossReason
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.rules import PartitionRules
from kafka_tx.planning import quiet
from kafka_tx.running.at_least_once.look_times import BUSY_LOOK_MS, LOOK_MS
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper
from kafka_tx.running.at_least_once.poller import HOLD_MS, REFRESH_MS, SpoutPoller
from kafka_tx.running.at_least_once.poller_parts import PollerParts
from kafka_tx.testing import ManualClock
from kafka_tx.topology.rows.schemes import RawScheme
from kafka_tx.transactions.memory import MemoryOffsetStore

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COMMIT_MS = 2_000
WITHIN_S = 10


class Cluster:
    """Answers what it is told to; may hold its answers back."""

    def __init__(self):
        self.logs: dict[TopicPartition, LogBounds | Unavailable] = {
            P0: LogBounds(0, 10),
            P1: LogBounds(0, 10),
        }
        self.problem: Exception | None = None
        self.asked: list[list[TopicPartition]] = []
        self.ends_asked = 0

    def bounds(self, partitions):
        self.asked.append(list(partitions))
        if self.problem:
            raise self.problem
        return {p: self.logs[p] for p in partitions}

    def offsets(self, wanted):
        assert set(wanted.values()) == {Latest()}
        self.ends_asked += 1
        found = {p: self.logs[p] for p in wanted}
        return {p: b.end if isinstance(b, LogBounds) else b for p, b in found.items()}

    def close(self):
        pass


class Coordinator:
    """Two open partitions; notes looks, and when an answer is taken in."""

    def __init__(self):
        self.partitions = (P0, P1)
        self.managers = {p: manager(p) for p in self.partitions}
        self.due = False
        self.problem: Exception | None = None
        self.looks = self.taken = 0

    def manager(self, partition):
        return self.managers.get(partition)

    @property
    def is_complete(self):
        return all(p in self.managers for p in self.partitions)

    def is_due(self):
        return self.due

    def look(self):
        self.looks += 1
        if self.problem:
            raise self.problem
        return self._take

    def _take(self):
        self.taken += 1

    def close(self):
        pass


class Offsets(MemoryOffsetStore):
    def __init__(self):
        super().__init__()
        self.error: Exception | None = None
        self.stores = 0

    def store(self, offsets):
        self.stores += 1
        if self.error:
            raise self.error
        super().store(offsets)


def manager(partition):
    return PartitionManager(
        partition, PartitionRules(), CommittedOffset(0), stored=CommittedOffset(0)
    )


class Case:
    def __init__(self):
        self.cluster, self.coordinator = Cluster(), Coordinator()
        self.store, self.clock = Offsets(), ManualClock()
        self.registry = MetricsRegistry()
        self.events: SimpleQueue[Any] = SimpleQueue()
        keeper = OffsetKeeper("job", self.store, self.registry, self.clock)
        fakes: dict[str, Any] = {
            "coordinator": self.coordinator,
            "cluster": self.cluster,
            "reader": None,
        }
        parts = PollerParts(
            name="spout",
            keeper=keeper,
            scheme=RawScheme(),
            dead_letters=None,
            commit_interval_ms=COMMIT_MS,
            registry=self.registry,
            clock=self.clock,
            **fakes,
        )
        self.poller = SpoutPoller(parts, self.events.put)

    def take(self):
        """Do what came back from the poller's threads."""
        self.events.get(timeout=WITHIN_S)()

    def look(self):
        self.poller.look_if_due()
        self.take()

    def emit(self, room=100):
        return [str(emission.range) for emission in self.poller.chunk(room)]


@pytest.fixture
def case():
    made = Case()
    yield made
    assert made.poller.close(lambda: WITHIN_S)


def test_nothing_is_emitted_before_the_logs_were_looked_at(case):
    assert case.emit() == []

    case.look()

    assert sorted(case.emit()) == ["t-0 [0, 10)", "t-1 [0, 10)"]
    assert case.cluster.asked == [[P0, P1]]


def test_no_look_is_begun_while_one_is_under_way(case):
    case.poller.look_if_due()
    case.clock.advance(60_000)
    case.poller.look_if_due()

    assert case.poller.next_looks().logs - 1 == 1
    case.take()
    assert case.poller.ended_looks().logs == 1


def test_it_looks_often_while_there_is_nothing_and_seldom_while_there_is(case):
    case.look()
    case.clock.advance(LOOK_MS - 1)
    case.poller.look_if_due()
    assert case.poller.next_looks().logs - 1 == 1
    case.clock.advance(1)
    case.look()
    assert case.poller.next_looks().logs - 1 == 2

    assert case.emit()
    case.clock.advance(LOOK_MS)
    case.poller.look_if_due()
    assert case.poller.next_looks().logs - 1 == 2
    case.clock.advance(BUSY_LOOK_MS - LOOK_MS)
    case.look()
    assert case.poller.next_looks().logs - 1 == 3


def test_a_partition_that_does_not_answer_is_refreshed_and_the_others_go_on(case):
    case.cluster.logs[P0] = Unavailable("no leader")

    case.look()
    case.take()

    assert case.coordinator.taken == 1
    assert case.emit() == ["t-1 [0, 10)"]


def test_brokers_that_are_away_change_nothing(case):
    case.look()
    case.cluster.problem = BrokerUnavailableError("down")
    case.clock.advance(LOOK_MS)

    case.look()
    case.take()

    assert case.coordinator.taken == 1
    assert case.poller.bounds == case.cluster.logs
    assert case.poller.ended_looks().logs == 1


def test_a_refused_look_is_raised_on_the_desks_thread(case):
    case.cluster.problem = AuthenticationError("wrong password")
    case.poller.look_if_due()

    with pytest.raises(AuthenticationError):
        case.take()


def test_partitions_are_looked_for_when_the_coordinator_says_so(case):
    case.poller.refresh_if_due()
    assert case.coordinator.looks == 0
    case.coordinator.due = True

    case.poller.refresh_if_due()
    case.poller.refresh_if_due()
    case.take()
    assert (case.coordinator.looks, case.coordinator.taken) == (1, 1)

    case.clock.advance(REFRESH_MS - 1)
    case.poller.refresh_if_due()
    assert case.coordinator.looks == 1
    case.clock.advance(1)
    case.poller.refresh_if_due()
    case.take()
    assert case.coordinator.looks == 2


def test_a_look_for_partitions_runs_on_another_thread_and_ends_on_this_one(case):
    threads = []

    def look():
        threads.append(threading.current_thread())
        return lambda: threads.append(threading.current_thread())

    case.coordinator.look = look
    case.coordinator.due = True
    case.poller.refresh_if_due()
    case.take()

    assert threads[0] is not threads[1]
    assert threads[1] is threading.current_thread()


def test_a_refused_look_for_partitions_is_raised_on_the_desks_thread(case):
    case.coordinator.due = True
    case.coordinator.problem = AuthenticationError("wrong password")
    case.poller.refresh_if_due()

    with pytest.raises(AuthenticationError):
        case.take()


def test_a_partition_whose_fetch_failed_rests(case):
    case.look()

    case.poller.fetch_failed(P0)
    case.take()

    assert case.emit() == ["t-1 [0, 10)"]
    case.clock.advance(HOLD_MS)
    assert case.emit() == ["t-0 [0, 10)"]


def acked(case, partition=P0):
    case.look()
    case.emit()
    case.coordinator.managers[partition].ack(0)


def test_what_is_completed_is_stored_when_it_is_time(case):
    acked(case)
    case.poller.commit_if_due()
    assert case.store.stores == 0

    case.clock.advance(COMMIT_MS)
    case.poller.commit_if_due()
    case.take()

    assert case.store.load([P0, P1]) == {P0: CommittedOffset(1)}
    assert case.coordinator.managers[P0].committed_to == 1


def test_a_clock_that_was_set_back_still_commits(case):
    acked(case)
    case.clock.set_wall(1)

    case.poller.commit_if_due()
    case.take()

    assert case.store.load([P0]) == {P0: CommittedOffset(1)}


def test_nothing_new_is_nothing_to_store(case):
    case.poller.commit_if_due(at_once=True)

    assert case.store.stores == 0


def test_what_was_not_stored_is_stored_next_time(case):
    acked(case)
    case.store.error = StateUnavailableError("away")
    case.poller.commit_if_due(at_once=True)
    case.take()
    assert case.coordinator.managers[P0].committed_to == 0
    case.store.error = None

    case.poller.commit_if_due(at_once=True)
    case.take()

    assert case.coordinator.managers[P0].committed_to == 1


def test_a_store_that_refuses_is_raised_on_the_desks_thread(case):
    acked(case)
    case.store.error = StateCorruptedError("no")
    case.poller.commit_if_due(at_once=True)

    with pytest.raises(StateCorruptedError):
        case.take()


def test_it_is_idle_when_all_is_read_completed_and_stored(case):
    case.look()
    assert not case.poller.is_idle
    for emission in case.poller.chunk(100):
        emission.manager.ack(emission.range)
    assert case.poller.is_completed
    assert not case.poller.is_idle

    case.poller.commit_if_due(at_once=True)
    assert not case.poller.is_idle
    case.take()

    assert case.poller.is_idle


def test_a_log_that_seems_shorter_is_not_believed_at_once(case):
    case.look()
    for emission in case.poller.chunk(100):
        emission.manager.ack(emission.range)
    case.cluster.logs[P0] = LogBounds(0, 4)

    for _ in range(2):
        case.clock.advance(5_000)
        case.look()
        case.poller.chunk(100)
        assert case.coordinator.manager(P0).counts.skipped[LossReason.CUT] == 0
    case.clock.advance(5_000)
    case.look()
    case.poller.chunk(100)

    assert case.coordinator.manager(P0).counts.skipped[LossReason.CUT] == 6
    assert not case.poller.is_idle


def test_it_is_not_idle_while_a_partition_is_not_open(case):
    for at in (P0, P1):
        case.cluster.logs[at] = LogBounds(0, 0)
    case.look()
    assert case.poller.is_idle

    del case.coordinator.managers[P1]
    case.coordinator.due = True
    case.poller.refresh_if_due()
    case.take()

    assert not case.poller.is_idle


def test_it_wakes_for_the_next_look_retry_or_commit(case):
    case.look()
    began = case.clock.monotonic_ms()
    assert case.poller.wakes_at_ms() == began + LOOK_MS

    (first, _) = case.poller.chunk(100)
    assert case.poller.wakes_at_ms() == began + BUSY_LOOK_MS
    first.manager.release(0, began)

    assert case.poller.wakes_at_ms() == began + 10, "but not at once"


def test_a_store_that_forgets_is_told_everything_again_in_time(case):
    case.store.renew_ms = lambda: 60_000
    case.poller.parts.keeper.acquire(0, 1)
    case.look()
    case.emit()
    for manager in case.poller.managers:
        manager.ack(OffsetRange(manager.topic_partition, 0, 10))
    case.poller.commit_if_due(at_once=True)
    case.take()

    for _ in range(2):
        case.store.store({P0: CommittedOffset(1), P1: CommittedOffset(1)})
        case.clock.advance(59_999 - COMMIT_MS)
        case.poller.commit_if_due(at_once=True)
        assert case.events.empty()
        case.clock.advance(COMMIT_MS + 1)
        case.poller.commit_if_due()
        case.take()
        stored = case.store.load([P0, P1])
        assert [each.offset for each in stored.values()] == [10, 10]


def test_a_renewal_that_failed_is_tried_again(case):
    case.store.renew_ms = lambda: 60_000
    case.poller.parts.keeper.acquire(0, 1)
    case.poller.managers[0].committed(CommittedOffset(0))
    case.clock.advance(60_000)
    case.store.error = StateUnavailableError("away")
    case.poller.commit_if_due(at_once=True)
    case.take()
    case.store.error = None

    case.poller.commit_if_due(at_once=True)
    case.take()

    assert P0 in case.store.load([P0])


def complete_all(case):
    """Both logs are emitted, completed and stored."""
    case.look()
    case.emit()
    for each in case.poller.managers:
        each.ack(OffsetRange(each.topic_partition, 0, 10))
    case.poller.commit_if_due(at_once=True)
    case.take()
    case.poller.commit_if_due(at_once=True)
    assert not case.poller.awake


def test_nothing_is_asked_of_partitions_that_have_nothing_to_do(case):
    complete_all(case)
    assert case.poller.is_idle
    assert set(case.poller.take_touched()) == set(case.poller.managers)
    assert not case.poller.take_touched()

    case.cluster.logs[P1] = LogBounds(0, 12)
    case.clock.advance(60_000)
    case.look()

    assert [m.topic_partition for m in case.poller.awake] == [P1]
    assert not case.poller.is_idle
    assert case.emit() == ["t-1 [10, 12)"]


def test_a_log_that_was_trimmed_or_cut_wakes_its_partition(case):
    for at in (P0, P1):
        case.cluster.logs[at] = LogBounds(0, 0)
        case.poller._by_partition[at].committed(CommittedOffset(0))
    case.look()
    case.poller.commit_if_due(at_once=True)
    assert not case.poller.awake

    case.cluster.logs[P0] = LogBounds(5, 5)
    case.clock.advance(60_000)
    case.look()

    assert [m.topic_partition for m in case.poller.awake] == [P0]


def find_empty(case):
    """Both logs are empty, and nothing is left to be stored."""
    for at in (P0, P1):
        case.cluster.logs[at] = LogBounds(0, 0)
        case.poller._by_partition[at].committed(CommittedOffset(0))
    case.look()
    case.poller.commit_if_due(at_once=True)
    assert not case.poller.awake


def test_of_a_partition_that_sleeps_only_the_end_is_asked(case):
    find_empty(case)
    case.clock.advance(60_000)
    asked = len(case.cluster.asked)

    case.look()

    assert (len(case.cluster.asked), case.cluster.ends_asked) == (asked, 1)
    assert case.poller.is_idle


def test_looks_at_logs_that_stay_quiet_become_rare(case, monkeypatch):
    monkeypatch.setattr(quiet, "_PAUSE_MS_EACH", 500)
    find_empty(case)
    pauses = []

    for _ in range(6):
        began_ms = case.clock.monotonic_ms()
        while case.poller.next_looks().logs == case.poller.ended_looks().logs + 1:
            case.clock.advance(10)
            case.poller.look_if_due()
        case.take()
        pauses.append(case.clock.monotonic_ms() - began_ms)

    assert sorted(pauses) == pauses
    assert (pauses[0], pauses[-1]) == (LOOK_MS, 2 * 500)


def test_a_look_is_made_at_once_when_somebody_waits(case, monkeypatch):
    monkeypatch.setattr(quiet, "_PAUSE_MS_EACH", 60_000)
    find_empty(case)
    for _ in range(9):
        case.clock.advance(60_000)
        case.look()
    case.clock.advance(1_000)
    looks = case.poller.next_looks().logs
    case.poller.look_if_due()
    assert case.poller.next_looks().logs == looks

    case.poller.want_looks()

    assert case.poller.wakes_at_ms() <= case.clock.monotonic_ms() + 10
    case.look()
    assert case.poller.next_looks().logs == looks + 1


def test_a_new_partition_is_looked_at_at_once(case):
    find_empty(case)
    new = TopicPartition("t", 2)
    case.cluster.logs[new] = LogBounds(0, 3)
    case.coordinator.managers[new] = manager(new)
    case.coordinator.partitions += (new,)
    case.poller.want_looks()
    case.look()
    case.poller.refresh_if_due()
    case.take()

    case.look()

    assert case.emit() == ["t-2 [0, 3)"]


def test_a_topic_made_anew_with_as_many_records_is_read_from_its_beginning(case):
    complete_all(case)
    case.coordinator.due = True
    case.coordinator._take = case.coordinator.managers[P0].topic_recreated

    case.clock.advance(60_000)
    case.poller.refresh_if_due()
    case.take()

    assert [m.topic_partition for m in case.poller.awake] == [P0]
    assert case.emit() == [], "what is known of its log is of the one that is gone"
    case.look()
    case.poller.commit_if_due(at_once=True)
    assert case.emit() == ["t-0 [0, 10)"], "it does not fall asleep before"
