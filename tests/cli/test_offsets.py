from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from kafka_tx.cli.changes import Change
from kafka_tx.cli.kafka_logs import Logs
from kafka_tx.cli.targets import target_of
from kafka_tx.errors import (
    AnotherNumberingError,
    FencedError,
    StateCorruptedError,
    StateLostError,
)
from kafka_tx.model import (
    AtTime,
    BatchMetadata,
    CommittedOffset,
    LogBounds,
    LogPosition,
    OffsetRange,
    QueryShape,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.sql.maps import TransactionalMap
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore, stored_ids
from kafka_tx.testing.mock import MockCluster
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import batch_record
from kafka_tx.transactions.layout.txid_layout import Door, Numbering
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from kafka_tx.transactions.ledger.ledger_reading import stored_batches
from kafka_tx.zookeeper import offsets as zookeeper_offsets
from kafka_tx.zookeeper import store as zookeeper_store
from kafka_tx.zookeeper.client import Set
from kafka_tx.zookeeper.offsets import ZooKeeperOffsetStore
from kafka_tx.zookeeper.store import ZooKeeperStore
from tests.cli.conftest import COMMITTED_TXID, NUMBERING, OPEN_END, ORDERS
from tests.zookeeper.fake_zookeeper import FakeServer, FakeZooKeeper

ZOOKEEPER = "zookeeper://nowhere:2181/storm"


def test_show_prints_next_offsets(run, store, url):
    result = run("offsets", "show", "--store", url, "--id", "orders")

    assert result.exit_code == 0
    assert "txid 41" in result.stdout
    assert "orders-0\t250" in result.stdout


def test_show_as_json_is_what_set_takes(run, store, url):
    shown = run("offsets", "show", "--store", url, "--id", "orders", "--json").stdout

    result = run("offsets", "set", "--store", url, "--id", "orders", "--offsets", shown)

    assert result.exit_code == 0


def test_set_without_yes_writes_nothing(run, store, url):
    before = store.read()

    result = run(
        *("offsets", "set", "--store", url, "--id", "orders"),
        *("--offsets", '{"orders": {"0": 7}}'),
    )

    assert result.exit_code == 0
    assert "orders-0: 250 -> 7" in result.stdout
    assert "Nothing was written" in result.stdout
    assert store.read() == before
    assert store.epoch() == 1


def test_set_moves_the_position_and_never_reuses_an_open_txid(run, store, url):
    result = run(
        *("offsets", "set", "--store", url, "--id", "orders", "--yes", "--unchecked"),
        *("--offsets", '{"orders": {"0": 7}, "other": {"3": 9}}'),
    )

    state = Ledger(store).load()
    assert result.exit_code == 0
    assert "txid 42 is dropped" in result.stdout
    assert state.txid == COMMITTED_TXID + 1
    assert not state.unfinished
    assert state.committed is not None
    assert {str(p): o for p, o in state.committed.offsets.items()} == {
        "orders-0": 7,
        "other-3": 9,
    }


def test_of_a_query_with_several_sources_all_are_set_before_it_starts(run, store, url):
    ledger = Ledger(store)
    ledger.describe(ledger.acquire(), QueryShape(("orders", "payments")))

    result = run(
        *("offsets", "set", "--store", url, "--id", "orders", "--yes", "--unchecked"),
        *("--offsets", '{"orders": {"0": 7}}'),
    )

    assert "Set 'payments' of the same query, too" in result.stdout
    assert "tx.onDisagreement" not in result.stdout


def test_of_a_query_with_several_sources_all_are_reset_or_none(run, store, url):
    ledger = Ledger(store)
    ledger.describe(ledger.acquire(), QueryShape(("orders", "payments")))
    reset = ("offsets", "reset", "--store", url, "--id", "orders")

    assert "the query has other sources: reset 'payments', too" in run(*reset).stdout
    assert (
        "reset 'payments' of the same query too, empty sinks"
        in run(*reset, "--yes").stdout
    )


def test_an_id_counts_on_where_a_sink_is_that_knew_a_lost_store(run, store, url):
    """As the sink's error says, to the letter; the rest of it is found in the topic."""
    state = TransactionalMap(url, "counts")
    rows = pa.table({"key": ["a"], "value": [1]})

    def attempt(txid, epoch, numbering):
        made = TransactionAttempt.of(txid, epoch=epoch, number=1)
        return replace(made, numbering=numbering)

    state.update(attempt(50, 7, "aaaabbbbcccc"), rows)
    with pytest.raises(AnotherNumberingError) as error:
        state.update(attempt(42, 1, NUMBERING), rows)
    printed = re.search("`kafka-tx (offsets set[^`]*)`", str(error.value))
    assert printed is not None

    result = run(
        *(*shlex.split(printed[1]), "--store", url, "--id", "orders"),
        *("--offsets", '{"orders": {"0": 290}}', "--unchecked", "--yes"),
    )

    assert f"numbering: {NUMBERING} -> aaaabbbbcccc" in result.stdout
    found = Ledger(store).load()
    assert (found.txid, found.numbering) == (50, "aaaabbbbcccc")
    assert found.committed is not None
    assert found.committed.offsets == {ORDERS: 290}
    epoch = Ledger(store).acquire()
    assert state.update(attempt(found.txid + 1, epoch, found.numbering), rows)
    state.close()


@pytest.mark.parametrize(
    "given",
    [
        ("--numbering", "feedfeedfeed"),
        ("--attempt", "3:1"),
        ("--numbering", "orders", "--attempt", "3:1"),
        ("--numbering", "feedfeedfeed", "--attempt", "3"),
    ],
)
def test_a_sink_is_named_whole_or_not_at_all(run, store, url, given):
    before = store.read()

    result = run(
        *("offsets", "set", "--store", url, "--id", "orders", "--yes", "--unchecked"),
        *("--offsets", '{"orders": {"0": 7}}', *given),
    )

    assert result.exit_code == 2
    assert "as the sink's error says" in result.stderr
    assert store.read() == before


def test_without_brokers_a_topic_is_set_as_a_whole(run, store, url):
    """Its id would be gone, and the others' offsets be those of any topic."""
    ledger, second = Ledger(store), TopicPartition("orders", 1)
    both, ids = {ORDERS: 50, second: 70}, {"orders": "T"}
    ledger.adopt(ledger.acquire(), Committed(50, both, ids))
    before = store.read()
    asked = ("offsets", "set", "--store", url, "--id", "orders", "--yes", "--unchecked")

    refused = run(*asked, "--offsets", '{"orders": {"0": 7}}')

    assert refused.exit_code == 2
    assert "does not name orders-1" in refused.stderr
    assert store.read() == before
    done = run(*asked, "--offsets", '{"orders": {"0": 7, "1": 70}}')
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("to", ["1701010150000", "20260131"])
def test_a_number_is_no_time(run, store, url, to):
    asked = ("--id", "orders", "--bootstrap-servers", "b:1", "--to", to)

    refused = run("offsets", "set", "--store", url, *asked)

    assert refused.exit_code == 2
    assert "a time such as 2026-01-31T12" in refused.stderr


def test_a_job_that_still_runs_is_fenced(run, store, url):
    run(
        *("offsets", "set", "--store", url, "--id", "orders", "--yes", "--unchecked"),
        *("--offsets", '{"orders": {"0": 7}}'),
    )

    with pytest.raises(FencedError):
        Ledger(store).commit(1, COMMITTED_TXID + 1, completed_ms=0)


@pytest.mark.parametrize(
    "text", ["7", "{}", '{"orders": {"0": -1}}', '{"orders": {"0": "x"}}', "{"]
)
def test_offsets_that_are_none_are_refused_before_anything_is_opened(run, url, text):
    result = run("offsets", "set", "--store", url, "--id", "o", "--offsets", text)

    assert result.exit_code == 2
    assert "--offsets" in result.stderr
    assert result.stderr.count("\n") == 1


def test_reset_forgets_everything_and_says_what_sinks_know(run, store, url):
    kept = run("offsets", "reset", "--store", url, "--id", "orders")
    assert "Nothing was written" in kept.stdout
    assert store.read()

    result = run("offsets", "reset", "--store", url, "--id", "orders", "--yes")

    assert "empty sinks" in result.stdout
    assert store.read() == {}
    assert Ledger(store).load().txid == 0


CLICKS = TopicPartition("clicks", 3)


@pytest.fixture
def clicks(url):
    """A running at-least-once topology: partition 3 of ``clicks`` is at offset 40."""
    with closing(SqlOffsetStore(url, "clicks")) as offsets:
        offsets.acquire()
        offsets.store({CLICKS: CommittedOffset(40, completed=((45, 50),))})
        yield offsets


def damage(url, table, column):
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        database.execute(f"UPDATE {table} SET {column} = 'cut of'")
        database.commit()


def test_reset_deletes_the_offsets_of_an_at_least_once_topology(run, url, clicks):
    asked = ("offsets", "reset", "--store", url, "--id", "clicks")

    shown = run(*asked)
    assert "clicks-3: 40 -> deleted" in shown.stdout
    assert clicks.load([CLICKS])
    done = run(*asked, "--yes")

    assert done.exit_code == 0, done.stderr
    assert clicks.load([CLICKS]) == {}
    assert "start_offset_time" in done.stdout
    assert "txid" not in done.stdout
    with pytest.raises(FencedError):
        clicks.store({CLICKS: CommittedOffset(41)})
    assert stored_ids(url) == []


def test_reset_of_an_id_that_two_jobs_have_begins_both_anew(run, store, url):
    with closing(SqlOffsetStore(url, "orders")) as offsets:
        offsets.store({CLICKS: CommittedOffset(40)})

        done = run("offsets", "reset", "--store", url, "--id", "orders", "--yes")

        assert offsets.load([CLICKS]) == {}
    assert store.read() == {}
    assert "The next txid is 1." in done.stdout
    assert "start_offset_time" in done.stdout


def test_a_damaged_offset_is_named_and_reset_begins_anew_as_the_text_says(
    run, url, clicks
):
    damage(url, "kafka_tx_offsets", "completed")
    with pytest.raises(StateCorruptedError) as caught:
        clicks.load([CLICKS])
    printed = re.search(r"run: kafka-tx (.*)$", str(caught.value))
    assert printed is not None

    told = run(*shlex.split(printed[1]))

    assert told.exit_code == 1
    assert "clicks-3: " in told.stdout
    says = " ".join(told.stderr.split())
    printed = re.search(r"kafka-tx (offsets reset .*?), which", says)
    assert printed is not None
    done = run(*shlex.split(printed[1]), "--yes")
    assert done.exit_code == 0, done.stderr
    assert clicks.load([CLICKS]) == {}


def test_damaged_owners_are_deleted_by_hand_and_the_offsets_stay(run, url, clicks):
    damage(url, "kafka_tx_offset_owners", "owners")
    asked = ("--store", url, "--id", "clicks", "--yes")

    told = run("offsets", "repair", *asked)
    assert told.exit_code == 1
    assert "kafka_tx_offset_owners: it is not JSON" in told.stdout
    assert "the row of the id" in " ".join(told.stderr.split())
    refused = run("offsets", "reset", *asked)
    assert "offsets repair" in refused.stderr
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        database.execute("DELETE FROM kafka_tx_offset_owners")
        database.commit()

    with pytest.raises(StateLostError):
        clicks.store({CLICKS: CommittedOffset(41)})
    clicks.acquire()
    assert clicks.load([CLICKS])[CLICKS].offset == 40
    clicks.store({CLICKS: CommittedOffset(41)})
    assert run("offsets", "repair", *asked).exit_code == 0


def test_damage_of_both_jobs_of_an_id_is_told_and_the_batches_are_repaired(
    run, store, url
):
    with closing(SqlOffsetStore(url, "orders")) as offsets:
        offsets.store({CLICKS: CommittedOffset(40)})
    damage(url, "kafka_tx_offsets", "completed")
    store.write(1, {"committed": "cut of"})

    result = run("offsets", "repair", "--store", url, "--id", "orders", "--yes")

    assert result.exit_code == 1
    assert "committed: it is not JSON" in result.stdout
    assert "clicks-3: " in result.stdout
    assert Ledger(store).load().txid == COMMITTED_TXID


def test_an_at_least_once_topology_is_not_set_and_the_text_names_reset(
    run, url, clicks
):
    refused = run(
        *("offsets", "set", "--store", url, "--id", "clicks", "--yes", "--unchecked"),
        *("--offsets", '{"clicks": {"3": 7}}'),
    )

    assert refused.exit_code == 1
    assert "`kafka-tx offsets reset`, with start_offset_time" in " ".join(
        refused.stderr.split()
    )
    clicks.store({})


@pytest.fixture(params=[False, True], ids=["one topic", "by topic"])
def in_zookeeper(monkeypatch, request):
    """The same topology in a ZooKeeper; its server, its offsets and its node."""
    server = FakeServer()
    for module in (zookeeper_store, zookeeper_offsets):
        monkeypatch.setattr(module, "ZooKeeperClient", lambda _: FakeZooKeeper(server))
    offsets = ZooKeeperOffsetStore(ZOOKEEPER, "clicks", by_topic=request.param)
    offsets.acquire()
    offsets.store({CLICKS: CommittedOffset(40)})
    return server, offsets, f"{'clicks/' * request.param}partition_3"


def test_reset_deletes_offsets_in_zookeeper_and_fences_the_topology(run, in_zookeeper):
    _, offsets, _ = in_zookeeper
    asked = ("offsets", "reset", "--store", ZOOKEEPER, "--id", "clicks")

    shown = run(*asked)
    assert shown.stdout.startswith("clicks-3: 40 -> deleted\n")
    done = run(*asked, "--yes")

    assert done.exit_code == 0, done.stderr
    assert "start_offset_time" in done.stdout
    assert "txid" not in done.stdout
    with pytest.raises(FencedError):
        offsets.store({CLICKS: CommittedOffset(41)})
    assert offsets.load([CLICKS]) == {}


@pytest.mark.parametrize("was_pattern", [False, True])
def test_of_a_topic_that_became_a_pattern_or_back_the_newest_offsets_count(
    run, in_zookeeper, was_pattern
):
    ZooKeeperOffsetStore(ZOOKEEPER, "clicks", by_topic=was_pattern).store(
        {CLICKS: CommittedOffset(60)}
    )

    shown = run("offsets", "reset", "--store", ZOOKEEPER, "--id", "clicks")

    assert shown.stdout.startswith("clicks-3: 60 -> deleted\n")


def test_sound_offsets_in_zookeeper_can_be_read(run, in_zookeeper):
    asked = ("--store", ZOOKEEPER, "--id", "clicks")

    assert run("offsets", "repair", *asked).exit_code == 0
    store = ZooKeeperStore(ZOOKEEPER, "clicks")
    store.write(store.acquire(), {"committed": "cut of"})

    verified = run("store", "verify", "--store", ZOOKEEPER)
    repaired = run("offsets", "repair", *asked)
    assert "1 problems" in verified.stdout
    for told in (verified, repaired):
        assert "committed: it is not JSON" in told.stdout
        assert "partition_3" not in told.stdout


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("", "or write the right offset into it"),
        ("~owners", "the node ~owners of the id"),
    ],
)
def test_damaged_offsets_in_zookeeper_are_named(run, in_zookeeper, path, advice):
    server, _, node = in_zookeeper
    server.apply([Set(f"/storm/clicks/{path or node}", b"cut of")])

    result = run("offsets", "repair", "--store", ZOOKEEPER, "--id", "clicks")

    assert result.exit_code == 1
    assert f"{path or node}: " in result.stdout
    assert advice in " ".join(result.stderr.split())


