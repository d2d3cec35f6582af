import pytest

from kafka_tx.errors import (
    FencedError,
    StateCorruptedError,
    StateUnavailableError,
)
from kafka_tx.zookeeper import store as zookeeper_store
from kafka_tx.zookeeper.operations import Create, Delete, Set
from kafka_tx.zookeeper.store import ZooKeeperStore
from tests.conformance.store_suite import StoreSuite
from tests.zookeeper.fake_zookeeper import Crash, FakeServer, FakeZooKeeper

URL = "zookeeper://nowhere:2181/transactional"
BASE = "/transactional/orders"
MEGABYTE = 1_000_000


@pytest.fixture
def server():
    return FakeServer()


@pytest.fixture
def open_with(server):
    def open_one(fail=lambda _number: None, id_="orders"):
        client = FakeZooKeeper(server, fail)
        return ZooKeeperStore(URL, id_, client=client)  # type: ignore[arg-type]

    return open_one


class TestOnAFakeZooKeeper(StoreSuite):
    @pytest.fixture
    def open_store(self, open_with):
        return lambda id_="orders": open_with(id_=id_)


class TestAfterVeryManyWrites(TestOnAFakeZooKeeper):
    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch):
        monkeypatch.setattr(zookeeper_store, "_BEGUN_ANEW_AT", 2)

    # A version that comes again after two writes says nothing to one that waited.
    test_concurrent_owners_never_mix = None  # type: ignore[assignment]


def test_nodes_are_where_storm_has_them(open_with, server):
    store = open_with()
    put = {
        "coordinator/currtx": "18",
        "coordinator/meta/17": "c",
        "user/3/17": "p",
    }

    store.write(store.acquire(), put)

    values = {path: data for path, data in server.data.items() if data}
    values.pop(f"{BASE}/~owner")
    assert values == {
        f"{BASE}/coordinator/currtx": b"18",
        f"{BASE}/coordinator/meta/17": b"c",
        f"{BASE}/user/3/17": b"p",
    }


def test_nothing_is_left_of_a_large_value_that_was_replaced(open_with, server):
    store = open_with()
    epoch = store.acquire()
    store.write(epoch, {"a": "small"})
    nodes = set(server.data)

    store.write(epoch, {"a": "x" * 3 * MEGABYTE})
    assert len(server.data) == len(nodes) + 4
    store.write(epoch, {"a": "small"})

    assert set(server.data) == nodes


def test_writes_ask_for_nothing_they_know_already(open_with):
    store = open_with()
    epoch = store.acquire()
    paths = {f"user/{n}/17": "x" for n in range(50)}
    store.write(epoch, paths)
    before = store._client.reads

    store.write(epoch, {"currtx": "18", **paths}, ["gone"])

    assert store._client.reads - before == 1  # ~owner


# Before and after: small values, a value in parts, values that appear and go.
OLD = {"a": "1", "b/c": "1", "large": "o" * MEGABYTE, "gone/1": "1", "gone/2": "1"}
NEW = {"a": "2", "b/c": "2", "large": "n" * 3 * MEGABYTE, "new/x/y": "2"}
SMALL_OLD = {"a": "1", "b/c": "1", "gone/1": "1", "gone/2": "1"}
SMALL_NEW = {"a": "2", "b/c": "2", "new/x/y": "2"}
SIZES = [(SMALL_OLD, SMALL_NEW), (OLD, NEW)]


def changes_of(open_with, old, new):
    """How many changes one write makes."""
    store = open_with()
    epoch = store.acquire()
    store.write(epoch, old)
    before = store._client.changes
    store.write(epoch, new, set(old) - set(new))
    return store._client.changes - before


@pytest.mark.parametrize(("old", "new"), SIZES)
@pytest.mark.parametrize("fault", ["crash", "crash after"])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_state(server, old, new, fault):
    def open_on(server, fail=lambda _number: None):
        client = FakeZooKeeper(server, fail)
        return ZooKeeperStore(URL, "orders", client=client)  # type: ignore[arg-type]

    steps = changes_of(lambda: open_on(FakeServer()), old, new)
    outcomes = []
    for step in range(1, steps + 1):
        server = FakeServer()
        store = open_on(server)
        epoch = store.acquire()
        store.write(epoch, old)
        doomed = open_on(server, lambda n, step=step: fault if n == step else None)

        with pytest.raises(Crash):
            doomed.write(epoch, new, set(old) - set(new))

        found = open_on(server).read()
        assert found in (old, new)
        outcomes.append(found == new)
        successor = open_on(server)
        again = successor.acquire()
        assert successor.read() == found
        successor.write(again, {"after": "3"})
        assert open_on(server).read() == {**found, "after": "3"}
        assert not any("~journal" in path for path in server.data)

    assert outcomes == sorted(outcomes)  # once it is new, it stays new
    assert outcomes[-1] is (fault == "crash after" or steps > 1)


@pytest.mark.parametrize(("old", "new"), SIZES)
@pytest.mark.parametrize("fault", ["lost", "landed"])
def test_a_connection_lost_at_any_step_of_a_write_is_survived(old, new, fault):
    def open_on(server, fail=lambda _number: None):
        client = FakeZooKeeper(server, fail)
        return ZooKeeperStore(URL, "orders", client=client)  # type: ignore[arg-type]

    steps = changes_of(lambda: open_on(FakeServer()), old, new)
    for step in range(1, steps + 1):
        server = FakeServer()
        store = open_on(server)
        epoch = store.acquire()
        store.write(epoch, old)
        shaky = open_on(server, lambda n, step=step: fault if n == step else None)

        try:
            shaky.write(epoch, new, set(old) - set(new), expect={"a": "1"})
        except StateUnavailableError:
            assert open_on(server).read() in (old, new)
            shaky.write(epoch, new, set(old) - set(new))

        assert open_on(server).read() == new


