"""Batches into Delta tables: each once, whatever comes between two tries."""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

import kafka_tx
from integration.bounded import DeadError
from integration.capabilities import LAKE, need
from integration.cluster.spark_local import delta_session
from integration.cluster.waiting import wait_until
from integration.sinks.table_driver import merge, paused
from integration.sinks.table_suite import Rival, Table, TableSuite, forget, fresh
from kafka_tx.errors import (
    ConfigError,
    FencedError,
    ReplayDiffersError,
    StateLostError,
)
from kafka_tx.spark.sinks import delta, delta_append
from kafka_tx.spark.sinks.formats import is_path
from tests.conformance.sink_suite import SinkSuite, attempt


@pytest.fixture(scope="module")
def lake(spark):
    need(LAKE)
    return delta_session(spark)


class DeltaTable(Table):
    format = "delta"
    appends = delta.DeltaAppend

    @property
    def sql_name(self):
        return f"delta.`{self.name}`" if is_path(self.name) else self.name

    def exists(self):
        return Path(self.name).exists() if is_path(self.name) else super().exists()

    def others_write(self, *rows):
        writer = self.batch(rows).write.format("delta").mode("append")
        writer.save(self.name) if is_path(self.name) else writer.saveAsTable(self.name)

    def versions(self):
        return len(list(self.log.glob("*.json")))

    @property
    def log(self):
        if is_path(self.name):
            return Path(self.name, "_delta_log")
        kept = self.spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
        return Path(kept, self.name, "_delta_log")


class TestDelta(TableSuite):
    """Delta keeps the txid of a statement where it keeps that of an append.

    So what tests of appends show here holds for statements; Iceberg's runs all of both.
    What is marked ``all`` is shown by the table simulator, by ``test_table_writes``, or
    below, where one table sees several faults.
    """

    @pytest.mark.all
    def test_a_replay_refuses_a_second_statement_after_one_without_rows(self, counts):
        super().test_a_replay_refuses_a_second_statement_after_one_without_rows(counts)

    @pytest.mark.all
    def test_a_first_batch_without_rows_is_no_write(self, table):
        super().test_a_first_batch_without_rows_is_no_write(table)

    @pytest.mark.all
    def test_commits_of_one_txid_at_the_same_time_are_one(self, table):
        super().test_commits_of_one_txid_at_the_same_time_are_one(table)

    @pytest.mark.all
    def test_a_merge_counts_a_batch_once(self, lake, counts):
        super().test_a_merge_counts_a_batch_once(lake, counts)

    @pytest.mark.all
    def test_a_batch_without_rows_is_no_commit(self, table):
        super().test_a_batch_without_rows_is_no_commit(table)

    @pytest.mark.all
    def test_each_sink_of_a_table_counts_for_itself(self, table):
        super().test_each_sink_of_a_table_counts_for_itself(table)

    @pytest.mark.all
    def test_a_table_that_was_made_anew_under_a_program_stops_it(self, table):
        super().test_a_table_that_was_made_anew_under_a_program_stops_it(table)

    @pytest.mark.all
    def test_a_table_that_was_altered_between_two_tries_has_the_batch_once(self, table):
        super().test_a_table_that_was_altered_between_two_tries_has_the_batch_once(
            table
        )

    @pytest.mark.all
    def test_rows_that_others_delete_stay_out(self, table):
        super().test_rows_that_others_delete_stay_out(table)

    @pytest.mark.all
    def test_a_table_that_was_altered_between_two_tries_counts_it_once(self, counts):
        super().test_a_table_that_was_altered_between_two_tries_counts_it_once(counts)

    @pytest.mark.all
    def test_counts_that_others_delete_stay_out(self, counts):
        super().test_counts_that_others_delete_stay_out(counts)


@pytest.mark.all
class TestDeltaAsSink(SinkSuite):
    """The suite for sinks, on a path."""

    @pytest.fixture
    def open_sink(self, lake, tmp_path):
        forget()
        return partial(DeltaTable, lake, str(tmp_path / "table"))


