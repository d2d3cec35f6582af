"""Batches into Iceberg tables: each once, whatever comes between two tries."""

from __future__ import annotations

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, StreamingQueryException

import kafka_tx
from integration.bounded import read_out
from integration.capabilities import ICE, need
from integration.cluster.spark_local import iceberg_session
from integration.cluster.versions import ICEBERG
from integration.reading import reader
from kafka_tx.errors import ConfigError, FencedError, StateGivenUpError, StateLostError
from kafka_tx.spark.sinks import iceberg
from kafka_tx.testing import Crash
from kafka_tx.transactions import table_writes
from tests.conformance.sink_suite import SinkSuite, attempt

_names = map("lake.db.t{}".format, itertools.count())
EXPIRE = "expire_snapshots(table => '{}', older_than => TIMESTAMP '2100-01-01')"
COMPACT = "rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def lake(spark, warehouse):
    need(ICE)
    return iceberg_session(spark, warehouse)


@contextmanager
def dying_at(step, kind=iceberg.IcebergAppend, inside="_raise_floor"):
    """End the program before a look, before a write, inside it, or after it."""
    left = itertools.count(step, -1)

    def dies(method, is_last, self, *given):
        if next(left) == 0:
            raise Crash
        found = method(self, *given)
        if is_last and next(left) == 0:
            raise Crash
        return found

    with mock.patch.multiple(
        kind,
        **{
            name: partial_method(dies, getattr(kind, name), name == "write")
            for name in ("stored", "write", inside)
        },
    ):
        yield


def partial_method(function, *given):
    return lambda *more: function(*given, *more)


def forget():
    """Go on as another program would."""
    table_writes._left.clear()
    iceberg._floors.clear()


@dataclass
class Table:
    """One that a program writes to."""

    spark: Any
    name: str

    def write(self, attempt, rows, **more):
        return self.append(self.batch(rows), attempt, **more)

    def batch(self, rows):
        df = self.spark.createDataFrame([(row,) for row in rows], "key string")
        return df.coalesce(1)

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
        if not self.spark.catalog.tableExists(self.name):
            return []
        return sorted(row.key for row in self.spark.table(self.name).collect())

    def others_write(self, *rows):
        self.batch(rows).writeTo(self.name).append()

    def call(self, procedure):
        name = self.name.removeprefix("lake.")
        self.spark.sql(f"CALL lake.system.{procedure.format(name)}").collect()

    def snapshots(self):
        found = self.spark.table(f"{self.name}.snapshots").orderBy("committed_at")
        return [row.snapshot_id for row in found.collect()]


@pytest.mark.all
class TestIceberg(SinkSuite):
    """The suite for sinks."""

    @pytest.fixture
    def open_sink(self, lake):
        forget()
        return partial(Table, lake, next(_names))


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
            tx__id=f"ice-{name}",
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


def test_appends_that_die_at_any_step_leave_the_batch_to_the_next(table):
    for step in itertools.count():
        died = table.dies(attempt(step + 1, 2 * step + 1), [f"{step:02}"], step)
        table.write(attempt(step + 1, 2 * step + 2), [f"{step:02}"])
        assert table.rows() == [f"{n:02}" for n in range(step + 1)]
        if not died:
            break
    assert step > 3


def test_a_driver_that_was_frozen_before_its_commit_writes_nothing(table):
    table.write(attempt(1), ["a"])
    write = iceberg.IcebergAppend.write

    def overtaken(self, given):
        """The driver is frozen before its commit, and the next one is not."""
        with mock.patch.object(iceberg.IcebergAppend, "write", write):
            assert table.write(attempt(2, epoch=given.epoch + 1), ["b"])
        return write(self, given)

    frozen = mock.patch.object(iceberg.IcebergAppend, "write", overtaken)
    with frozen, pytest.raises(FencedError):
        table.write(attempt(2), ["b"])

    assert table.rows() == ["a", "b"]


def test_commits_of_one_txid_at_the_same_time_are_one(table):
    def one(number):
        try:
            return table.write(attempt(1, number=number), ["b"])
        except FencedError:
            return False

    with ThreadPoolExecutor(2) as pool:
        wrote = list(pool.map(one, (1, 2)))

    assert sorted(wrote) == [False, True]
    assert table.rows() == ["b"]


def test_an_answer_that_is_lost_is_looked_up(table):
    write = iceberg.IcebergAppend.write

    def loses_the_answer(self, given):
        write(self, given)
        raise ConnectionError

    with mock.patch.object(iceberg.IcebergAppend, "write", loses_the_answer):
        assert table.write(attempt(1), ["a"])

    assert table.rows() == ["a"]


