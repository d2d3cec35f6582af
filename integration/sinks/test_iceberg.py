"""Batches into Iceberg tables: each once, whatever comes between two tries."""

from __future__ import annotations

import itertools
from functools import partial
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

import kafka_tx
from integration.capabilities import ICE, need
from integration.cluster.processes.iceberg_rest import LossyWay
from integration.cluster.running import running
from integration.cluster.spark_local import iceberg_session
from integration.cluster.versions import ICEBERG
from integration.sinks import iceberg_tables
from integration.sinks.iceberg_tables import COMPACT, EXPIRE, IcebergTable, of_rest
from integration.sinks.table_driver import merge
from integration.sinks.table_suite import Rival, TableSuite, forget, fresh
from kafka_tx.errors import ConfigError, FencedError, StateGivenUpError, StateLostError
from kafka_tx.sinks import table_writes
from kafka_tx.spark.sinks import iceberg
from tests.conformance.sink_suite import SinkSuite, attempt

warehouse, rest, lake = (
    iceberg_tables.warehouse,
    iceberg_tables.rest,
    iceberg_tables.lake,
)
table, counts = iceberg_tables.table, iceberg_tables.counts


class TestIceberg(TableSuite):
    pass


@pytest.mark.all
class TestIcebergAsSink(SinkSuite):
    """The suite for sinks."""

    @pytest.fixture
    def open_sink(self, lake):
        forget()
        return partial(IcebergTable, lake, f"lake.db.{fresh()}")


@pytest.fixture
def shared(spark, rest):
    """Two processes need a catalog whose commits are atomic."""
    forget()
    return IcebergTable(of_rest(spark, rest.uri), f"lake.db.{fresh()}")


@pytest.fixture(scope="module")
def rival(rest, tmp_path_factory):
    given = {"format": "iceberg", "warehouse": "", "kind": "rest", "uri": rest.uri}
    made = Rival(tmp_path_factory.mktemp("rival"), **given)
    yield made
    made.end()


def test_appends_that_die_at_any_step_leave_the_batch_to_the_next(table):
    for step in itertools.count():
        died = table.dies(attempt(step + 1, 2 * step + 1), [f"{step:02}"], step)
        table.write(attempt(step + 1, 2 * step + 2), [f"{step:02}"])
        assert table.rows() == [f"{n:02}" for n in range(step + 1)]
        if not died:
            break
    assert step > 3


def test_a_commit_in_between_is_read_and_the_rows_are_computed_once(lake, table):
    table.write(attempt(1), ["a"])
    write, others = iceberg.IcebergAppend.write, ["x", "y"]
    computed = lake.sparkContext.accumulator(0)

    def late(self, given):
        if others:
            table.others_write(others.pop())
        return write(self, given)

    def counting(batches):
        computed.add(1)
        yield from batches

    def between(self, transaction, given):
        if others:
            table.others_write(others.pop())
        stage(self, transaction, given)

    stage = iceberg.IcebergAppend._stage
    df = table.batch(["b"]).mapInArrow(counting, "key string")
    with mock.patch.object(iceberg.IcebergAppend, "_stage", between):
        assert table.append(df, attempt(2))
    assert computed.value == 1
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


@pytest.mark.parametrize(
    ("brought", "name", "change"),
    [
        ("1 AS n, 2 AS more", "more", "INSERT INTO TABLE t SELECT 'x' AS key, 1 AS n"),
        ("1 AS n, 2 AS more", "more", "ALTER TABLE t ADD COLUMN other INT"),
        ("3000000000 AS n", "n", "INSERT INTO TABLE t SELECT 'x' AS key, 1 AS n"),
    ],
    ids=["append", "column", "type"],
)
def test_columns_that_a_batch_brings_outlive_a_commit_in_between(
    lake, table, brought, name, change
):
    table.append(lake.sql("SELECT 'a' AS key, 1 AS n"), attempt(1))
    table.sql(
        "ALTER TABLE t SET TBLPROPERTIES ('write.spark.accept-any-schema'='true')"
    )
    stage, changes = iceberg.IcebergAppend._stage, [change]

    def late(self, transaction, given):
        if changes:
            table.sql(changes.pop())
        stage(self, transaction, given)

    df = lake.sql(f"SELECT 'b' AS key, {brought}")
    with mock.patch.object(iceberg.IcebergAppend, "_stage", late):
        assert table.append(df, attempt(2), options={"mergeSchema": "true"})

    found = {row.key: row[name] for row in table.read().collect()}
    assert found.pop("b") == (2 if name == "more" else 3_000_000_000)
    assert set(found.values()) == ({None} if name == "more" else {1})


