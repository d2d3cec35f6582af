"""What ``kafka-tx doctor`` reads in the files of real tables."""

from __future__ import annotations

import itertools
import shutil
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

import kafka_tx
from integration.capabilities import LAKE, need
from integration.cluster.spark_local import delta_session, iceberg_session
from kafka_tx.cli.lake_tables import inspect_table
from kafka_tx.sinks.table_writes import recorded_commits
from tests.conformance.sink_suite import attempt

_ids = map("doctor{}".format, itertools.count())


class Written:
    """A table with two txids, and what the store of their source keeps of it."""

    def __init__(self, session, table):
        self.session, self.table, self._id = session, table, next(_ids)
        df = session.createDataFrame([("a",)], "key string").coalesce(1)
        tries = [replace(attempt(txid), source=self._id) for txid in (1, 2)]
        for given in tries:
            kafka_tx.append_to_table(df, given, table)
        self.numbering = tries[0].numbering
        (self.write,) = recorded_commits(self._id, self.numbering, 2)

    def sql(self, statement):
        return self.session.sql(statement.replace("TABLE t", f"TABLE {self.table}"))

    def looked_at(self, *, committed=2, **changes):
        write = replace(self.write, **changes)
        return inspect_table(write, self.numbering, committed)


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    need(LAKE)
    place = tmp_path_factory.mktemp("delta") / "orders"
    return Written(delta_session(spark), str(place))


@pytest.fixture
def delta(written, tmp_path):
    """A copy of its own of one table that was written once."""
    table = tmp_path / "orders"
    shutil.copytree(written.table, table)
    copied = copy(written)
    copied.write = replace(written.write, location=str(table))
    copied.table = f"delta.`{table}`"
    return copied


@pytest.mark.all
def test_doctor_finds_the_txid_of_a_delta_table_also_in_a_checkpoint(delta):
    named = f"{delta.write.table} (sink 'default')"
    assert delta.looked_at() == (
        "good",
        f"{named} has txid 2 in version {delta.write.version}",
    )

    delta.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    log = Path(delta.write.location, "_delta_log")
    assert list(log.glob("*.checkpoint*.parquet"))
    for old in sorted(log.glob("*.json"))[:-1]:
        old.unlink()

    assert delta.looked_at() == ("good", f"{named} has txid 2")


@pytest.mark.all
def test_doctor_tells_what_restore_means_for_a_batch(delta):
    before = int(delta.write.version) - 1
    delta.sql(f"RESTORE TABLE t TO VERSION AS OF {before}")

    unfinished, refused = delta.looked_at(committed=1)
    finished, stays_out = delta.looked_at()

    assert (unfinished, finished) == ("bad", "advice")
    assert f"restored the table to version {before}" in refused
    assert "refuses to replay" in refused
    assert "stay out" in stays_out


@pytest.mark.all
def test_doctor_tells_that_a_clone_has_no_txids(delta, tmp_path):
    clone = tmp_path / "clone"
    delta.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {delta.table}")

    verdict, text = delta.looked_at(location=str(clone))

    assert verdict == "bad"
    assert "made it as a clone, which has no txids" in text


@pytest.mark.all
def test_doctor_tells_that_a_delta_table_forgets(delta):
    kept = "delta.setTransactionRetentionDuration"
    delta.sql(f"ALTER TABLE t SET TBLPROPERTIES ('{kept}' = 'interval 7 days')")

    verdict, text = delta.looked_at()

    assert verdict == "bad"
    assert f"UNSET TBLPROPERTIES ('{kept}')" in text


@pytest.fixture
def iceberg(ice, spark, tmp_path):
    session = iceberg_session(spark, tmp_path / "lake")
    return Written(session, f"lake.db.{tmp_path.name}")


def test_doctor_finds_the_txid_of_an_iceberg_table_also_after_expiry(iceberg):
    name = iceberg.table.removeprefix("lake.")
    iceberg.sql(f"INSERT INTO {iceberg.table} VALUES ('x')")
    iceberg.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}',"
        " older_than => TIMESTAMP '2100-01-01')"
    )

    found = iceberg.looked_at(committed=1)

    assert found == ("good", f"{iceberg.write.table} (sink 'default') has txid 2")


def test_doctor_tells_that_an_iceberg_table_was_rolled_back(iceberg):
    snapshots = f"{iceberg.table}.snapshots WHERE parent_id IS NULL"
    first = iceberg.sql(f"SELECT snapshot_id FROM {snapshots}").first().snapshot_id
    name = iceberg.table.removeprefix("lake.")
    iceberg.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {first})")

    verdict, text = iceberg.looked_at()

    assert verdict == "advice"
    assert "rolled back" in text