def test_offsets_of_a_group_are_reset_with_the_tool_of_kafka(run):
    result = run("offsets", "reset", "--store", "kafka:", "--id", "clicks", "--yes")

    assert result.exit_code == 2
    assert "kafka-consumer-groups --group GROUP --reset-offsets" in result.stderr


def test_repair_of_a_sound_ledger_changes_nothing(run, store, url):
    before = store.read()

    result = run("offsets", "repair", "--store", url, "--id", "orders", "--yes")

    assert result.exit_code == 0
    assert "can be read" in result.stdout
    assert store.read() == before
    assert store.epoch() == 1


@pytest.mark.parametrize(
    ("note", "owner"),
    [("stop", 1), ("held", 1), ("alive", 2), ("owner", 2), ("query", 2)],
)
def test_a_damaged_note_costs_no_position_and_at_most_its_owner(
    run, store, url, note, owner
):
    before = Ledger(store).load().position
    store.write(1, {note: "cut of"})

    result = run("offsets", "repair", "--store", url, "--id", "orders", "--yes")

    assert result.exit_code == 0, result.stderr
    assert f"delete {note}" in result.stdout
    assert note not in store.read()
    assert Ledger(store).load().position == before
    assert store.epoch() == owner
    assert ("set the ids of all its sources" in result.stdout) is (note == "query")


