"""Wrong input gives one clear error, with its class and what to do."""

from __future__ import annotations

import os

import pytest
from pyspark.errors import PySparkException

from integration.reading import Run, reader

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "One of the following options must be specified"),
        ({"subscribe": "a", "assign": "{}"}, "Only one of the following options"),
        ({"assign": '{"a":[}'}, "Expected e.g."),
        ({"subscribe": "a", "startingOffsets": "{"}, "Expected e.g."),
        ({"subscribe": "a", "minPartitions": "-2"}, "must be positive"),
        ({"subscribe": "a", "tx__id": "a b"}, "KAFKA_TX_CONFIG.*tx.id"),
        ({"subscribe": "a", "kafka__auto__offset__reset": "latest"}, "startingOffsets"),
        (
            {"subscribe": "a", "kafka__enable__auto__commit": "true"},
            "enable.auto.commit",
        ),
        (
            {"subscribe": "a", "kafka__ssl__truststore__location": "a.jks"},
            "a PEM file.*keytool",
        ),
    ],
)
def test_bad_options_are_refused_at_load(spark, options, text):
    for streaming in (True, False):
        with pytest.raises(PySparkException, match=text):
            reader(spark, NOWHERE, streaming=streaming, **options).load()


def test_brokers_are_required_at_load(spark):
    with pytest.raises(PySparkException, match="kafka.bootstrap.servers"):
        spark.read.format("kafka_tx").option("subscribe", "a").load()


def test_an_unreachable_broker_is_named(spark, tmp_path):
    run = Run(spark, NOWHERE, subscribe="a")

    with pytest.raises(
        PySparkException, match=f"KAFKA_TX_BROKER_UNAVAILABLE.*{NOWHERE}"
    ):
        run.until_done(tmp_path / "checkpoint")


def test_an_unknown_topic_is_named(spark, kafka, tmp_path):
    run = Run(spark, kafka.bootstrap_servers, subscribe="no-such-topic")

    with pytest.raises(PySparkException, match="KAFKA_TX_UNKNOWN_TOPIC.*no-such-topic"):
        run.until_done(tmp_path / "checkpoint")


def test_an_unknown_partition_is_named(spark, kafka, topic, tmp_path):
    name = topic(1)
    run = Run(spark, kafka.bootstrap_servers, assign=f'{{"{name}":[0,7]}}')

    with pytest.raises(PySparkException, match=f"KAFKA_TX_UNKNOWN_TOPIC.*{name}-7"):
        run.until_done(tmp_path / "checkpoint")


def test_a_start_beyond_the_end_is_refused(spark, kafka, topic, produce):
    name = topic(1)
    produce(name, ["a"] * 3)
    options = {"subscribe": name, "startingOffsets": f'{{"{name}":{{"0":9}}}}'}

    with pytest.raises(PySparkException, match="START_OFFSET_GREATER_THAN_END_OFFSET"):
        reader(
            spark, kafka.bootstrap_servers, streaming=False, **options
        ).load().count()


@pytest.mark.all  # brokers are asked for ten seconds whether the log really ends there
def test_an_end_beyond_the_log_stops_or_reads_what_is_there(
    spark, kafka, topic, produce
):
    name = topic(1)
    produce(name, ["a"] * 3)
    options = {
        "subscribe": name,
        "startingOffsets": "earliest",
        "endingOffsets": f'{{"{name}":{{"0":9}}}}',
    }

    def count(**more):
        given = options | more
        servers = kafka.bootstrap_servers
        return reader(spark, servers, streaming=False, **given).load().count()

    with pytest.raises(PySparkException, match=r"KAFKA_DATA_LOSS.*failOnDataLoss"):
        count()
    assert count(failOnDataLoss="false") == 3


def test_a_directory_that_is_missing_is_named(spark, kafka, topic, tmp_path):
    store = f"sqlite:///{tmp_path}/missing/state.db"
    run = Run(
        spark,
        kafka.bootstrap_servers,
        subscribe=topic(1),
        tx__id="a",
        tx__store=store,
    )

    with pytest.raises(PySparkException, match="KAFKA_TX_STATE.*missing"):
        run.until_done(tmp_path / "checkpoint")


def test_a_store_that_is_no_database_is_named(spark, kafka, topic, tmp_path):
    (tmp_path / "state.db").write_bytes(os.urandom(5000))
    run = Run(
        spark,
        kafka.bootstrap_servers,
        subscribe=topic(1),
        tx__id="a",
        tx__store=f"sqlite:///{tmp_path}/state.db",
    )

    with pytest.raises(PySparkException, match="KAFKA_TX_STATE.*state.db"):
        run.until_done(tmp_path / "checkpoint")


def test_a_record_of_the_store_that_cannot_be_read_stops_the_query(
    spark, kafka, topic, produce, tmp_path
):
    import sqlite3

    name = topic(1)
    produce(name, ["a"])
    options = {
        "subscribe": name,
        "tx__id": "job",
        "tx__store": f"sqlite:///{tmp_path}/state.db",
    }
    Run(spark, kafka.bootstrap_servers, **options).until_done(tmp_path / "one")
    with sqlite3.connect(tmp_path / "state.db") as db:
        changed = db.execute(
            "UPDATE kafka_tx_state SET value = replace(value, '1', '2')"
            " WHERE path = 'committed'"
        )
        assert changed.rowcount == 1

    run = Run(spark, kafka.bootstrap_servers, **options)
    with pytest.raises(
        PySparkException, match=r"KAFKA_TX_STATE_CORRUPTED.*committed.*kafka-tx offsets"
    ):
        run.until_done(tmp_path / "two")
