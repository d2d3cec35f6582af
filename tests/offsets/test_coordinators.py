import logging

import pytest

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    FencedError,
    StateUnavailableError,
)
from kafka_tx.model import (
    Assigned,
    Broker,
    CommittedOffset,
    LogBounds,
    OffsetRange,
    TopicPartition,
    Topics,
)
from kafka_tx.offsets.coordinators import RefreshingCoordinator
from kafka_tx.offsets.discovery import Discovery, FixedPartitions
from kafka_tx.offsets.loss import LossReason
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.testing import ManualClock, MemoryLog

OTHER = Broker("other", 9092, 2)
INTERVAL_MS = 2_000


def orders(*numbers):
    return [TopicPartition("orders", number) for number in numbers]


class Managers:
    """Opens managers at 0, and writes down what happens."""

    def __init__(self):
        self.events = []
        self.preparing: Exception | None = None
        self.prepared: list[list[TopicPartition]] = []
        self.shares: list[list[TopicPartition]] = []
        self.opening: dict[TopicPartition, Exception] = {}
        self.closing: dict[TopicPartition, Exception] = {}

    def prepare(self, partitions, share=()):
        self.shares.append(list(share))
        self.prepared.append(list(partitions))
        if self.preparing:
            raise self.preparing

    def open(self, partition, leader, *, is_new, is_awaited):
        if partition in self.opening:
            raise self.opening[partition]
        word = " awaited" if is_new and is_awaited else " new" if is_new else ""
        self.events.append(f"open {partition}{word}")
        return PartitionManager(
            partition, PartitionRules(), CommittedOffset(0), leader=leader
        )

    def close(self, managers):
        for manager in managers:
            self.events.append(f"close {manager.topic_partition}")
        for manager in managers:
            if manager.topic_partition in self.closing:
                raise self.closing[manager.topic_partition]


class Cluster:
    """A coordinator over a log in memory, whose looks may fail."""

    def __init__(self, task=0, total=1, **topics):
        self.log = MemoryLog(topics)
        self.clock = ManualClock()
        self.managers = Managers()
        self.failure: Exception | None = None
        self.is_hidden = False
        self.polls = 0
        self._task = task, total
        self.coordinate(Discovery(self.describe, Topics(("clicks", "orders"))))

    def fix(self, partitions):
        """Have fixed partitions, and another broker for their leader."""
        fixed = FixedPartitions(dict.fromkeys(partitions, OTHER), self.describe)
        self.coordinate(Discovery(fixed.describe, Assigned(tuple(partitions))))

    def coordinate(self, discovery):
        self.coordinator = RefreshingCoordinator(
            discovery,
            *self._task,
            refresh_interval_ms=INTERVAL_MS,
            clock=self.clock,
            deleted=self.denied,
            managers=self.managers,
        )

    def describe(self, wanted):
        self.polls += 1
        if self.failure:
            raise self.failure
        return self.log.topics(wanted)

    def denied(self, ids):
        found = {} if self.is_hidden else self.log.topic_ids(ids)
        return {name for name, id_ in found.items() if id_ is None}

    def partitions(self):
        return list(self.coordinator.my_managed_partitions())


@pytest.fixture
def cluster():
    made = Cluster(orders=2)
    made.partitions()
    made.managers.events.clear()
    return made


# --- RefreshingCoordinator ----------------------------------------------------------


def test_it_polls_first_and_whenever_the_answer_is_old():
    cluster = Cluster(orders=1)

    cluster.partitions()
    cluster.clock.advance(INTERVAL_MS - 1)
    cluster.partitions()
    assert cluster.polls == 1
    cluster.clock.advance(1)
    cluster.partitions()
    assert cluster.polls == 2


def test_it_has_a_manager_for_each_of_its_partitions_only():
    cluster = Cluster(task=1, total=2, orders=3)

    assert cluster.partitions() == orders(1)
    assert cluster.coordinator.manager(orders(1)[0]) is not None
    assert cluster.coordinator.manager(orders(0)[0]) is None


