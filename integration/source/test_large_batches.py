"""Batches of records that are small on the wire and large when they are unpacked."""

from __future__ import annotations

from functools import cache

import pytest

from integration.cluster.topics import fresh_name
from integration.sizes import in_all
from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors import FetchError
from kafka_tx.model import Assigned, Earliest, OffsetRange, TopicPartition

RECORDS, SIZE = 64, 1_000_000


@pytest.fixture(scope="module")
def packed(spark, kafka):
    """A topic for each codec: one batch of 64 MB in a few kilobytes, by Java."""

    @cache
    def make(codec):
        name = fresh_name(f"packed-{codec}")
        kafka.create_topic(name, 1, config={"max.message.bytes": "20000000"})
        many = spark.range(RECORDS).coalesce(1)
        many = many.selectExpr(f"repeat(char(97 + int(id % 2)), {SIZE}) AS value")
        writer = many.write.format("kafka").option("topic", name)
        for option, value in {
            "bootstrap.servers": kafka.bootstrap_servers,
            "compression.type": codec,
            "batch.size": "70000000",
            "buffer.memory": "70000000",
            "max.request.size": "70000000",
            "linger.ms": "60000",
        }.items():
            writer = writer.option(f"kafka.{option}", value)
        writer.save()
        return TopicPartition(name, 0)

    return make


def config(kafka, partition, **options):
    named = {name.replace("_", "."): value for name, value in options.items()}
    return SourceConfig(
        subscription=Assigned((partition,)),
        kafka={"bootstrap.servers": kafka.bootstrap_servers, **named},
        start=Earliest(),
        poll_timeout_ms=60_000,
    )


def read(config, partition):
    wanted = OffsetRange(partition, 0, RECORDS)
    return sum(batch.num_rows for batch in assembly.range_reader(config).read(wanted))


@pytest.mark.parametrize("codec", ["zstd", *in_all("gzip")])
def test_what_spark_writes_in_one_batch_is_read(packed, kafka, codec, monkeypatch):
    partition = packed(codec)

    for reader in ("native", "python"):
        monkeypatch.setenv("KAFKA_TX_READER", reader)
        assert read(config(kafka, partition), partition) == RECORDS


@pytest.mark.parametrize("reader", ["native", "python"])
def test_what_is_too_large_names_the_setting(packed, kafka, reader, monkeypatch):
    partition = packed("zstd")
    monkeypatch.setenv("KAFKA_TX_READER", reader)
    tight = config(
        kafka,
        partition,
        receive_message_max_bytes="30000000",
        fetch_max_bytes="20000000",
    )

    with pytest.raises(
        FetchError, match=r"kafka\.receive\.message\.max\.bytes.*30000000"
    ):
        read(tight, partition)
