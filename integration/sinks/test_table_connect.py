"""Appends to tables of a lakehouse in sessions of Spark Connect, which show no JVM.

One server has all formats that its Spark has jars for.
"""

from __future__ import annotations

import itertools
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("grpc", reason="pyspark[connect] is not installed")

from pyspark.errors import AnalysisException
from pyspark.sql.connect.session import SparkSession

import kafka_tx
from integration.capabilities import ICE, LAKE, need
from integration.cluster.connect import ConnectServer
from integration.cluster.jars import jar_paths
from integration.cluster.running import running
from integration.cluster.spark_local import DELTA_SETTINGS
from integration.cluster.versions import DELTA, DELTA_JARS, ICEBERG, ICEBERG_JARS
from integration.cluster.waiting import wait_until
from integration.sinks.iceberg_tables import COMPACT, EXPIRE
from integration.sinks.table_driver import paused
from integration.sinks.table_suite import Table, forget
from kafka_tx.errors import ConfigError, FencedError, StateGivenUpError, StateLostError
from kafka_tx.sinks import publications, table_writes
from kafka_tx.spark.sinks.connect_tables import DeltaConnectAppend, IcebergConnectAppend
from tests.conformance.sink_suite import SinkSuite, attempt

pytestmark = pytest.mark.all