def test_a_commit_in_between_is_looked_at_and_the_batch_written_again(table):
    table.write(attempt(1), ["a"])
    write, others = iceberg.IcebergAppend.write, ["x", "y"]

    def late(self, given):
        if others:
            table.others_write(others.pop())
        return write(self, given)

    with mock.patch.object(iceberg.IcebergAppend, "write", late):
        assert table.write(attempt(2), ["b"])
    assert table.rows() == ["a", "b", "x", "y"]

    others.append("z")
    with (
        mock.patch.object(iceberg.IcebergAppend, "write", late),
        mock.patch.object(table_writes, "TRIES", 1),
        pytest.raises(StateGivenUpError, match="other writers were faster"),
    ):
        table.write(attempt(3), ["c"])
    assert table.write(attempt(3, epoch=2), ["c"])
    assert table.rows() == ["a", "b", "c", "x", "y", "z"]


def test_other_writers_compaction_and_expiry_are_in_nobodys_way(table):
    table.write(attempt(1), ["a"])
    for epoch, change in enumerate((COMPACT, EXPIRE, COMPACT), start=2):
        table.others_write("x")
        table.call(change)
        forget()
        assert not table.write(attempt(1, epoch=epoch), ["a"])
    assert len(table.snapshots()) < 4

    with pytest.raises(kafka_tx.KafkaTxError, match="numbering one"):
        table.write(attempt(1, epoch=5, numbering="two"), ["a"])
    assert table.write(attempt(2, epoch=5), ["b"])
    assert table.rows() == ["a", "b", "x", "x", "x"]


def test_a_batch_that_was_rolled_back_is_written_again(table):
    table.write(attempt(1), ["a"])
    table.write(attempt(2), ["b"])
    before, _ = table.snapshots()[-2:]
    table.call(f"rollback_to_snapshot('{{}}', {before})")
    assert table.rows() == ["a"]

    with pytest.raises(StateLostError, match="txid 2 was left .* last one is 1 now"):
        table.write(attempt(3), ["c"])
    forget()  # started again

    assert table.write(attempt(2, epoch=2), ["b"])
    assert table.rows() == ["a", "b"]


def test_a_table_that_was_made_anew_under_a_program_stops_it(lake, table):
    table.write(attempt(1), ["a"])
    table.write(attempt(2), ["b"])
    lake.sql(f"DROP TABLE {table.name}")

    with pytest.raises(StateLostError, match="txid 2 was left .* last one is none"):
        table.write(attempt(3), ["c"])
    forget()  # started again

    assert table.write(attempt(3, epoch=2), ["c"])
    assert table.rows() == ["c"]


def test_each_sink_of_a_table_counts_for_itself(table):
    for sink in ("default", "a", "a.b"):
        assert table.write(attempt(1), [sink], sink=sink)
        assert not table.write(attempt(1, epoch=2), [sink], sink=sink)

    with pytest.raises(ConfigError, match=r"written already.*give each its own `sink`"):
        table.write(attempt(1), ["a"], sink="a")
    assert table.write(attempt(7, numbering="two", source="job"), ["j"], sink="job")
    assert table.rows() == ["a", "a.b", "default", "j"]


def test_columns_that_do_not_fit_leave_nothing(lake, table):
    first = lake.sql("SELECT 'a' AS key, 1 AS day")
    table.append(first, attempt(1), partition_by=["day"])
    wider = lake.sql("SELECT 'b' AS key, 2 AS day, 2 AS more")

    with pytest.raises(AnalysisException, match="too many data columns"):
        table.append(wider, attempt(2))
    lake.sql(
        f"ALTER TABLE {table.name} SET TBLPROPERTIES"
        " ('write.spark.accept-any-schema'='true')"
    )
    assert table.append(wider, attempt(2, number=2), options={"mergeSchema": "true"})
    assert not table.append(wider, attempt(2, epoch=2))

    assert table.rows() == ["a", "b"]
    partitions = lake.table(f"{table.name}.partitions").collect()
    assert sorted(row.partition.day for row in partitions) == [1, 2]


def test_what_cannot_be_counted_is_refused_by_name(lake, table, warehouse):
    table.write(attempt(1), ["a"])
    for option in iceberg.OWN_OPTIONS:
        with pytest.raises(ConfigError, match=f"option 'options' is '{option}'"):
            table.write(attempt(2), ["b"], options={option: "mine"})

    path = str(warehouse.joinpath(*table.name.split(".")[1:]))
    with pytest.raises(ConfigError, match="Iceberg checks no append by path"):
        Table(lake, path).write(attempt(1), ["a"])

    lake.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.wap.enabled'='true')")
    lake.conf.set("spark.wap.id", "staged")
    with pytest.raises(ConfigError, match="keep the batch out of the table"):
        table.write(attempt(2), ["b"])
    lake.conf.unset("spark.wap.id")
    assert table.write(attempt(2), ["b"])
    assert table.rows() == ["a", "b"]


