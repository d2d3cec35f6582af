import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.errors import (
    ConfigError,
    FencedError,
    OutOfOrderError,
    StateConflictError,
    StateCorruptedError,
    StateUnavailableError,
)
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from kafka_tx.transactions.ownership.memory import MemoryStore

P0, P1, Q0 = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("quotes", 0),
)
NOW_MS = 1_700_000_000_000

names = itertools.count()


@pytest.fixture
def store():
    return MemoryStore(f"ledger-{next(names)}", "orders")


@pytest.fixture
def ledger(store):
    return Ledger(store)


def batch(txid, *ranges, ids=None):
    return BatchMetadata(txid, tuple(OffsetRange(*r) for r in ranges), ids or {})


def hundred(txid):
    """Txid n holds offsets [100 (n-1), 100 n) of one partition."""
    return batch(txid, (P0, 100 * (txid - 1), 100 * txid))


def test_an_unused_id_has_no_history(ledger):
    state = ledger.load()

    assert (state.epoch, state.committed, dict(state.planned)) == (0, None, {})
    assert state.txid == 0


def test_a_planned_batch_is_unfinished_until_it_is_committed(ledger):
    epoch = ledger.acquire()
    planned = batch(1, (P0, 0, 10), (P1, 5, 5), ids={"orders": "abc"})

    ledger.plan(epoch, planned)

    assert ledger.load().unfinished == {1: planned}
    assert ledger.load().committed is None

    assert ledger.commit(epoch, 1, NOW_MS)

    state = ledger.load()
    assert state.committed == Committed(1, {P0: 10, P1: 5}, {"orders": "abc"}, NOW_MS)
    assert state.unfinished == {}


def test_a_commit_keeps_the_offsets_and_topic_ids_of_partitions_not_in_the_batch(
    ledger,
):
    epoch = ledger.acquire()
    ledger.plan(epoch, batch(1, (P0, 0, 10), (Q0, 0, 7), ids={"quotes": "q1"}))
    ledger.plan(epoch, batch(2, (P0, 10, 20), (P1, 0, 3), ids={"orders": "o1"}))

    ledger.commit(epoch, 1, NOW_MS)
    ledger.commit(epoch, 2, NOW_MS)

    committed = ledger.load().committed
    assert committed.offsets == {P0: 20, P1: 3, Q0: 7}
    assert committed.topic_ids == {"quotes": "q1", "orders": "o1"}


def test_a_batch_without_records_is_known_by_its_name_and_carried_by_none(ledger):
    epoch = ledger.acquire()
    ledger.plan(epoch, hundred(1))
    ledger.commit(epoch, 1, NOW_MS)
    empty = BatchMetadata(2, (OffsetRange(P0, 100, 100),), {}, "query/7")

    ledger.plan(epoch, empty)

    assert ledger.load().batch_of("query/7") == empty
    assert ledger.load().batch_of("query/8") is None
    ledger.commit(epoch, 2, NOW_MS)
    state = ledger.load()
    assert state.batch_of("query/7") == empty
    assert (state.committed.txid, state.committed.carried) == (2, 1)
    assert state.committed.offsets == {P0: 100}
    ledger.plan(epoch, batch(3, (P0, 100, 200)))
    ledger.commit(epoch, 3, NOW_MS)
    assert ledger.load().committed.carried == 3


def test_metadata_of_the_committed_txid_stays_and_lower_ones_go(ledger):
    epoch = ledger.acquire()
    for txid in (1, 2, 3):
        ledger.plan(epoch, hundred(txid))

    ledger.commit(epoch, 1, NOW_MS)
    ledger.commit(epoch, 2, NOW_MS)

    assert ledger.load().planned == {2: hundred(2), 3: hundred(3)}


def test_txids_are_listed_by_number_not_by_text(ledger):
    epoch = ledger.acquire()
    for txid in range(1, 13):
        ledger.plan(epoch, hundred(txid))

    assert list(ledger.load().planned) == list(range(1, 13))


def test_a_second_commit_of_a_txid_changes_nothing(ledger, store):
    epoch = ledger.acquire()
    ledger.plan(epoch, hundred(1))
    ledger.commit(epoch, 1, NOW_MS)
    before = store.snapshot()

    assert not ledger.commit(epoch, 1, NOW_MS + 5)

    assert store.snapshot() == before