def lake_settings(warehouse: Path) -> dict[str, str]:
    jars = [*(jar_paths(DELTA_JARS) if DELTA else [])]
    jars += jar_paths(ICEBERG_JARS) if ICEBERG else []
    return {
        **(DELTA_SETTINGS if DELTA else {}),
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
    }


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    need(LAKE)
    settings = lake_settings(tmp_path_factory.mktemp("lake"))
    with (
        running(ConnectServer(settings)) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session = SparkSession.builder.remote(server.url).create()
        yield session
        session.stop()


class ConnectTable(Table):
    def rows(self):
        if self.format == "iceberg" and self.exists():
            self.sql("REFRESH TABLE t")
        return super().rows()


class DeltaTable(ConnectTable):
    format = "delta"
    appends = DeltaConnectAppend
    inside = ("_append",)

    def others_write(self, *rows):
        self.batch(rows).write.format("delta").mode("append").saveAsTable(self.name)

    def versions(self):
        return len(self.sql(f"DESCRIBE HISTORY {self.name}"))


class IcebergTable(ConnectTable):
    format = "iceberg"
    appends = IcebergConnectAppend
    inside = ("_raise_floor",)

    def others_write(self, *rows):
        self.batch(rows).writeTo(self.name).append()

    def call(self, procedure):
        name = self.name.removeprefix("lake.")
        self.sql(f"CALL lake.system.{procedure.format(name)}")

    def snapshots(self):
        self.sql("REFRESH TABLE t")
        found = self.spark.table(f"{self.name}.snapshots").orderBy("committed_at")
        return [row.snapshot_id for row in found.collect()]

    def versions(self):
        return len(self.snapshots())


def made(remote: Any, kind: str) -> Any:
    forget()
    name = f"t{uuid.uuid4().hex[:12]}"
    if kind == "delta":
        return DeltaTable(remote, name)
    need(ICE)
    return IcebergTable(remote, f"lake.db.{name}")


@pytest.fixture(params=["delta", "iceberg"])
def table(request, remote):
    return made(remote, request.param)


@pytest.fixture
def delta(remote):
    return made(remote, "delta")


@pytest.fixture
def iceberg(remote):
    return made(remote, "iceberg")


class TestAsSink(SinkSuite):
    """The suite for sinks."""

    @pytest.fixture(params=["delta", "iceberg"])
    def open_sink(self, request, remote):
        first = made(remote, request.param)

        def opened():
            forget()
            return type(first)(remote, first.name)

        return opened


def test_each_batch_is_there_once_and_what_is_old_is_refused(table):
    assert table.write(attempt(1), ["a"])
    assert table.write(attempt(2), ["b"])
    forget()

    assert not table.write(attempt(2, epoch=2), ["b"])
    assert not table.write(attempt(3, epoch=2), [])
    with pytest.raises(kafka_tx.KafkaTxError, match="comes after 2"):
        table.write(attempt(1, number=9), ["a"])
    with pytest.raises(kafka_tx.KafkaTxError, match="numbering one"):
        table.write(attempt(3, epoch=2, numbering="two", source="job"), ["x"])
    with pytest.raises(ConfigError, match="is opaque"):
        table.write(attempt(3, mode="opaque"), ["x"])
    with pytest.raises(ConfigError, match="Spark Connect.*append_to_table"):
        kafka_tx.write_to_table(table.batch(["x"]), attempt(3), table.name, print)

    assert table.write(attempt(3, epoch=2), ["c"])
    with pytest.raises(FencedError):
        table.write(attempt(4), ["x"])
    assert table.rows() == ["a", "b", "c"]


def test_a_driver_that_was_frozen_before_its_commit_writes_nothing(table):
    table.write(attempt(1), ["a"])
    write = table.appends.write

    def overtaken(sink, given):
        with mock.patch.object(table.appends, "write", write):
            assert table.write(attempt(2, epoch=2), ["b"])
        return write(sink, given)

    frozen = mock.patch.object(table.appends, "write", overtaken)
    with frozen, pytest.raises(FencedError):
        table.write(attempt(2), ["b"])
    assert table.rows() == ["a", "b"]


def test_a_partitioned_table_has_each_batch_once(table):
    def rows(*keys):
        return table.batch(keys).selectExpr("key", "length(key) AS size")

    table.append(rows("a", "bb"), attempt(1), partition_by=["size"])
    forget()

    assert not table.append(rows("a", "bb"), attempt(1, epoch=2), partition_by=["size"])
    assert table.append(rows("ccc"), attempt(2, epoch=2), partition_by=["size"])
    with pytest.raises(AnalysisException):
        table.append(rows("d").selectExpr("*", "1 AS more"), attempt(3, epoch=2))
    assert table.rows() == ["a", "bb", "ccc"]


def test_a_table_that_was_dropped_under_a_program_stops_it(table):
    table.write(attempt(1), ["a"])
    table.sql("DROP TABLE t")

    with pytest.raises(StateLostError, match="txid 1 was left .* one is none"):
        table.write(attempt(2), ["b"])
    forget()

    assert table.write(attempt(2, epoch=2), ["b"])
    assert table.rows() == ["b"]


def test_an_iceberg_table_is_asked_after_commits_in_between(iceberg):
    iceberg.write(attempt(1), ["a"])
    write, others = iceberg.appends.write, ["x", "y"]

    def late(self, given):
        if others:
            iceberg.others_write(others.pop())
        return write(self, given)

    with mock.patch.object(iceberg.appends, "write", late):
        assert iceberg.write(attempt(2), ["b"])
    assert iceberg.rows() == ["a", "b", "x", "y"]

    others.append("z")
    with (
        mock.patch.object(iceberg.appends, "write", late),
        mock.patch.object(table_writes, "TRIES", 1),
        pytest.raises(StateGivenUpError, match="other writers were faster"),
    ):
        iceberg.write(attempt(3), ["c"])
    assert iceberg.write(attempt(3, epoch=2), ["c"])


def test_a_batch_is_appended_again_where_another_program_was_faster(delta, tmp_path):
    delta.write(attempt(1), ["a"])
    job, append = tmp_path / "job", DeltaConnectAppend._append
    reached, go = job.with_suffix(".reached"), job.with_suffix(".go")
    tries: list[Any] = []

    def begins(self, *given):
        if not tries:  # Spark has looked whether there is a row
            reached.unlink()
            go.unlink()
        tries.append(given)
        append(self, *given)

    go.touch()
    with (
        ThreadPoolExecutor(1) as pool,
        mock.patch.object(DeltaConnectAppend, "_append", begins),
    ):
        df = paused(delta.batch(["b"]), job)
        wrote = pool.submit(delta.append, df, attempt(2))
        try:
            wait_until("the append computes", lambda: tries and reached.exists())
            delta.sql("ALTER TABLE t SET TBLPROPERTIES ('team' = 'orders')")
        finally:
            go.touch()
        assert wrote.result()

    assert len(tries) == 2
    assert delta.rows() == ["a", "b"]


def test_compaction_and_expiry_leave_the_txid_of_an_iceberg_table(iceberg):
    iceberg.write(attempt(1), ["a"])
    for epoch, change in enumerate((COMPACT, EXPIRE, COMPACT), start=2):
        iceberg.others_write("x")
        iceberg.call(change)
        forget()
        assert not iceberg.write(attempt(1, epoch=epoch), ["a"])
    iceberg.call(EXPIRE)
    assert len(iceberg.snapshots()) == 1

    assert iceberg.write(attempt(2, epoch=5), ["b"])
    assert iceberg.rows() == ["a", "b", "x", "x", "x"]


def test_a_frozen_driver_is_refused_although_nothing_tells_of_the_append(iceberg):
    iceberg.write(attempt(1), ["a"])
    write = iceberg.appends.write

    def overtaken(sink, given):
        with mock.patch.object(iceberg.appends, "write", write):
            assert iceberg.write(attempt(2, epoch=2), ["b"])
        iceberg.call(COMPACT)
        iceberg.call(EXPIRE)
        return write(sink, given)

    frozen = mock.patch.object(iceberg.appends, "write", overtaken)
    with frozen, pytest.raises(FencedError):
        iceberg.write(attempt(2), ["b"])
    assert iceberg.rows() == ["a", "b"]


def test_a_driver_that_wakes_between_its_commits_takes_no_later_txid_back(iceberg):
    iceberg.write(attempt(1), ["a"])
    raise_floor = iceberg.appends._raise_floor

    def frozen(sink, *given):
        with mock.patch.object(iceberg.appends, "_raise_floor", raise_floor):
            assert not iceberg.write(attempt(2, epoch=2), ["b"])
            assert iceberg.write(attempt(3, epoch=2), ["c"])
        raise_floor(sink, *given)

    wakes = mock.patch.object(iceberg.appends, "_raise_floor", frozen)
    with wakes, pytest.raises(FencedError):
        iceberg.write(attempt(2), ["b"])
    iceberg.others_write("x")
    iceberg.call(EXPIRE)
    forget()

    assert not iceberg.write(attempt(3, epoch=3), ["c"])
    assert iceberg.rows() == ["a", "b", "c", "x"]


def test_an_iceberg_batch_that_was_rolled_back_is_written_again(iceberg):
    for txid, row in enumerate(("a", "b"), start=1):
        iceberg.write(attempt(txid), [row])
    before, _ = iceberg.snapshots()[-2:]
    iceberg.call(f"rollback_to_snapshot('{{}}', {before})")
    forget()

    assert iceberg.write(attempt(2, epoch=2), ["b"])
    assert iceberg.rows() == ["a", "b"]


def test_a_txid_outlives_the_log_of_a_delta_table(delta):
    delta.sql("CREATE TABLE t (key string) USING delta")
    delta.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.checkpointInterval'='1')")
    delta.write(attempt(1), ["a"])
    delta.others_write("x")
    place = delta.sql(f"DESCRIBE DETAIL {delta.name}")[0].location
    log = Path(place.removeprefix("file:")) / "_delta_log"
    for commit in itertools.islice(sorted(log.glob("0*.json")), 3):
        commit.unlink()
    forget()

    assert not delta.write(attempt(1, epoch=2), ["a"])
    with pytest.raises(kafka_tx.KafkaTxError, match="numbering one"):
        delta.write(attempt(1, epoch=2, numbering="two"), ["a"])
    assert delta.write(attempt(2, epoch=2), ["b"])
    assert delta.rows() == ["a", "b", "x"]


@pytest.mark.parametrize(
    ("to", "at"), [("VERSION", "version"), ("TIMESTAMP", "string(timestamp)")]
)
def test_rows_that_were_restored_away_are_not_taken_for_written(delta, to, at):
    for txid, row in enumerate(("a", "b"), start=1):
        delta.write(attempt(txid), [row])
    history = delta.spark.sql(f"DESCRIBE HISTORY {delta.name} LIMIT 2")
    (_, first) = history.selectExpr(at).collect()
    delta.sql(f"RESTORE TABLE t TO {to} AS OF {first[0]!r}")
    forget()

    with pytest.raises(StateLostError, match="to version .* give the sink a new name"):
        delta.write(attempt(2, epoch=2), ["b"])
    assert delta.write(attempt(2, epoch=2), ["b"], sink="new")
    assert delta.rows() == ["a", "b"]


def test_what_cannot_be_counted_is_refused_by_name(remote, delta, tmp_path):
    delta.sql("CREATE TABLE t (key string) USING parquet")
    with pytest.raises(ConfigError, match="legal: a Delta table"):
        delta.write(attempt(1), ["a"])
    with pytest.raises(ConfigError, match="no catalog 'lakee'"):
        DeltaTable(remote, "lakee.db.orders").write(attempt(1), ["a"])

    path = DeltaTable(remote, str(tmp_path / "orders"))
    forgets = "'delta.setTransactionRetentionDuration'='interval 1 days'"
    assert path.write(attempt(1), ["a"])
    assert not path.write(attempt(1, epoch=2), ["a"])
    remote.sql(f"ALTER TABLE delta.`{path.name}` SET TBLPROPERTIES ({forgets})")
    with pytest.raises(ConfigError, match="forgets transactions"):
        path.write(attempt(2, epoch=2), ["b"])


def test_files_are_published_once_and_read_by_either_kind_of_session(
    remote, spark, tmp_path, monkeypatch
):
    forget()
    path = str(tmp_path / "orders")

    def write(session, given, *rows):
        with as_program_of(session):
            df = session.createDataFrame([(row,) for row in rows], "key string")
            return kafka_tx.append_files(df.coalesce(1), given, path)

    def found(session, **more):
        with as_program_of(session):
            rows = kafka_tx.read_files(session, path, **more).collect()
        return sorted(row.key for row in rows)

    @contextmanager
    def as_program_of(session):
        with monkeypatch.context() as patch:
            if session is spark:
                patch.delenv("SPARK_CONNECT_MODE_ENABLED")
            yield

    with mock.patch.object(publications, "MERGED_AT", 1):  # nobody merges there
        assert write(remote, attempt(1), "a")
        assert write(remote, attempt(2), "b", "c")
    assert write(spark, attempt(3), "d")
    assert len(list(Path(path, publications.PUBLISHED).glob("0*"))) == 3
    forget()
    assert not write(remote, attempt(3, epoch=2), "d")
    assert not write(spark, attempt(3, epoch=3), "d")
    with pytest.raises(FencedError):
        write(remote, attempt(4, epoch=0), "x")

    assert found(remote) == found(spark) == ["a", "b", "c", "d"]
    assert found(remote, as_of=2) == found(spark, as_of=2) == ["a", "b", "c"]
    with pytest.raises(ConfigError, match="a classic session"):
        kafka_tx.clean_files(remote, path)
    with as_program_of(spark):
        assert kafka_tx.clean_files(spark, path, left_overs_after_s=0) == 0
    assert found(remote) == ["a", "b", "c", "d"]
