from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from kafka_tx import assembly
from kafka_tx.errors import FormatError
from kafka_tx.model import (
    BatchMetadata,
    CommittedOffset,
    OffsetRange,
    SpoutBatch,
    TopicPartition,
)
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import batch_record
from kafka_tx.transactions.layout.commit_stats import (
    CommitStats,
    TableWrite,
    TaskSums,
    stats_record,
)
from kafka_tx.transactions.layout.stops import Stop, stop_id, store_stop
from kafka_tx.transactions.layout.txid_layout import Door, Numbering
from kafka_tx.transactions.ownership.memory import MemoryStore, StoredId
from kafka_tx.zookeeper.offsets import decoded
from tests.cli.conftest import NUMBERING


def test_status_shows_owner_committed_offsets_and_open_ranges(run, store, url):
    result = run("status", "--store", url)

    assert result.exit_code == 0
    assert "orders" in result.stdout
    assert "epoch        1" in result.stdout
    assert "txid 41" in result.stdout
    lines = result.stdout.splitlines()
    assert "               orders-0  250" in lines
    assert lines[-2:] == [
        "  unfinished   txid 42",
        "               orders-0  [250, 300)",
    ]


def test_status_as_json_has_every_id(run, store, url):
    result = run("status", "--store", url, "--json")

    assert json.loads(result.stdout) == [
        {
            "id": "orders",
            "epoch": 1,
            "door": "source",
            "numbering": NUMBERING,
            "committed_txid": 41,
            "committed_ms": 1_700_000_000_000,
            "offsets": {"orders": {"0": 250}},
            "tables": [],
            "unfinished": [{"txid": 42, "ranges": {"orders": {"0": [250, 300]}}}],
        }
    ]


def test_status_shows_where_an_id_has_moved(run, store, url, tmp_path):
    there = f"sqlite:///{tmp_path}/there.db"
    run("store", "copy", "--from", url, "--to", there, "--yes")

    shown = run("status", "--store", url).stdout
    (old,) = json.loads(run("status", "--store", url, "--json").stdout)
    (new,) = json.loads(run("status", "--store", there, "--json").stdout)

    assert f"  moved to     {there}" in shown.splitlines()
    assert old.pop("moved_to") == there
    assert {**old, "epoch": new["epoch"]} == new


def test_status_shows_the_tables_that_an_id_has_written(run, store, url):
    tables = (
        TableWrite(txid=41, table="sales.orders", sink="default", version="7"),
        TableWrite(txid=40, table="sales.totals", sink="merged"),
    )
    told = TaskSums(records=250, tables=tables)
    store.write(
        1,
        stats_record(
            store.read(), CommitStats(txid=41, epoch=1, committed_ms=1, from_tasks=told)
        ),
    )

    lines = run("status", "--store", url).stdout.splitlines()
    (found,) = json.loads(run("status", "--store", url, "--json").stdout)

    assert "  table        sales.orders: txid 41, version 7" in lines
    assert "  table        sales.totals (sink 'merged'): txid 40" in lines
    assert [(one["table"], one["txid"], one["version"]) for one in found["tables"]] == [
        ("sales.orders", 41, "7"),
        ("sales.totals", 40, None),
    ]


def test_an_id_of_no_door_shows_its_records(run, store, url):
    store.write(1, {"mine/too": "x"}, list(store.read()))

    (found,) = json.loads(run("status", "--store", url, "--json").stdout)

    assert found["records"] == ["mine/too"]


@pytest.fixture
def topology(url):
    """Txid 7 of a transactional topology is committed, 8 is planned."""
    state = SqlStore(url, "words")
    texts = {"currtx": records.encode("currtx", 8)}
    texts |= Numbering(NUMBERING, Door.TRANSACTIONAL).record
    for txid, start, end in ((7, 10, 20), (8, 20, 25)):
        part = OffsetRange(TopicPartition("orders", 0), start, end)
        batch = BatchMetadata(txid, (part,), {"orders": "T"})
        texts[f"meta/{txid}"] = batch_record(batch)
    state.write(state.acquire(), texts)
    state.close()


def test_status_knows_transactional_topologies(run, topology, url):
    (found,) = json.loads(run("status", "--store", url, "--json").stdout)

    assert found == {
        "id": "words",
        "epoch": 1,
        "door": "transactional topology",
        "numbering": NUMBERING,
        "committed_txid": 7,
        "committed_ms": None,
        "offsets": {"orders": {"0": 20}},
        "unfinished": [{"txid": 8, "ranges": {"orders": {"0": [20, 25]}}}],
    }
    assert "txid 7\n" in run("status", "--store", url).stdout


