"""Batches into Delta tables: each once, whatever comes between two tries."""

from __future__ import annotations

import itertools
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import kafka_tx
from integration.bounded import read_out
from integration.capabilities import LAKE, need
from integration.cluster.spark_local import delta_session
from integration.reading import reader
from kafka_tx.errors import ConfigError, FencedError, StateLostError
from kafka_tx.spark.sinks import delta, delta_append
from kafka_tx.testing import Crash
from kafka_tx.transactions import table_writes
from tests.conformance.sink_suite import SinkSuite, attempt

_names = map("t{}".format, itertools.count())


@pytest.fixture(scope="module")
def lake(spark):
    need(LAKE)
    return delta_session(spark)


@contextmanager
def dying_at(step):
    """End the program before a look, before a write, or after one of them."""
    left = itertools.count(step, -1)

    def dies(method, self, given):
        if next(left) == 0:
            raise Crash
        found = method(self, given)
        if method is write and next(left) == 0:
            raise Crash
        return found

    stored, write = delta.DeltaAppend.stored, delta.DeltaAppend.write
    with (
        mock.patch.object(delta.DeltaAppend, "stored", lambda s, g: dies(stored, s, g)),
        mock.patch.object(delta.DeltaAppend, "write", lambda s, g: dies(write, s, g)),
    ):
        yield


def forget():
    """Go on as another program would."""
    table_writes._left.clear()
    delta._seen.clear()


@dataclass
class Table:
    """One that a program writes to."""

    spark: Any
    name: str
    options: Any = None

    def write(self, attempt, rows, **more):
        df = self.spark.createDataFrame([(row,) for row in rows], "key string")
        return self.append(df.coalesce(1), attempt, **more)

    def append(self, df, attempt, **more):
        return kafka_tx.append_to_table(df, attempt, self.name, **more)

    def dies(self, attempt, rows, step):
        try:
            with dying_at(step):
                self.write(attempt, rows)
        except Crash:
            return True
        finally:
            forget()
        return False

    def rows(self):
        if "/" in self.name and not Path(self.name).exists():
            return []
        found = self.spark.read.format("delta")
        found = found.load(self.name) if "/" in self.name else found.table(self.name)
        return sorted(row.key for row in found.collect())

    def sql(self, statement):
        name = f"delta.`{self.name}`" if "/" in self.name else self.name
        return self.spark.sql(statement.replace("TABLE t", f"TABLE {name}")).collect()


@pytest.mark.all
class TestDelta(SinkSuite):
    """The suite for sinks, on a path."""

    @pytest.fixture
    def open_sink(self, lake, tmp_path):
        forget()
        return partial(Table, lake, str(tmp_path / "table"))


@pytest.fixture
def table(lake):
    forget()
    made = Table(lake, next(_names))
    yield made
    lake.sql(f"DROP TABLE IF EXISTS {made.name}")


class DeadError(Exception):
    """The driver died here."""


def test_a_query_writes_each_record_once_also_with_a_new_checkpoint(
    lake, kafka, topic, produce, table, tmp_path
):
    name, deaths = topic(2), ["before", "after"]

    def save(df, given):
        dies = deaths.pop(0) if deaths else ""
        if dies == "before":
            raise DeadError
        kafka_tx.append_to_table(rows(df), given, table.name)
        if dies == "after":
            raise DeadError

    def rows(df):
        return df.selectExpr("string(value) AS key")

    def run(checkpoint):
        query = reader(
            lake,
            kafka.bootstrap_servers,
            subscribe=name,
            tx__id=f"lake-{name}",
            tx__store=f"sqlite:///{tmp_path}/store.db",
        ).load()
        writer = query.writeStream.foreachBatch(kafka_tx.for_each_transaction(save))
        read_out(writer.option("checkpointLocation", str(tmp_path / checkpoint)))
        forget()

    produce(name, [f"{n}" for n in range(100)])
    for checkpoint in ("first", "second"):
        with pytest.raises(StreamingQueryException, match="DeadError"):
            run(checkpoint)
    run("third")
    produce(name, [f"{n}" for n in range(100, 120)])
    run("fourth")

    assert table.rows() == sorted(map(str, range(120)))


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


def test_another_release_of_delta_appends_by_itself(lake, table):
    with mock.patch.object(delta_append, "KNOWN", "none"), jobs(lake) as ran:
        table.write(attempt(1), ["a"])
        assert table.write(attempt(2), ["b"])
        assert not table.write(attempt(2, epoch=2), ["b"])

    assert len(ran) > 2
    assert table.rows() == ["a", "b"]


