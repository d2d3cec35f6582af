"""Where partitions begin, asked for all at once, and what is stored at their end."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

from kafka_tx.assembly import SystemClock
from kafka_tx.errors import (
    BrokerUnavailableError,
    DataLossError,
    StateCorruptedError,
    StateError,
)
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    AtTime,
    CommittedOffset,
    Earliest,
    Latest,
    LogBounds,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.offsets.start import StartRules
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper
from kafka_tx.running.at_least_once.spout import SpoutManagers
from kafka_tx.testing import MEMORY_BROKER, ManualClock, MemoryLog
from kafka_tx.transactions.ownership.memory import MemoryOffsetStore
from tests.growing_log import Growing

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Offsets(MemoryOffsetStore):
    """Counts questions; its records may be unreadable."""

    def __init__(self):
        super().__init__()
        self.asked, self.is_broken = [], False

    def load(self, partitions):
        self.asked.append(sorted(partitions))
        if self.is_broken:
            raise StateCorruptedError("not an offset")
        return super().load(partitions)


class Log(MemoryLog):
    """Counts looks."""

    polls = 0

    def bounds(self, partitions):
        self.polls += 1
        return {p: self.answered(b) for p, b in super().bounds(partitions).items()}

    def answered(self, bounds):
        return bounds


@pytest.fixture
def log():
    made = Log({"t": 2})
    for n in range(10):
        made.append(P0, b"v", timestamp_ms=n)
        made.append(P1, b"v", timestamp_ms=n)
    return made


@pytest.fixture
def store():
    return Offsets()


@pytest.fixture
def registry():
    return MetricsRegistry()


@pytest.fixture
def managers(log, store, registry):
    keepers = []

    def make(prepared=(P0, P1), **start):
        keepers.append(OffsetKeeper("job", store, registry, SystemClock()))
        rules = PartitionRules(topology_id=start.get("topology_id", ""))
        made = SpoutManagers(rules, StartRules(**start), log, keepers[-1], registry)
        made.prepare(prepared)
        return made

    yield make
    for keeper in keepers:
        assert keeper.close(60)


@contextmanager
def closing_keeper(store, registry):
    keeper = OffsetKeeper("job", store, registry, SystemClock())
    try:
        yield keeper
    finally:
        assert keeper.close(60)


def test_all_partitions_are_looked_up_at_once(managers, log, store):
    made = managers()

    for partition in (P0, P1):
        made.open(partition, MEMORY_BROKER, is_new=False)

    assert store.asked == [[P0, P1]]
    assert log.polls == 1


def test_a_stored_offset_comes_before_the_start_position(managers, store):
    store.store({P0: CommittedOffset(4, ((6, 8),))})
    made = managers(position=Latest())

    first = made.open(P0, None, is_new=False)
    second = made.open(P1, None, is_new=False)

    assert (first.emitted_to, second.emitted_to) == (4, 0)
    assert (first.committed_to, second.committed_to) == (4, None)


def test_without_any_stored_offset_all_begin_at_the_start_position(managers):
    made = managers(position=Latest())

    begun = [made.open(p, None, is_new=False).emitted_to for p in (P0, P1)]

    assert begun == [10, 10]


def test_a_partition_was_added_also_if_those_that_were_read_have_no_leader_now(
    managers, store, registry
):
    """Only stored offsets tell it from a first start, and P0's cannot be opened."""
    store.store({P0: CommittedOffset(4)})
    made = managers(prepared=(), position=Latest())

    made.prepare([P1], [P0, P1])

    assert made.open(P1, None, is_new=False).emitted_to == 0
    assert P0 not in registry.positions_of("job")  # it may become another task's
    made.prepare([P0], [P0, P1])
    assert made.open(P0, None, is_new=False).emitted_to == 4