def test_status_shows_when_a_topology_committed_last(run, topology, url):
    state = SqlStore(url, "words")
    held = CommitStats(txid=7, epoch=1, committed_ms=1_700_000_000_000)
    state.write(1, stats_record({}, held))
    state.close()

    (found,) = json.loads(run("status", "--store", url, "--json").stdout)

    assert found["committed_ms"] == 1_700_000_000_000


def test_a_topology_without_a_commit_has_none(run, url):
    state = SqlStore(url, "words")
    texts = Numbering(NUMBERING, Door.TRANSACTIONAL).record
    texts["meta/1"] = batch_record(SpoutBatch(1, (), json={"any": "thing"}))
    state.write(state.acquire(), texts)
    state.close()

    assert "nothing yet" in run("status", "--store", url).stdout


def test_status_knows_at_least_once_topologies(run, url):
    offsets = SqlOffsetStore(url, "clicks")
    offsets.store({TopicPartition("orders", 3): CommittedOffset(40)})
    offsets.close()

    (found,) = json.loads(run("status", "--store", url, "--json").stdout)

    assert found == {
        "id": "clicks",
        "epoch": 0,
        "door": "at-least-once topology",
        "offsets": {"orders": {"3": 40}},
    }
    assert "orders-3  40" in run("status", "--store", url).stdout
    shown = run("offsets", "show", "--store", url, "--id", "clicks")
    assert shown.stdout == "orders-3\t40\n"


def test_two_topologies_with_one_id_are_both_shown(run, topology, url):
    offsets = SqlOffsetStore(url, "words")
    offsets.store({TopicPartition("clicks", 3): CommittedOffset(40)})
    offsets.close()

    found = json.loads(run("status", "--store", url, "--json").stdout)

    assert [(one["id"], one["door"], one["offsets"]) for one in found] == [
        ("words", "transactional topology", {"orders": {"0": 20}}),
        ("words", "at-least-once topology", {"clicks": {"3": 40}}),
    ]
    shown = run("offsets", "show", "--store", url, "--id", "words")
    assert shown.exit_code == 1
    assert "transactional topology and of an at-least-once topology" in shown.output


def test_an_id_that_is_called_like_the_notes_of_another_one_is_shown(run, url):
    for name in ("clicks", stop_id("clicks")):
        state = SqlStore(url, name)
        epoch = state.acquire()
        state.write(epoch, Numbering(NUMBERING, Door.TRANSACTIONAL).record)
        state.close()

    found = json.loads(run("status", "--store", url, "--json").stdout)

    assert [one["id"] for one in found] == ["clicks", stop_id("clicks")]


def test_an_unknown_id_is_one_line_with_the_known_ones(run, store, url):
    result = run("status", "--store", url, "--id", "order")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "'order'" in result.stderr
    assert "ids it has: orders" in result.stderr


def test_a_missing_file_is_told_and_not_made(run, tmp_path):
    missing = tmp_path / "none.db"

    result = run("status", "--store", f"sqlite:///{missing}")

    assert result.exit_code == 1
    assert "the file does not exist" in result.stderr
    assert not missing.exists()


def test_a_store_in_memory_cannot_be_looked_into(run):
    result = run("status", "--store", "memory:")

    assert result.exit_code == 2
    assert "its own process only" in result.stderr


def test_a_url_copied_from_a_message_lacks_its_password(run):
    result = run("status", "--store", "postgresql://me:***@db/state")

    assert result.exit_code == 2
    assert "put the password back in" in result.stderr


def test_an_unreadable_record_names_the_command_that_repairs_it(run, store, url):
    store.write(1, {"committed": "garbage"})

    result = run("status", "--store", url)

    assert result.exit_code == 1
    assert "unreadable   committed" in result.stdout
    assert f"kafka-tx offsets repair --store '{url}' --id orders" in result.stderr