def test_of_two_drivers_at_once_one_writes(table):
    table.write(attempt(1), ["a"])
    write = delta.DeltaAppend.write

    def overtaken(self, given):
        """The driver is frozen before its commit, and the next one is not."""
        with mock.patch.object(delta.DeltaAppend, "write", write):
            assert table.write(attempt(2, epoch=given.epoch + 1), ["b"])
        return write(self, given)

    frozen = mock.patch.object(delta.DeltaAppend, "write", overtaken)
    with frozen, pytest.raises(FencedError):
        table.write(attempt(2), ["b"])

    assert table.rows() == ["a", "b"]


def test_commits_of_one_txid_at_the_same_time_are_one(table):
    table.write(attempt(1), ["a"])

    def one(number):
        try:
            return table.write(attempt(2, number=number), ["b"])
        except FencedError:
            return False

    with ThreadPoolExecutor(2) as pool:
        wrote = list(pool.map(one, (1, 2)))

    assert sorted(wrote) == [False, True]
    assert table.rows() == ["a", "b"]


def test_an_answer_that_is_lost_is_looked_up(table):
    write = delta.DeltaAppend.write

    def loses_the_answer(self, given):
        write(self, given)
        raise ConnectionError

    with mock.patch.object(delta.DeltaAppend, "write", loses_the_answer):
        assert table.write(attempt(1), ["a"])

    assert table.rows() == ["a"]


def test_other_writers_compaction_and_a_cleaned_log_are_in_nobodys_way(lake, table):
    table.write(attempt(1), ["a"])
    for more in ("x", "y"):
        lake.createDataFrame([(more,)], "key string").write.format("delta").mode(
            "append"
        ).saveAsTable(table.name)
    table.sql(f"OPTIMIZE {table.name}")
    forget()
    log = Path(lake.sql(f"DESCRIBE DETAIL {table.name}").first().location[5:])
    assert not table.write(attempt(1, epoch=2), ["a"])

    table.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.checkpointInterval'='1')")
    lake.createDataFrame([("z",)], "key string").write.format("delta").mode(
        "append"
    ).saveAsTable(table.name)
    for version in range(4):
        (log / "_delta_log" / f"{version:020}.json").unlink()
    forget()

    assert not table.write(attempt(1, epoch=3), ["a"])
    with pytest.raises(kafka_tx.KafkaTxError, match="numbering one"):
        table.write(attempt(1, epoch=3, numbering="two"), ["a"])
    assert table.write(attempt(2, epoch=3), ["b"])
    assert table.rows() == ["a", "b", "x", "y", "z"]


def test_each_sink_of_a_table_counts_for_itself(table):
    for sink in ("default", "a", "a.b"):
        assert table.write(attempt(1), [sink], sink=sink)
        assert not table.write(attempt(1, epoch=2), [sink], sink=sink)

    with pytest.raises(ConfigError, match=r"written already.*give each its own `sink`"):
        table.write(attempt(1), ["a"], sink="a")
    assert table.write(attempt(7, numbering="two", source="job"), ["j"], sink="job")
    assert table.rows() == ["a", "a.b", "default", "j"]


@pytest.mark.parametrize("way", ["sink", pytest.param("back", marks=pytest.mark.all)])
def test_rows_that_were_restored_away_are_not_taken_for_written(table, way):
    table.write(attempt(1), ["a"])
    table.write(attempt(2), ["b"])
    newest, first = table.sql(f"DESCRIBE HISTORY {table.name} LIMIT 2")
    table.sql(f"RESTORE TABLE t TO VERSION AS OF {first.version}")
    forget()
    again = attempt(2, epoch=2)

    with pytest.raises(StateLostError, match="give the sink a new name") as reported:
        table.write(again, ["b"])
    advice = f"RESTORE TABLE … TO VERSION AS OF {newest.version}"
    assert advice in str(reported.value)
    if way == "back":
        table.sql(advice.replace("…", "t"))
        assert not table.write(again, ["b"])
    else:
        assert table.write(again, ["b"], sink="new")
        assert not table.write(attempt(2, epoch=3), ["b"], sink="new")
    assert table.rows() == ["a", "b"]


def test_a_table_that_forgets_transactions_is_refused(table):
    name = "delta.setTransactionRetentionDuration"
    table.write(attempt(1), ["a"])
    table.sql(f"ALTER TABLE t SET TBLPROPERTIES ('{name}'='interval 1 days')")

    with pytest.raises(ConfigError, match="forgets transactions") as reported:
        table.write(attempt(1, epoch=2), ["a"])
    (advice,) = re.findall(r"ALTER TABLE .*\)", str(reported.value))
    table.sql(advice.replace("…", "t"))

    assert not table.write(attempt(1, epoch=2), ["a"])
    assert table.write(attempt(2, epoch=2), ["b"])
    assert table.rows() == ["a", "b"]