@pytest.fixture
def table(lake):
    forget()
    made = DeltaTable(lake, fresh())
    yield made
    lake.sql(f"DROP TABLE IF EXISTS {made.name}")


@pytest.fixture
def shared(lake, tmp_path):
    forget()
    return DeltaTable(lake, str(tmp_path / "shared"))


@pytest.fixture(scope="module")
def rival(tmp_path_factory):
    made = Rival(tmp_path_factory.mktemp("rival"), format="delta")
    yield made
    made.end()


@pytest.mark.all
def test_an_append_runs_one_job_as_a_plain_one_does(lake, table):
    table.write(attempt(1), ["a"])

    with jobs(lake) as ran:
        assert table.write(attempt(2), ["b"])

    assert len(ran) == 1


@contextmanager
def jobs(spark):
    """Ids of the Spark jobs that this thread runs."""
    context, group = spark.sparkContext, uuid.uuid4().hex
    ran: list[int] = []
    context.setJobGroup(group, "counted")
    try:
        yield ran
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        ran += context.statusTracker().getJobIdsForGroup(group)


@pytest.mark.all
def test_another_release_of_delta_appends_by_itself(lake, table):
    with mock.patch.object(delta_append, "KNOWN", "none"), jobs(lake) as ran:
        table.write(attempt(1), ["a"])
        assert table.write(attempt(2), ["b"])
        assert not table.write(attempt(2, epoch=2), ["b"])

    assert len(ran) > 2
    assert table.rows() == ["a", "b"]


@pytest.mark.all
@pytest.mark.parametrize("is_another_release", [True, False])
def test_an_append_without_rows_that_delta_commits_counts_in_a_replay(
    lake, table, is_another_release
):
    known = "none" if is_another_release else delta_append.KNOWN
    with mock.patch.object(delta_append, "KNOWN", known), without_statistics(lake):
        assert table.write(attempt(1), ["a"])
        assert table.write(attempt(2), [])
        forget()

        assert not table.write(attempt(2, epoch=2), [])
        with pytest.raises(ConfigError, match="was written already"):
            table.write(attempt(2, epoch=2), ["b"])


@contextmanager
def without_statistics(spark):
    """Delta does not see then that a file is empty."""
    name = "spark.databricks.delta.stats.collect"
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.unset(name)


def test_whatever_happens_between_two_tries_a_batch_is_there_once(table):
    """Others write, compact, change columns and properties, clean up, and delete.

    The job writes twice, or brings other records.
    """
    table.write(attempt(1), ["a"])
    table.others_write("x")
    table.sql(f"OPTIMIZE {table.name}")
    table.sql("ALTER TABLE t ADD COLUMNS (more int)")
    forget()
    assert not table.write(attempt(1, epoch=2), ["a"])

    table.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.checkpointInterval'='5')")
    table.others_write("z")
    for version in range(5):  # version 5 has the only checkpoint
        (table.log / f"{version:020}.json").unlink()
    forget()

    assert not table.write(attempt(1, epoch=3), ["a"])
    with pytest.raises(kafka_tx.KafkaTxError, match="numbering one"):
        table.write(attempt(1, epoch=3, numbering="two"), ["a"])
    wider = table.batch(["b"]).selectExpr("key", "2 AS more")
    assert table.append(wider, attempt(2, epoch=3))
    with pytest.raises(ConfigError, match="was written already"):
        table.append(wider, attempt(2, epoch=3))
    with pytest.raises(ReplayDiffersError, match="txid 2 .*ended elsewhere"):
        table.append(wider, attempt(2, epoch=4, plan="other"))
    with pytest.raises(ConfigError, match="is opaque"):
        table.append(wider, attempt(2, epoch=4, mode="opaque"))
    assert table.rows() == ["a", "b", "x", "z"]

    versions = table.versions()
    for epoch in (3, 4):  # without rows
        assert not table.write(attempt(3, epoch=epoch), [])
    assert table.versions() == versions

    table.sql("TRUNCATE TABLE t")
    forget()
    assert not table.append(wider, attempt(2, epoch=4))
    assert table.rows() == []


