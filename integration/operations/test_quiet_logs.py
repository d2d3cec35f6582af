"""Jobs that run well log nothing with their batches: INFO suits production."""

from __future__ import annotations

import logging

import pytest

import kafka_tx
from integration.cluster.waiting import wait_until
from integration.reading import reader
from integration.topologies.tally import ending
from kafka_tx.spark.source.stream import KafkaTxStreamReader

BATCHES = 6


@pytest.fixture(autouse=True)
def logged(caplog):
    """The lines of kafka_tx at INFO and above."""
    caplog.set_level(logging.INFO, "kafka_tx")
    return caplog


class Nothing(kafka_tx.BasicBolt):
    """Takes every row."""

    def execute(self, row, collector):
        pass


def test_of_a_source(spark, kafka, topic, produce, tmp_path, logged):
    name, batches = topic(1), []
    attached = kafka_tx.attach(spark)
    query = (
        reader(
            *(spark, kafka.bootstrap_servers),
            subscribe=name,
            maxOffsetsPerTrigger=2,
            tx__id=name,
            tx__store=f"sqlite:///{tmp_path}/s.db",
        )
        .load()
        .writeStream.foreachBatch(
            kafka_tx.for_each_transaction(lambda df, attempt: batches.append(attempt))
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        produce(name, ["v"] * 2)
        wait_until("the first batch", lambda: len(batches) == 1)
        logged.clear()

        produce(name, ["v"] * 2 * BATCHES)

        wait_until("the other batches", lambda: len(batches) > BATCHES)
        query.processAllAvailable()
        assert logged.messages == []
    finally:
        query.stop()
        attached.close()


def test_of_the_planner_of_a_source(kafka, topic, produce, tmp_path, logged):
    name = topic(1)
    produce(name, ["v"] * 2 * BATCHES)
    planner = KafkaTxStreamReader(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": name,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "2",
            "tx.id": name,
            "tx.store": f"sqlite:///{tmp_path}/s.db",
        }
    )
    start = planner.initialOffset()
    try:
        for txid in range(1, BATCHES + 1):
            end = planner.latestOffset(start, planner.getDefaultReadLimit())
            (part,) = planner.partitions(start, end)
            assert end["_kafka_tx"]["txid"] == txid
            assert sum(batch.num_rows for batch in planner.read(part)) == 2
            if txid == 1:
                logged.clear()  # it has said who owns the id
            planner.commit(end)
            start = end
        assert logged.messages == []
    finally:
        planner.stop()


@pytest.mark.all
def test_of_a_transactional_topology(spark, kafka, topic, produce, tmp_path, logged):
    name = topic(1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "maxOffsetsPerTrigger": 2,
    }
    spout = kafka_tx.TransactionalKafkaSpout(options, scheme=kafka_tx.MetadataScheme())
    builder = kafka_tx.TransactionalTopologyBuilder(name, "spout", spout)
    builder.set_bolt("bolt", Nothing()).shuffle_grouping("spout")
    produce(name, ["v"] * 2)
    handle = builder.build().start(spark, {"tx.store": f"sqlite:///{tmp_path}/s.db"})
    with ending(handle):
        assert handle.process_all_available(180)
        begun = handle.status.committed_txid
        logged.clear()

        produce(name, ["v"] * 2 * BATCHES)

        assert handle.process_all_available(180)
        assert (handle.status.committed_txid or 0) >= (begun or 0) + BATCHES
        assert logged.messages == []


@pytest.mark.all
def test_of_an_at_least_once_topology(spark, kafka, topic, produce, tmp_path, logged):
    name = topic(1)
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        id=name,
        scheme=kafka_tx.MetadataScheme(),
        store=f"sqlite:///{tmp_path}/s.db",
    )
    builder = kafka_tx.TopologyBuilder(name)
    builder.set_spout("spout", kafka_tx.KafkaSpout(config))
    builder.set_bolt("bolt", Nothing()).shuffle_grouping("spout")
    produce(name, ["v"])
    handle = builder.build().start(spark)
    with ending(handle):
        assert handle.process_all_available(180)
        logged.clear()

        for _ in range(BATCHES):
            produce(name, ["v"])
            assert handle.process_all_available(180)

        assert handle.status.completed == 1 + BATCHES
        assert logged.messages == []