@pytest.mark.parametrize("txid", [0, 1, 4])
def test_a_txid_out_of_its_turn_cannot_be_planned(ledger, txid):
    epoch = ledger.acquire()
    ledger.plan(epoch, hundred(1))
    ledger.commit(epoch, 1, NOW_MS)
    ledger.plan(epoch, hundred(2))

    with pytest.raises(OutOfOrderError, match=f"txid {txid} of 'orders'"):
        ledger.plan(epoch, batch(txid, (P0, 0, 1)))


def test_a_txid_cannot_be_committed_before_the_one_below_it(ledger):
    epoch = ledger.acquire()
    ledger.plan(epoch, hundred(1))
    ledger.plan(epoch, hundred(2))

    with pytest.raises(OutOfOrderError, match="committed is 0"):
        ledger.commit(epoch, 2, NOW_MS)

    assert ledger.load().txid == 0


def test_a_txid_without_ranges_cannot_be_committed(ledger):
    epoch = ledger.acquire()

    with pytest.raises(OutOfOrderError, match="unfinished: none"):
        ledger.commit(epoch, 1, NOW_MS)


def test_the_same_ranges_can_be_planned_again(ledger):
    epoch = ledger.acquire()
    ledger.plan(epoch, batch(1, (P0, 0, 3), (P1, 0, 4)))
    ledger.plan(epoch, hundred(2))

    ledger.plan(epoch, batch(1, (P1, 0, 4), (P0, 0, 3)))

    assert list(ledger.load().planned) == [1, 2]


def test_other_ranges_for_a_planned_txid_are_refused(ledger):
    epoch = ledger.acquire()
    ledger.plan(epoch, batch(1, (P0, 0, 3)))

    with pytest.raises(OutOfOrderError, match="planned with other ranges"):
        ledger.plan(epoch, batch(1, (P0, 0, 4)))


def test_replacing_a_txid_drops_the_ones_that_began_where_it_ended(ledger):
    epoch = ledger.acquire()
    for txid in (1, 2, 3):
        ledger.plan(epoch, hundred(txid))
    ledger.commit(epoch, 1, NOW_MS)
    other = batch(2, (P0, 100, 150))

    ledger.plan(epoch, other, replace=True)

    assert ledger.load().unfinished == {2: other}


def test_a_committed_txid_cannot_be_replaced(ledger):
    epoch = ledger.acquire()
    ledger.plan(epoch, hundred(1))
    ledger.commit(epoch, 1, NOW_MS)

    with pytest.raises(OutOfOrderError):
        ledger.plan(epoch, batch(1, (P0, 0, 4)), replace=True)


def test_a_txid_without_metadata_does_not_commit(ledger):
    epoch = ledger.acquire()

    with pytest.raises(OutOfOrderError):
        ledger.commit(epoch, 1, NOW_MS)
    ledger.plan(epoch, hundred(1))
    with pytest.raises(OutOfOrderError):
        ledger.commit(epoch, 2, NOW_MS)


@pytest.mark.parametrize(
    "step",
    [
        lambda ledger, epoch: ledger.plan(epoch, hundred(3)),
        lambda ledger, epoch: ledger.plan(epoch, hundred(2)),
        lambda ledger, epoch: ledger.plan(epoch, hundred(9)),
        lambda ledger, epoch: ledger.plan(epoch, batch(2, (P0, 100, 101))),
        lambda ledger, epoch: ledger.commit(epoch, 1, NOW_MS),
        lambda ledger, epoch: ledger.commit(epoch, 2, NOW_MS),
        lambda ledger, epoch: ledger.commit(epoch, 9, NOW_MS),
        lambda ledger, epoch: ledger.adopt(epoch, Committed(5, {P0: 1})),
    ],
)
def test_a_former_owner_is_fenced_whatever_it_tries(ledger, store, step):
    former = ledger.acquire()
    ledger.plan(former, hundred(1))
    ledger.commit(former, 1, NOW_MS)
    ledger.plan(former, hundred(2))
    ledger.acquire()
    before = store.snapshot()

    with pytest.raises(FencedError, match="another owner of id 'orders' took over"):
        step(ledger, former)

    assert store.snapshot() == before