def test_a_first_batch_without_rows_is_no_snapshot(table):
    table.write(attempt(1), ["a"])
    before = table.versions()

    assert not table.write(attempt(2), [])
    assert not table.write(attempt(3), [])

    assert table.versions() == before
    assert table.write(attempt(4), ["d"])
    assert table.rows() == ["a", "d"]


def test_a_table_that_another_program_makes_meanwhile_has_the_batch(lake, table):
    """Without a version, as ``CREATE TABLE`` makes it."""

    def made_by_another(self):
        lake.sql(f"CREATE TABLE {table.name} (key string) USING iceberg")

    with mock.patch.object(iceberg.IcebergAppend, "_make", made_by_another):
        assert table.write(attempt(1), ["a"])
    assert table.write(attempt(2), ["b"])
    assert table.rows() == ["a", "b"]


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


def test_an_append_is_known_after_its_snapshot_has_expired_at_once(table):
    """The driver died, another program has written, and expiry was strict."""
    table.write(attempt(1), ["a"])
    table.write(attempt(2), ["b"])
    table.others_write("x")
    table.call(COMPACT)
    table.others_write("y")
    table.call(EXPIRE)
    assert len(table.snapshots()) == 1
    forget()

    assert not table.write(attempt(2, epoch=2), ["b"])
    assert table.write(attempt(3, epoch=2), ["c"])
    assert table.rows() == ["a", "b", "c", "x", "y"]


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_a_frozen_driver_is_refused_although_nothing_tells_of_the_append(
    table, is_first
):
    """Compaction has moved the rows, and the snapshot that added them has expired."""
    txid = 1 if is_first else 2
    if not is_first:
        table.write(attempt(1), ["a"])
    write = table.appends.write

    def overtaken(sink, given):
        with mock.patch.object(table.appends, "write", write):
            assert table.write(attempt(txid, epoch=2), ["b"])
        table.call(COMPACT)
        table.call(EXPIRE)
        assert len(table.snapshots()) == 1
        return write(sink, given)

    frozen = mock.patch.object(table.appends, "write", overtaken)
    with frozen, pytest.raises(FencedError):
        table.write(attempt(txid), ["b"])

    assert table.rows() == ["a", "b"][-txid:]


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


def test_a_rollback_past_committed_batches_is_told_and_later_ones_are_written(
    table, caplog
):
    for txid, row in enumerate(("a", "b", "c"), start=1):
        table.write(attempt(txid), [row])
    first = table.snapshots()[-3]
    table.call(f"rollback_to_snapshot('{{}}', {first})")
    forget()

    assert table.write(attempt(4, epoch=2), ["d"])
    assert "was rolled back: rows of its last batches before txid 4" in caplog.text
    assert table.rows() == ["a", "d"]


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


def test_what_cannot_be_counted_is_refused_by_name(lake, table):
    table.write(attempt(1), ["a"])
    for option in iceberg.OWN_OPTIONS:
        with pytest.raises(ConfigError, match=f"option 'options' is '{option}'"):
            table.write(attempt(2), ["b"], options={option: "mine"})

    for word in ("true", "True"):
        staged = f"'write.wap.enabled'='{word}'"
        lake.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({staged})")
        lake.conf.set("spark.wap.id", "staged")
        with pytest.raises(ConfigError, match="keep the batch out of the table"):
            table.write(attempt(2), ["b"])
        lake.conf.unset("spark.wap.id")
    assert table.write(attempt(2), ["b"])
    assert table.rows() == ["a", "b"]


def test_a_catalog_whose_new_tables_stage_writes_loses_no_first_batch(spark, warehouse):
    need(ICE)
    forget()
    staged = {"table-default.write.wap.enabled": "True"}
    table = IcebergTable(
        iceberg_session(spark, warehouse, **staged), f"lake.db.{fresh()}"
    )
    table.spark.conf.set("spark.wap.id", "staged")
    for _ in range(2):
        with pytest.raises(ConfigError, match="keep the batch out of the table"):
            table.write(attempt(1), ["a"])
    table.spark.conf.unset("spark.wap.id")

    assert table.write(attempt(1), ["a"])
    assert table.rows() == ["a"]