def test_that_a_txid_was_asked_for_is_written_anew(run, store, url):
    store.write(1, {"asked": "cut of"})

    result = run("offsets", "repair", "--store", url, "--id", "orders", "--yes")

    assert result.exit_code == 0, result.stderr
    assert "write asked anew" in result.stdout
    assert Ledger(store).load().is_asked
    assert store.epoch() == 1


def test_a_job_that_writes_the_damaged_record_first_goes_on(
    run, store, url, monkeypatch
):
    def commits(self):
        Ledger(store).commit(1, COMMITTED_TXID + 1, completed_ms=5)
        return True

    monkeypatch.setattr(Change, "is_agreed", commits)
    store.write(1, {"held": "cut of"})

    result = run("offsets", "repair", "--store", url, "--id", "orders")

    assert result.exit_code == 0, result.stderr
    assert "Every record can be read" in result.stdout
    assert store.epoch() == 1
    assert Ledger(store).load().commit_stats


@pytest.mark.parametrize("path", ["committed", "currtx", "meta/42"])
def test_the_command_an_error_prints_repairs_what_it_names(run, store, path):
    store.write(1, {path: "cut of"})
    with pytest.raises(StateCorruptedError) as caught:
        Ledger(store).load()
    printed = re.search(r"run: kafka-tx (.*)$", str(caught.value))
    assert printed is not None
    command = shlex.split(printed[1])

    polled = run(*command)
    assert polled.exit_code == 1
    assert path in polled.stdout
    assert "Nothing was written" in polled.stdout
    repaired = run(*command, "--yes")

    state = Ledger(store).load()
    assert repaired.exit_code == 0, repaired.stderr
    assert state.txid == COMMITTED_TXID
    assert state.committed is not None
    assert state.committed.offsets == {ORDERS: 250}
    assert [b.ends() for b in state.unfinished.values()] == (
        [] if path == "meta/42" else [{ORDERS: OPEN_END}]
    )


