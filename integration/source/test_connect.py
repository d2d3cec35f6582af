"""Spark Connect: a server of its own, reached by nothing but its port."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="pyspark[connect] is not installed")

from pyspark.sql.connect.session import SparkSession

from integration.bounded import with_a_planner
from integration.cluster.connect import ConnectServer
from integration.cluster.records import Record
from integration.cluster.running import running
from integration.cluster.waiting import wait_until
from kafka_tx import (
    BasicBolt,
    MemoryTransactionalSpout,
    TransactionalMap,
    TransactionalTopologyBuilder,
    append_once,
    attach,
    for_each_transaction,
    update_map,
    with_dead_letters,
    write_to_table,
    write_transaction,
)
from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.schemas import defaults
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Ledger
from tests.told_registry import told as told

Batch = Callable[[Any, Any], None]


class Passing(BasicBolt):
    def execute(self, row: Any, collector: Any) -> None: ...


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[ConnectServer]:
    """Its temporary directory has a long name, as on macOS and in YARN's containers."""
    long = tmp_path_factory.mktemp("container_e01_1763884800000_0042_01_000001" * 2)
    with running(ConnectServer(TMPDIR=str(long))) as started:
        yield started


@pytest.fixture(scope="module")
def remote(server: ConnectServer) -> Iterator[SparkSession]:
    """A session of this process with the server; a classic one may be here, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session = SparkSession.builder.remote(server.url).create()
        yield session
        session.stop()


class Job:
    """A stream of a topic with two partitions, and where it leaves what."""

    def __init__(self, servers: str, name: str, out: str, place: Path) -> None:
        self.id, self.out, self.place = name, out, place
        self.servers = {"kafka.bootstrap.servers": servers}
        self.source = {
            **self.servers,
            "subscribe": name,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "10",
            "tx.id": name,
            "tx.store": f"sqlite:///{place}/state.db",
        }

    def stream(self, remote: SparkSession) -> Any:
        found = remote.readStream.format("kafka_tx").options(**self.source).load()
        return found.drop("partition")

    def start(self, remote: SparkSession, function: Any, checkpoint: str = "c") -> Any:
        return (
            self.stream(remote)
            .writeStream.foreachBatch(for_each_transaction(function, self.id))
            .option("checkpointLocation", str(self.place / checkpoint))
            .start()
        )

    def run(
        self,
        remote: SparkSession,
        function: Any,
        checkpoint: str = "c",
        until: Callable[[], bool] | None = None,
    ) -> Any:
        """Give the query, which goes on: all is processed, or something has come true.

        It is started again where its Python processes came too late.
        """

        def once() -> Any:
            query = self.start(remote, function, checkpoint)
            if until is None:
                query.processAllAvailable()
                return query
            wait_until("it is true", lambda: until() or not query.isActive)
            if error := query.exception():
                raise error
            return query

        return with_a_planner(once)

    def appending(self, pause_at: int = 0) -> Batch:
        """Writes each batch into a table; may stop for ever after a txid's write."""
        url, waiting = f"sqlite:///{self.place}/sink.db", self.place / "waiting"

        def append(df: Any, attempt: Any) -> None:
            import time

            values = df.selectExpr("CAST(CAST(value AS STRING) AS INT) AS value")
            append_once(values, attempt, url, "rows")
            if attempt.txid == pause_at:
                waiting.write_text(str(attempt))
                time.sleep(600)

        return append

    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self.place / "sink.db")) as db:
            return sorted(value for (value,) in db.execute("SELECT value FROM rows"))

    def copied(self, remote: SparkSession) -> list[int]:
        """What readers of the topic ``out`` see."""
        committed = {"kafka.isolation.level": "read_committed", "subscribe": self.out}
        found = remote.read.format("kafka_tx").options(**self.servers, **committed)
        return sorted(int(row.value) for row in found.load().collect())

    def txid(self) -> int:
        with closing(Ledger(SqlStore(self.source["tx.store"], self.id))) as ledger:
            return ledger.load().txid


@pytest.fixture
def job(kafka, topic, produce, tmp_path) -> Job:
    name = topic(2)
    produce(name, [Record(str(n), key=f"k{n % 3}") for n in range(25)])
    return Job(kafka.bootstrap_servers, name, topic(1), tmp_path)


@pytest.mark.all
def test_a_batch_is_read_and_written(remote, job):
    reading = {**job.servers, "subscribe": job.id}
    found = remote.read.format("kafka_tx").options(**reading).load()
    assert found.count() == 25

    writing = {**job.servers, "topic": job.out}
    copy = found.select("key", "value").write.format("kafka_tx").mode("append")
    copy.options(**writing).save()
    assert job.copied(remote) == list(range(25))


@pytest.mark.all
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_stream_is_written(remote, job, exactly_once):
    writing = {**job.servers, "topic": job.out}
    writer = (
        job.stream(remote)
        .writeStream.format("kafka_tx")
        .options(**writing, **({"tx.id": job.out} if exactly_once else {}))
        .option("checkpointLocation", str(job.place / "checkpoint"))
    )

    def copy() -> None:
        query = writer.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    with_a_planner(copy)
    assert job.copied(remote) == list(range(25))