@pytest.mark.all
@pytest.mark.parametrize("way", ["sink", "back"])
def test_rows_that_were_restored_away_are_not_taken_for_written(table, way, caplog):
    table.write(attempt(1), ["a"])
    table.write(attempt(2), ["b"])
    newest = table.versions() - 1
    table.sql(f"RESTORE TABLE t TO VERSION AS OF {newest - 1}")
    forget()
    again = attempt(2, epoch=2)

    with pytest.raises(StateLostError, match="give the sink a new name") as error:
        table.write(again, ["b"])
    advice = f"RESTORE TABLE … TO VERSION AS OF {newest}"
    assert advice in str(error.value)
    if way == "back":
        table.sql(advice.replace("…", "t"))
        assert not table.write(again, ["b"])
    else:
        assert table.write(again, ["b"], sink="new")
        assert not table.write(attempt(2, epoch=3), ["b"], sink="new")
        forget()
        assert table.write(attempt(3, epoch=3), ["c"])
        assert "was rolled back: rows of its last batches before txid 3" in caplog.text
    assert table.rows() == ["a", "b", "c"][: 2 + (way == "sink")]


@pytest.mark.all
def test_a_restore_to_a_time_is_known_by_its_files(lake, table):
    """Its text is in the time zone of the program that restored, which is not known."""
    for txid, row in enumerate("abc", start=1):
        table.write(attempt(txid), [row])
    times = lake.sql(f"DESCRIBE HISTORY {table.name}").selectExpr("string(timestamp)")
    newest, before, _, _ = (row[0] for row in times.collect())
    table.others_write("x")

    table.sql(f"RESTORE TABLE t TO TIMESTAMP AS OF '{newest}'")
    forget()
    assert not table.write(attempt(3, epoch=2), ["c"])
    table.sql(f"RESTORE TABLE t TO TIMESTAMP AS OF '{before}'")
    forget()
    with pytest.raises(StateLostError, match="give the sink a new name"):
        table.write(attempt(3, epoch=3), ["c"])
    assert table.rows() == ["a", "b"]


@pytest.mark.all
def test_other_writers_versions_after_a_restore_are_named_and_spared(table):
    table.write(attempt(1), ["a"])
    table.write(attempt(2), ["b"])
    newest, first = table.sql(f"DESCRIBE HISTORY {table.name} LIMIT 2")
    table.sql(f"RESTORE TABLE t TO VERSION AS OF {first.version}")
    table.others_write("x")
    forget()

    with pytest.raises(StateLostError) as error:
        table.write(attempt(2, epoch=2), ["b"])

    others = newest.version + 2
    removes = f"removes what versions {others} to {others} have changed"
    words = "Either give the sink a new name", "Or take that version back", removes
    found = [str(error.value).find(each) for each in words]
    assert found == sorted(found)
    assert found[0] > 0


def test_a_table_that_lost_its_batches_is_not_taken_for_the_former_one(table, caplog):
    """It is restored, replaced and dropped; the batch is finished or under way."""
    table.write(attempt(1), ["a"])
    table.write(attempt(2), ["b"])

    table.sql(f"RESTORE TABLE t TO VERSION AS OF {table.versions() - 2}")
    forget()
    with pytest.raises(StateLostError, match="give the sink a new name"):
        table.write(attempt(2, epoch=2), ["b"])
    forget()
    assert table.write(attempt(3, epoch=3), ["c"])
    assert "was rolled back: rows of its last batches before txid 3" in caplog.text
    assert table.rows() == ["a", "c"]

    table.sql("CREATE OR REPLACE TABLE t (key string) USING delta")
    table.others_write("x")
    with pytest.raises(StateLostError, match="CREATE OR REPLACE TABLE.*start again"):
        table.write(attempt(4, epoch=3), ["d"])
    forget()  # started again
    with pytest.raises(StateLostError, match="replaced the table .*Either give the s"):
        table.write(attempt(3, epoch=4), ["c"])
    assert table.write(attempt(3, epoch=4), ["c"], sink="new")
    forget()
    assert table.write(attempt(4, epoch=5), ["d"])
    assert table.rows() == ["c", "d", "x"]

    table.sql("DROP TABLE t")
    with pytest.raises(StateLostError, match="txid 4 was left .* one is none"):
        table.write(attempt(5, epoch=5), ["e"])
    forget()
    assert table.write(attempt(5, epoch=6), ["e"])
    assert table.rows() == ["e"]