def test_a_write_that_landed_although_its_answer_was_lost_is_not_done_twice(
    open_with, server
):
    store = open_with()
    epoch = store.acquire()
    store.write(epoch, {"a": "1"})
    shaky = open_with(lambda number: "landed" if number == 1 else None)

    shaky.write(epoch, {"a": "2"}, expect={"a": "1"})

    assert shaky._client.changes == 1
    assert store.get("a") == "2"


def test_an_outcome_that_somebody_wrote_over_is_told_as_unknown(open_with, server):
    epoch = open_with().acquire()
    other = open_with()

    def lose_and_be_overtaken(number):
        if number > 1:
            return None
        other.write(epoch, {"a": "other"})
        return "lost"

    shaky = open_with(lose_and_be_overtaken)

    with pytest.raises(StateUnavailableError):
        shaky.write(epoch, {"a": "mine"})

    assert other.get("a") == "other"


def test_an_owner_that_died_while_staging_leaves_nothing_behind(open_with, server):
    store = open_with()
    epoch = store.acquire()
    doomed = open_with(lambda number: "crash" if number == 3 else None)
    with pytest.raises(Crash):
        doomed.write(epoch, {"a": "x" * 3 * MEGABYTE})
    assert any("~journal" in path for path in server.data)

    store.acquire()

    assert not any("~journal" in path for path in server.data)


def test_a_valid_large_write_of_a_dead_owner_is_carried_out_by_the_next(
    open_with, server
):
    store = open_with()
    epoch = store.acquire()
    large = "x" * 3 * MEGABYTE
    staged = 4
    doomed = open_with(lambda n: "crash after" if n == staged + 1 else None)
    with pytest.raises(Crash):
        doomed.write(epoch, {"a": large})

    new = open_with()
    assert new.read() == {"a": large}
    assert new.acquire() == epoch + 1
    assert not any("~journal" in path for path in server.data)
    with pytest.raises(FencedError):
        store.write(epoch, {"a": "late"})


def test_nodes_that_somebody_removed_by_hand_are_made_again(open_with, server):
    store = open_with()
    epoch = store.acquire()
    store.write(epoch, {"meta/1": "1", "a": "1"})
    server.apply([Delete(f"{BASE}/meta/1"), Delete(f"{BASE}/meta")])

    store.write(epoch, {"meta/1": "2", "a": "2"})

    assert store.read() == {"a": "2", "meta/1": "2"}


@pytest.mark.parametrize(
    ("damage", "path"),
    [
        (Set(f"{BASE}/~owner", b"7"), "~owner"),
        (Set(f"{BASE}/a", b"\xff\xfe"), "a"),
        (Set(f"{BASE}/large", b"\x00{}"), "large"),
    ],
)
def test_a_node_that_cannot_be_read_is_named(open_with, server, damage, path):
    store = open_with()
    store.write(store.acquire(), {"a": "1", "large": "x" * MEGABYTE})
    server.apply([damage])

    with pytest.raises(StateCorruptedError, match=path) as caught:
        store.read()

    assert "kafka-tx offsets repair --store 'zookeeper://nowhere:2181" in str(
        caught.value
    )


def test_a_part_that_is_missing_is_told(open_with, server):
    store = open_with()
    store.write(store.acquire(), {"large": "x" * MEGABYTE})
    part = next(p for p in server.data if p.endswith(".1"))
    server.apply([Delete(part)])

    with pytest.raises(StateCorruptedError, match="a part is missing"):
        store.read()


def test_a_node_of_another_program_is_an_ordinary_value(open_with, server):
    server.apply([Create("/transactional"), Create(BASE), Create(f"{BASE}/x", b"7")])

    store = open_with()
    assert store.read() == {"x": "7"}
    epoch = store.acquire()
    store.write(epoch, {"x": "8"})

    assert store.read() == {"x": "8"}


def test_what_never_holds_still_is_given_up(open_with):
    store = open_with()
    epoch = store.acquire()
    other = open_with()
    read = store._client.nodes

    def disturbed(paths):
        other.write(epoch, {"a": "1"})
        return read(paths)

    store._client.nodes = disturbed

    with pytest.raises(StateUnavailableError, match="changed 100 times"):
        store.read()
    with pytest.raises(StateUnavailableError, match="changed 100 times"):
        store.write(epoch, {"a": "2"}, expect={"b": None})


def test_an_owner_that_was_overtaken_at_once_has_its_epoch_and_takes_no_other(
    open_with, server
):
    first, second = open_with(), open_with()
    step = first._step

    def overtaken(*arguments):
        landed = step(*arguments)
        second.acquire()
        return landed

    first._step = overtaken

    assert first.acquire() == 1
    assert second.epoch() == 2


def test_an_overtaken_owner_leaves_what_the_next_one_staged(open_with, server):
    first, second = open_with(), open_with()
    large = {"a": "x" * 2 * MEGABYTE}
    children = first._client.children

    def overtaken(paths):
        first._client.children = children
        second.acquire()
        second._journals.stage("staged", large, [])
        return children(paths)

    first.acquire()
    first._client.children = overtaken
    first.acquire()

    assert sum("~journal-staged" in path for path in server.data) == 3
