"""Source, sinks and both kinds of topologies on the oldest broker of the matrix.

docs/compatibility.md names it. Each does its work once, through a crash.
"""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import DeadError, read_out
from integration.cluster.processes.kafka import zookeeper_cluster
from integration.cluster.records import Produce, Record
from integration.cluster.running import running
from integration.cluster.topics import fresh_name
from integration.cluster.versions import KAFKA_OLDEST_JARS
from integration.cluster.waiting import PATIENT_S
from integration.consuming import committed_records
from integration.operations.handover_bolts import Places, places
from integration.topologies.spout_job import Work, done, topology
from kafka_tx.errors import ComponentError
from kafka_tx.sql.maps import TransactionalMap

pytestmark = pytest.mark.all

KEYS = ["a", "b", "a", "c"] * 25
COUNTS = {"a": 50, "b": 25, "c": 25}


@pytest.fixture(scope="module")
def oldest(servers, zookeeper):
    """One broker, which registers in a ZooKeeper of our present version."""
    if servers.name != "processes":
        pytest.skip("there is no image of it")
    cluster = zookeeper_cluster(zookeeper.hosts, 1, KAFKA_OLDEST_JARS)
    with running(cluster):
        yield cluster


@pytest.fixture
def orders(oldest):
    """A topic with records, among them those of an aborted transaction."""
    name, produce = fresh_name("orders"), Produce(oldest.bootstrap_servers)
    oldest.create_topic(name, 2)
    produce(name, [Record(str(n), key=key) for n, key in enumerate(KEYS)])
    produce.aborted(name, [Record("aborted", key="z")])
    return name


def test_a_query_counts_and_copies_each_record_once(spark, oldest, orders, tmp_path):
    url, out = f"sqlite:///{tmp_path}/store.db", f"{orders}-out"
    oldest.create_topic(out, 2)
    servers = {"kafka.bootstrap.servers": oldest.bootstrap_servers}
    counts = TransactionalMap(url, "counts")
    txids = []

    def run(*, dies, checkpoint):
        def save(df, attempt):
            txids.append(attempt.txid)
            rows = df.selectExpr("string(key) AS key", "string(value) AS value")
            kafka_tx.update_map(rows, attempt, counts, reducer="count")
            sink = {**servers, "topic": out, "tx.id": f"{orders}-sink"}
            kafka_tx.write_transaction(rows, attempt, sink, parts=2)
            if dies:
                raise DeadError

        source = spark.readStream.format("kafka_tx").options(
            **{
                **servers,
                "subscribe": orders,
                "startingOffsets": "earliest",
                "kafka.isolation.level": "read_committed",
                "tx.id": orders,
                "tx.store": url,
                "tx.commitGroupId": f"{orders}-group",
            }
        )
        writer = source.load().writeStream.option(
            "checkpointLocation", f"{tmp_path}/{checkpoint}"
        )
        read_out(writer.foreachBatch(kafka_tx.for_each_transaction(save)))

    with pytest.raises(StreamingQueryException, match="DeadError"):
        run(dies=True, checkpoint="first")
    run(dies=False, checkpoint="second")

    assert txids[:2] == [1, 1]
    assert counts.get([*COUNTS, "z"]) == COUNTS
    counts.close()
    copied = committed_records(oldest.bootstrap_servers, out)
    assert sorted(int(record.text) for record in copied) == [*range(len(KEYS))]


def test_an_at_least_once_topology_completes_each_record(
    spark, oldest, orders, tmp_path
):
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(oldest.bootstrap_servers),
        topic=orders,
        id=f"{orders}-deliver",
        store="kafka:",
        scheme=kafka_tx.MetadataScheme(),
        retry_initial_delay_ms=50,
    )

    handle = topology(config, Work(str(tmp_path), failing=0.05)).start(spark)
    try:
        assert handle.process_all_available(120)
    finally:
        handle.stop(finish=False)

    assert len(done(tmp_path)) >= len(KEYS)


def test_a_transactional_topology_goes_on_after_a_crash(
    spark, oldest, orders, tmp_path
):
    source = {
        "kafka.bootstrap.servers": oldest.bootstrap_servers,
        "subscribe": orders,
        "startingOffsets": "earliest",
    }
    spout = kafka_tx.TransactionalKafkaSpout(source, scheme=kafka_tx.MetadataScheme())
    builder = kafka_tx.TransactionalTopologyBuilder(orders, "orders", spout)
    bolt = builder.set_committer_bolt("places", Places(str(tmp_path)))
    bolt.global_grouping("orders")
    built = builder.build()
    settings = {"tx.store": f"sqlite:///{tmp_path}/store.db"}

    (tmp_path / "dies").touch()
    with pytest.raises(ComponentError, match="died here"):
        built.start(spark, settings).awaitTermination(PATIENT_S)
    (tmp_path / "dies").unlink()
    handle = built.start(spark, settings)
    assert handle.process_all_available(180)
    handle.stop()

    assert len(places(tmp_path)) >= len(KEYS)