def test_an_adopted_position_is_where_the_next_txid_begins(ledger):
    epoch = ledger.acquire()
    ledger.plan(epoch, hundred(1))
    ledger.plan(epoch, hundred(2))
    taken = Committed(7, {P0: 700}, {"orders": "o1"}, NOW_MS)

    ledger.adopt(epoch, taken)

    assert ledger.load().committed == taken
    assert dict(ledger.load().planned) == {}
    ledger.plan(epoch, hundred(8))
    assert ledger.commit(epoch, 8, NOW_MS)


def test_an_adopted_start_position_is_txid_zero(ledger):
    epoch = ledger.acquire()

    ledger.adopt(epoch, Committed(0, {P0: 42}))

    assert ledger.load().txid == 0
    assert ledger.load().committed.offsets == {P0: 42}
    ledger.plan(epoch, hundred(1))


@pytest.mark.parametrize("wrong", [Committed(-1, {}), Committed(1, {P0: -1})])
def test_a_negative_position_is_not_adopted(ledger, wrong):
    with pytest.raises(ConfigError, match="at least 0"):
        ledger.adopt(ledger.acquire(), wrong)


def tamper(store, put=(), delete=()):
    store.write(store.epoch(), dict(put), delete)


def committed_twice(ledger):
    epoch = ledger.acquire()
    for txid in (1, 2, 3, 4):
        ledger.plan(epoch, hundred(txid))
    ledger.commit(epoch, 1, NOW_MS)
    ledger.commit(epoch, 2, NOW_MS)
    return epoch


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("committed", "{", "not JSON"),
        ("currtx", records.encode("currtx", 9), "it says 9, 'committed' 3"),
        ("currtx", records.encode("currtx", {}), "makes no sense"),
        ("meta/3", records.encode("batch", {"txid": 3}), "makes no sense"),
        (
            "meta/3",
            records.encode(
                "batch", {"txid": 3, "ranges": {"t": {"0": [5, 1]}}, "topic_ids": {}}
            ),
            "0 <= start <= end",
        ),
        (
            "meta/3",
            records.encode("batch", {"txid": 4, "ranges": {}, "topic_ids": {}}),
            "record of txid 4",
        ),
        ("meta/x", records.encode("batch", {}), "no txid"),
        ("meta/05", records.encode("batch", {}), "no txid"),
        ("meta/6", None, "missing"),
    ],
)
def test_an_unreadable_record_stops_everything_that_needs_it(
    ledger, store, path, text, reason
):
    epoch = committed_twice(ledger)
    if text is None:
        ledger.plan(epoch, hundred(5))
        ledger.plan(epoch, hundred(6))
        ledger.plan(epoch, hundred(7))
        tamper(store, delete=[path])
    else:
        tamper(store, {path: text})

    for step in (
        ledger.load,
        lambda: ledger.plan(epoch, hundred(5)),
        lambda: ledger.commit(epoch, 3, NOW_MS),
    ):
        with pytest.raises(StateCorruptedError, match=reason) as caught:
            step()
        assert caught.value.fields["path"] == path
        assert "kafka-tx offsets repair" in str(caught.value)


def test_a_position_can_be_adopted_over_unreadable_records(ledger, store):
    epoch = committed_twice(ledger)
    tamper(store, {"committed": "?", "meta/3": "?", "meta/x": "?"})

    tool = Ledger(store)

    tool.adopt(epoch, Committed(2, {P0: 200}))

    assert tool.load().txid == 2
    assert dict(tool.load().planned) == {}


class Interrupted(MemoryStore):
    """Runs something once, between the next reading and the write that follows it."""

    def __init__(self, name, meanwhile):
        super().__init__(name, "orders")
        self.meanwhile = meanwhile

    def write(self, epoch, put, delete=(), *, expect=None):
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        super().write(epoch, put, delete, expect=expect)


def test_a_slow_commit_does_not_take_the_ledger_back(ledger, store):
    epoch = ledger.acquire()
    ledger.plan(epoch, hundred(1))
    ledger.plan(epoch, hundred(2))

    def the_other_process_commits_both():
        ledger.commit(epoch, 1, NOW_MS)
        ledger.commit(epoch, 2, NOW_MS)

    name = store.url.removeprefix("memory:")
    slow = Ledger(Interrupted(name, the_other_process_commits_both))

    assert not slow.commit(epoch, 1, NOW_MS)

    assert ledger.load().txid == 2


