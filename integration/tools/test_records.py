"""What tests produce is what a consumer of Kafka sees; Spark's own source reads it."""

from __future__ import annotations

import pytest

from integration.cluster.records import Record

pytestmark = pytest.mark.all


def read(spark, kafka, topic, **options):
    reader = spark.read.format("kafka").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.options(**options).load().orderBy("partition", "offset").collect()


def test_spark_own_connector_reads_keys_nulls_headers_and_timestamps(
    spark, kafka, topic, produce
):
    name = topic(partitions=2)
    records = [
        Record("a", key="k", timestamp_ms=1_700_000_000_123, partition=1),
        Record(None, key=b"", headers=[("h", b"1"), ("h", None)], partition=1),
        Record(b"", partition=0),
    ]

    places = produce(name, records)
    rows = read(spark, kafka, name, includeHeaders="true")

    assert places == [(1, 0), (1, 1), (0, 0)]
    assert [(r.partition, r.offset, r.key, r.value) for r in rows] == [
        (0, 0, None, b""),
        (1, 0, b"k", b"a"),
        (1, 1, b"", None),
    ]
    assert rows[1].timestamp.timestamp() == 1_700_000_000.123
    assert [(h.key, h.value) for h in rows[2].headers] == [("h", b"1"), ("h", None)]


def test_an_aborted_record_is_in_the_log_and_in_no_committed_read(
    spark, kafka, topic, produce
):
    name = topic()

    produce.committed(name, ["kept"])
    produce.aborted(name, ["dropped"])
    left_open = produce.open_transaction(name, ["undecided"])
    committed = read(spark, kafka, name, **{"kafka.isolation.level": "read_committed"})
    everything = read(spark, kafka, name)
    left_open.abort()

    assert [row.value for row in committed] == [b"kept"]
    assert [row.value for row in everything] == [b"kept", b"dropped", b"undecided"]


def test_a_partition_that_was_just_added_takes_records(kafka, topic, produce):
    name = topic(partitions=1)
    produce(name, ["old"])

    kafka.add_partitions(name, 2)

    assert produce(name, ["new"], partition=1) == [(1, 0)]


def test_records_without_a_key_spread_over_all_partitions(topic, produce):
    name = topic(partitions=3)

    places = produce(name, [str(number) for number in range(300)])

    assert {partition for partition, _ in places} == {0, 1, 2}