def test_every_sink_counts_each_record_once(remote, job):
    job.source["maxOffsetsPerTrigger"] = "20"
    table, counts = f"sqlite:///{job.place}/sink.db", f"sqlite:///{job.place}/map.db"
    sink = {**job.servers, "topic": job.out, "tx.id": f"{job.id}-sink"}

    def write(df: Any, attempt: Any) -> None:
        for number in (1, 2):  # each is tried again
            again = attempt.of(attempt.txid, epoch=attempt.epoch, number=number)
            append_once(
                df.selectExpr("CAST(CAST(value AS STRING) AS INT) v"),
                again,
                table,
                "rows",
            )
            update_map(df, again, TransactionalMap(counts, "n"), reducer="count")
        write_transaction(df, attempt, sink)

    job.run(remote, write).stop()

    with closing(sqlite3.connect(job.place / "sink.db")) as db:
        assert sorted(v for (v,) in db.execute("SELECT v FROM rows")) == [*range(25)]
    with closing(TransactionalMap(counts, "n")) as state:
        assert sum(state.to_arrow()["value"].to_pylist()) == 25
    assert job.copied(remote) == list(range(25))
    assert job.txid() >= 2  # committed without a listener; the last one when asked next


@pytest.mark.all
def test_values_are_typed_there_too(remote, job, topic, produce, told):
    name = topic()
    told.schema(1, '"int"')
    told.version(f"{name}-value", "latest", 1, '"int"')
    produce(name, [b"\0\0\0\0\1" + defaults.number(n) for n in range(5)])
    job.source |= {
        "subscribe": name,
        "value.format": "avro",
        "schema.registry.url": told.url,
    }

    job.run(remote, job.appending()).stop()

    assert job.rows() == list(range(5))