def test_an_open_txid_that_is_given_up_is_told(run, store, url):
    store.write(1, {"meta/42": "cut of"})

    result = run("offsets", "repair", "--store", url, "--id", "orders")

    assert "open txid 42" in result.stdout
    assert "tx.onDisagreement=checkpoint" in result.stdout


def test_what_no_record_tells_is_not_made_up_and_resetting_begins_anew(run, store, url):
    store.write(1, {"committed": "x", "currtx": "x"})
    before = store.read()

    result = run("offsets", "repair", "--store", url, "--id", "orders", "--yes")

    assert result.exit_code == 1
    assert "committed: it is not JSON" in result.stdout
    assert store.read() == before
    printed = re.search(
        r"kafka-tx (offsets reset .*?), and", " ".join(result.stderr.split())
    )
    assert printed is not None
    done = run(*shlex.split(printed[1]), "--yes")
    assert "The next txid is 1. Now empty sinks" in done.stdout
    assert store.read() == {}


@pytest.mark.parametrize(
    ("id_", "path"), [("orders", "committed"), ("clicks", "clicks-3")]
)
def test_damage_that_cannot_be_repaired_is_named_in_json_too(
    run, store, url, clicks, id_, path
):
    store.write(1, {"committed": "x", "currtx": "x"})
    damage(url, "kafka_tx_offsets", "completed")

    result = run("offsets", "repair", "--store", url, "--id", id_, "--yes", "--json")

    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert answer["written"] is False
    assert any(line.startswith(f"{path}: ") for line in answer["changes"])
    assert answer["message"] in result.stderr
    assert all(line in result.stderr for line in answer["changes"])


def test_damage_that_a_repair_leaves_is_told_with_the_repair_in_json(run, store, url):
    with closing(SqlOffsetStore(url, "orders")) as offsets:
        offsets.store({CLICKS: CommittedOffset(40)})
    damage(url, "kafka_tx_offsets", "completed")
    store.write(1, {"committed": "cut of"})
    asked = ("--store", url, "--id", "orders", "--yes", "--json")

    answer = json.loads(run("offsets", "repair", *asked).stdout)

    assert answer["written"] is True
    assert answer["changes"][0].startswith("committed: ")
    assert "clicks-3" in answer["message"]