def test_a_batch_that_was_committed_meanwhile_is_not_replaced(ledger, store):
    epoch = ledger.acquire()
    ledger.plan(epoch, hundred(1))
    name = store.url.removeprefix("memory:")
    slow = Ledger(Interrupted(name, lambda: ledger.commit(epoch, 1, NOW_MS)))

    with pytest.raises(OutOfOrderError):
        slow.plan(epoch, batch(1, (P0, 0, 4)), replace=True)

    assert ledger.load().planned == {1: hundred(1)}


class Counting(MemoryStore):
    """Counts writes; ``fails`` is raised by the next one, before it lands."""

    def __init__(self, name):
        super().__init__(name, "orders")
        self.writes = 0
        self.fails = None

    def write(self, epoch, put, delete=(), *, expect=None):
        if self.fails is not None:
            fails, self.fails = self.fails, None
            raise fails
        self.writes += 1
        super().write(epoch, put, delete, expect=expect)


@pytest.fixture
def counting(store):
    return Counting(store.url.removeprefix("memory:"))


@pytest.fixture
def planner(counting):
    """A ledger that has planned txid 1."""
    ledger = Ledger(counting)
    ledger.plan(ledger.acquire(), hundred(1))
    counting.writes = 0
    return ledger


def test_a_commit_and_the_next_plan_are_one_write(planner, counting, ledger):
    told: list[bool] = []

    planner.commit_with_next(1, 1, NOW_MS, told.append)

    assert planner.state.txid == 1
    assert (ledger.load().txid, counting.writes, told) == (0, 0, [])

    planner.plan(1, hundred(2))

    assert (counting.writes, told) == (1, [True])
    assert ledger.load() == planner.load()
    assert (ledger.state.txid, ledger.state.unfinished) == (1, {2: hundred(2)})


def test_a_delayed_commit_without_a_plan_is_written_once(planner, counting, ledger):
    told: list[bool] = []
    planner.commit_with_next(1, 1, NOW_MS, told.append)

    planner.settle()
    planner.settle()

    assert (ledger.load().txid, counting.writes, told) == (1, 1, [True])


@pytest.mark.parametrize(
    "step",
    [
        lambda ledger: ledger.load(),
        lambda ledger: ledger.check(1),
        lambda ledger: ledger.acquire(),
        lambda ledger: ledger.note_question(1),
        lambda ledger: ledger.commit_with_next(1, 2, NOW_MS, lambda _: None),
    ],
)
def test_whatever_comes_after_a_delayed_commit_finds_it(planner, ledger, step):
    planner.plan(1, hundred(2))
    planner.commit_with_next(1, 1, NOW_MS, lambda _: None)

    step(planner)

    assert ledger.load().txid == 1
    assert planner.state.txid >= 1


def test_a_plan_joins_the_commit_of_the_other_process(planner, ledger):
    told: list[bool] = []
    planner.commit_with_next(1, 1, NOW_MS, told.append)
    ledger.load()
    ledger.commit(1, 1, NOW_MS + 5)

    planner.plan(1, hundred(2))

    assert told == [False]
    assert ledger.load().unfinished == {2: hundred(2)}
    assert ledger.state.committed_ms == NOW_MS + 5


def test_a_delayed_commit_of_a_fenced_owner_does_not_land(planner, ledger):
    told: list[bool] = []
    planner.commit_with_next(1, 1, NOW_MS, told.append)
    ledger.acquire()

    with pytest.raises(FencedError):
        planner.plan(1, hundred(2))

    planner.settle()
    assert (ledger.load().txid, told) == (0, [])


def test_a_failed_write_leaves_neither_commit_nor_plan(planner, counting, ledger):
    told: list[bool] = []
    planner.commit_with_next(1, 1, NOW_MS, told.append)
    counting.fails = StateUnavailableError("away")

    with pytest.raises(StateUnavailableError):
        planner.plan(1, hundred(2))

    assert planner.load() == ledger.load()
    assert (planner.state.txid, told) == (0, [])
    planner.commit_with_next(1, 1, NOW_MS, told.append)
    planner.plan(1, hundred(2))
    assert (ledger.load().txid, told) == (1, [True])


def test_a_store_that_conflicts_without_end_is_not_asked_without_end(store):
    calls = []

    class Contended(MemoryStore):
        def write(self, epoch, put, delete=(), *, expect=None):
            if expect is None:
                super().write(epoch, put)
                return
            calls.append(epoch)
            raise StateConflictError("moved")

    ledger = Ledger(Contended("contended", "orders"))

    with pytest.raises(StateConflictError):
        ledger.plan(ledger.acquire(), hundred(1))

    assert len(calls) == 10