@pytest.mark.parametrize("policy", list(OutOfRange))
@pytest.mark.parametrize("position", [Latest(), AtTime(10_000)])
def test_records_that_arrive_while_it_asks_make_no_loss(
    log, registry, policy, position
):
    """The end of the log moves on between two questions."""

    class Busy(MemoryLog):
        def bounds(self, partitions):
            self.append(P0, b"v", timestamp_ms=20_000)
            found = super().bounds(partitions)
            self.append(P0, b"v", timestamp_ms=20_001)
            return found

    log = Busy({"t": 1})
    log.append(P0, b"v", timestamp_ms=1)
    with closing_keeper(MemoryOffsetStore(), registry) as keeper:
        rules = StartRules(position=position, out_of_range=policy)
        made = SpoutManagers(PartitionRules(), rules, log, keeper, registry)
        made.prepare([P0])

        assert made.open(P0, MEMORY_BROKER, is_new=False).emitted_to in (1, 2)

    assert not registry.samples().get("kafka_tx_skipped_offsets_total")


class Forgetful(Offsets):
    """A store that drops what is not written again."""

    def renew_ms(self):
        return 1_000


@pytest.mark.parametrize("position", [Latest(), Earliest()])
def test_offsets_that_a_store_forgot_are_no_fresh_start(log, registry, position):
    store = Forgetful()
    store.store({P1: CommittedOffset(4)})
    keeper = OffsetKeeper("job", store, registry, SystemClock())
    keeper.acquire(0, 1)
    rules = StartRules(position=position)
    made = SpoutManagers(PartitionRules(), rules, log, keeper, registry)

    with pytest.raises(StateError, match="none of t-0") as caught:
        made.prepare([P0, P1])
    assert "--group job --reset-offsets --topic t:0 --execute" in str(caught.value)

    store.store({P0: CommittedOffset(7)})
    made.prepare([P0, P1])
    assert made.open(P0, None, is_new=False).emitted_to == 7
    assert keeper.close(60)


def test_a_record_that_comes_as_no_one_matches_the_start_time_is_read(
    managers, log, monkeypatch
):
    monkeypatch.setattr(log, "_at", Growing(log))

    made = managers(position=AtTime(99))

    assert made.open(P0, MEMORY_BROKER, is_new=False).emitted_to == 10


def test_a_partition_that_waits_keeps_the_start_that_was_found_first(
    managers, log, monkeypatch
):
    made = managers(prepared=(), position=Latest())
    unknown = dict.fromkeys([P0, P1], Unavailable("no answer"))
    with monkeypatch.context() as patch:
        patch.setattr(log, "bounds", lambda partitions: unknown)
        patch.setattr(log, "offsets", lambda wanted: dict.fromkeys(wanted, 10))
        made.prepare([P0, P1])
        with pytest.raises(BrokerUnavailableError):
            made.open(P0, MEMORY_BROKER, is_new=False)
    log.append(P0, b"v", b"v")

    made.prepare([P0, P1])

    assert made.open(P0, MEMORY_BROKER, is_new=False).emitted_to == 10


def test_a_start_in_a_topic_that_is_made_anew_meanwhile_is_asked_for_again(
    managers, log
):
    made = managers(position=Latest())
    log.create("t", 2)

    made.prepare([P0, P1])
    with pytest.raises(BrokerUnavailableError, match="created anew"):
        made.open(P0, MEMORY_BROKER, is_new=False)
    log.append(P0, b"v")
    made.prepare([P0, P1])

    assert made.open(P0, MEMORY_BROKER, is_new=False).emitted_to == 1


def test_a_start_time_is_looked_up(managers):
    made = managers(position=AtTime(7))

    assert made.open(P0, None, is_new=False).emitted_to == 7


def test_a_partition_that_appears_later_begins_at_its_beginning(managers, store):
    store.store({P1: CommittedOffset(3)})
    made = managers(position=Latest())

    assert made.open(P0, None, is_new=True).emitted_to == 0
    assert made.open(P1, None, is_new=True).emitted_to == 3


