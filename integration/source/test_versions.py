"""What must work on every line of Spark: limits, restarts, txids, both sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from integration.capabilities import CAPABILITIES, LIMITED_BOUNDED_RUNS
from integration.cluster.interface import KafkaCluster
from integration.cluster.records import Record
from integration.cluster.versions import SPARK_LINE
from integration.cluster.waiting import PATIENT_S
from kafka_tx import attach, for_each_transaction, write_transaction
from kafka_tx.spark.versions import workers
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Ledger

LIMIT = 10
REPEATS = [pytest.mark.all] if SPARK_LINE == "4.2" else []
"""Marks of what `make test`, whose Spark is 4.2, shows in other files, too."""


def repeats(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a whole test so."""
    for mark in REPEATS:
        mark(test)
    return test


def environment_of_sources(spark: SparkSession) -> Any:
    """What Spark's Python processes for our sources are given: one map for all."""
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    return sources.lookupDataSource("kafka_tx").dataSourceCls().envVars()


def test_a_task_knows_the_connection_of_its_rows(spark):
    """It looks for it where this Spark's worker has it."""

    def found(batches):
        for batch in workers.whole(batches):
            assert workers._connection() is not None
            yield batch

    rows = spark.range(100, numPartitions=1)
    assert rows.mapInArrow(found, rows.schema).count() == 100
    assert rows.rdd.mapPartitions(lambda given: workers.whole(given)).count() == 100


@contextmanager
def attached(spark: SparkSession) -> Iterator[None]:
    attachment = attach(spark, metrics_port=None)
    try:
        yield
    finally:
        attachment.close()


@contextmanager
def with_a_function_for_transactions(_: SparkSession) -> Iterator[None]:
    thread = Thread(target=for_each_transaction, args=(print,))  # as streams that
    thread.start()  # start together are started; no session is active in there
    thread.join()
    yield


@pytest.mark.parametrize(
    "prepared",
    [attached, pytest.param(with_a_function_for_transactions, marks=REPEATS)],
)
def test_a_query_that_starts_adds_nothing_to_what_all_share(
    prepared, spark, kafka, topic, tmp_path
):
    """Spark's map has no lock: two that add the same at once leave it broken."""
    shared = environment_of_sources(spark)
    for name in [name for name in shared if name.startswith("SPARK_")]:
        shared.remove(name)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic(1),
    }

    with prepared(spark):
        before = set(shared)
        Job(spark, options, tmp_path).run(availableNow=True)

    assert set(shared) == before


@dataclass
class Job:
    """A query that can be started again on its checkpoint."""

    spark: SparkSession
    options: dict[str, str]
    place: Path
    batches: list[tuple[int, list[int]]] = field(default_factory=list)

    @property
    def values(self) -> list[int]:
        return [value for _, values in self.batches for value in values]

    def see(self, df: DataFrame, number: Any) -> None:
        values = sorted(int(row.value) for row in df.select("value").collect())
        self.batches.append((getattr(number, "txid", number), values))

    def run(self, **trigger: Any) -> None:
        df = self.spark.readStream.format("kafka_tx").options(**self.options).load()
        counts = "tx.id" in self.options
        query = (
            df.writeStream.foreachBatch(
                for_each_transaction(self.see) if counts else self.see
            )
            .option("checkpointLocation", str(self.place / "checkpoint"))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )
        try:
            if trigger:
                assert query.awaitTermination(PATIENT_S)
            else:
                query.processAllAvailable()
        finally:
            query.stop()


def committed(options: dict[str, str]) -> int:
    """The txid that the store has as committed."""
    with closing(Ledger(SqlStore(options["tx.store"], options["tx.id"]))) as ledger:
        return ledger.load().txid


@pytest.fixture(params=["with tx.id", pytest.param("without", marks=REPEATS)])
def job(request, spark, kafka, topic, produce, tmp_path) -> Job:
    name = topic(2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(LIMIT),
    }
    if request.param == "with tx.id":
        options |= {"tx.id": name, "tx.store": f"sqlite:///{tmp_path}/state.db"}
    return Job(spark, options, tmp_path)


def numbers(first: int, last: int) -> list[Record]:
    return [Record(str(n), key=f"k{n}") for n in range(first, last)]


@repeats
def test_every_batch_obeys_the_limit_also_the_first_after_a_restart(job, produce):
    name = job.options["subscribe"]
    produce(name, numbers(0, 35))
    job.run()
    produce(name, numbers(35, 60))
    job.run()

    assert sorted(job.values) == list(range(60))
    assert max(len(values) for _, values in job.batches) <= LIMIT