def test_the_json_of_show_is_one_object(run, store, url):
    result = run("offsets", "show", "--store", url, "--id", "orders", "--json")

    assert json.loads(result.stdout) == {"orders": {"0": 250}}


def test_set_takes_the_ids_of_the_topics_that_are_meant(run, store, url):
    given = '{"orders": {"0": 7}, "_kafka_tx": {"topic_ids": {"orders": "new"}}}'
    run(
        *("offsets", "set", "--store", url, "--id", "orders"),
        *("--yes", "--unchecked", "--offsets", given),
    )

    committed = Ledger(store).load().committed
    assert committed is not None
    assert committed.topic_ids == {"orders": "new"}


def test_set_takes_from_a_copied_offset_only_what_is_of_the_given_partitions(
    run, store, url
):
    """Its other topic was taken out of the JSON, and was made anew since."""
    kept = TopicPartition("kept", 0)
    ledger = Ledger(store)
    offsets = {ORDERS: 250, kept: 5}
    ids = {"orders": "a", "kept": "b"}
    ledger.adopt(ledger.acquire(), Committed(41, offsets, ids))
    epochs = {"orders": [[3, "0-1"]], "kept": [[3, "0"]]}
    mark = {"topic_ids": {"orders": "a", "kept": "old"}, "leader_epochs": epochs}

    result = run(
        *("offsets", "set", "--store", url, "--id", "orders", "--yes", "--unchecked"),
        *("--offsets", json.dumps({"orders": {"0": 7}, "_kafka_tx": mark})),
    )

    assert result.exit_code == 0
    committed = Ledger(store).load().position
    assert committed.positions() == {
        ORDERS: LogPosition(7, "a", 3),
        kept: LogPosition(5, "b", None),
    }
    assert committed.leader_epochs == {ORDERS: 3}


@pytest.mark.parametrize(
    "given",
    [
        '{"orders": {"-1": 1}}',
        '{"orders": {"0": 1}, "_kafka_tx": null}',
        '{"orders": {"0": 1}, "_kafka_tx": 5}',
        '{"orders": {"0": 1}, "_kafka_tx": {"topic_ids": 5}}',
        '{"orders": {"0": 1}, "_kafka_tx": {"leader_epochs": 5}}',
        '{"orders": {"0": 1}, "_kafka_tx": {"leader_epochs": {"orders": [[1, 0]]}}}',
    ],
)
def test_set_refuses_offsets_of_another_form(run, store, url, given):
    before = store.read()

    result = run(
        *("offsets", "set", "--store", url, "--id", "orders", "--yes", "--unchecked"),
        *("--offsets", given),
    )

    assert result.exit_code == 2
    assert "option '--offsets'" in result.stderr
    assert store.read() == before


def test_forget_takes_a_topic_out(run, store, url):
    result = run(
        "offsets", "forget", "--store", url, "--id", "orders", "--topic", "orders"
    )
    done = run(
        *("offsets", "forget", "--store", url, "--id", "orders", "--yes"),
        *("--topic", "orders"),
    )

    state = Ledger(store).load()
    assert (result.exit_code, done.exit_code) == (0, 0)
    assert "-> deleted" in result.stdout
    assert "set their offsets to the start" in done.stdout
    assert state.committed is not None
    assert not [p for p in state.committed.offsets if p.topic == "orders"]
    assert (state.txid, dict(state.unfinished)) == (COMMITTED_TXID + 1, {})


def plan_of_a_topology(url, **metadata):
    """Txid 7 of a transactional topology is committed; others may be planned."""
    state = SqlStore(url, "words")
    texts = {"currtx": records.encode("currtx", 8)}
    texts |= Numbering(NUMBERING, Door.TRANSACTIONAL).record
    for name, topics in metadata.items():
        txid = int(name.removeprefix("tx"))
        ranges = tuple(OffsetRange(TopicPartition(t, 0), 1, 2) for t in topics)
        texts[f"meta/{txid}"] = batch_record(BatchMetadata(txid, ranges))
    state.write(state.acquire(), texts)
    return state


def topics_of(state, txid=7):
    return {p.topic for p in stored_batches(state).planned[txid].ends()}


def test_forget_takes_a_topic_out_of_the_batches_of_a_topology(run, url):
    state = plan_of_a_topology(url, tx7=["gone-1", "orders"], tx8=["orders"])
    asked = ("offsets", "forget", "--store", url, "--id", "words")

    result = run(*asked, "--topic", "gone-1")
    assert "Nothing was written" in result.stdout
    assert "unless its spout has failOnDataLoss=false" in result.stdout
    assert topics_of(state) == {"gone-1", "orders"}
    done = run(*asked, "--topic", "gone-1", "--yes")
    unknown = run(*asked, "--topic", "gone-1", "--yes")

    after = stored_batches(state)
    assert (result.exit_code, done.exit_code, unknown.exit_code) == (0, 0, 2)
    assert topics_of(state) == {"orders"}
    assert (after.txid, list(after.planned)) == (7, [7, 8])
    assert after.epoch == 2
    state.close()