@pytest.mark.all
def test_an_overwrite_by_save_as_table_is_no_replaced_table(table):
    """Delta names it ``CREATE OR REPLACE TABLE … AS SELECT``; the rows may be there."""
    table.write(attempt(1), ["a"])
    table.write(attempt(2), ["b"])
    writer = table.batch(["a", "b"]).write.format("delta").mode("overwrite")
    writer.saveAsTable(table.name)
    forget()

    said = "look for them first"  # unless Delta's log tells that they are there
    try:
        is_written = table.write(attempt(2, epoch=2), ["b"])
    except StateLostError as error:
        is_written, said = False, str(error)

    assert not is_written
    assert "look for them first" in said
    assert table.write(attempt(3, epoch=2), ["c"])
    assert table.rows() == ["a", "b", "c"]


def test_a_table_that_forgets_transactions_is_refused_until_it_forgets_no_more(table):
    """It still tells of the batch then, although a checkpoint has forgotten it."""
    table.write(attempt(1), ["a"])
    forgets = "'delta.setTransactionRetentionDuration'='interval 0 seconds'"
    table.sql(
        f"ALTER TABLE t SET TBLPROPERTIES ({forgets}, 'delta.checkpointInterval'='3')"
    )
    table.others_write("x")  # version 3, whose checkpoint forgets

    with pytest.raises(ConfigError, match="forgets transactions") as error:
        table.write(attempt(1, epoch=2), ["a"])
    (advice,) = re.findall(r"ALTER TABLE .*\)", str(error.value))
    table.sql(advice.replace("…", "t"))
    table.others_write("y")
    forget()
    assert list(table.log.glob("*3.checkpoint*"))

    assert not table.write(attempt(1, epoch=2), ["a"])
    assert table.write(attempt(2, epoch=2), ["b"])
    assert table.rows() == ["a", "b", "x", "y"]


def test_no_table_is_made_that_would_forget_transactions(lake, table):
    lake.conf.set(delta._DEFAULT, "interval 7 days")
    try:
        with pytest.raises(ConfigError, match="Nothing was written") as error:
            table.write(attempt(1), ["a"])
    finally:
        lake.conf.unset(error.value.fields["option"])

    assert not table.exists()
    assert table.write(attempt(1, epoch=2), ["a"])
    assert table.rows() == ["a"]


@pytest.mark.all
def test_a_place_that_cannot_be_written_leaves_the_batch_to_the_next_try(
    lake, tmp_path
):
    refused = DeltaTable(lake, "/proc/kafka_tx/orders")
    for epoch in (1, 2):
        with pytest.raises((Py4JJavaError, PySparkException), match="(?i)mkdir|creat"):
            refused.write(attempt(1, epoch), ["a"])

    assert DeltaTable(lake, str(tmp_path / "orders")).write(attempt(1, epoch=3), ["a"])


@pytest.mark.all
def test_a_clone_knows_no_txids(lake, table):
    table.write(attempt(1), ["a"])
    copy = DeltaTable(lake, f"{table.name}_clone")
    lake.sql(f"CREATE TABLE {copy.name} SHALLOW CLONE {table.name}")

    assert copy.write(attempt(1, epoch=2), ["a"])
    assert copy.rows() == ["a", "a"]