def test_a_table_that_may_not_be_written_loses_nothing(spark, table, warehouse):
    table.write(attempt(1), ["a"])
    elsewhere = iceberg_session(spark, warehouse, kind="rest", uri="http://127.0.0.1:1")
    with pytest.raises(Py4JJavaError, match="Connect|refused"):
        Table(elsewhere, table.name).write(attempt(2), ["b"])

    assert table.write(attempt(2), ["b"])


@pytest.mark.skipif(ICEBERG is not None, reason="it is refused where it is not there")
def test_a_spark_without_iceberg_is_refused_by_name(spark, warehouse):
    table = Table(iceberg_session(spark, warehouse), next(_names))

    with pytest.raises(ConfigError, match=r"no jar of Iceberg's.*Spark 4\.0 or 4\.1"):
        table.write(attempt(1), ["a"])
    with pytest.raises(ConfigError, match="no jar of Iceberg's"):
        kafka_tx.write_to_table(table.batch("a"), attempt(1), table.name, merge)


# --- statements ----------------------------------------------------------------------


def merge(df, target):
    df.createOrReplaceTempView("batch")
    df.sparkSession.sql(
        f"MERGE INTO {target} t USING batch b ON t.key = b.key"
        " WHEN MATCHED THEN UPDATE SET n = t.n + b.n"
        " WHEN NOT MATCHED THEN INSERT *"
    )


class Counts(Table):
    """A table of counts."""

    def count(self, given, *keys, statement=merge, **more):
        one = [(key, 1) for key in keys]
        df = self.spark.createDataFrame(one, "key string, n bigint").coalesce(1)
        return kafka_tx.write_to_table(df, given, self.name, statement, **more)

    def counted(self):
        return {row.key: row.n for row in self.spark.table(self.name).collect()}

    def branches(self):
        found = self.spark.table(f"{self.name}.refs").collect()
        return [row.name for row in found if row.name != "main"]


@pytest.fixture
def counts(lake, table):
    lake.sql(f"CREATE TABLE {table.name} (key string, n bigint) USING iceberg")
    return Counts(lake, table.name)


def test_a_merge_counts_a_batch_once(counts):
    assert counts.count(attempt(1), "a", "b")
    assert counts.count(attempt(2), "a")
    forget()

    assert not counts.count(attempt(2, epoch=2), "a", statement=pytest.fail)
    for txid, statement in ((3, nothing_to_do), (4, nothing_at_all)):
        assert counts.count(attempt(txid, 2), "z", statement=statement)
        assert not counts.count(attempt(txid, 3), "z", statement=pytest.fail)

    assert counts.counted() == {"a": 2, "b": 1}
    assert counts.branches() == []


def nothing_to_do(df, target):
    df.sparkSession.sql(f"DELETE FROM {target} WHERE key = 'nobody'")


def nothing_at_all(df, target):
    df.sparkSession.table(target).collect()


def test_several_statements_are_published_together(lake, counts):
    def twice(df, target):
        merge(df, target)
        assert counts.counted() == {}
        merge(df, target)

    assert counts.count(attempt(1), "a", statement=twice)

    assert counts.counted() == {"a": 2}


@pytest.mark.parametrize("inside", ["_open", "_publish"])
def test_merges_that_die_at_any_step_leave_the_batch_to_the_next(counts, inside):
    for step in itertools.count():
        died = False
        try:
            with dying_at(step, iceberg.IcebergStatement, inside):
                counts.count(attempt(step + 1, 2 * step + 1), "a")
        except Crash:
            died = True
        forget()
        counts.count(attempt(step + 1, 2 * step + 2), "a")
        assert counts.counted() == {"a": step + 1}
        assert counts.branches() == []
        if not died:
            break
    assert step > 3


def test_a_merge_whose_driver_was_frozen_counts_nothing(counts):
    counts.count(attempt(1), "a")

    def wakes(df, target):
        assert counts.count(attempt(2, epoch=2), "a")
        merge(df, target)

    with pytest.raises(FencedError):
        counts.count(attempt(2), "a", statement=wakes)

    assert counts.counted() == {"a": 2}