def test_forget_waits_until_a_topology_has_finished_what_it_planned(run, url):
    state = plan_of_a_topology(url, tx7=["both", "orders"], tx8=["both", "orders"])
    before = state.read()
    asked = ("offsets", "forget", "--store", url, "--id", "words", "--yes")

    refused = run(*asked, "--topic", "both")
    assert refused.exit_code != 0
    assert "txid 8 is not finished" in " ".join(refused.stderr.split())
    assert state.read() == before
    state.write(1, {"currtx": records.encode("currtx", 9)}, ["meta/7"])
    done = run(*asked, "--topic", "both")

    assert done.exit_code == 0
    assert topics_of(state, 8) == {"orders"}
    state.close()


def test_forget_leaves_a_topology_its_only_topic(run, url):
    state = plan_of_a_topology(url, tx7=["one"])
    before = state.read()

    result = run(
        *("offsets", "forget", "--store", url, "--id", "words", "--yes"),
        *("--topic", "one"),
    )

    assert result.exit_code != 0
    assert "no other topic" in " ".join(result.stderr.split())
    assert state.read() == before
    state.close()


def test_forget_names_the_topics_there_are(run, store, url):
    result = run("offsets", "forget", "--store", url, "--id", "orders", "--topic", "no")

    assert result.exit_code != 0
    assert "orders" in result.output


def test_set_refuses_a_transactional_topology_by_name(run, store, url):
    store.write(1, Numbering("feed", Door.TRANSACTIONAL).record, list(store.read()))
    before = store.read()

    result = run(
        *("offsets", "set", "--store", url, "--id", "orders", "--yes", "--unchecked"),
        *("--offsets", '{"orders": {"0": 7}}'),
    )

    assert result.exit_code == 1
    assert "'orders'" in result.stderr
    assert "is a transactional topology" in result.stderr
    assert (store.read(), store.epoch()) == (before, 1)


def test_set_asks_the_brokers_before_it_writes(run, store, url):
    before = store.read()

    result = run(
        *("offsets", "set", "--store", url, "--id", "orders", "--yes"),
        *("--offsets", '{"orders": {"0": 7}}'),
    )

    assert result.exit_code == 2
    assert "--bootstrap-servers, or --unchecked" in result.stderr
    assert store.read() == before


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ('{"unknown": {"0": 1}}', "unknown-0: "),
        ('{"orders": {"7": 1}}', "orders-7: "),
        (
            '{"orders": {"0": 4}}',
            "0: offset 4 is outside of the log, which holds 0 to 3",
        ),
    ],
)
def test_set_refuses_what_the_logs_do_not_hold(run, store, url, wanted, reason):
    before = store.read()

    with MockCluster() as cluster:
        cluster.create_topic("orders", 1)
        for _ in range(3):
            cluster.produce("orders", b"x")
        cluster.flush()
        result = run(
            *("offsets", "set", "--store", url, "--id", "orders", "--yes"),
            *("--offsets", wanted, "--bootstrap-servers", cluster.bootstrap_servers),
        )
        fits = run(
            *("offsets", "set", "--store", url, "--id", "orders"),
            *("--offsets", '{"orders": {"0": 3}}'),
            *("--bootstrap-servers", cluster.bootstrap_servers),
        )

    assert result.exit_code == 1
    assert reason in result.stderr
    assert store.read() == before
    assert fits.exit_code == 0


@pytest.fixture
def set_told(run, store, url, monkeypatch):
    """Set offset 7 of ``orders``, of the topic with an id; brokers tell another."""

    def given(wanted_id, told_id):
        bounds = {ORDERS: LogBounds(0, 9, told_id)}
        monkeypatch.setattr(Logs, "poll", lambda *_: {"": bounds})
        wanted: dict[str, object] = {"orders": {"0": 7}}
        if wanted_id:
            wanted["_kafka_tx"] = {"topic_ids": {"orders": wanted_id}}
        return run(
            *("offsets", "set", "--store", url, "--id", "orders", "--yes"),
            *("--offsets", json.dumps(wanted), "--bootstrap-servers", "b:1"),
        )

    return given


@pytest.mark.parametrize("wanted_id", ["now", None])
def test_offsets_that_fit_the_log_get_the_id_of_its_topic(set_told, store, wanted_id):
    assert set_told(wanted_id, "now").exit_code == 0

    committed = Ledger(store).load().committed
    assert committed is not None
    assert (committed.offsets[ORDERS], committed.topic_ids["orders"]) == (7, "now")


@pytest.mark.parametrize(
    ("told_id", "reason"),
    [
        ("now", "offset 7 belongs to the deleted topic with the id former;"),
        (None, "no broker confirms that its topic has the id former"),
    ],
)
def test_offsets_of_a_topic_that_may_be_gone_are_refused(
    set_told, store, told_id, reason
):
    before = store.read()

    result = set_told("former", told_id)

    assert result.exit_code == 1
    assert f"orders-0: {reason}" in " ".join(result.stderr.split())
    assert store.read() == before