def test_a_file_that_is_no_database_is_one_line(run, tmp_path):
    file = tmp_path / "state.db"
    file.write_bytes(b"no database at all" * 100)

    result = run("status", "--store", f"sqlite:///{file}")

    assert result.exit_code == 1
    assert "KAFKA_TX_STATE" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_ended_it_last_is_shown(run, store, url):
    text = "ValueError: bad\n  \x1b[2Jrecord"
    store_stop(store, Stop("user", text, 1_700_000_000_000))

    shown = run("status", "--store", url).stdout
    (answer,) = json.loads(run("status", "--store", url, "--json").stdout)

    (line,) = [line for line in shown.splitlines() if "last stop" in line]
    assert line.startswith("  last stop    user, ")
    assert line.endswith(" d ago: ValueError: bad \\x1b[2Jrecord")
    assert answer["last_stop"]["at_ms"] == 1_700_000_000_000
    assert answer["committed_txid"] == 41


def test_the_store_is_asked_as_often_for_many_ids_as_for_one(
    run, store, url, monkeypatch
):
    asked: list[str] = []
    execute = sa.Connection.execute

    def counted(connection, statement, *more):
        asked.append(str(statement))
        return execute(connection, statement, *more)

    monkeypatch.setattr(sa.Connection, "execute", counted)

    def queries():
        asked.clear()
        found = json.loads(run("status", "--store", url, "--json").stdout)
        return len(found), len(asked)

    one, for_one = queries()
    for name in ("a", "b", "c"):
        other = SqlStore(url, name)
        other.write(other.acquire(), {"x": "y"})
        other.close()
    four, for_four = queries()

    assert (one, four) == (1, 4)
    assert 0 < for_one == for_four


def test_an_unknown_id_is_told_with_the_three_nearest_of_many(run, url):
    for name in ("clicks", "orders-a", "orders-b", "orders-c", "visits"):
        other = SqlStore(url, name)
        other.write(other.acquire(), {"x": "y"})
        other.close()

    result = run("status", "--store", url, "--id", "orders")

    assert result.exit_code == 1
    assert "ids it has: orders-c, orders-b, orders-a and 2 others" in result.stderr


def test_the_store_can_come_from_the_environment_or_a_file(
    run, store, url, tmp_path, monkeypatch
):
    (tmp_path / "url").write_text(f"{url}\n")

    from_file = run("status", "--store", f"@{tmp_path}/url", "--json")
    monkeypatch.setenv("KAFKA_TX_STORE", url)
    from_environment = run("status", "--json")

    assert from_file.stdout == from_environment.stdout
    assert json.loads(from_file.stdout)[0]["id"] == "orders"


def test_a_file_that_is_missing_is_named(run, tmp_path):
    result = run("status", "--store", f"@{tmp_path}/none")

    assert result.exit_code == 2
    assert f"'@{tmp_path}/none' cannot be read" in result.stderr


def test_the_store_of_no_ids_is_not_repeated_with_its_password(run, monkeypatch):
    monkeypatch.setattr(assembly, "stored_states", lambda url, ids: {})

    result = run("status", "--store", "postgresql://me:s3cret@db/state")

    assert result.exit_code == 0
    assert result.stdout == "the store holds no ids\n"


def test_a_format_of_another_version_hides_no_other_id(run, url, monkeypatch):
    offset = {"offset": 7, "topic": "t", "partition": 0, "kafka_tx": {"v": 9}}
    with pytest.raises(FormatError) as refusal:
        decoded(json.dumps(offset).encode())
    later = StoredId.unreadable(url, "later", refusal.value)
    good = StoredId(MemoryStore("", "good"), lambda: (0, {}))
    states = {"good": good, "later": later}
    monkeypatch.setattr(assembly, "stored_states", lambda *_: states)

    result = run("status", "--store", url)

    assert result.exit_code == 1
    assert "good" in result.stdout
    assert "unreadable   format" in result.stdout
    assert "the offset of t-0 in ZooKeeper" in result.stderr


def test_a_batch_of_a_topology_whose_path_makes_no_sense_is_unreadable(run, url):
    state = SqlStore(url, "words")
    texts = Numbering(NUMBERING, Door.TRANSACTIONAL).record
    state.write(state.acquire(), {**texts, "meta/x": "{}"})
    state.close()

    assert "unreadable   meta/x" in run("status", "--store", url).stdout


def test_a_state_that_is_watched_is_no_json(run, url):
    result = run("status", "--store", url, "--watch", "--json")

    assert result.exit_code == 2
    assert "`kafka-tx top --json` prints each poll" in result.stderr


def test_of_offsets_in_a_consumer_group_the_command_that_shows_them_is_named(run):
    result = run("status", "--store", "kafka:")

    assert result.exit_code == 2
    assert "`kafka-tx lag --store kafka: --id GROUP" in result.stderr