def test_what_a_partition_lost_before_it_appeared_is_counted(managers, log, registry):
    log.trim(P0, 6)

    assert managers().open(P0, None, is_new=True).emitted_to == 6
    counted = registry.samples()["kafka_tx_skipped_offsets_total"]
    assert list(counted.values()) == [(6.0,)]
    with pytest.raises(DataLossError):
        managers(out_of_range=OutOfRange.FAIL).open(P0, None, is_new=True)


def test_a_partition_that_had_no_leader_at_first_has_lost_nothing(log, managers):
    log.trim(P0, 6)
    made = managers(position=Latest(), out_of_range=OutOfRange.FAIL)

    assert made.open(P0, None, is_new=True, is_awaited=True).emitted_to == 6


def test_another_deployments_offset_can_be_ignored(managers, store):
    store.store({P0: CommittedOffset(4, topology_id="release-1")})

    again = managers(topology_id="release-1", ignore_stored_offsets=True)
    assert again.open(P0, None, is_new=False).emitted_to == 4
    other = managers(topology_id="release-2", ignore_stored_offsets=True)
    assert other.open(P0, None, is_new=False).emitted_to == 0


def test_a_partition_added_while_it_was_stopped_is_read_from_its_beginning(
    managers, store
):
    """Also where offsets of other deployments are ignored: these are its own."""
    store.store({P0: CommittedOffset(4, topology_id="one")})
    given = {"position": Latest(), "ignore_stored_offsets": True}

    again = managers(topology_id="one", **given)
    assert again.open(P1, None, is_new=False).emitted_to == 0
    other = managers(topology_id="two", **given)
    assert other.open(P1, None, is_new=False).emitted_to == 10


def test_what_was_trimmed_before_the_start_is_counted_as_skipped(
    managers, log, store, registry
):
    store.store({P0: CommittedOffset(2)})
    log.trim(P0, 5)

    assert managers().open(P0, None, is_new=False).emitted_to == 5

    skipped = registry.samples()["kafka_tx_skipped_offsets_total"]
    assert skipped["job", "t", "0", "retention"] == (3,)


def test_an_unreadable_record_is_an_error_and_no_reason_to_start_anew(managers, store):
    store.is_broken = True

    with pytest.raises(StateCorruptedError):
        managers()


def test_a_partition_without_a_leader_is_opened_later(managers, log):
    log.set_leader(P0, None)
    made = managers()
    with pytest.raises(BrokerUnavailableError, match="t-0: no leader"):
        made.open(P0, None, is_new=False)

    log.set_leader(P0, MEMORY_BROKER)
    made.prepare([P0])
    assert made.open(P0, MEMORY_BROKER, is_new=False).emitted_to == 0


def test_what_was_not_looked_up_waits_for_the_next_look(managers):
    made = managers(prepared=[P1])

    with pytest.raises(BrokerUnavailableError, match="t-0 has not been polled"):
        made.open(P0, None, is_new=False)


def test_closing_stores_what_is_completed(managers, store):
    made = managers(topology_id="release-1")
    manager = made.open(P0, MEMORY_BROKER, is_new=False)
    plan = manager.plan(LogBounds(0, 10, "id-1"), max_offsets=5, now_ms=0)
    manager.emitted(plan.fresh, 0)
    manager.ack(0)
    manager.ack(3)

    made.close([manager])

    stored = store.load([P0])[P0]
    assert (stored.offset, stored.completed) == (1, ((3, 4),))
    assert (stored.topology_id, stored.broker) == ("release-1", MEMORY_BROKER)
    assert manager.committed_to == 1


@pytest.fixture
def made_and_clock(log, registry, store):
    """Managers that go by a clock that is moved by hand, and that clock."""
    clock = ManualClock()
    store.store({P0: CommittedOffset(10, topic_id="id-1", leader_epoch=0)})
    keeper = OffsetKeeper("job", store, registry, clock)
    yield SpoutManagers(PartitionRules(), StartRules(), log, keeper, registry), clock
    assert keeper.close(60)