def test_offsets_of_a_log_that_lost_its_end_are_refused(run, store, url, monkeypatch):
    """Others get the epoch of the leader that has them now."""
    bounds = {ORDERS: LogBounds(0, 9, "id", 2, {1: 5})}
    monkeypatch.setattr(Logs, "poll", lambda *_: {"": bounds})
    before = store.read()

    def set_to(offset):
        mark = {"topic_ids": {"orders": "id"}, "leader_epochs": {"orders": [[1, "0"]]}}
        return run(
            *("offsets", "set", "--store", url, "--id", "orders", "--yes"),
            *("--bootstrap-servers", "b:1", "--offsets"),
            json.dumps({"orders": {"0": offset}, "_kafka_tx": mark}),
        )

    refused = set_to(7)

    assert refused.exit_code == 1
    assert (
        "orders-0: offset 7 is above 5, where the log of leader epoch 1 ends and other"
        in " ".join(refused.stderr.split())
    )
    assert store.read() == before
    assert set_to(5).exit_code == 0
    committed = Ledger(store).load().committed
    assert committed is not None
    assert committed.positions()[ORDERS] == LogPosition(5, "id", 2)


@pytest.fixture
def servers():
    with MockCluster() as cluster:
        cluster.create_topic("orders", 1)
        for _ in range(3):
            cluster.produce("orders", b"x")
        cluster.flush()
        yield cluster.bootstrap_servers


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ("earliest", 0),
        ("latest", 3),
    ],
)
def test_set_goes_to_the_ends_of_a_log(run, store, url, servers, to, offset):
    asked = ("offsets", "set", "--store", url, "--id", "orders", "--to", to)

    shown = run(*asked, "--bootstrap-servers", servers, "--dry-run")
    assert Ledger(store).load().txid == COMMITTED_TXID
    result = run(*asked, "--bootstrap-servers", servers, "--yes")

    committed = Ledger(store).load().committed
    assert (shown.exit_code, result.exit_code) == (0, 0), result.stderr
    assert f"orders-0: 250 -> {offset}" in shown.stdout
    assert committed is not None
    assert committed.offsets == {ORDERS: offset}
    assert committed.txid == COMMITTED_TXID + 1


@pytest.mark.parametrize("to", ["2999-01-01", "9999-12-31T23:59:59+00:00"])
def test_a_time_that_has_not_come_is_refused(run, store, url, to):
    asked = ("offsets", "set", "--store", url, "--id", "orders", "--to", to)
    result = run(*asked, "--bootstrap-servers", "127.0.0.1:1", "--yes")

    assert result.exit_code == 2
    assert "legal: a time that has passed, or latest" in result.stderr
    assert Ledger(store).load().txid == COMMITTED_TXID


@pytest.mark.parametrize(
    "time", ["1970-01-01T00:00:02", "1970-01-01T01:00:02+01:00", "1970-01-01 00:00:02Z"]
)
def test_times_are_utc_unless_they_say_otherwise(time):
    assert target_of(None, time, None, has_brokers=True).to == AtTime(2000)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "either --offsets"),
        (["--to", "latest", "--offsets", "{}"], "either --offsets"),
        (["--to", "latest"], "add --bootstrap-servers"),
        (["--to", "yesterday", "--bootstrap-servers", "b:1"], "earliest, latest, or"),
        (["--topic", "orders", "--offsets", "{}"], "either --offsets"),
    ],
)
def test_set_wants_one_target(run, store, url, given, said):
    before = store.read()

    result = run("offsets", "set", "--store", url, "--id", "orders", "--yes", *given)

    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert store.read() == before


def test_set_to_names_the_topics_it_can_move(run, store, url, servers):
    result = run(
        *("offsets", "set", "--store", url, "--id", "orders", "--yes"),
        *("--to", "latest", "--topic", "other", "--bootstrap-servers", servers),
    )

    assert result.exit_code == 2
    assert "a topic that the id has read or planned: orders" in " ".join(
        result.stderr.split()
    )


def test_a_forgotten_topic_is_set_to_the_start_of_its_logs_as_the_text_says(
    run, store, url, servers
):
    named = ("--store", url, "--id", "orders", "--yes")
    forgotten = run("offsets", "forget", *named, "--topic", "orders").stdout
    words = re.search(r"kafka-tx (offsets set --to earliest --topic) TOPIC", forgotten)
    assert words is not None

    done = run(
        *(*words[1].split(), "orders", *named),
        *("--bootstrap-servers", servers),
    )

    assert done.exit_code == 0, done.stderr
    assert "orders-0: none -> 0" in done.stdout
    assert Ledger(store).load().position.offsets == {ORDERS: 0}


# --- unfinished txids of other topics -------------------------------------------------


OLD = TopicPartition("old", 0)
COMMITTED = Committed(4, {ORDERS: 10, OLD: 7}, {"orders": "id-1", "old": "id-2"})
OF_ORDERS = OffsetRange(ORDERS, 10, 20)


@pytest.fixture
def with_old(run, url):
    """Id ``two`` reads orders and old. Txid 5, if given, is planned, as for a sink."""
    with closing(SqlStore(url, "two")) as state:

        def begin(*ranges):
            ledger = Ledger(state)
            epoch = ledger.acquire()
            ledger.adopt(epoch, COMMITTED, NUMBERING)
            if ranges:
                ledger.plan(epoch, BatchMetadata(5, ranges, logged_as="5@1"))

        def does(*words):
            named = ("--store", url, "--id", "two", "--yes")
            return run("offsets", words[0], *named, *words[1:])

        yield state, begin, does