@pytest.mark.all
def test_columns_that_do_not_fit_leave_nothing(lake, table):
    first = lake.sql("SELECT 'a' AS key, 1 AS day")
    table.append(first, attempt(1), partition_by=["day"])
    wider = lake.sql("SELECT 'b' AS key, 1 AS day, 2 AS more")

    with pytest.raises(AnalysisException, match="schema"):
        table.append(wider, attempt(2))
    assert table.append(wider, attempt(2, number=2), options={"mergeSchema": "true"})

    assert table.rows() == ["a", "b"]
    (detail,) = table.sql(f"DESCRIBE DETAIL {table.name}")
    assert detail.partitionColumns == ["day"]


def test_what_is_no_delta_table_is_refused_by_name(spark, lake, table):
    lake.sql(f"CREATE TABLE {table.name} (key string) USING parquet")

    with pytest.raises(ConfigError, match="option 'table' is .*legal: a Delta table"):
        table.write(attempt(1), ["a"])
    with pytest.raises(ConfigError, match="option 'options' is 'txnAppId'"):
        table.write(attempt(1), ["a"], options={"txnAppId": "mine"})
    without_catalog = DeltaTable(spark, f"{table.name}_plain")
    with pytest.raises(ConfigError, match="lacks the jars of Delta or its catalog"):
        without_catalog.write(attempt(1), ["a"])


@pytest.fixture
def counts(table):
    table.make_counts()
    return table


UPDATE = "UPDATE {} SET n = n + 10"
ALTER = "ALTER TABLE {} SET TBLPROPERTIES ('team' = 'orders')"


IN_ALL = [("append", ALTER), ("statement", ALTER), ("statement", "OPTIMIZE {}")]


@pytest.mark.parametrize(
    ("door", "change"),
    [
        ("statement", UPDATE),
        *(pytest.param(*each, marks=pytest.mark.all) for each in IN_ALL),
    ],
)
def test_a_batch_is_written_again_where_another_program_was_faster(
    lake, counts, tmp_path, door, change
):
    lake.sql(f"INSERT INTO {counts.name} VALUES ('a', 1), ('b', 1)")
    row = lake.createDataFrame([("a", 1)], "key string, n bigint").coalesce(1)
    job, runs = tmp_path / "job", []

    def write(df):
        if door == "append":
            return counts.append(df, attempt(1))
        return kafka_tx.write_to_table(df, attempt(1), counts.name, merges)

    def merges(df, target):
        runs.append(target)
        merge(df, target)

    with ThreadPoolExecutor(1) as pool:
        wrote = pool.submit(write, paused(row, job))
        try:
            wait_until("the batch is computed", job.with_suffix(".reached").exists)
            lake.newSession().sql(change.format(counts.name))
        finally:
            job.with_suffix(".go").touch()
        assert wrote.result()

    assert len(runs) == (2 if door == "statement" else 0)
    counted = sum(row.n for row in counts.read().collect())
    assert counted == (23 if change == UPDATE else 3)


@pytest.mark.all
def test_a_merge_whose_driver_was_frozen_counts_nothing(counts):
    counts.count(attempt(1), "a")

    def wakes(df, target):
        identity = dict(df.sparkSession.conf.getAll)
        for name in delta._SESSION.values():
            df.sparkSession.conf.unset(name)
        assert counts.count(attempt(2, epoch=2), "a")
        for name in delta._SESSION.values():
            df.sparkSession.conf.set(name, identity[name])
        merge(df, target)

    with pytest.raises(FencedError):
        counts.count(attempt(2), "a", statement=wakes)

    assert counts.counted() == {"a": 2}


@pytest.mark.all
def test_a_second_statement_beside_other_writers_is_undone_by_hand(lake, counts):
    def twice(df, target):
        merge(df, target)
        lake.newSession().sql(f"INSERT INTO {target} SELECT 'x', 1")
        merge(df, target)

    with pytest.raises(ConfigError, match="back by hand, or with .*versions 1 to 2"):
        counts.count(attempt(1), "a", statement=twice)


