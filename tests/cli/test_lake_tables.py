"""What doctor makes of the files of tables."""

from __future__ import annotations

import gzip
import json

import pytest

from kafka_tx.cli.lake_tables import inspect_table
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.publications import PUBLISHED, Name
from kafka_tx.sinks.table_writes import record_of
from kafka_tx.transactions.layout.commit_stats import (
    CommitStats,
    TableWrite,
    TaskSums,
    stats_record,
)

NUMBERING = "one"


def written(place, txid=2):
    return TableWrite(txid=txid, table="t", sink="s", location=str(place))


def attempt(txid, numbering=NUMBERING):
    return TransactionAttempt(txid, txid, "orders", f"plan{txid}", numbering)


def delta_commit(place, version, *actions, **info):
    (place / "_delta_log").mkdir(exist_ok=True)
    lines = [json.dumps(each) for each in ({"commitInfo": info}, *actions)]
    (place / "_delta_log" / f"{version:020}.json").write_text("\n".join(lines))


def delta_txid(place, version, txid, sink="s", numbering=NUMBERING, add=""):
    record = {"kafka_tx": record_of(sink, attempt(txid))}
    txn = {"txn": {"appId": f"kafka_tx.{sink}.{numbering}", "version": txid}}
    files = [{"add": {"path": add}}] if add else []
    delta_commit(place, version, txn, *files, userMetadata=json.dumps(record))


def iceberg(place, *txids, floor=None, name="v3.metadata.json"):
    snapshots = [
        {
            "snapshot-id": number,
            "timestamp-ms": number,
            "sequence-number": number,
            **({"parent-snapshot-id": number - 1} if number > 1 else {}),
            "summary": {"kafka_tx": json.dumps(record_of("s", attempt(txid)))},
        }
        for number, txid in enumerate(txids, start=1)
    ]
    record = record_of("s", attempt(floor)) if floor else None
    raised = json.dumps({**record, "snapshot": 1, "order": [1, 1]}) if record else ""
    metadata = {
        "current-snapshot-id": len(txids),
        "snapshots": snapshots,
        "properties": {"kafka_tx.s": raised} if raised else {},
    }
    (place / "metadata").mkdir(exist_ok=True)
    text = json.dumps(metadata).encode()
    (place / "metadata" / name).write_bytes(
        gzip.compress(text) if ".gz" in name else text
    )


def test_doctor_looks_at_the_tables_of_all_ids(run, store, url, tmp_path):
    delta_commit(tmp_path, 0)
    delta_txid(tmp_path, 1, 41)
    told = TaskSums(records=1, tables=(written(tmp_path / "gone", 41),))
    held = CommitStats(txid=41, epoch=1, committed_ms=1, from_tasks=told)
    store.write(1, stats_record(store.read(), held))

    found = json.loads(run("doctor", "--store", url, "--json").stdout)

    (table,) = [each for each in found if each["what"] == "table"]
    assert table["verdict"] == "bad"
    assert f"{tmp_path}/gone holds no table" in table["text"]

    there = f"sqlite:///{tmp_path}/there.db"
    assert not run("store", "copy", "--from", url, "--to", there, "--yes").exit_code
    old = json.loads(run("doctor", "--store", url, "--json").stdout)
    assert not any(each["what"] == "table" for each in old)  # the tables go on, too


def test_a_delta_table_with_the_txid_is_good(tmp_path):
    delta_commit(tmp_path, 0)
    delta_txid(tmp_path, 1, 1)
    delta_txid(tmp_path, 2, 2)
    delta_txid(tmp_path, 3, 9, sink="another")

    found = inspect_table(written(f"file:{tmp_path}"), NUMBERING, 2)

    assert found == ("good", "t (sink 's') has txid 2 in version 2")


@pytest.mark.parametrize("numbering", [NUMBERING, "another"])
def test_a_delta_table_that_lacks_the_txid_is_another_table(tmp_path, numbering):
    delta_commit(tmp_path, 0)
    delta_txid(tmp_path, 1, 1, numbering=numbering)

    verdict, text = inspect_table(written(tmp_path), NUMBERING, 2)

    assert verdict == "bad"
    has = "has only txid 1" if numbering == NUMBERING else "has no txid of this sink"
    assert has in text


def test_a_delta_table_that_was_restored_and_put_back_is_good(tmp_path):
    def restored(version, to):
        operation = {"operation": "RESTORE", "operationParameters": {"version": to}}
        delta_commit(tmp_path, version, **operation)

    delta_commit(tmp_path, 0)
    delta_txid(tmp_path, 1, 1)
    delta_txid(tmp_path, 2, 2)

    restored(3, to=1)
    assert inspect_table(written(tmp_path), NUMBERING, 1)[0] == "bad"
    assert inspect_table(written(tmp_path), NUMBERING, 2)[0] == "advice"
    restored(4, to=2)
    assert inspect_table(written(tmp_path), NUMBERING, 1)[0] == "good"