def test_a_merge_into_a_branch_that_was_dropped_meanwhile_counts_nothing(counts):
    """Iceberg lets such a branch begin anew, at the newest version of the table."""
    counts.count(attempt(1), "a")

    def wakes(df, target):
        merge(df, target)
        branch = target.rpartition("branch_")[2].rstrip("`")
        assert counts.count(attempt(2, epoch=2), "a")
        counts.spark.sql(f"REFRESH TABLE {counts.name}")
        assert counts.branches() == []
        table = iceberg.IcebergStatement(df, counts.name, "default", merge)._loaded()
        table.manageSnapshots().createBranch(branch).commit()
        merge(df, target)

    with pytest.raises(FencedError):
        counts.count(attempt(2), "a", statement=wakes)

    assert counts.counted() == {"a": 2}


def test_a_driver_that_was_frozen_before_it_publishes_publishes_nothing(counts):
    counts.count(attempt(1), "a")
    publish = iceberg.IcebergStatement._publish

    def overtaken(self, given, branch):
        with mock.patch.object(iceberg.IcebergStatement, "_publish", publish):
            assert counts.count(attempt(2, epoch=2), "a")
        publish(self, given, branch)

    frozen = mock.patch.object(iceberg.IcebergStatement, "_publish", overtaken)
    with frozen, pytest.raises(FencedError):
        counts.count(attempt(2), "a")

    assert counts.counted() == {"a": 2}


def test_merges_of_one_txid_at_the_same_time_are_one(counts):
    def one(number):
        def each(df, target):
            view = f"batch_{number}"
            df.createOrReplaceTempView(view)
            df.sparkSession.sql(f"INSERT INTO {target} SELECT * FROM {view}")

        try:
            return counts.count(attempt(1, number=number), "a", statement=each)
        except FencedError:
            return False

    with ThreadPoolExecutor(2) as pool:
        wrote = list(pool.map(one, (1, 2)))

    assert sorted(wrote) == [False, True]
    assert counts.counted() == {"a": 1}


def test_a_merge_is_made_again_where_another_writer_was_faster(lake, counts):
    others = ["x", "y"]

    def late(df, target):
        if others:
            lake.sql(f"INSERT INTO {counts.name} VALUES ('{others.pop()}', 1)")
        merge(df, target)

    assert counts.count(attempt(1), "a", "x", statement=late)

    assert counts.counted() == {"a": 1, "x": 2, "y": 1}


def test_a_merge_is_known_after_expiry_and_counted_again_after_a_rollback(lake, counts):
    counts.count(attempt(1), "a")
    counts.count(attempt(2), "a")
    before, _ = counts.snapshots()[-2:]
    lake.sql(f"INSERT INTO {counts.name} VALUES ('x', 1)")
    counts.call(EXPIRE)
    forget()
    assert not counts.count(attempt(2, epoch=2), "a", statement=pytest.fail)

    counts.count(attempt(3, epoch=2), "a")
    before, _ = counts.snapshots()[-2:]
    counts.call(f"rollback_to_snapshot('{{}}', {before})")
    forget()
    assert counts.count(attempt(3, epoch=3), "a")
    assert counts.counted() == {"a": 3, "x": 1}


def test_an_error_of_the_statement_leaves_nothing(counts):
    def fails(df, target):
        merge(df, target)
        raise DeadError

    with pytest.raises(DeadError):
        counts.count(attempt(1), "a", statement=fails)
    assert counts.counted() == {}

    assert counts.count(attempt(1, epoch=2), "a")
    assert counts.counted() == {"a": 1}


def test_a_statement_on_the_table_itself_is_refused_and_the_advice_is_safe(counts):
    def past_the_target(df, _):
        merge(df, counts.name)

    with pytest.raises(ConfigError, match="has left its target as it was"):
        counts.count(attempt(1), "z", statement=past_the_target)
    counts.spark.sql(f"DELETE FROM {counts.name}")
    counts.count(attempt(1), "a")

    with pytest.raises(ConfigError, match="has left its target as it was") as reported:
        counts.count(attempt(2), "a", statement=past_the_target)
    (advice,) = re.findall(r"CALL `lake`.system.(\w+)", str(reported.value))
    before, _ = counts.snapshots()[-2:]
    counts.call(f"{advice}('{{}}', {before})")
    forget()

    assert counts.count(attempt(2, epoch=2), "a")
    assert counts.counted() == {"a": 2}


def test_a_statement_needs_a_table(table):
    with pytest.raises(ConfigError, match="a table that is there"):
        kafka_tx.write_to_table(table.batch("a"), attempt(1), table.name, merge)