@pytest.mark.all
def test_a_second_statement_is_refused_and_the_advice_is_safe(lake, counts):
    def twice(df, target):
        merge(df, target)
        merge(df, target)

    counts.count(attempt(1), "a")
    with pytest.raises(ConfigError, match="has run several statements") as error:
        counts.count(attempt(2), "a", statement=twice)
    (advice,) = re.findall(r"RESTORE TABLE … TO VERSION AS OF \d+", str(error.value))
    counts.sql(advice.replace("…", "t"))

    assert counts.count(attempt(2, epoch=2), "a", sink="new")
    assert counts.counted() == {"a": 2}


def test_a_statement_in_another_session_is_noticed_and_the_advice_is_safe(lake, counts):
    def inserts(df, target):
        df.createOrReplaceTempView("batch")
        df.sparkSession.sql(f"INSERT INTO {target} SELECT * FROM batch")

    def elsewhere(df, target):
        other = lake.newSession()
        other.sql(f"INSERT INTO {target} SELECT 'a', 1")

    counts.count(attempt(1), "a", statement=inserts)
    with pytest.raises(ConfigError, match="it used another session") as error:
        counts.count(attempt(2), "a", statement=elsewhere)
    (advice,) = re.findall(
        r"RESTORE TABLE … TO VERSION AS OF \d+", " ".join(str(error.value).split())
    )
    counts.sql(advice.replace("…", "t"))
    forget()

    assert counts.count(attempt(2, epoch=2), "a", statement=merge)
    forget()
    assert not counts.count(attempt(2, epoch=3), "a", statement=pytest.fail)
    assert counts.counted() == {"a": 2}


def test_other_commits_of_write_than_that_of_its_rows_are_not_taken_for_the_batch(
    counts,
):
    """They carry its attempt, too: Delta gives that to each commit of a session."""

    def alter(target):
        counts.spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('a' = 'b')")

    def dies(df, target):
        alter(target)
        raise DeadError

    def alters(df, target):
        merge(df, target)
        alter(target)

    with pytest.raises(DeadError):
        counts.count(attempt(1), "a", statement=dies)
    forget()
    assert counts.count(attempt(1, epoch=2), "a", statement=alters)
    merged = counts.versions() - 2
    counts.sql(f"RESTORE TABLE t TO VERSION AS OF {merged}")
    forget()

    assert not counts.count(attempt(1, epoch=3), "a", statement=pytest.fail)
    assert counts.count(attempt(2, epoch=3), statement=lambda _, to: alter(to))
    assert not counts.count(attempt(2, epoch=4), statement=pytest.fail)
    assert counts.counted() == {"a": 1}


@pytest.mark.all
def test_an_error_after_the_statement_is_raised_and_the_batch_counts(counts):
    def fails(df, target):
        merge(df, target)
        raise DeadError

    with pytest.raises(DeadError):
        counts.count(attempt(1), "a", statement=fails)

    assert not counts.count(attempt(1, epoch=2), "a", statement=pytest.fail)
    assert counts.counted() == {"a": 1}


@pytest.mark.all
def test_a_merge_adds_the_columns_of_its_batch_where_it_says_so(lake, counts):
    def evolves(df, target):
        df.selectExpr("*", "1 AS day").createOrReplaceTempView("batch")
        df.sparkSession.sql(
            f"MERGE WITH SCHEMA EVOLUTION INTO {target} t USING batch b"
            " ON t.key = b.key"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    counts.count(attempt(1), "a")

    assert counts.count(attempt(2), "b", statement=evolves)
    assert not counts.count(attempt(2, epoch=2), "b", statement=pytest.fail)

    found = {row.key: row.day for row in counts.read().collect()}
    assert found == {"a": None, "b": 1}