def test_an_end_below_the_stored_offset_is_polled_again_before_it_counts(
    made_and_clock, log
):
    made, clock = made_and_clock
    log.cut(P0, 7)
    for _ in range(2):
        made.prepare([P0])
        with pytest.raises(BrokerUnavailableError, match="next poll decides"):
            made.open(P0, None, is_new=False)
        clock.advance(5_000)

    made.prepare([P0])
    opened = made.open(P0, None, is_new=False)

    assert (opened.emitted_to, opened.topic_id) == (7, "id-1")
    assert opened.next_to_commit() is not None


def test_other_records_below_the_stored_offset_are_read(made_and_clock, log):
    made, _ = made_and_clock
    log.elect(P0, 7)
    log.append(P0, *[b"other"] * 9)
    made.prepare([P0])

    opened = made.open(P0, None, is_new=False)

    assert (opened.emitted_to, opened.leader_epoch) == (7, 1)
    assert opened.next_to_commit() is not None


def test_an_offset_of_another_program_is_checked_by_its_leader_epoch(
    made_and_clock, log, store
):
    """Of a group: without a topic id, which brokers drop with the topic."""
    made, _ = made_and_clock
    store.store({P0: CommittedOffset(10, leader_epoch=0)})
    log.elect(P0, 7)
    log.append(P0, *[b"other"] * 9)
    made.prepare([P0])

    opened = made.open(P0, None, is_new=False)

    assert (opened.emitted_to, opened.topic_id) == (7, "id-1")


def test_other_records_at_offsets_that_are_stored_as_completed_are_read(
    made_and_clock, log, store
):
    made, _ = made_and_clock
    stored = CommittedOffset(3, ((5, 6), (7, 10)), topic_id="id-1", leader_epoch=0)
    store.store({P0: stored})
    log.elect(P0, 8)
    log.append(P0, *[b"other"] * 9)
    made.prepare([P0])

    opened = made.open(P0, None, is_new=False)

    wanted = opened.next_to_commit()
    assert wanted is not None
    assert (wanted.offset, wanted.completed) == (3, ((5, 6), (7, 8)))


def test_a_stored_offset_waits_for_a_new_leader_that_does_not_answer(
    made_and_clock, log, monkeypatch
):
    made, _ = made_and_clock
    log.elect(P0)
    monkeypatch.setattr(log, "epoch_ends", lambda wanted: {})
    made.prepare([P0])

    with pytest.raises(BrokerUnavailableError, match="that of leader epoch 0"):
        made.open(P0, None, is_new=False)


def test_an_end_that_was_an_old_answer_costs_nothing(made_and_clock, log):
    made, _ = made_and_clock
    log.cut(P0, 7)
    made.prepare([P0])
    with pytest.raises(BrokerUnavailableError):
        made.open(P0, None, is_new=False)

    log.append(P0, b"v", b"v", b"v")
    made.prepare([P0])

    assert made.open(P0, None, is_new=False).emitted_to == 10


def test_a_topic_made_anew_between_two_polls_is_read_whole(made_and_clock, log):
    made, clock = made_and_clock
    log.create("t", 2)
    made.prepare([P0])
    with pytest.raises(BrokerUnavailableError, match="anew"):
        made.open(P0, None, is_new=False)
    clock.advance(1_000)

    made.prepare([P0])
    opened = made.open(P0, None, is_new=False)

    assert (opened.emitted_to, opened.topic_id) == (0, "id-2")


def test_a_stored_offset_waits_while_nobody_tells_whose_the_log_is(made_and_clock, log):
    made, _ = made_and_clock
    former, log.answered = log.answered, lambda bounds: replace(bounds, topic_id=None)
    made.prepare([P0])
    with pytest.raises(BrokerUnavailableError, match="no broker tells whether"):
        made.open(P0, None, is_new=False)
    log.answered = former

    made.prepare([P0])

    assert made.open(P0, None, is_new=False).emitted_to == 10
