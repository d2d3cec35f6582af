"""A broker, a session and filled topics, for benchmarks that need them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from integration.cluster import provider
from integration.cluster.interface import KafkaCluster
from integration.cluster.processes.java_server import HEAP
from integration.cluster.running import running
from integration.cluster.spark_local import local_session
from kafka_tx.spark.quiet_stop import stop_quietly

PARTITIONS = 4


CALM = {
    "log.retention.check.interval.ms": "300000",
    "log.cleaner.backoff.ms": "15000",
}
"""Kafka's defaults: those of tests look through all partitions each second."""


@contextmanager
def broker(brokers: int = 1) -> Iterator[KafkaCluster]:
    """One real broker, or more, for the time of a benchmark."""
    os.environ.setdefault(HEAP, "-Xms256m -Xmx1g")  # Kafka's default
    with running(provider.chosen().kafka(brokers=brokers, settings=CALM)) as cluster:
        yield cluster


@contextmanager
def session(more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A local session with Spark's own Kafka connector beside kafka_tx."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        spark = local_session(
            Path(work), {"spark.driver.memory": "2g", **(more or {})}, java_options=""
        )
        try:
            yield spark
        finally:
            stop_quietly(spark)


def fill(
    cluster: KafkaCluster,
    topic: str,
    records: int,
    size: int,
    *,
    keys: int = 1000,
    headers: bool = False,
) -> None:
    """Make a topic of four partitions, and ``write`` into it as large batches."""
    cluster.create_topic(topic, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 20,
            "batch.size": 500_000,
            "queue.buffering.max.kbytes": 512_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    write(producer, topic, records, size, keys=keys, headers=headers)


def write(
    producer: Producer,
    topic: str,
    records: int,
    size: int,
    *,
    keys: int = 1000,
    headers: bool = False,
) -> None:
    """Write ``records`` of ``size`` value bytes evenly; returns when all are there."""
    value = bytes(n % 251 for n in range(size))
    more = {"headers": [("trace", b"0123456789abcdef"), ("kind", b"order")]}
    for n in range(records):
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    b"key-%d" % (n % keys),
                    partition=n % PARTITIONS,
                    **(more if headers else {}),
                )
                break
            except BufferError:
                producer.poll(0.1)
        if n % 10_000 == 0:
            producer.poll(0)
    producer.flush()
