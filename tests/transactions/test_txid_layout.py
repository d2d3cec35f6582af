"""Stores that version 0.1.0 has written, and who may go on with them.

``store_of_0_1_0.db`` was made by that version: a source ``orders`` (txid 3 committed, a
batch without records; 4 and 5 open), topologies ``words`` (3 committed, 4 to 6 open),
``counts`` (opaque, 2 committed) and ``fresh`` (none committed, 1 to 3 open), and
``clicks`` at least once.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafka_tx.config import Mode
from kafka_tx.errors import FencedError, StateCorruptedError, StateError
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.actions import Initialize, StartBatch, StartCommit, Write
from kafka_tx.transactions.chain import Opened, read_chain
from kafka_tx.transactions.coordinator import TransactionCoordinator
from kafka_tx.transactions.ledger import Ledger
from kafka_tx.transactions.ledger_repair import examine
from kafka_tx.transactions.pacing import Pacing
from kafka_tx.transactions.records import encode
from kafka_tx.transactions.rotating import RecordCodec
from kafka_tx.transactions.txid_layout import FORMER, is_sealed, up_to_date

FILE = Path(__file__).parents[1] / "fixtures" / "store_of_0_1_0.db"


@pytest.fixture
def url(tmp_path):
    shutil.copy(FILE, tmp_path)
    return f"sqlite:///{tmp_path}/{FILE.name}"


@pytest.fixture
def store_of(url):
    stores = []

    def open_one(id_: str) -> SqlStore:
        stores.append(SqlStore(url, id_))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


class Run:
    """A topology's owner that carries out what its coordinator wants."""

    def __init__(self, store: SqlStore, mode: Mode = "transactional") -> None:
        self.store = store
        self.codec = RecordCodec[Any]("metadata", store.url, store.id)
        self.epoch = store.acquire()
        opened = Opened(self.epoch, up_to_date(store, self.epoch), store.url, store.id)
        self.machine = TransactionCoordinator[Any](
            mode, self.codec, Pacing(max_pending=3), opened
        )
        self.started: dict[int, Any] = {}
        self.planned: list[int] = []
        self.now_ms = 0

    def go_on(self) -> None:
        for _ in range(6):
            self.now_ms += 1_000
            self._do(self.machine.tick(self.now_ms, is_ready=True))

    def _do(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Initialize():
                    self.planned.append(action.attempt.txid)
                    last = action.previous or {"lines-0": {"end": 0}}
                    start = last["lines-0"]["end"]
                    parts = {"lines-0": {"start": start, "end": start + 1}}
                    self._do(self.machine.initialized(action.attempt, parts))
                case Write():
                    self.store.write(action.epoch, action.put, action.delete)
                    self._do(self.machine.stored(action.write_id))
                case StartBatch():
                    self.started[action.attempt.txid] = action.metadata
                    self._do(self.machine.processed(action.attempt))
                case StartCommit():
                    self._do(self.machine.committed(action.attempt))
                case _:
                    pass


def test_a_topology_goes_on_with_the_very_batches_that_were_open(store_of):
    before = store_of("words").read()
    texts = {p.removeprefix(FORMER): t for p, t in before.items()}

    run = Run(store_of("words"))

    assert is_sealed(run.store.read())
    assert {p: run.store.get(p) for p in texts} == texts
    assert not [p for p in run.store.read() if p.startswith("coordinator/meta")]
    run.go_on()
    for txid in (4, 5, 6):
        assert run.codec.encode(run.started[txid]) == before[f"coordinator/meta/{txid}"]
    assert min(run.planned) == 7


def test_an_opaque_topology_goes_on_where_it_committed(store_of):
    run = Run(store_of("counts"), "opaque")

    run.go_on()

    assert run.planned[0] == 3
    assert run.started[3]["lines-0"]["start"] == 9


def test_a_topology_that_had_committed_nothing_starts_what_it_had_planned(store_of):
    before = store_of("fresh").read()

    run = Run(store_of("fresh"))
    run.go_on()

    assert run.codec.encode(run.started[1]) == before["coordinator/meta/1"]
    assert run.machine.committed_txid


def test_a_source_of_0_1_0_is_read_and_written_as_it_is(store_of):
    store = store_of("orders")
    before = store.read()
    ledger = Ledger(store)
    p0, p1 = TopicPartition("orders", 0), TopicPartition("orders", 1)

    state = ledger.load()

    assert (state.txid, sorted(state.unfinished)) == (3, [4, 5])
    assert state.committed is not None
    assert (state.committed.carried, state.committed.completed_ms) == (
        2,
        1_700_000_002_000,
    )
    assert state.committed.offsets == {p0: 200, p1: 60}
    open_ones = (OffsetRange(p0, 250, 300), OffsetRange(p1, 60, 75))
    assert state.unfinished[5] == BatchMetadata(5, open_ones, {"orders": "T1"})
    assert store.read() == before
    ledger.commit(ledger.acquire(), 4, 1)
    assert (ledger.load().txid, sorted(ledger.load().unfinished)) == (4, [5])
    assert set(store.read()) == set(before) - {"meta/3"} | {"owner"}


# --- two versions at once, and back again ---


def test_an_owner_of_0_1_0_that_still_runs_is_fenced(store_of):
    former = store_of("words")
    epoch = former.epoch()
    record = encode("currtx", 5)
    Run(store_of("words"))

    with pytest.raises(FencedError):
        former.write(epoch, {"coordinator/currtx": record})


def read_as_0_1_0(store: SqlStore) -> tuple[int, Any]:
    """What that version makes of the records: it knows no other place for them."""
    opened = Opened(store.epoch(), store.read(), store.url, store.id)
    return read_chain(RecordCodec[Any]("metadata", store.url, store.id), opened, FORMER)


@pytest.mark.parametrize("id_", ["words", "counts", "fresh", "never-seen"])
def test_0_1_0_refuses_a_store_of_today_instead_of_beginning_anew(store_of, id_):
    if id_ != "never-seen":
        assert read_as_0_1_0(store_of(id_))[0] >= 1
    Run(store_of(id_))

    with pytest.raises(StateCorruptedError, match="its version is 2"):
        read_as_0_1_0(store_of(id_))


def test_a_crash_before_the_move_leaves_it_to_the_next_owner(store_of):
    store = store_of("words")
    before = store.read()
    store.acquire()  # and dies

    assert store_of("words").read() == before
    Run(store_of("words"))
    assert is_sealed(store.read())


def test_the_move_is_one_write(store_of, monkeypatch):
    writes: Counter[str] = Counter()
    write = SqlStore.write

    def counted(store, *given):
        writes["move"] += 1
        write(store, *given)

    monkeypatch.setattr(SqlStore, "write", counted)
    Run(store_of("words"))
    again = Run(store_of("words"))

    assert writes["move"] == 1
    assert again.machine.committed_txid == 3


def test_a_move_that_fails_half_way_changes_nothing(store_of, url):
    before = store_of("words").read()
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE DELETE ON kafka_tx_state"
            " BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )

    with pytest.raises(StateError):
        Run(store_of("words"))

    assert store_of("words").read() == before


@pytest.mark.parametrize(
    "record", ["garbage", '{"v":3,"kind":"currtx","crc":"","data":"elsewhere"}']
)
def test_what_cannot_be_read_or_comes_from_a_later_version_is_not_moved(
    store_of, record
):
    store = store_of("words")
    store.write(store.epoch(), {"coordinator/currtx": record})
    before = store.read()

    with pytest.raises(StateCorruptedError, match="coordinator/currtx"):
        Run(store_of("words"))

    assert store.read() == before


# --- ids of another kind ---


def test_a_topology_refuses_the_id_of_a_source_and_another_id_is_new(store_of):
    before = store_of("orders").read()

    with pytest.raises(StateError, match="'orders' .* that of a source"):
        Run(store_of("orders"))

    assert store_of("orders").read() == before
    run = Run(store_of("orders-2"))
    run.go_on()
    assert run.planned[0] == 1
    assert store_of("orders").read() == before


def test_a_source_refuses_the_id_of_a_topology(store_of):
    Run(store_of("words"))
    before = store_of("words").read()

    with pytest.raises(StateError, match="'words' .* of a transactional topology"):
        Ledger(store_of("words")).load()

    assert store_of("words").read() == before


def test_repair_finds_nothing_wrong_with_a_topology_and_names_what_is(store_of):
    run = Run(store_of("words"))

    assert examine(run.store).problems == {}
    run.store.write(run.epoch, {"meta/5": json.dumps({"v": 1})})

    found = examine(run.store)
    assert set(found.problems) == {"meta/5"}
    assert found.repair is None