def test_the_path_of_a_table_is_refused_by_name(spark, warehouse):
    need(ICE)
    table = IcebergTable(iceberg_session(spark, warehouse), f"lake.db.{fresh()}")
    table.write(attempt(1), ["a"])

    path = str(warehouse.joinpath(*table.name.split(".")[1:]))
    with pytest.raises(ConfigError, match="Iceberg checks no append by path"):
        IcebergTable(table.spark, path).write(attempt(1), ["a"])


def test_a_table_that_may_not_be_written_loses_nothing(ice, spark, table, warehouse):
    table.write(attempt(1), ["a"])
    elsewhere = iceberg_session(spark, warehouse, kind="rest", uri="http://127.0.0.1:1")
    with pytest.raises(Py4JJavaError, match="Connect|refused"):
        IcebergTable(elsewhere, table.name).write(attempt(2), ["b"])

    assert table.write(attempt(2), ["b"])


# --- what a REST catalog can do to a commit ------------------------------------------


@pytest.fixture
def lossy(spark, rest):
    """A table behind a way that loses answers, and that way."""
    forget()
    with running(LossyWay(rest.uri)) as way:
        yield IcebergTable(of_rest(spark, way.uri), f"lake.db.{fresh()}"), way


UNKNOWN = "CommitStateUnknownException"


def test_a_commit_of_unknown_state_that_was_made_counts(lossy):
    table, way = lossy
    table.write(attempt(1), ["a"])

    way.loses = "answer"
    assert table.write(attempt(2), ["b"])

    assert not table.write(attempt(2, epoch=2), ["b"])
    assert table.rows() == ["a", "b"]


def test_a_commit_of_unknown_state_that_was_not_made_fails_and_comes_again(lossy):
    table, way = lossy
    table.write(attempt(1), ["a"])

    way.loses = "request"
    with pytest.raises(Py4JJavaError, match=UNKNOWN):
        table.write(attempt(2), ["b"])
    assert table.rows() == ["a"]

    assert table.write(attempt(2, epoch=2), ["b"])
    assert way.deliver() == [409]
    assert table.rows() == ["a", "b"]


def test_a_commit_that_arrives_before_its_batch_comes_again_is_the_batch(lossy):
    table, way = lossy
    table.write(attempt(1), ["a"])
    way.loses = "request"
    with pytest.raises(Py4JJavaError, match=UNKNOWN):
        table.write(attempt(2), ["b"])

    write = table.appends.write

    def late(sink, given):
        assert way.deliver() == [200]  # after the look of the second try
        return write(sink, given)

    with mock.patch.object(table.appends, "write", late):
        assert not table.write(attempt(2, epoch=2), ["b"])

    assert table.rows() == ["a", "b"]


@pytest.mark.parametrize("loses", ["answer", "request"])
def test_a_branch_of_unknown_state_is_published_once(lossy, loses):
    table, way = lossy
    table.make_counts()
    table.count(attempt(1), "a")
    publish = iceberg.IcebergStatement._publish

    def loses_it(sink, given, branch):
        way.loses = loses
        publish(sink, given, branch)

    with mock.patch.object(iceberg.IcebergStatement, "_publish", loses_it):
        if loses == "answer":
            assert table.count(attempt(2), "a")
        else:
            with pytest.raises(Py4JJavaError, match=UNKNOWN):
                table.count(attempt(2), "a")

    assert table.count(attempt(2, epoch=2), "a") is (loses == "request")
    assert set(way.deliver()) <= {409}
    assert table.counted() == {"a": 2}
    assert table.branches() == []


def test_a_catalog_that_refuses_its_client_has_nothing_of_the_batch(lossy):
    table, way = lossy
    table.write(attempt(1), ["a"])

    way.loses = "rights"
    with pytest.raises(Py4JJavaError, match="ForbiddenException"):
        table.write(attempt(2), ["b"])

    assert table.write(attempt(2), ["b"])
    assert table.rows() == ["a", "b"]


@pytest.mark.skipif(ICEBERG is not None, reason="it is refused where it is not there")
def test_a_spark_without_iceberg_is_refused_by_name(spark, warehouse):
    table = IcebergTable(iceberg_session(spark, warehouse), "lake.db.orders")

    with pytest.raises(ConfigError, match=r"no jar of Iceberg's.*Spark 4\.0 or 4\.1"):
        table.write(attempt(1), ["a"])
    with pytest.raises(ConfigError, match="no jar of Iceberg's"):
        kafka_tx.write_to_table(table.batch("a"), attempt(1), table.name, merge)
