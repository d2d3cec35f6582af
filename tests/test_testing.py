import pytest

from kafka_tx.errors import (
    OffsetOutOfRangeError,
    StateUnavailableError,
    UnknownTopicError,
)
from kafka_tx.model import (
    Assigned,
    AtOffset,
    AtTime,
    Broker,
    Earliest,
    Latest,
    LogBounds,
    OffsetRange,
    TopicPartition,
    TopicPattern,
    Topics,
    Unavailable,
)
from kafka_tx.protocols import Clock, ClusterView, RangeReader, Store
from kafka_tx.testing import (
    MEMORY_BROKER,
    Crash,
    CrashingStore,
    ManualClock,
    MemoryLog,
    MemoryRecord,
)
from kafka_tx.transactions.ownership.memory import MemoryStore

ORDERS = TopicPartition("orders", 0)


# --- ManualClock --------------------------------------------------------------------


def test_time_passes_when_it_is_told_to():
    clock: Clock = ManualClock(now_ms=1_000)

    clock.sleep_ms(50)

    assert (clock.now_ms(), clock.monotonic_ms()) == (1_050, 50)


def test_only_the_wall_clock_can_be_set_back():
    clock = ManualClock(now_ms=1_000, monotonic_ms=7)

    clock.set_wall(10)

    assert (clock.now_ms(), clock.monotonic_ms()) == (10, 7)
    with pytest.raises(ValueError, match="-1"):
        clock.advance(-1)


# --- MemoryLog ----------------------------------------------------------------------


@pytest.fixture
def log():
    made = MemoryLog({"orders": 2})
    made.append(ORDERS, b"a", None, b"", key=b"k", timestamp_ms=5)
    return made


def offsets_in(log, start, end):
    return [record.offset for record in log.records(OffsetRange(ORDERS, start, end))]


def test_appended_records_are_read_back(log):
    reader: RangeReader = log

    (batch,) = reader.read(OffsetRange(ORDERS, 1, 3))

    assert log.records(OffsetRange(ORDERS, 0, 1)) == [MemoryRecord(0, b"k", b"a", 5)]
    assert batch.column("value").to_pylist() == [None, b""]
    assert batch.column("offset").to_pylist() == [1, 2]
    assert batch.column("topic").to_pylist() == ["orders", "orders"]
    assert batch.column("timestamp")[0].as_py().timestamp() == 0.005


def test_holes_are_offsets_without_records(log):
    log.append_hole(ORDERS, 2)
    log.append(ORDERS, b"d")
    log.compact(ORDERS, [1])

    assert log.bounds([ORDERS]) == {ORDERS: LogBounds(0, 6, "id-1", 0)}
    assert offsets_in(log, 0, 6) == [0, 2, 5]
    assert list(log.read(OffsetRange(ORDERS, 3, 5))) == []


def test_a_trimmed_log_starts_later(log):
    log.trim(ORDERS, 2)
    log.trim(ORDERS, 1)

    assert log.bounds([ORDERS]) == {ORDERS: LogBounds(2, 3, "id-1", 0)}
    with pytest.raises(OffsetOutOfRangeError, match=r"\[2, 3\)"):
        offsets_in(log, 1, 3)


def test_a_cut_log_gives_its_offsets_to_other_records(log):
    log.cut(ORDERS, 1)
    log.append(ORDERS, b"other")

    assert log.records(OffsetRange(ORDERS, 1, 2))[0].value == b"other"
    with pytest.raises(OffsetOutOfRangeError):
        offsets_in(log, 0, 3)


def test_a_topic_that_is_created_again_has_another_id_and_is_empty(log):
    before = log.topics(Topics(("orders",)))["orders"].topic_id

    log.create("orders", 1)

    after = log.topics(Topics(("orders",)))["orders"]
    assert after.topic_id != before
    assert after.partitions == [ORDERS]
    assert log.bounds([ORDERS]) == {ORDERS: LogBounds(0, 0, after.topic_id, 0)}


def test_a_deleted_topic_is_absent(log):
    log.delete("orders")

    assert log.topics(Topics(("orders",))) == {}
    assert log.bounds([ORDERS]) == {ORDERS: Unavailable("unknown topic or partition")}
    with pytest.raises(UnknownTopicError, match="orders-0"):
        log.append(ORDERS, b"x")


def test_a_partition_without_a_leader_is_unavailable(log):
    log.set_leader(ORDERS, None)

    assert log.bounds([ORDERS]) == {ORDERS: Unavailable("no leader")}
    assert log.offsets({ORDERS: Latest()}) == {ORDERS: Unavailable("no leader")}
    log.set_leader(ORDERS, Broker("other"))
    leaders = log.topics(Topics(("orders",)))["orders"].leaders
    assert leaders == {0: Broker("other"), 1: MEMORY_BROKER}


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (Earliest(), 0),
        (Latest(), 3),
        (AtOffset(2), 2),
        (AtTime(5), 0),
        (AtTime(6), None),
    ],
    ids=str,
)
def test_positions_become_offsets(log, position, offset):
    view: ClusterView = log

    assert view.offsets({ORDERS: position}) == {ORDERS: offset}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Topics(("orders", "absent")), ["orders"]),
        (TopicPattern("o.*"), ["old", "orders"]),
        (TopicPattern("o"), []),
        (Assigned((TopicPartition("old", 0),)), ["old"]),
    ],
    ids=str,
)
def test_a_subscription_finds_its_topics(log, wanted, found):
    log.create("old", 1)

    assert sorted(log.topics(wanted)) == found
    log.close()


# --- CrashingStore ------------------------------------------------------------------


@pytest.mark.parametrize("landed", [False, True])
def test_a_driver_dies_before_or_after_its_write_lands(landed):
    inside = MemoryStore("crash", f"dies-{landed}")
    store: Store = CrashingStore(inside, at_write=2, landed=landed)
    epoch = store.acquire()
    store.write(epoch, {"a": "1"})

    with pytest.raises(Crash):
        store.write(epoch, {"a": "2"})

    assert inside.get("a") == ("2" if landed else "1")
    for use in (store.epoch, store.acquire, store.read, lambda: store.get("a")):
        with pytest.raises(Crash, match="dead since write 2"):
            use()
    store.close()


def test_an_error_leaves_its_owner_alive():
    error = StateUnavailableError("no answer")
    inside = MemoryStore("crash", "lives")
    store = CrashingStore(inside, at_write=1, landed=True, error=error)
    epoch = store.acquire()

    with pytest.raises(StateUnavailableError):
        store.write(epoch, {"a": "1"})

    assert store.read() == {"a": "1"}
    store.write(epoch, {"a": "2"}, expect={"a": "1"})
    assert (store.get("a"), store.epoch(), store.writes) == ("2", epoch, 2)
    assert (store.url, store.id) == (inside.url, inside.id)
    store.close()


def test_a_crash_is_not_caught_with_ordinary_errors():
    assert not issubclass(Crash, Exception)
