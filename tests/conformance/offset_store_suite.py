"""What every OffsetStore promises, as one suite; a subclass gives ``open_offsets``."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from integration.promptness import promptly
from kafka_tx.errors import FencedError, StateError, StateLostError
from kafka_tx.model import Broker, CommittedOffset, TopicPartition

RUNS = ((120, 130), (131, 132), (10**12, 10**12 + 5))


class OffsetStoreSuite:
    """``open_offsets()`` opens the same offsets each time it is called.

    ``topic(name, partitions)`` makes a topic where the store needs one.
    """

    keeps_runs = True
    keeps_broker = True
    keeps_deployment = True
    keeps_time = True
    bare_epoch: int | None = None
    """The leader epoch that comes back with an offset that was stored without one."""
    shared = True
    """Several objects see the same offsets."""
    fences = True
    """Former owners are kept from writing."""
    topics_of_an_id = 2
    """How many topics with records it can list; 0: none."""
    many = 5_000
    many_s = 10.0

    @pytest.fixture
    def open_offsets(self):
        raise NotImplementedError

    @pytest.fixture
    def rewound(self):
        """``copy()`` and ``put_back()`` of all that is stored."""
        pytest.skip("it goes with its process")

    @pytest.fixture
    def topic(self):
        return lambda name, partitions=3: name

    @pytest.fixture
    def offsets(self, open_offsets):
        return open_offsets()

    def kept(self, committed):
        """What this kind of store can give back."""
        epoch = committed.leader_epoch
        return CommittedOffset(
            offset=committed.offset,
            completed=committed.completed if self.keeps_runs else (),
            topology_id=committed.topology_id if self.keeps_deployment else "",
            topology_name=committed.topology_name if self.keeps_deployment else "",
            broker=committed.broker if self.keeps_broker else None,
            topic_id=committed.topic_id,
            leader_epoch=self.bare_epoch if epoch is None else epoch,
            failures=committed.failures,
        )

    def test_it_says_how_much_and_how_long_it_keeps(self, offsets):
        renew_ms = offsets.renew_ms()

        assert renew_ms is None or renew_ms > 0
        assert offsets.retry_ms >= 0
        assert offsets.fitting(CommittedOffset(100)) == 0
        assert offsets.fitting(CommittedOffset(100, ((120, 130),))) == 1

    def test_partitions_without_a_record_are_left_out(self, offsets, topic):
        name = topic("orders")

        assert offsets.load([]) == {}
        assert offsets.load([TopicPartition(name, n) for n in range(3)]) == {}

    def test_topics_with_records_are_listed(self, open_offsets, topic):
        names = [topic("orders"), topic("clicks")]
        offsets = open_offsets()
        assert offsets.topics() == frozenset()
        for name in names[: max(1, self.topics_of_an_id)]:
            at = {TopicPartition(name, n): CommittedOffset(5) for n in range(3)}
            offsets.store(at)
        assert offsets.topics() == frozenset(names[: self.topics_of_an_id])

    def test_what_was_stored_comes_back(self, open_offsets, offsets, topic):
        one = TopicPartition(topic("orders"), 0)
        committed = CommittedOffset(
            offset=100,
            completed=RUNS,
            topology_id="deployment-7",
            topology_name="zählen",
            broker=Broker("broker-1", 9093),
            topic_id="bG9uZyBlbm91Z2ggdG8gYmUgYW4gaWQ",
            leader_epoch=0,
            failures=((100, 101, 3), (130, 140, 1)),
            committed_ms=1_700_000_000_000,
        )

        offsets.store({one: committed})

        reader = open_offsets() if self.shared else offsets
        found = reader.load([one])
        assert found == {one: self.kept(committed)}
        assert found[one].committed_ms == (
            committed.committed_ms if self.keeps_time else None
        )

    def test_a_bare_offset_comes_back_bare(self, offsets, topic):
        one = TopicPartition(topic("orders"), 0)

        offsets.store({one: CommittedOffset(0)})

        assert offsets.load([one]) == {one: self.kept(CommittedOffset(0))}

    def test_the_greatest_offset_fits(self, offsets, topic):
        one = TopicPartition(topic("orders"), 0)

        offsets.store({one: CommittedOffset(2**63 - 1)})

        assert offsets.load([one])[one].offset == 2**63 - 1

    def test_partitions_that_are_not_written_keep_theirs(self, offsets, topic):
        name = topic("orders")
        zero, one, two = (TopicPartition(name, n) for n in range(3))
        offsets.store({zero: CommittedOffset(1), one: CommittedOffset(2)})

        offsets.store({one: CommittedOffset(5), two: CommittedOffset(6)})
        offsets.store({})

        found = offsets.load([two, one, zero])
        assert {p: c.offset for p, c in found.items()} == {zero: 1, one: 5, two: 6}

    def test_an_offset_may_go_back(self, offsets, topic):
        one = TopicPartition(topic("orders"), 0)
        offsets.store({one: CommittedOffset(10, completed=((12, 13),))})

        offsets.store({one: CommittedOffset(3)})

        assert offsets.load([one]) == {one: self.kept(CommittedOffset(3))}

    def test_only_what_was_asked_for_is_loaded(self, offsets, topic):
        name = topic("orders")
        zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
        offsets.store({zero: CommittedOffset(1), one: CommittedOffset(2)})

        assert offsets.load([one]) == {one: self.kept(CommittedOffset(2))}

    def test_thousands_of_partitions_go_in_and_out(self, offsets, topic):
        name = topic("wide", self.many)
        wide = {
            TopicPartition(name, n): CommittedOffset(10**9 + n, topology_id="d")
            for n in range(self.many)
        }

        def stored():
            offsets.store(wide)
            offsets.store(wide)
            return offsets.load(wide)

        found = promptly(stored, self.many_s)

        assert found == {p: self.kept(c) for p, c in wide.items()}

    def test_a_tool_that_acquired_nothing_may_write(self, open_offsets, topic):
        one = TopicPartition(topic("orders"), 0)
        owner = open_offsets()
        owner.acquire()
        owner.store({one: CommittedOffset(5)})

        tool = open_offsets() if self.shared else owner
        tool.store({one: CommittedOffset(2)})

        assert owner.load([one]) == {one: self.kept(CommittedOffset(2))}
        owner.store({one: CommittedOffset(6)})

    def test_a_former_owner_stores_no_more(self, open_offsets, topic):
        if not self.fences:
            assert open_offsets().acquire() == 0
            return
        one = TopicPartition(topic("orders"), 0)
        former, owner = open_offsets(), open_offsets()
        first = former.acquire()
        former.store({one: CommittedOffset(5)})

        second = owner.acquire()

        assert 1 <= first < second
        with pytest.raises(FencedError):
            former.store({one: CommittedOffset(9)})
        with pytest.raises(FencedError) as caught:
            former.store({one: CommittedOffset(9)})
        fields = caught.value.fields
        assert (fields["held"], fields["stored"]) == (first, second)
        assert owner.load([one]) == {one: CommittedOffset(5)}
        owner.store({one: CommittedOffset(6)})
        assert former.load([one]) == {one: CommittedOffset(6)}

    def test_an_owner_that_has_not_stored_yet_is_fenced_too(self, open_offsets, topic):
        if not self.fences:
            return
        former, owner = open_offsets(), open_offsets()
        former.acquire()
        owner.acquire()

        with pytest.raises(FencedError):
            former.store({TopicPartition(topic("orders"), 0): CommittedOffset(9)})

    def test_tasks_that_share_the_offsets_do_not_fence_each_other(
        self, open_offsets, topic
    ):
        if not self.fences:
            return
        name = topic("orders")
        zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
        left, right = open_offsets(), open_offsets()
        left.acquire(0, 2)
        left.store({zero: CommittedOffset(1)})
        right.acquire(1, 2)

        left.store({zero: CommittedOffset(3)})
        right.store({one: CommittedOffset(4)})
        again = open_offsets()
        again.acquire(1, 2)

        left.store({zero: CommittedOffset(5)})
        with pytest.raises(FencedError):
            right.store({one: CommittedOffset(9)})

    def test_an_owner_that_shares_otherwise_fences_all_tasks(self, open_offsets, topic):
        if not self.fences:
            return
        one = TopicPartition(topic("orders"), 0)
        tasks = [open_offsets(), open_offsets()]
        for number, task in enumerate(tasks):
            task.acquire(number, 2)

        open_offsets().acquire(0, 1)

        for task in tasks:
            with pytest.raises(FencedError):
                task.store({one: CommittedOffset(9)})

    def test_of_many_owners_at_once_one_is_left(self, open_offsets, topic):
        if not self.fences:
            return
        one = TopicPartition(topic("orders"), 0)
        owners = [open_offsets() for _ in range(4)]

        with ThreadPoolExecutor(4) as pool:
            epochs = list(pool.map(lambda owner: owner.acquire(), owners))

        assert len(set(epochs)) == 4
        stored = []
        for epoch, owner in zip(epochs, owners, strict=True):
            with suppress(FencedError):
                owner.store({one: CommittedOffset(epoch)})
                stored.append(epoch)
        assert stored == [max(epochs)]

    def test_a_store_that_went_back_is_left_alone(self, open_offsets, topic, rewound):
        one = TopicPartition(topic("orders"), 0)
        owner = open_offsets()
        owner.acquire()
        owner.store({one: CommittedOffset(5)})
        rewound.copy()
        owner.store({one: CommittedOffset(6)})
        owner.store({})

        rewound.put_back()

        for offsets in ({one: CommittedOffset(7)}, {one: CommittedOffset(6)}):
            with pytest.raises(StateLostError, match="Start again") as error:
                owner.store(offsets)
            assert "offsets set" not in str(error.value), "it refuses these ids"
            assert "ignore_stored_offsets=True" in str(error.value)
        again = open_offsets()
        again.acquire()
        assert again.load([one])[one].offset == 5
        again.store({one: CommittedOffset(6)})

    def test_an_idle_owner_notices_too(self, open_offsets, topic, rewound):
        if not self.fences:
            return
        owner = open_offsets()
        owner.acquire()
        rewound.copy()
        owner.store({TopicPartition(topic("orders"), 0): CommittedOffset(6)})

        rewound.put_back()

        with pytest.raises(StateLostError):
            owner.store({})

    def test_an_owner_that_came_after_the_store_went_back_is_alone(
        self, open_offsets, topic, rewound
    ):
        if not self.fences:
            return
        one = TopicPartition(topic("orders"), 0)
        rewound.copy()
        former, owner = open_offsets(), open_offsets()
        epoch = former.acquire()

        rewound.put_back()

        assert owner.acquire() == epoch
        with pytest.raises(StateLostError):
            former.store({one: CommittedOffset(6)})
        owner.store({one: CommittedOffset(5)})

    def test_closing_twice_is_harmless(self, offsets, topic):
        offsets.store({TopicPartition(topic("orders"), 0): CommittedOffset(1)})

        offsets.close()
        offsets.close()

    def test_closing_before_any_use_is_harmless(self, offsets):
        offsets.close()

    def test_it_is_never_pickled(self, offsets):
        with pytest.raises(StateError, match="each process opens its own"):
            pickle.dumps(offsets)