def test_a_table_that_was_made_anew_under_a_program_stops_it(table):
    table.write(attempt(1), ["a"])
    table.write(attempt(2), ["b"])
    table.sql("DROP TABLE t")

    with pytest.raises(StateLostError, match="txid 2 was left .* last one is none"):
        table.write(attempt(3), ["c"])
    forget()  # started again

    assert table.write(attempt(3, epoch=2), ["c"])
    assert table.rows() == ["c"]


def test_a_clone_knows_no_txids(lake, table):
    table.write(attempt(1), ["a"])
    copy = Table(lake, f"{table.name}_clone")
    lake.sql(f"CREATE TABLE {copy.name} SHALLOW CLONE {table.name}")

    assert copy.write(attempt(1, epoch=2), ["a"])
    assert copy.rows() == ["a", "a"]


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
    without_catalog = Table(spark, f"{table.name}_plain")
    with pytest.raises(ConfigError, match="lacks its jars or its catalog"):
        without_catalog.write(attempt(1), ["a"])


def merge(df, target):
    df.createOrReplaceTempView("batch")
    df.sparkSession.sql(
        f"MERGE INTO {target} t USING batch b ON t.key = b.key"
        " WHEN MATCHED THEN UPDATE SET n = t.n + b.n"
        " WHEN NOT MATCHED THEN INSERT *"
    )


@pytest.fixture
def counts(lake, table):
    """A table of counts, and a function that writes a batch into it."""
    lake.sql(f"CREATE TABLE {table.name} (key string, n bigint) USING delta")

    def write(given, *keys, statement=merge, **more):
        df = lake.createDataFrame([(key, 1) for key in keys], "key string, n bigint")
        return kafka_tx.write_to_table(df, given, table.name, statement, **more)

    def read():
        return {row.key: row.n for row in lake.table(table.name).collect()}

    write.read = read  # type: ignore[attr-defined]
    return write


def test_a_merge_counts_a_batch_once(lake, counts):
    assert counts(attempt(1), "a", "b")
    assert counts(attempt(2), "a")
    forget()

    assert not counts(attempt(2, epoch=2), "a", statement=pytest.fail)
    assert counts(attempt(3, epoch=2), "z", statement=nothing_to_do)
    assert not counts(attempt(3, epoch=3), "z", statement=pytest.fail)

    assert counts.read() == {"a": 2, "b": 1}
    assert not [name for name in lake.conf.getAll if "txnVersion" in name]


def nothing_to_do(df, target):
    df.sparkSession.sql(f"DELETE FROM {target} WHERE key = 'nobody'")


def test_a_merge_whose_driver_was_frozen_counts_nothing(counts):
    counts(attempt(1), "a")

    def wakes(df, target):
        identity = dict(df.sparkSession.conf.getAll)
        for name in delta._SESSION.values():
            df.sparkSession.conf.unset(name)
        assert counts(attempt(2, epoch=2), "a")
        for name in delta._SESSION.values():
            df.sparkSession.conf.set(name, identity[name])
        merge(df, target)

    with pytest.raises(FencedError):
        counts(attempt(2), "a", statement=wakes)

    assert counts.read() == {"a": 2}


@pytest.mark.all
def test_a_second_statement_is_refused_and_the_advice_is_safe(lake, table, counts):
    def twice(df, target):
        merge(df, target)
        merge(df, target)

    counts(attempt(1), "a")
    with pytest.raises(ConfigError, match="has run several statements") as reported:
        counts(attempt(2), "a", statement=twice)
    (advice,) = re.findall(r"RESTORE TABLE … TO VERSION AS OF \d+", str(reported.value))
    table.sql(advice.replace("…", "t"))

    assert counts(attempt(2, epoch=2), "a", sink="new")
    assert counts.read() == {"a": 2}


def test_a_statement_in_another_session_is_noticed_and_the_advice_is_safe(
    lake, table, counts
):
    def elsewhere(df, target):
        other = lake.newSession()
        other.sql(f"INSERT INTO {target} SELECT 'a', 1")

    counts(attempt(1), "a")
    with pytest.raises(ConfigError, match="it used another session") as reported:
        counts(attempt(2), "a", statement=elsewhere)
    (advice,) = re.findall(
        r"RESTORE TABLE … TO VERSION AS OF \d+", " ".join(str(reported.value).split())
    )
    table.sql(advice.replace("…", "t"))
    forget()

    assert counts(attempt(2, epoch=2), "a")
    assert counts.read() == {"a": 2}


def test_an_error_after_the_statement_is_raised_and_the_batch_counts(counts):
    def fails(df, target):
        merge(df, target)
        raise DeadError

    with pytest.raises(DeadError):
        counts(attempt(1), "a", statement=fails)

    assert not counts(attempt(1, epoch=2), "a", statement=pytest.fail)
    assert counts.read() == {"a": 1}