def test_a_moved_leader_keeps_the_manager_with_all_that_is_pending(cluster):
    manager = cluster.coordinator.manager(orders(0)[0])

    cluster.log.set_leader(orders(0)[0], OTHER)
    cluster.coordinator.refresh()

    assert cluster.coordinator.manager(orders(0)[0]) is manager
    assert manager.leader == cluster.coordinator.leader(orders(0)[0]) == OTHER
    assert cluster.managers.events == []


def test_a_partition_that_appears_later_is_opened_as_new(cluster):
    cluster.log.add_partitions("orders", 3)

    cluster.coordinator.refresh()

    assert cluster.managers.events == ["open orders-2 new"]


def test_a_partition_that_had_no_leader_at_first_was_awaited():
    """Unlike one that appears later, though that has no leader at first, too."""
    cluster = Cluster(orders=2)
    cluster.log.set_leader(orders(1)[0], None)
    cluster.partitions()
    cluster.log.add_partitions("orders", 3)
    cluster.log.set_leader(orders(2)[0], None)
    cluster.coordinator.refresh()
    cluster.managers.events.clear()

    for partition in orders(1, 2):
        cluster.log.set_leader(partition, OTHER)
    cluster.coordinator.refresh()

    assert cluster.managers.events == ["open orders-1 awaited", "open orders-2 new"]


def test_a_partition_that_its_topic_lost_as_it_was_made_anew_is_lost(caplog):
    """With all that was pending; also if another task has it now."""
    cluster = Cluster(task=1, total=2, orders=4)
    cluster.partitions()
    (at,) = orders(3)
    manager = cluster.coordinator.manager(at)
    assert manager is not None
    manager.emitted(OffsetRange(at, 0, 7), 0)

    cluster.log.delete("orders")
    cluster.log.create("orders", 2)
    cluster.coordinator.refresh()

    assert cluster.partitions() == orders(1)
    assert manager.counts.lost[LossReason.RECREATED] == 7
    assert manager.pending == 0
    assert (
        "orders-3: its topic was deleted: 7 offsets of [0, 7) are lost" in caplog.text
    )


def test_what_is_gone_is_closed_before_anything_is_opened():
    cluster = Cluster(task=1, total=2, orders=2)
    cluster.partitions()
    cluster.managers.events.clear()

    cluster.log.create("clicks", 1)  # sorts before orders: their indices shift
    cluster.coordinator.refresh()

    assert cluster.managers.events == ["close orders-1", "open orders-0"]


def test_a_topic_that_was_created_again_is_told_to_its_manager(cluster):
    manager = cluster.coordinator.manager(orders(0)[0])
    manager.topic_id = cluster.log.topics(Topics(("orders",)))["orders"].topic_id

    cluster.log.create("orders", 2)
    cluster.coordinator.refresh()

    assert cluster.coordinator.manager(orders(0)[0]) is manager
    assert manager.next_to_commit() is None


def test_a_poll_that_fails_changes_nothing_and_waits_for_the_next(cluster, caplog):
    cluster.failure = BrokerUnavailableError("no answer")
    cluster.clock.advance(INTERVAL_MS)

    assert cluster.partitions() == cluster.partitions() == orders(0, 1)

    assert cluster.polls == 2
    assert "partitions stay as they were" in caplog.text


def test_the_only_topic_is_closed_once_it_was_deleted(cluster, caplog):
    manager = cluster.coordinator.manager(orders(0)[0])
    plan = manager.plan(LogBounds(0, 5), max_offsets=5, now_ms=0)
    manager.emitted(plan.ranges[0], 0)
    cluster.log.delete("orders")

    for _ in range(2):
        cluster.coordinator.refresh()
        assert cluster.partitions() == orders(0, 1)
    cluster.coordinator.refresh()

    assert cluster.partitions() == []
    assert "Partitions orders-0 have been deleted" in caplog.text
    assert manager.counts.lost[LossReason.RECREATED] == 5


def test_a_topic_of_which_nobody_tells_whether_it_was_deleted_stays(cluster):
    cluster.log.delete("orders")
    cluster.is_hidden = True

    for _ in range(5):
        cluster.coordinator.refresh()

    assert cluster.partitions() == orders(0, 1)


