"""Clients that are closed while a fetch is answered: librdkafka may never end them.

Each reads below the start of the log, which brokers answer with "out of range", and is
closed within milliseconds. About one in five hundred is closed just then.
"""

from __future__ import annotations

import random
import threading
import time

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from integration.cluster.topics import ask, fresh_name
from kafka_tx.kafka.clients import new_consumer
from kafka_tx.kafka.errors import ErrorWatch
from kafka_tx.native.library import load

pytestmark = pytest.mark.all

PARTITIONS, RECORDS, KEPT_FROM = 500, 40, 30
"""With many partitions it takes longer to destroy a client."""
CLOSERS, FOR_S, LATEST_S = 4, 15, 0.02
PATIENT_S = 20


def native(settings, topic):
    extension, _ = load()
    assert extension is not None
    pairs = (text for pair in settings.items() for text in pair)
    client = extension.Client(settings=tuple(pairs))
    reading = extension.Range(
        client=client,
        topic=topic,
        partition=PARTITIONS - 1,
        start=0,
        end=RECORDS,
        leader_epoch=-1,
        has_headers=False,
        batch_bytes=1 << 20,
        timeout_ms=5_000,
        grace_ms=500,
    )
    del client  # the range has it, and closes it

    return reading.close


def python(settings, topic):
    consumer = new_consumer(settings, ErrorWatch(""))
    consumer.assign([ClientPartition(topic, PARTITIONS - 1, 0)])
    return consumer.close


@pytest.fixture(scope="module")
def topic(kafka, produce):
    name = fresh_name("closing")
    kafka.create_topic(name, PARTITIONS)
    last = ClientPartition(name, PARTITIONS - 1, KEPT_FROM)
    produce(name, ["value"] * RECORDS, partition=last.partition)
    admin = ask([kafka.bootstrap_servers])
    for answer in admin.delete_records([last]).values():
        answer.result(30)
    return name


@pytest.mark.parametrize("open_one", [native, python])
def test_a_client_that_is_closed_during_a_fetch_holds_up_nobody(kafka, topic, open_one):
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "auto.offset.reset": "error",
        "log_level": "0",
    }
    until_s = time.monotonic() + FOR_S
    closed = []

    def work():
        while time.monotonic() < until_s:
            close = open_one(settings, topic)
            time.sleep(random.uniform(0, LATEST_S))
            close()
            closed.append(1)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(CLOSERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0, until_s + PATIENT_S - time.monotonic()))

    assert not any(worker.is_alive() for worker in workers)
    assert len(closed) > CLOSERS