SET_OLD = ("set", "--unchecked", "--offsets", '{"old": {"0": 9}}')


@pytest.mark.parametrize("words", [("forget", "--topic", "old"), SET_OLD])
def test_a_txid_without_a_part_of_the_topic_stays(with_old, words):
    """A sink that holds it gets the same txid again, with a new checkpoint."""
    state, begin, does = with_old
    begin(OF_ORDERS)
    Ledger(state).describe(1, QueryShape(("other", "two")))
    planned = Ledger(state).load().unfinished

    done = does(*words)

    after = Ledger(state).load()
    assert done.exit_code == 0, done.stderr
    assert "txid 5 stays unfinished\nnext txid: 5\n" in done.stdout
    assert "Start the query with a new checkpoint." in done.stdout
    assert "'other'" not in done.stdout, "it has the same batch, which comes again"
    assert (after.txid, after.unfinished) == (4, planned)
    assert (
        after.position.offsets
        == {
            "forget": {ORDERS: 10},
            "set": {ORDERS: 10, OLD: 9},
        }[words[0]]
    )


@pytest.mark.parametrize(
    ("words", "is_committed"), [(("forget", "--topic", "old"), True), (SET_OLD, False)]
)
def test_the_next_step_is_of_what_the_job_left_and_not_of_what_was_shown(
    with_old, monkeypatch, words, is_committed
):
    state, begin, does = with_old
    begin()
    job, acquire = Ledger(state), Ledger.acquire
    job.describe(1, QueryShape(("other", "two")))

    def acquire_behind_the_job(ledger, **more):
        job.plan(1, BatchMetadata(5, (OF_ORDERS,), logged_as="5@1"))
        if is_committed:
            job.commit(1, 5, completed_ms=0)
        return acquire(ledger, **more)

    monkeypatch.setattr(Ledger, "acquire", acquire_behind_the_job)
    done = does(*words)

    assert done.exit_code == 0, done.stderr
    assert "Start the query with a new checkpoint." in done.stdout
    assert "'other'" not in done.stdout, "it has the same batches"
    assert Ledger(state).load().txid == (5 if is_committed else 4)


@pytest.mark.parametrize("ranges", [(), (OffsetRange(OLD, 7, 9),), (OF_ORDERS,)])
def test_forget_names_the_store_as_the_decider_unless_a_txid_stays(with_old, ranges):
    _, begin, does = with_old
    begin(*ranges)

    done = does("forget", "--topic", "old")

    may_decide = "or tx.onDisagreement=store" in done.stdout
    assert may_decide == (ranges != (OF_ORDERS,))


@pytest.mark.parametrize(
    "words",
    [
        ("forget", "--topic", "old"),
        SET_OLD,
        (*SET_OLD, "--numbering", NUMBERING, "--attempt", "5:1"),
    ],
)
def test_a_txid_with_records_of_others_is_not_dropped_and_its_ends_are_set(
    with_old, words
):
    """Of the old topic it only has the position. The sinks hold it."""
    state, begin, does = with_old
    begin(OF_ORDERS, OffsetRange(OLD, 7, 7))
    before = state.read()

    refused = does(*words)

    text = " ".join(refused.stderr.split())
    assert refused.exit_code == 1
    assert "txid 5 is not finished and has orders-0 [10, 20). If it is" in text
    assert "if the sinks hold txid 5, with the ends of the ranges" in text
    assert (state.read(), state.epoch()) == (before, 1)
    ends = does("set", "--unchecked", "--offsets", '{"orders": {"0": 20}}')
    again = does(*words)
    assert (ends.exit_code, again.exit_code) == (0, 0), again.stderr
    after = Ledger(state).load()
    assert (after.txid, after.unfinished, after.position.offsets[ORDERS]) == (5, {}, 20)


def test_another_numbering_drops_txids_that_have_no_part_of_the_topic(with_old):
    _, begin, does = with_old
    begin(OF_ORDERS)

    refused = does(*SET_OLD, "--numbering", "0" * 12, "--attempt", "5:1")

    assert refused.exit_code == 1
    assert "orders-0 [10, 20)" in refused.stderr


def test_deleted_topics_are_forgotten_at_once_and_need_not_be_named(with_old):
    """As the error for a batch says whose topics were deleted."""
    state, begin, does = with_old
    records_of_both = (OF_ORDERS, OffsetRange(OLD, 7, 9))
    begin(*records_of_both)

    done = does("forget", "--topic", "old", "--topic", "orders")

    assert done.exit_code == 0, done.stderr
    assert (Ledger(state).load().txid, Ledger(state).load().position.offsets) == (5, {})
    begin(*records_of_both)
    given = {"orders": {"0": 20}, "_kafka_tx": {"gone": ["old"]}}
    done = does("set", "--unchecked", "--offsets", json.dumps(given))
    assert done.exit_code == 0, done.stderr


def test_set_to_names_partitions_that_are_only_planned(with_old, servers):
    _, begin, does = with_old
    begin(OF_ORDERS, OffsetRange(TopicPartition("orders", 1), 0, 3))
    of_orders = ("--topic", "orders", "--bootstrap-servers", servers)

    done = does("set", "--to", "latest", *of_orders)

    assert done.exit_code == 1
    assert "orders-1: it does not exist" in done.stderr
