"""``kafka-tx rename``, ``skip`` and ``store``: fenced, and safe to do again."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pyarrow as pa
import pytest

from kafka_tx.cli.moving import as_moved, copy, has_gone_on, taken
from kafka_tx.errors import FencedError, StateError
from kafka_tx.model import (
    ATTEMPTS_PER_EPOCH,
    BatchMetadata,
    CommittedOffset,
    JointBatch,
    JointPart,
    OffsetRange,
    QueryShape,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.sql.maps import TransactionalMap
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.testing import Crash, CrashingStore
from kafka_tx.transactions.layout.stops import Stop, last_stop, stop_id, store_stop
from kafka_tx.transactions.layout.txid_layout import ALIVE, OWNER, numbered
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from kafka_tx.transactions.ownership.guarded_writes import take_over
from tests.cli.conftest import COMMITTED_TXID, NUMBERING, OPEN_END, ORDERS
from tests.cli.test_offsets import plan_of_a_topology

LATER = BatchMetadata(COMMITTED_TXID + 2, (OffsetRange(ORDERS, OPEN_END, 310),))


@pytest.fixture
def driver(store):
    """A job that is alive: it knows its epoch and where it left the store."""
    ledger = Ledger(store)
    epoch = ledger.acquire()
    ledger.load()
    return ledger, epoch


@pytest.fixture
def other(tmp_path):
    state = SqlStore(f"sqlite:///{tmp_path}/other.db", "orders")
    yield state
    state.close()


def reported(state):
    texts = as_moved(state.read(), "")
    return {p: t for p, t in texts.items() if p not in {OWNER, ALIVE}}


def position(state):
    found = Ledger(state).load()
    assert found.committed is not None
    return found.txid, dict(found.committed.offsets), found.numbering


# --- rename ---------------------------------------------------------------------------


def test_a_renamed_id_goes_on_where_it_was(run, store, url, driver):
    before, at = reported(store), position(store)
    asked = ("rename", "--store", url, "--id", "orders", "--to", "orders-eu")

    shown = run(*asked)
    assert "Nothing was written" in shown.stdout
    assert reported(store) == before
    done = run(*asked, "--yes")

    renamed = SqlStore(url, "orders-eu")
    assert (shown.exit_code, done.exit_code) == (0, 0), done.stderr
    assert reported(renamed) == before
    assert position(renamed) == at
    assert not store.read()
    ledger, epoch = driver
    with pytest.raises(FencedError):
        ledger.plan(epoch, LATER)
    renamed.close()


@pytest.mark.parametrize(
    ("is_asked", "is_finished"), [(True, False), (True, True), (False, False)]
)
def test_what_may_write_dead_letters_twice_is_told_before_an_id_is_renamed(
    run, store, url, driver, is_asked, is_finished
):
    ledger, epoch = driver
    if is_asked:
        ledger.note_question(epoch)
    if is_finished:
        ledger.commit(epoch, COMMITTED_TXID + 1, completed_ms=0)
    before = store.read()

    result = run("rename", "--store", url, "--id", "orders", "--to", "new")

    is_told = f"the store does not know txid {COMMITTED_TXID + 1} as finished"
    first = "If the query uses with_dead_letters, first run it to its end"
    told = "new.dead-letters' does not know those of the sink 'orders.dead-letters'"
    for text in (is_told, first, told):
        assert (text in result.stdout) == (is_asked and not is_finished)
    assert store.read() == before


def test_sinks_of_a_renamed_id_follow_its_numbering(run, store, url):
    """A replay under the new name is known; the old job is fenced there."""
    counts = TransactionalMap(url, "counts")
    row = pa.table({"key": ["a"], "value": [1]})
    txid = COMMITTED_TXID + 1
    former = attempt(txid, store.epoch(), "orders")
    assert counts.update(former, row)
    run("rename", "--store", url, "--id", "orders", "--to", "new", "--yes")
    renamed = SqlStore(url, "new")
    ledger = Ledger(renamed)
    epoch = ledger.acquire()

    replayed = counts.update(attempt(txid, epoch, "new"), row)
    ledger.load()
    ledger.commit(epoch, txid, 1)
    ledger.plan(epoch, LATER)
    counted = counts.update(attempt(txid + 1, epoch, "new"), row)
    with pytest.raises(FencedError):
        counts.update(replace(former, txid=txid + 2), row)

    assert (replayed, counted) == (False, True)
    assert counts.get(["a"]) == {"a": 2}
    counts.close()
    renamed.close()


def attempt(txid, epoch, source):
    number = epoch * ATTEMPTS_PER_EPOCH + txid
    return TransactionAttempt(txid, number, numbering=NUMBERING, source=source)


@pytest.mark.parametrize("place", ["new", "orders"])
def test_an_id_is_not_renamed_to_one_in_use(run, store, url, place):
    other = SqlStore(url, "new")
    other.write(other.acquire(), {"x": "y"})
    other.close()
    before = store.read()

    result = run("rename", "--store", url, "--id", "orders", "--to", place, "--yes")

    assert result.exit_code == (1 if place == "new" else 2)
    assert store.read() == before


def test_one_of_several_sources_keeps_its_id(run, store, url, driver):
    ledger, epoch = driver
    ledger.describe(epoch, QueryShape(("clicks", "orders")))
    before = store.read()

    result = run("rename", "--store", url, "--id", "orders", "--to", "new", "--yes")

    assert result.exit_code == 1
    assert "one of several sources" in result.stderr
    assert "'clicks'" in result.stderr
    assert (store.read(), store.epoch()) == (before, epoch)


def test_the_query_knows_its_source_under_the_new_id(run, store, url, driver):
    ledger, epoch = driver
    ledger.describe(epoch, QueryShape(("orders",), states=("StateStoreSave",)))

    run("rename", "--store", url, "--id", "orders", "--to", "new", "--yes")

    renamed = SqlStore(url, "new")
    assert Ledger(renamed).load().query == QueryShape(
        ("new",), states=("StateStoreSave",)
    )
    renamed.close()


def test_a_rename_that_was_killed_behind_its_copy_is_finished(run, store, url):
    renamed = SqlStore(url, "new")
    before = reported(store)
    copy(store, renamed)

    result = run("rename", "--store", url, "--id", "orders", "--to", "new", "--yes")

    assert result.exit_code == 0, result.stderr
    assert (reported(renamed), store.read()) == (before, {})
    renamed.close()


def test_a_job_that_began_under_the_new_id_keeps_what_it_did(run, store, url):
    renamed = SqlStore(url, "new")
    copy(store, renamed)  # killed before the old id was removed
    ledger = Ledger(renamed)
    epoch = ledger.acquire()
    ledger.load()
    ledger.commit(epoch, COMMITTED_TXID + 1, 1)
    at = position(renamed)
    assert has_gone_on(store, renamed)

    result = run("rename", "--store", url, "--id", "orders", "--to", "new", "--yes")

    assert result.exit_code == 0, result.stderr
    assert (position(renamed), store.read()) == (at, {})
    ledger.check(epoch)
    renamed.close()


# --- copies ---------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize(("dies", "at_write"), [("old", 1), ("old", 2), ("new", 1)])
def test_a_copy_that_was_killed_anywhere_is_done_again(
    store, other, dies, at_write, landed
):
    before = reported(store)
    old, new = (
        CrashingStore(one, at_write=at_write, landed=landed) if name == dies else one
        for name, one in (("old", store), ("new", other))
    )
    with pytest.raises(Crash):
        copy(old, new)
    assert reported(store) == before

    copy(store, other)

    assert reported(other) == reported(store) == before
    assert other.epoch() > store.epoch()


class TakenBetween(CrashingStore):
    """A store that a job takes over before a write, or before an acquisition."""

    def __init__(self, inside, at_write):
        super().__init__(inside, at_write=0, landed=True)
        self.before = at_write
        self.epoch_of_job = 0

    def write(self, epoch, put, delete=(), *, expect=None):
        self.before -= 1
        if not self.before:
            ledger = Ledger(self.inside)
            self.epoch_of_job = ledger.acquire()
            ledger.load()
            ledger.commit(self.epoch_of_job, COMMITTED_TXID + 1, 1)
        super().write(epoch, put, delete, expect=expect)


@pytest.mark.parametrize("at_write", [1, 2])
def test_a_job_that_starts_in_between_leaves_no_copy(store, other, at_write):
    old = TakenBetween(store, at_write)

    with pytest.raises(FencedError):
        copy(old, other)

    assert position(store)[0] == COMMITTED_TXID + 1
    assert store.epoch() == old.epoch_of_job
    assert not reported(other)
    copy(store, other)
    assert reported(other) == reported(store)


def test_no_copy_is_laid_over_what_a_job_went_on_with(store, other):
    copy(store, other)
    ledger = Ledger(other)
    epoch = ledger.acquire()
    ledger.load()
    ledger.commit(epoch, COMMITTED_TXID + 1, 1)
    at = position(other)

    with pytest.raises(StateError, match="a job has gone on there"):
        copy(store, other)

    assert position(other) == at
    ledger.check(epoch)


def test_the_old_job_can_write_no_more(store, other, driver):
    taken(store)

    ledger, epoch = driver
    with pytest.raises(FencedError):
        ledger.plan(epoch, LATER)


def test_nothing_begins_where_an_id_was_copied_from(run, store, other, url):
    copy(store, other)
    epoch = store.epoch()
    begun = Ledger(store)
    begun.draft()

    with pytest.raises(StateError, match="goes on there") as refused:
        begun.load()

    assert store.epoch() == epoch, "nobody is fenced by a start that is refused"
    assert f"--store of a command, to {other.url}." in str(refused.value)
    with pytest.raises(StateError, match="was copied from"):
        copy(store, SqlStore(f"{other.url}-third", "orders"))


def test_a_topology_does_not_begin_where_it_was_copied_from(url, other):
    former = plan_of_a_topology(url, tx7=["orders"], tx8=["orders"])
    copy(former, SqlStore(other.url, former.id))

    with pytest.raises(StateError, match="goes on there"):
        numbered(former, former.epoch())

    former.close()


@pytest.mark.parametrize(
    "change",
    [
        ("skip", "--txid", 8),
        ("offsets", "forget", "--topic", "clicks"),
        ("offsets", "reset"),
    ],
)
def test_a_topology_is_not_changed_where_it_was_copied_from(run, url, other, change):
    former = plan_of_a_topology(url, tx7=["orders", "clicks"], tx8=["orders"])
    copy(former, SqlStore(other.url, former.id))
    before = former.read()

    refused = run(*change, "--store", url, "--id", former.id, "--yes")

    assert refused.exit_code == 1
    assert "goes on there. Nothing was changed. Set tx.store, or --store of" in (
        " ".join(refused.stderr.split())
    )
    assert former.read() == before
    former.close()


def test_a_source_is_not_reset_where_it_was_copied_from(run, store, other, url):
    """Its sinks would be emptied, and the job would go on where it was."""
    copy(store, other)
    before = store.read()

    refused = run("offsets", "reset", "--store", url, "--id", "orders", "--yes")

    assert refused.exit_code == 1
    assert "goes on there. Nothing was changed" in " ".join(refused.stderr.split())
    assert store.read() == before


def test_of_two_renames_at_once_the_later_one_wipes_nothing(run, store, url):
    """It was asked for before the other one had done it, and is answered after."""
    assert not run(
        *("rename", "--store", url, "--id", "orders", "--to", "new", "--yes")
    ).exit_code
    renamed = SqlStore(url, "new")
    before = reported(renamed)

    with pytest.raises(StateError, match="another command has moved the id"):
        copy(SqlStore(url, "orders"), renamed)

    assert reported(renamed) == before
    renamed.close()


def test_an_id_is_copied_back_as_the_refusal_says(run, store, other, url):
    before = reported(store)
    copy(store, other)
    ledger = Ledger(other)
    epoch = ledger.acquire()
    ledger.load()
    ledger.commit(epoch, COMMITTED_TXID + 1, 1)
    after = reported(other)

    back = ("store", "copy", "--from", other.url, "--to", url, "--id", "orders")
    result = run(*back, "--yes")

    assert result.exit_code == 0, result.stderr
    assert reported(store) == after != before
    begun = Ledger(store)
    begun.acquire()
    assert begun.load().txid == COMMITTED_TXID + 1


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_id_that_has_planned_nothing_is_copied_to_and_fro(
    run, url, other, is_killed
):
    """An idle source, and the note of an at-least-once topology."""
    idle, note = SqlStore(url, "idle"), SqlStore(url, stop_id("clicks"))
    ledger = Ledger(idle)
    epoch = ledger.acquire()
    ledger.beat(epoch)
    if not is_killed:
        ledger.let_go(epoch)
    note.acquire()
    store_stop(note, Stop("user", "boom", 1))

    for one, two in ((url, other.url), (other.url, url)):
        done = run("store", "copy", "--from", one, "--to", two, "--yes")
        assert done.exit_code == 0, done.stderr
    begun = Ledger(SqlStore(other.url, "idle"))
    begun.beat(begun.acquire())
    refused = run("store", "copy", "--from", url, "--to", other.url, "--yes")

    assert last_stop(note) == Stop("user", "boom", 1)
    assert "id 'idle' in " in refused.stderr
    idle.close()
    note.close()
    begun.close()


def test_a_map_beside_the_old_store_takes_the_batches_of_the_new_one(store, other, url):
    """Results stay where they are: the store beside them no longer counts."""
    counts = TransactionalMap(url, "counts")
    row = pa.table({"key": ["a"], "value": [1]})
    counts.update(attempt(COMMITTED_TXID + 1, store.epoch(), "orders"), row)
    copy(store, other)
    ledger = Ledger(other)
    epoch = ledger.acquire()
    ledger.load()

    replayed = counts.update(attempt(COMMITTED_TXID + 1, epoch, "orders"), row)
    counted = counts.update(attempt(COMMITTED_TXID + 2, epoch, "orders"), row)

    assert (replayed, counted) == (False, True)
    assert counts.get(["a"]) == {"a": 2}
    counts.close()


@pytest.fixture
def whole(store, topology_beside, clicks):
    """A source, a transactional and an at-least-once topology in one store."""
    return store


@pytest.fixture
def topology_beside(url):
    plan_of_a_topology(url, tx7=["orders"], tx8=["orders"]).close()


@pytest.fixture
def clicks(url):
    offsets = SqlOffsetStore(url, "clicks")
    offsets.acquire()
    position = CommittedOffset(40, completed=((45, 50),), topic_id="T")
    offsets.store({TopicPartition("clicks", 3): position})
    yield offsets
    offsets.close()


def test_a_whole_store_is_copied_and_verified(run, whole, clicks, url, tmp_path):
    to = f"sqlite:///{tmp_path}/new.db"
    asked = ("store", "copy", "--from", url, "--to", to)

    shown = run(*asked, "--dry-run", "--json")
    assert not (tmp_path / "new.db").exists()
    done = run(*asked, "--yes")
    again = run(*asked, "--yes")
    verified = run("store", "verify", "--store", url, "--against", to, "--json")

    assert json.loads(shown.stdout)["changes"] == [
        "clicks: offsets of 1 partitions",
        "orders: 7 records",
        "words: 4 records",
    ]
    assert [one.exit_code for one in (shown, done, again)] == [0, 0, 0], done.stderr
    assert json.loads(verified.stdout) == {"ids": 3, "problems": {}}
    copied = SqlOffsetStore(to, "clicks")
    partition = TopicPartition("clicks", 3)
    assert copied.load([partition]) == clicks.load([partition])
    with pytest.raises(FencedError):
        clicks.store({partition: CommittedOffset(41)})
    copied.close()


def test_offsets_of_a_topology_never_go_back(run, clicks, url, tmp_path):
    to = f"sqlite:///{tmp_path}/new.db"
    ahead = SqlOffsetStore(to, "clicks")
    ahead.store({TopicPartition("clicks", 3): CommittedOffset(41)})

    result = run("store", "copy", "--from", url, "--to", to, "--yes")

    assert result.exit_code == 1
    assert "clicks-3 is at 41 there, and at 40 in the old store" in result.stderr
    clicks.store({})
    ahead.close()


def test_a_copy_is_not_laid_over_the_offsets_of_another_topology(
    run, clicks, url, tmp_path
):
    """Lower ones, too: it would leave out what lies between."""
    to = f"sqlite:///{tmp_path}/new.db"
    partition, asked = TopicPartition("clicks", 3), ("store", "copy", "--from", url)
    job = SqlOffsetStore(to, "clicks")
    job.acquire()
    job.store({partition: CommittedOffset(7)})

    refused = run(*asked, "--to", to, "--yes")

    assert refused.exit_code == 1
    assert "another topology has this id there" in refused.stderr
    job.store({partition: CommittedOffset(8)})
    clicks.store({})
    command = re.search(r"`kafka-tx (offsets reset [^`]*)`", refused.stderr)
    assert command is not None
    assert not run(*shlex.split(command[1]), "--yes").exit_code
    for _ in range(2):
        assert not run(*asked, "--to", to, "--yes").exit_code
    assert job.load([partition])[partition].offset == 40
    job.close()


def test_ids_that_have_moved_are_left_out_of_a_copy_of_all(run, whole, url, tmp_path):
    there, to = (f"sqlite:///{tmp_path}/{name}.db" for name in ("there", "new"))
    copied = ("store", "copy", "--from", url, "--yes", "--json")
    assert not run(*copied, "--to", there, "--id", "orders").exit_code
    assert not run(*copied, "--to", to, "--id", "words").exit_code
    begun = SqlStore(to, "words")
    numbered(begun, take_over(begun))

    for _ in range(2):
        done = run(*copied, "--to", to)
        assert json.loads(done.stdout)["changes"] == [
            f"orders: left out, it goes on in {there}",
            f"words: left out, it goes on in {to}",
            "clicks: offsets of 1 partitions",
        ]
    back = run("store", "copy", "--from", there, "--to", url, "--yes")
    assert back.exit_code == 0, back.stderr
    begun.close()


def test_offsets_of_a_topology_go_on_under_another_id(run, clicks, url):
    partition = TopicPartition("clicks", 3)
    before = clicks.load([partition])
    asked = ("rename", "--store", url, "--id", "clicks", "--to", "clicks-eu")

    run(*asked, "--dry-run")
    assert clicks.load([partition]) == before
    done = run(*asked, "--yes")

    assert done.exit_code == 0, done.stderr
    renamed = SqlOffsetStore(url, "clicks-eu")
    assert renamed.load([partition]) == before
    assert clicks.load([partition]) == {}
    with pytest.raises(FencedError):
        clicks.store({partition: CommittedOffset(41)})
    assert renamed.acquire() > 0
    renamed.close()


def test_offsets_of_a_topology_are_not_renamed_over_others(run, clicks, url):
    others = SqlOffsetStore(url, "others")
    others.store({TopicPartition("clicks", 3): CommittedOffset(41)})

    result = run("rename", "--store", url, "--id", "clicks", "--to", "others", "--yes")

    assert result.exit_code == 1
    assert "has offsets of its own" in result.stderr
    clicks.store({})
    others.close()


def test_one_id_can_be_copied(run, whole, url, tmp_path):
    to = f"sqlite:///{tmp_path}/new.db"
    asked = ("store", "copy", "--from", url, "--to", to, "--yes")

    assert run(*asked, "--id", "words").exit_code == 0
    assert run(*asked, "--id", "wrods").exit_code == 1

    reported = json.loads(run("status", "--store", to, "--json").stdout)
    assert [one["id"] for one in reported] == ["words"]


def test_verify_names_what_is_damaged_or_differs(run, whole, other, url):
    copy(whole, other)
    whole.write(whole.epoch(), {"committed": "garbage"})

    damaged = run("store", "verify", "--store", url)
    differs = run("store", "verify", "--store", url, "--against", other.url)
    fine = run("store", "verify", "--store", other.url)

    assert (damaged.exit_code, differs.exit_code, fine.exit_code) == (1, 1, 0)
    assert "orders: committed: it is not JSON" in damaged.stdout
    assert "orders: committed: it differs" in differs.stdout
    assert "words: id: it is only in the store" in differs.stdout
    assert fine.stdout == "1 ids, 0 problems\n"


# --- skip -----------------------------------------------------------------------------


def test_a_batch_of_a_source_is_skipped(run, store, url, driver):
    ledger, epoch = driver
    ledger.plan(epoch, LATER)
    txid = COMMITTED_TXID + 1
    asked = ("skip", "--store", url, "--id", "orders", "--txid", txid)

    shown = run(*asked)
    assert position(store)[0] == COMMITTED_TXID
    done = run(*asked, "--yes")

    assert f"orders-0: [250, {OPEN_END})" in shown.stdout
    assert "Exactly-once does not hold for these records" in shown.stdout
    assert done.exit_code == 0, done.stderr
    assert position(store) == (LATER.txid, {ORDERS: OPEN_END}, NUMBERING)
    assert not Ledger(store).load().unfinished
    with pytest.raises(FencedError):
        ledger.commit(epoch, txid, 1)


@pytest.fixture
def two_sources(url):
    """The ids a and b with one unfinished batch: txid 5 of a, and 7 of b."""
    parts = {"a": JointPart(5, "x", "n"), "b": JointPart(7, "y", "n")}
    joint, ledgers = JointBatch("a", parts), {}
    for name, (txid, _, _) in parts.items():
        ledger = ledgers[name] = Ledger(SqlStore(url, name))
        epoch = ledger.acquire()
        ledger.adopt(epoch, Committed(txid - 1, {ORDERS: 10}))
        ranges = (OffsetRange(ORDERS, 10, 20),)
        ledger.plan(epoch, BatchMetadata(txid, ranges, joint=joint))
    yield ledgers
    for ledger in ledgers.values():
        ledger.close()


def skips(run, url, id_, txid):
    return run("skip", "--store", url, "--id", id_, "--txid", txid, "--yes")


def test_unfinished_txids_of_other_sources_of_a_skipped_batch_are_named(
    run, url, two_sources
):
    first, second = skips(run, url, "a", 5), skips(run, url, "b", 7)

    assert "the batch also has txid 7 of 'b'" in first.stdout
    assert "First skip txid 7 of 'b', too. Then start the query with" in first.stdout
    assert second.exit_code == 0, second.stderr
    assert "'a'" not in second.stdout
    assert "Done. Start the query with a new checkpoint" in second.stdout


def test_a_batch_that_another_source_has_committed_is_not_skipped(
    run, url, two_sources
):
    ledger = two_sources["a"]
    ledger.commit(ledger.acquire(), 5, 1)

    refused = skips(run, url, "b", 7)

    assert refused.exit_code == 1
    assert "'a' has committed txid 5 of the same batch" in refused.stderr
    assert "Start the query: this finishes txid 7, too" in refused.stderr
    assert list(two_sources["b"].load().unfinished) == [7]


def test_a_batch_of_a_topology_is_skipped(run, url):
    state = plan_of_a_topology(url, tx7=["orders"], tx8=["orders"], tx9=["orders"])

    done = run("skip", "--store", url, "--id", "words", "--txid", 8, "--yes")

    (reported,) = json.loads(run("status", "--store", url, "--json").stdout)
    assert done.exit_code == 0, done.stderr
    assert reported["committed_txid"] == 8
    assert [one["txid"] for one in reported["unfinished"]] == [9]
    assert reported["epoch"] == 2
    state.close()


def test_a_batch_that_moved_meanwhile_is_not_skipped(run, store, url, monkeypatch):
    """A job that nobody stopped commits it while the person reads what will be done."""
    ledger = Ledger(store)
    epoch = ledger.acquire()
    ledger.load()

    def answer(_):
        ledger.commit(epoch, COMMITTED_TXID + 1, 1)
        ledger.plan(epoch, LATER)
        return True

    monkeypatch.setattr("kafka_tx.cli.changes._is_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", answer)

    result = run("skip", "--store", url, "--id", "orders", "--txid", COMMITTED_TXID + 1)

    assert result.exit_code == 1
    assert "cannot be skipped: only txid 43" in result.stderr
    assert position(store) == (COMMITTED_TXID + 1, {ORDERS: OPEN_END}, NUMBERING)
    assert list(Ledger(store).load().unfinished) == [LATER.txid]


@pytest.mark.parametrize("id_", ["orders", "words"])
@pytest.mark.parametrize("txid", [7, 99])
def test_only_the_first_unfinished_txid_can_be_skipped(run, whole, url, id_, txid):
    state = SqlStore(url, id_)
    before = state.read(), state.epoch()

    result = run("skip", "--store", url, "--id", id_, "--txid", txid, "--yes")

    assert result.exit_code == 1
    assert "the first in line" in result.stderr
    assert (state.read(), state.epoch()) == before
    state.close()