def test_the_very_first_poll_must_succeed():
    cluster = Cluster(orders=1)
    cluster.failure = BrokerUnavailableError("no answer")

    with pytest.raises(BrokerUnavailableError):
        cluster.partitions()

    cluster.failure = None
    assert cluster.partitions() == orders(0)


def test_an_error_that_no_waiting_mends_goes_up(cluster):
    cluster.failure = AuthenticationError("refused")

    with pytest.raises(AuthenticationError):
        cluster.coordinator.refresh()


def test_a_manager_that_cannot_be_opened_is_tried_again_at_the_next_poll(caplog):
    cluster = Cluster(orders=2)
    cluster.managers.opening[orders(0)[0]] = StateUnavailableError("no answer")
    cluster.partitions()
    assert cluster.coordinator.manager(orders(0)[0]) is None
    assert "orders-0 cannot be opened yet" in caplog.text

    cluster.managers.opening.clear()
    cluster.coordinator.refresh()

    assert cluster.managers.events == ["open orders-1", "open orders-0"]


def test_a_new_partition_is_still_new_when_it_is_opened_late(cluster):
    cluster.log.add_partitions("orders", 3)
    cluster.managers.opening[orders(2)[0]] = StateUnavailableError("no answer")
    cluster.coordinator.refresh()

    cluster.managers.opening.clear()
    cluster.coordinator.refresh()

    assert cluster.managers.events == ["open orders-2 new"]


def test_an_owner_that_is_fenced_learns_of_it(cluster):
    cluster.managers.closing[orders(0)[0]] = FencedError("a newer owner")
    cluster.managers.opening[orders(2)[0]] = FencedError("a newer owner")

    with pytest.raises(FencedError):
        cluster.coordinator.close()
    cluster.log.add_partitions("orders", 3)
    with pytest.raises(FencedError):
        cluster.coordinator.refresh()


def test_closing_closes_all_managers_at_once_though_they_cannot_commit(cluster, caplog):
    cluster.managers.closing[orders(0)[0]] = StateUnavailableError("no answer")

    cluster.coordinator.close()
    cluster.coordinator.close()

    assert cluster.managers.events == ["close orders-0", "close orders-1"]
    assert "orders-0, orders-1 were closed without a commit" in caplog.text


def test_too_many_tasks_are_warned_of_once(caplog):
    cluster = Cluster(task=0, total=3, orders=2)

    cluster.coordinator.refresh()
    cluster.coordinator.refresh()

    assert [r.levelname for r in caplog.records].count("WARNING") == 1


def test_what_was_lost_and_gained_is_logged(caplog):
    caplog.set_level(logging.INFO)

    Cluster(orders=2).partitions()

    assert "lost none, gained orders-0, orders-1" in caplog.text


def test_a_poll_changes_nothing_before_its_answer_is_applied(cluster):
    cluster.log.add_partitions("orders", 3)

    take = cluster.coordinator.poll()

    assert list(cluster.coordinator.partitions) == orders(0, 1)
    assert cluster.managers.events == []
    take()
    assert list(cluster.coordinator.partitions) == orders(0, 1, 2)
    assert cluster.managers.events == ["open orders-2 new"]


def test_all_that_will_be_opened_is_prepared_together_and_no_more():
    cluster = Cluster(task=0, total=2, orders=5)

    cluster.coordinator.refresh()
    cluster.coordinator.refresh()

    assert cluster.managers.prepared == [orders(0, 2, 4)]


def test_the_share_has_partitions_without_a_leader_too():
    """Their stored offsets tell that an earlier run has read the topic."""
    cluster = Cluster(orders=2)
    cluster.log.set_leader(orders(0)[0], None)

    cluster.coordinator.refresh()

    assert cluster.managers.prepared == [orders(1)]
    assert cluster.managers.shares == [orders(0, 1)]


def test_what_cannot_be_prepared_is_opened_by_a_later_poll(caplog):
    cluster = Cluster(orders=2)
    cluster.managers.preparing = StateUnavailableError("no answer")
    cluster.coordinator.refresh()
    assert cluster.managers.events == []
    assert "orders-0, orders-1 cannot be opened yet" in caplog.text
    cluster.managers.preparing = None

    cluster.coordinator.refresh()

    assert cluster.managers.events == ["open orders-0", "open orders-1"]


