"""A query and a topology whose database falls silent go on by themselves, exactly."""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow as pa
import pytest

import kafka_tx
from integration.cluster.proxied import proxies_to
from integration.cluster.waiting import wait_until
from integration.sizes import size
from kafka_tx.errors import KafkaTxError
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap

QUICKLY = "silence_ms=1000&connect_timeout=2"
KEYS = [f"k{n}" for n in range(5)]


@pytest.fixture
def database(postgresql, postgresql_server):
    """A database behind a proxy: its URL and the proxy."""
    with proxies_to(postgresql_server.port) as (proxy,):
        name = postgresql.rpartition("/")[2]
        yield f"{postgresql_server.url(name, proxy)}?{QUICKLY}", proxy


class Writing:
    """Writes records all the time, and knows what is in the log."""

    def __init__(self, produce, topic):
        self.written: Counter[str] = Counter()
        self._produce, self._topic = produce, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(0.05):
            places = self._produce(self._topic, KEYS)
            self.written.update(KEYS[: len(places)])


def fall_silent(proxy, seconds):
    """Swallow what is sent for a while; what was open then stays silent."""
    before = proxy.swallowed
    proxy.half_open()
    wait_until("something was swallowed", lambda: proxy.swallowed > before)
    threading.Event().wait(seconds)
    proxy.heal()


def counted(state):
    table = state.to_arrow()
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def wait_for_more(state, complain):
    seen = sum(counted(state).values())
    wait_until(
        "it goes on", lambda: sum(counted(state).values()) > seen, complain=complain
    )


def test_a_query_goes_on_when_its_database_was_silent(
    spark, kafka, topic, produce, database, tmp_path
):
    url, proxy = database
    name = topic(2)
    state = OpaqueMap(url, "counts")

    def count(df, attempt):
        rows = df.selectExpr("cast(value as string) as key")
        kafka_tx.update_map(rows, attempt, state, reducer="count")

    attached = kafka_tx.attach(spark, metrics_port=None)
    query = (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("tx.id", f"silent-{name}")
        .option("tx.store", url)
        .option("tx.mode", "opaque")
        .load()
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(count))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="300 milliseconds")
        .start()
    )
    try:
        with Writing(produce, name) as writing:
            wait_until("it counts", lambda: counted(state))
            for _ in range(size(1, 2)):
                fall_silent(proxy, 1)
                wait_for_more(
                    state, lambda: query.exception() and str(query.exception())
                )
        wait_until("all is counted", lambda: counted(state) == writing.written)
        query.stop()
        assert counted(state) == writing.written
    finally:
        query.stop()
        attached.close()
        state.close()


class Update(kafka_tx.Committer, kafka_tx.BatchBolt):
    """Counts into a map."""

    def __init__(self, url):
        self.url = url

    def prepare(self, context, collector):
        self.attempt = context.attempt
        self.keys: Counter[str] = Counter()

    def execute(self, row):
        self.keys[row.str] += 1

    def finish_batch(self):
        keys = sorted(self.keys)
        rows = pa.table({"key": keys, "value": [self.keys[k] for k in keys]})
        state = TransactionalMap(self.url, "counts")
        state.update(
            self.attempt, rows.cast(pa.schema([("key", "string"), ("value", "int64")]))
        )
        state.close()


@pytest.mark.all
def test_a_topology_goes_on_when_its_database_was_silent(
    spark, kafka, topic, produce, database
):
    url, proxy = database
    name = topic(2)
    spout = kafka_tx.TransactionalKafkaSpout(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}
    )
    builder = kafka_tx.TransactionalTopologyBuilder(f"silent-{name}", "spout", spout, 2)
    builder.set_committer_bolt("update", Update(url)).global_grouping("spout")
    state = TransactionalMap(url, "counts")
    handle = builder.build().start(
        spark, {"tx.store": url, "tx.timeoutMs": 20_000, "tx.emitIntervalMs": 100}
    )

    def ended() -> str | None:
        try:
            handle.awaitTermination(0)
        except KafkaTxError as error:
            return str(error)
        return None

    try:
        with Writing(produce, name) as writing:
            wait_until("it counts", lambda: counted(state), complain=ended)
            for _ in range(2):
                fall_silent(proxy, 1)
                wait_for_more(state, ended)
        wait_until("all is counted", lambda: counted(state) == writing.written)
        handle.stop()
        assert counted(state) == writing.written
    finally:
        handle.stop()
        state.close()