@pytest.mark.parametrize("job", ["with tx.id"], indirect=True)
def test_batches_of_about_so_many_bytes(job, produce):
    """Records of 40 bytes, then of 400; a batch that crosses has at most all of one."""
    name = job.options["subscribe"]
    del job.options["maxOffsetsPerTrigger"]
    job.options["maxBytesPerTrigger"] = "4k"
    produce(name, [Record(f"{n:040}", partition=n % 2) for n in range(500)])
    produce(name, [Record(f"{n:0400}", partition=n % 2) for n in range(500, 550)])

    job.run()

    assert sorted(job.values) == list(range(550))
    sizes = [sum(40 if n < 500 else 400 for n in v) for _, v in job.batches]
    assert len(sizes) > 7
    assert sorted(sizes)[len(sizes) // 2] == pytest.approx(4_096, rel=0.1)


@repeats
def test_a_bounded_run_ends_where_the_log_did(job, produce):
    name = job.options["subscribe"]
    produce(name, numbers(0, 35))
    if not CAPABILITIES[
        LIMITED_BOUNDED_RUNS
    ]:  # one batch there, and a limit would end it early
        del job.options["maxOffsetsPerTrigger"]
    job.run(availableNow=True)
    assert sorted(job.values) == list(range(35))
    if "tx.id" in job.options:  # else the run ends before its one batch is asked after
        is_asked = CAPABILITIES[LIMITED_BOUNDED_RUNS]
        assert committed(job.options) == len(job.batches) - (0 if is_asked else 1)
    job.run(availableNow=True)
    if "tx.id" in job.options:
        assert committed(job.options) == len(job.batches)
    produce(name, numbers(35, 50))
    job.run(availableNow=True)

    assert sorted(job.values) == list(range(50))


def test_a_batch_that_nobody_reads_is_passed_all_the_same(job, produce):
    produce(job.options["subscribe"], numbers(0, 25))
    read = job.see
    unread: list[Any] = []

    def see(df: DataFrame, number: Any) -> None:
        if not unread:
            unread.append(number)
        else:
            read(df, number)

    job.see = see
    job.run()

    missing = set(range(25)) - set(job.values)
    assert 0 < len(missing) <= LIMIT
    assert len(set(job.values)) == len(job.values)


@repeats
@pytest.mark.parametrize("job", ["with tx.id"], indirect=True)
def test_a_failed_batch_comes_again_with_the_same_txid(job, produce):
    produce(job.options["subscribe"], numbers(0, 25))
    read, failed = job.see, list[list[int]]()

    def see(df: DataFrame, number: Any) -> None:
        if number.txid == 2 and not failed:
            failed.append(sorted(int(row.value) for row in df.collect()))
            raise RuntimeError("not yet")
        read(df, number)

    job.see = see
    with pytest.raises(Exception, match="not yet"):
        job.run()
    job.run()

    assert [txid for txid, _ in job.batches] == [1, 2, 3]
    assert job.batches[1][1] == failed[0]
    assert sorted(job.values) == list(range(25))


@pytest.fixture
def copied(spark, kafka: KafkaCluster, topic, produce, tmp_path):
    """A stream of a topic, a copy of it, what that one holds, and the store."""
    name, out = topic(2), topic(1)
    produce(name, numbers(0, 35))
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    more = {"subscribe": name, "startingOffsets": "earliest", "includeHeaders": "true"}
    store = {"tx.id": name, "tx.store": f"sqlite:///{tmp_path}/state.db"}
    stream = spark.readStream.format("kafka_tx").options(**servers, **more, **store)

    def held() -> list[int]:
        committed = {"kafka.isolation.level": "read_committed", "subscribe": out}
        found = spark.read.format("kafka_tx").options(**servers, **committed).load()
        return sorted(int(row.value) for row in found.collect())

    return stream.load().drop("partition"), {**servers, "topic": out}, held, store


@pytest.mark.parametrize(
    "exactly_once", [pytest.param(each, marks=REPEATS) for each in (False, True)]
)
def test_the_streaming_sink(copied, tmp_path, exactly_once):
    stream, options, held, _ = copied
    more = {"tx.id": options["topic"]} if exactly_once else {}
    query = (
        stream.writeStream.format("kafka_tx")
        .options(**options, **more)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    assert query.awaitTermination(PATIENT_S)
    assert held() == list(range(35))


RECENT = datetime.now(UTC).replace(microsecond=0)
"""Retention would take records of older times."""


@pytest.mark.parametrize(
    "given", [pytest.param(each, marks=REPEATS) for each in (RECENT, None)]
)
def test_a_stream_writes_the_times_of_its_rows(copied, spark, tmp_path, given):
    """In whatever zone sessions and workers live; null is the time of writing."""
    stream, options, held, _ = copied
    time = f"timestamp_millis({int(RECENT.timestamp()) * 1000})" if given else "null"
    before, zone = datetime.now(UTC), "spark.sql.session.timeZone"
    spark.conf.set(zone, "America/New_York")
    try:
        query = (
            stream.selectExpr("value", f"cast({time} AS timestamp) AS timestamp")
            .writeStream.format("kafka_tx")
            .options(**options, timestampColumn="true")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENT_S)
    finally:
        spark.conf.set(zone, "UTC")

    assert held() == list(range(35))
    written = spark.read.format("kafka_tx").option("subscribe", options["topic"])
    brokers = "kafka.bootstrap.servers"
    times = written.option(brokers, options[brokers]).load().select("timestamp")
    found = {
        datetime.fromtimestamp(row.timestamp.timestamp(), UTC)
        for row in times.collect()
    }
    assert found == {RECENT} if given else min(found) > before - timedelta(seconds=1)


@repeats
def test_write_transaction_and_the_listener(spark, copied, tmp_path):
    stream, options, held, store = copied

    def write(df: DataFrame, attempt: Any) -> None:
        write_transaction(df, attempt, {**options, "tx.id": options["topic"]})

    with closing(attach(spark, metrics_port=None)):
        query = (
            stream.writeStream.foreachBatch(for_each_transaction(write))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENT_S)

    assert held() == list(range(35))
    assert committed(store) == 1  # without another run