def test_what_must_not_be_prepared_is_an_error():
    cluster = Cluster(orders=2)
    cluster.managers.preparing = FencedError("a newer owner")

    with pytest.raises(FencedError):
        cluster.coordinator.poll()


def test_it_is_due_when_the_answer_is_old():
    cluster = Cluster(orders=1)
    assert cluster.coordinator.is_due()
    cluster.partitions()
    assert not cluster.coordinator.is_due()

    cluster.clock.advance(INTERVAL_MS)

    assert cluster.coordinator.is_due()


def test_absent_topics_are_polled_for_sooner():
    cluster = Cluster()
    coordinator = RefreshingCoordinator(
        Discovery(cluster.describe, Topics(("orders",))),
        0,
        1,
        refresh_interval_ms=60_000,
        clock=cluster.clock,
        deleted=cluster.denied,
        managers=cluster.managers,
    )
    coordinator.refresh()
    assert not coordinator.is_due()

    cluster.clock.advance(5_000)
    assert coordinator.is_due()

    cluster.log.create("orders", 1)
    coordinator.refresh()
    cluster.clock.advance(5_000)
    assert not coordinator.is_due()


# --- fixed partitions ---------------------------------------------------------------


@pytest.fixture
def fixed():
    """A coordinator of two fixed partitions of three, over a cluster that has more."""
    made = Cluster(orders=4)
    made.fix(orders(1, 0, 2))
    return made


def test_fixed_partitions_are_shared_like_any_other(caplog):
    made = Cluster(orders=4, task=0, total=2)
    made.fix(orders(1, 0, 2))

    assert made.partitions() == orders(0, 2)
    assert made.managers.events == ["open orders-0", "open orders-2"]
    manager = made.coordinator.manager(orders(0)[0])
    assert manager is not None
    assert manager.leader == OTHER
    made.coordinator.close()
    assert made.managers.events[2:] == ["close orders-0", "close orders-2"]


def test_a_refresh_of_fixed_partitions_opens_only_what_is_missing(fixed):
    fixed.managers.opening[orders(0)[0]] = StateUnavailableError("no answer")
    fixed.partitions()
    fixed.managers.opening.clear()

    fixed.coordinator.refresh()
    fixed.coordinator.refresh()

    assert fixed.managers.events == ["open orders-1", "open orders-2", "open orders-0"]


def test_fixed_partitions_stay_whatever_brokers_say_of_them(fixed):
    fixed.failure = BrokerUnavailableError("away")
    assert fixed.partitions() == orders(0, 1, 2)
    fixed.failure = None
    fixed.log.create("clicks", 1)

    for _ in range(5):
        fixed.coordinator.refresh()

    assert fixed.partitions() == orders(0, 1, 2)


def test_a_refusal_to_describe_fixed_partitions_goes_up(fixed):
    fixed.failure = AuthenticationError("no")

    with pytest.raises(AuthenticationError):
        fixed.partitions()


def test_managers_of_fixed_partitions_learn_that_their_topic_was_made_anew(fixed):
    fixed.partitions()
    manager = fixed.coordinator.manager(orders(0)[0])
    assert manager is not None
    manager.topic_id = fixed.log.topics(Topics(("orders",)))["orders"].topic_id
    fixed.log.create("orders", 4)

    fixed.clock.advance(INTERVAL_MS)
    fixed.partitions()

    assert manager.is_recreated


def test_fixed_partitions_of_a_deleted_topic_are_closed_until_it_is_there_again(fixed):
    fixed.partitions()
    fixed.managers.events.clear()
    fixed.log.delete("orders")

    for _ in range(3):
        fixed.coordinator.refresh()
    assert (fixed.partitions(), fixed.coordinator.is_complete) == ([], True)
    fixed.log.create("orders", 4)
    fixed.coordinator.refresh()

    closed, opened = fixed.managers.events[:3], fixed.managers.events[3:]
    assert closed == [f"close {p}" for p in orders(0, 1, 2)]
    assert opened == [f"open {p} new" for p in orders(0, 1, 2)]


def test_a_task_index_outside_is_refused():
    with pytest.raises(ConfigError, match="task_index"):
        Cluster(task=3, total=2)