def test_two_processes_read_the_store_once_a_batch_each(store, monkeypatch):
    planner, listener = Ledger(store), Ledger(store)
    epoch = planner.acquire()
    planner.load()
    planner.plan(epoch, hundred(1))
    reads = itertools.count()
    read = MemoryStore.read

    def counted(self, prefix=""):
        next(reads)
        return read(self, prefix)

    monkeypatch.setattr(MemoryStore, "read", counted)

    listener.load()
    assert listener.commit(epoch, 1, NOW_MS)
    assert next(reads) == 1
    assert not planner.commit(epoch, 1, NOW_MS + 1)
    committed = planner.state.committed
    assert committed is not None
    assert committed.txid == 1
    planner.plan(epoch, hundred(2))
    assert next(reads) == 1 + 2


def test_an_owner_alone_need_not_read(store, monkeypatch):
    ledger = Ledger(store)
    epoch = ledger.acquire()
    ledger.load()
    monkeypatch.setattr(MemoryStore, "read", None)

    for txid in range(1, 5):
        ledger.plan(epoch, hundred(txid))
        assert ledger.commit(epoch, txid, NOW_MS)
        committed = ledger.state.committed
        assert committed is not None
        assert committed.offsets == {P0: 100 * txid}


def test_a_commit_of_unknown_outcome_can_be_repeated(ledger, store):
    class Forgetful(MemoryStore):
        def write(self, epoch, put, delete=(), *, expect=None):
            super().write(epoch, put, delete, expect=expect)
            raise StateUnavailableError("no answer")

    epoch = ledger.acquire()
    ledger.plan(epoch, hundred(1))
    forgetful = Ledger(Forgetful(store.url.removeprefix("memory:"), "orders"))

    with pytest.raises(StateUnavailableError):
        forgetful.commit(epoch, 1, NOW_MS)

    assert not ledger.commit(epoch, 1, NOW_MS + 1)  # another's
    assert forgetful.commit(epoch, 1, NOW_MS + 1)  # found to have been its own
    assert not forgetful.commit(epoch, 1, NOW_MS + 1)
    assert ledger.load().txid == 1


offsets = st.integers(0, 2**62)
topics = st.text(
    alphabet="abcXYZ019._-", min_size=1, max_size=20
)  # what Kafka allows in a topic name
partitions = st.builds(TopicPartition, topics, st.integers(0, 10_000))


@given(
    ends=st.dictionaries(partitions, st.tuples(offsets, offsets).map(sorted)),
    ids=st.dictionaries(topics, st.text(max_size=22)),
)
def test_every_batch_is_read_back_as_it_was_planned(ends, ids):
    name = f"ledger-{next(names)}"
    ledger = Ledger(MemoryStore(name, "orders"))
    epoch = ledger.acquire()
    ranges = sorted((p, start, end) for p, (start, end) in ends.items())
    planned = batch(1, *ranges, ids=ids)

    ledger.plan(epoch, planned)
    other_process = Ledger(MemoryStore(name, "orders"))
    stored = other_process.load().planned
    other_process.commit(epoch, 1, NOW_MS)

    assert stored == {1: planned}
    read = {partition.topic for partition in planned.ends()}
    of_read = {topic: id_ for topic, id_ in ids.items() if topic in read}
    assert ledger.load().committed == Committed(1, planned.ends(), of_read, NOW_MS)


@pytest.mark.parametrize("former", [False, True])
def test_a_load_while_an_owner_takes_over_is_no_loss_to_the_next_one(store, former):
    """It has read the epoch, and then reads what the new owner left."""
    if former:
        owner = Ledger(store)
        owner.plan(owner.acquire(), hundred(1))
    listener = Ledger(store)
    listener.load()
    planner, read, epochs = Ledger(store), store.read, []

    def take_over_and_read(*given):
        store.read = read
        epochs.append(planner.acquire())
        return read(*given)

    store.read = take_over_and_read
    listener.load()
    (epoch,) = epochs
    planner.plan(epoch, hundred(1), replace=True)

    assert listener.load().epoch == epoch
    assert listener.commit(epoch, 1, NOW_MS)