@pytest.mark.all
def test_broken_records_are_dead_letters_and_persisted_until_these_are_written(
    remote, job
):
    """Also if the function persists its rows itself, and gives them up."""
    place = job.place

    def save(df: Any, attempt: Any) -> Any:
        import io
        from contextlib import redirect_stdout

        df.persist().count()
        df.unpersist()
        with redirect_stdout(io.StringIO()) as plan:
            df.where("offset > 1").explain()
        (place / f"plan of {attempt.txid}").write_text(plan.getvalue())
        broken = df.where("value_error IS NOT NULL")
        return broken.withColumn("reason", broken["value_error"])

    typed = {
        "value.format": "avro",
        "value.schema": '"string"',
        "value.mode": "PERMISSIVE",
        "schema.registry.url": "http://localhost:9",  # no record names a schema
    }
    found = remote.readStream.format("kafka_tx").options(**job.source, **typed).load()
    handle = with_dead_letters(save, job.out, tx_id=job.id, options=job.servers)

    def bury() -> None:
        query = (
            found.writeStream.foreachBatch(handle)
            .option("checkpointLocation", str(place / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    with_a_planner(bury)

    plans = [each.read_text() for each in place.glob("plan of *")]
    assert plans
    assert all("InMemoryTableScan" in each for each in plans)
    assert job.copied(remote) == list(range(25))


@pytest.mark.all
def test_a_second_query_fences_the_first(remote, job, produce):
    first = job.run(remote, job.appending(), "first")
    second = job.run(remote, job.appending(), "second")
    try:
        produce(job.id, [Record(str(n)) for n in range(25, 30)])
        second.processAllAvailable()
        wait_until("the first has ended", lambda: not first.isActive)
        assert "KAFKA_TX_FENCED" in str(first.exception())
    finally:
        first.stop()
        second.stop()
    assert job.rows() == list(range(30))


def test_what_cannot_work_says_what_to_do(remote, job):
    with pytest.raises(ConfigError, match="attach needs a classic session.*Leave it"):
        attach(remote)
    with pytest.raises(ConfigError, match=r"needs the tx\.id of the source"):
        for_each_transaction(job.appending())


def test_a_server_that_speculates_is_refused_where_a_part_is_written_once(server, job):
    sink = {**job.servers, "topic": job.out, "tx.id": f"{job.id}-sink"}
    remote = SparkSession.builder.remote(server.url).create()
    try:
        remote.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
        remote.conf.set("spark.speculation", "true")  # as all sessions there show it
        df = remote.sql("SELECT 'k' AS key, 'v' AS value")

        with pytest.raises(ConfigError, match=r"'spark\.speculation'.*the server"):
            write_transaction(df, TransactionAttempt(1, 1), sink)
    finally:
        remote.stop()


@pytest.mark.all
def test_a_wrong_id_is_told(remote, job):
    query = (
        job.stream(remote)
        .writeStream.foreachBatch(for_each_transaction(job.appending(), "another"))
        .option("checkpointLocation", str(job.place / "c"))
        .start()
    )
    wait_until("the query has ended", lambda: not query.isActive)
    assert "no source with tx.id 'another'" in str(query.exception())


def test_a_statement_on_a_table_needs_a_classic_session(remote):
    df, attempt = remote.range(1), TransactionAttempt.of(1, epoch=1, number=1)

    with pytest.raises(ConfigError, match="Spark Connect.*Run the query in the driver"):
        write_to_table(df, attempt, "lake.db.orders", lambda df, target: None)


def test_a_topology_needs_a_classic_session(remote, tmp_path):
    spout = MemoryTransactionalSpout([[(1,)]], ["n"], 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    builder.set_bolt("sum", Passing()).shuffle_grouping("spout")
    store = {"tx.store": f"sqlite:///{tmp_path}/t.db"}
    with pytest.raises(ConfigError, match="a classic SparkSession"):
        builder.build().start(remote, store)


@pytest.mark.all
def test_a_batch_without_records_stops_there_and_a_classic_session_finishes_it(
    request, monkeypatch, remote, job, topic, produce
):
    """Late state is written once, by who can number its batch."""

    def counting(session: Any) -> Any:
        found = session.readStream.format("kafka_tx").options(**job.source).load()
        seen = found.selectExpr("timestamp(CAST(CAST(key AS STRING) AS LONG)) AS at")
        counts = seen.withWatermark("at", "1 second").groupBy("at").count()
        url = f"sqlite:///{job.place}/sink.db"

        def append(df: Any, attempt: Any) -> None:
            append_once(df.selectExpr("CAST(at AS LONG) AS second"), attempt, url, "s")

        return (
            counts.writeStream.outputMode("append")
            .foreachBatch(for_each_transaction(append, job.id))
            .option("checkpointLocation", str(job.place / "stateful"))
            .start()
        )

    job.id = job.source["subscribe"] = job.source["tx.id"] = topic(1)
    produce(job.id, [Record("x", key=str(second)) for second in (10, 20, 30)])
    query = counting(remote)
    wait_until("the query has ended", lambda: not query.isActive)
    assert "holds no new records" in str(query.exception())

    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED")
    classic = counting(request.getfixturevalue("spark"))
    try:
        classic.processAllAvailable()
    finally:
        classic.stop()
    with closing(sqlite3.connect(job.place / "sink.db")) as db:
        assert sorted(s for (s,) in db.execute("SELECT second FROM s")) == [10, 20]


@pytest.mark.all
def test_a_first_batch_without_records_is_one_there_and_in_a_classic_session(
    request, monkeypatch, remote, job, topic, produce
):
    """All records are another source's. A second one has no txid: it stops."""
    job.id = job.source["subscribe"] = job.source["tx.id"] = topic(1)
    other = topic(1)
    produce(other, ["1"])

    def start(session: Any, function: Batch) -> Any:
        busy = session.readStream.format("kafka_tx").options(
            **job.servers, subscribe=other, startingOffsets="earliest"
        )
        return (
            job.stream(session)
            .union(busy.load().drop("partition"))
            .writeStream.foreachBatch(for_each_transaction(function, job.id))
            .option("checkpointLocation", str(job.place / "two"))
            .start()
        )

    def append_and_fail(df: Any, attempt: Any) -> None:
        job.appending()(df, attempt)
        raise ValueError("right after the write")

    failed = start(remote, append_and_fail)
    wait_until("the query has ended", lambda: not failed.isActive)
    assert "right after the write" in str(failed.exception())

    with monkeypatch.context() as patch:
        patch.delenv("SPARK_CONNECT_MODE_ENABLED")
        classic = start(request.getfixturevalue("spark"), job.appending())
        classic.processAllAvailable()
        classic.stop()
    assert job.rows() == [1]

    produce(other, ["2"])
    query = start(remote, job.appending())
    wait_until("the query has ended", lambda: not query.isActive)
    assert "holds no new records" in str(query.exception())
    assert job.rows() == [1]


@pytest.mark.all
@pytest.mark.parametrize("goes_on", ["on a server", "in a session"])
def test_a_killed_server_loses_and_doubles_nothing(
    request, server, remote, job, produce, goes_on
):
    """The last test of this file: the session of the others ends with the server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        remote.stop()  # it would look for its server for minutes
        server.start()  # after a try that failed
        killed = SparkSession.builder.remote(server.url).create()
        job.run(killed, job.appending(pause_at=2), until=(job.place / "waiting").exists)
        killed.client.close()
        server.kill()
    produce(job.id, [Record(str(n)) for n in range(25, 40)])
    with pytest.MonkeyPatch.context() as patch:
        if goes_on == "in a session":
            patch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
            job.run(request.getfixturevalue("spark"), job.appending()).stop()
        else:
            patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
            server.start()
            session = SparkSession.builder.remote(server.url).create()
            job.run(session, job.appending()).stop()
    assert job.rows() == list(range(40))
    assert job.txid() >= 3