@pytest.mark.parametrize(("removed", "verdict"), [("23", "bad"), ("3", "good")])
def test_a_restore_to_a_time_is_known_by_the_files_of_the_log(
    tmp_path, removed, verdict
):
    for txid in (1, 2):
        delta_txid(tmp_path, txid, txid, add=f"{txid}")
    delta_commit(tmp_path, 3, {"add": {"path": "3"}})
    gone = [{"remove": {"path": path}} for path in removed]
    at = {"version": None, "timestamp": "2026-11-29 16:13:56.73"}
    delta_commit(tmp_path, 4, *gone, operation="RESTORE", operationParameters=at)

    assert inspect_table(written(tmp_path), NUMBERING, 1)[0] == verdict


def test_a_delta_table_that_was_replaced_is_told(tmp_path):
    delta_txid(tmp_path, 1, 1)
    delta_txid(tmp_path, 2, 2)
    delta_commit(tmp_path, 3, operation="CREATE OR REPLACE TABLE")

    verdict, text = inspect_table(written(tmp_path), NUMBERING, 1)

    assert verdict == "bad"
    assert "version 3 replaced the table (CREATE OR REPLACE TABLE)" in text
    assert inspect_table(written(tmp_path), NUMBERING, 2)[0] == "advice"


def test_a_clone_in_place_of_a_delta_table_is_told(tmp_path):
    delta_commit(tmp_path, 0, operation="CLONE")

    verdict, text = inspect_table(written(tmp_path), NUMBERING, 2)

    assert verdict == "bad"
    assert "made it as a clone, which has no txids" in text


def test_of_iceberg_the_newest_metadata_counts(tmp_path):
    iceberg(tmp_path, 1, floor=1, name="v9.metadata.json")
    iceberg(tmp_path, 1, 2, floor=1, name="00010-ab-cd.gz.metadata.json")

    verdict, text = inspect_table(written(tmp_path), NUMBERING, 2)

    assert (verdict, text) == (
        "good",
        "t (sink 's') has txid 2",
    )


def test_an_iceberg_table_that_was_rolled_back_and_then_expired_is_told(tmp_path):
    """Former metadata tells that the last snapshot does not follow txid 2's."""
    iceberg(tmp_path, 1, 2, floor=2, name="v1.metadata.json")
    former = json.loads((tmp_path / "metadata" / "v1.metadata.json").read_text())
    other = {"snapshot-id": 3, "parent-snapshot-id": 1, "sequence-number": 3}
    raised = {**record_of("s", attempt(2)), "snapshot": 2, "order": [2, 2]}
    newest = {
        "current-snapshot-id": 3,
        "snapshots": [{**other, "timestamp-ms": 3, "summary": {}}],
        "properties": {**former["properties"], "kafka_tx.s": json.dumps(raised)},
    }
    (tmp_path / "metadata" / "v2.metadata.json").write_text(json.dumps(newest))

    verdict, text = inspect_table(written(tmp_path), NUMBERING, 1)

    assert verdict == "advice"
    assert "rolled back" in text


def test_an_iceberg_table_of_another_numbering_is_told(tmp_path):
    iceberg(tmp_path, 1, 2)

    verdict, text = inspect_table(written(tmp_path), "other", 2)

    assert verdict == "bad"
    assert "numbering one" in text


def test_an_iceberg_table_without_the_sink_is_another_table(tmp_path):
    iceberg(tmp_path)

    verdict, text = inspect_table(written(tmp_path), NUMBERING, 2)

    assert verdict == "bad"
    assert "a copy, or was made anew" in text


@pytest.mark.parametrize("place", ["", "nothing://that/is/known", "broken"])
def test_what_cannot_be_read_is_said(tmp_path, place):
    if place == "broken":
        place = tmp_path
        (tmp_path / "_delta_log").mkdir()
        (tmp_path / "_delta_log" / f"{0:020}.json").write_text("?")

    verdict, text = inspect_table(written(place), NUMBERING, 2)

    assert verdict == "unknown"
    assert "does not say where" in text or "cannot be read from here" in text


def test_a_folder_of_files_with_the_txid_is_good_and_an_older_copy_is_told(tmp_path):
    place = tmp_path / PUBLISHED
    place.mkdir(parents=True)
    for txid in (1, 2):
        (place / str(Name(txid, txid, 0, f"{txid:016x}"))).touch()
        (place / f".{txid}.crc").touch()

    found = inspect_table(written(tmp_path), NUMBERING, 2)
    assert found == ("good", "t (sink 's') has txid 2")
    verdict, text = inspect_table(written(tmp_path, txid=5), NUMBERING, 5)
    assert verdict == "advice"
    assert "has txid 2, and the store says that txid 5 was written" in text
