import pytest

from kafka_tx.errors import (
    ConfigError,
    StateConflictError,
    StateCorruptedError,
    StateError,
    StateUnavailableError,
)
from kafka_tx.zookeeper import store as zookeeper_store
from kafka_tx.zookeeper.client import Create, Delete, Node, Set
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings
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
    large, paths = 150_000, 1_500  # one request holds less than a megabyte

    @pytest.fixture
    def open_store(self, open_with):
        return lambda id_="orders": open_with(id_=id_)


class TestAfterVeryManyWrites(TestOnAFakeZooKeeper):
    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch):
        monkeypatch.setattr(zookeeper_store, "_BEGUN_ANEW_AT", 2)

    # A version that comes again after two writes says nothing to one that waited.
    test_concurrent_owners_never_mix = None  # type: ignore[assignment]
    test_no_step_is_lost_between_writers_that_expect = None  # type: ignore[assignment]


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


def test_what_does_not_fit_into_a_request_is_refused_before_anything_is_written(
    open_with, server
):
    store = open_with()
    epoch = store.acquire()
    store.write(epoch, {"a": "small"})
    before = dict(server.data)

    for refused in (
        lambda: store.write(epoch, {"a": "x" * MEGABYTE, "b": "small"}),
        lambda: open_with().acquire({"a": "x" * MEGABYTE}),
    ):
        with pytest.raises(
            StateError, match="Nothing was written. Set tx.store to a SQL"
        ):
            refused()

        assert server.data == before
    store.write(epoch, {"a": "small again"})
    assert store.read() == {"a": "small again"}


def test_writes_ask_for_nothing_they_know_already(open_with):
    store = open_with()
    epoch = store.acquire()
    paths = {f"user/{n}/17": "x" for n in range(50)}
    store.write(epoch, paths)
    before = store._client.reads

    store.write(epoch, {"currtx": "18", **paths}, ["gone"])

    assert store._client.reads - before == 1  # ~owner


OLD = {"a": "1", "b/c": "1", "gone/1": "1", "gone/2": "1"}
NEW = {"a": "2", "b/c": "2", "new/x/y": "2"}


@pytest.mark.parametrize("fault", ["crash", "crash after"])
def test_a_crash_leaves_the_old_or_the_new_state(open_with, fault):
    store = open_with()
    epoch = store.acquire()
    store.write(epoch, OLD)
    doomed = open_with(lambda number: fault if number == 1 else None)

    with pytest.raises(Crash):
        doomed.write(epoch, NEW, set(OLD) - set(NEW))

    found = open_with().read()
    assert found == (NEW if fault == "crash after" else OLD)
    successor = open_with()
    successor.write(successor.acquire(), {"after": "3"})
    assert open_with().read() == {**found, "after": "3"}


@pytest.mark.parametrize("fault", ["lost", "landed"])
def test_a_connection_lost_during_a_write_is_survived(open_with, fault):
    store = open_with()
    epoch = store.acquire()
    store.write(epoch, OLD)
    shaky = open_with(lambda number: fault if number == 1 else None)

    shaky.write(epoch, NEW, set(OLD) - set(NEW), expect={"a": "1"})

    assert open_with().read() == NEW


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


class Behind(FakeZooKeeper):
    """Reads from a server that is behind, as a new session may, until it catches up."""

    seen: dict[str, Node] | None = None

    def nodes(self, paths):
        found = super().nodes(paths)
        return found if self.seen is None else {p: self.seen[p] for p in found}

    def catch_up(self, path):
        super().catch_up(path)
        self.seen = None


@pytest.mark.parametrize("is_fenced", [False, True])
def test_an_owner_is_neither_fenced_nor_lost_by_what_it_reads_of_a_slow_server(
    server, is_fenced
):
    client = Behind(server)
    store = ZooKeeperStore(URL, "orders", client=client)  # type: ignore[arg-type]
    epoch = store.acquire({"a": "0"})
    behind = {path: server.node(path) for path in server.data}
    if is_fenced:
        epoch = store.acquire()
    store.write(epoch, {"a": "1"}, expect={"a": "0"})

    client.seen = behind
    store.write(epoch, {"a": "2"}, expect={"a": "1"})

    assert store.read() == {"a": "2"}
    client.seen = {**behind}
    with pytest.raises(StateConflictError):
        store.write(epoch, {"a": "3"}, expect={"a": "1"})


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
    ],
)
def test_a_node_that_cannot_be_read_is_named(open_with, server, damage, path):
    store = open_with()
    store.write(store.acquire(), {"a": "1"})
    server.apply([damage])

    with pytest.raises(StateCorruptedError, match=path) as caught:
        store.read()

    assert "kafka-tx offsets repair --store 'zookeeper://nowhere:2181" in str(
        caught.value
    )


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


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("/jobs", "a"), ("/jobs/a", "b")),
        (("/jobs/a", "b"), ("/jobs", "a")),
        (("/jobs", "a"), ("/jobs/a/coordinator", "b")),
        (("/jobs/a/inner", "b"), ("/jobs/a", "inner")),
    ],
)
def test_an_id_inside_another_ones_nodes_is_refused_at_its_first_write(
    server, first, second
):
    stores = [
        ZooKeeperStore(
            f"zookeeper://nowhere:2181{root}",
            id_,
            client=FakeZooKeeper(server),  # type: ignore[arg-type]
        )
        for root, id_ in (first, second)
    ]
    epoch = stores[0].acquire({"coordinator/currtx": "1"})
    with pytest.raises(ConfigError, match="neither inside .*node of another id"):
        stores[1].acquire()

    stores[0].write(epoch, {"coordinator/currtx": "2"})
    assert stores[0].read() == {"coordinator/currtx": "2"}
    assert stores[0].acquire() == epoch + 1
    beside = ZooKeeperStore(
        "zookeeper://nowhere:2181/more-jobs",
        second[1],
        client=FakeZooKeeper(server),  # type: ignore[arg-type]
    )
    assert beside.acquire({"coordinator/currtx": "9"}) == 1
    assert stores[0].read() == {"coordinator/currtx": "2"}


@pytest.mark.parametrize("broken", ["partition_3", "orders/partition_3"])
def test_a_listing_names_the_node_of_the_other_form_beside_a_broken_one(broken):
    settings = ZooKeeperSettings.parse(URL)
    paths = [f"{BASE}/partition_3", f"{BASE}/orders/partition_3", f"{BASE}/partition_4"]
    nodes = {path: Node(b"{", 0, 0, 0) for path in paths}
    other = next(n for n in paths[:2] if n != f"{BASE}/{broken}")

    with pytest.raises(StateCorruptedError, match=f"and node {other}, too, if"):
        zookeeper_store._offset(f"{BASE}/{broken}", nodes, settings, "orders")


def test_a_listing_names_all_nodes_that_may_be_of_the_partition_of_a_broken_one():
    settings = ZooKeeperSettings.parse(URL)
    topics = [f"{BASE}/{topic}/partition_3" for topic in ("a", "b")]
    nodes = {path: Node(b"{", 0, 0, 0) for path in (f"{BASE}/partition_3", *topics)}

    with pytest.raises(
        StateCorruptedError, match=f"and node {' or node '.join(topics)}, too"
    ):
        zookeeper_store._offset(f"{BASE}/partition_3", nodes, settings, "orders")
