"""Clients that are closed while a fetch is answered: librdkafka may never end them.

Brokers answer "out of range" to what each fetches last, and it is closed within
milliseconds. About one in a thousand is closed just then.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from integration.cluster import segments
from integration.cluster.records import Produce, Record
from integration.cluster.topics import ask, fresh_name
from kafka_tx.kafka.clients import new_consumer
from kafka_tx.kafka.errors import ErrorWatch
from kafka_tx.native.library import load

pytestmark = pytest.mark.all

PARTITIONS, KEPT_FROM = 500, 30
"""With many partitions it takes longer to destroy a client."""
CLOSERS, FOR_S, PATIENT_S = 6, 15, 20


@pytest.fixture(scope="module")
def kafka(mortal_kafka):
    return mortal_kafka


@pytest.fixture
def settings(kafka):
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "check.crcs": "true",
        "log_level": "0",
    }


def native(settings, topic, partition, end):
    """Begin to read a range; its client is closed with it."""
    extension, _ = load()
    assert extension is not None
    pairs = (text for pair in settings.items() for text in pair)
    return extension.Range(
        client=extension.Client(settings=tuple(pairs)),
        topic=topic,
        partition=partition,
        start=0,
        end=end,
        leader_epoch=-1,
        has_headers=False,
        batch_bytes=1 << 20,
        timeout_ms=5_000,
        grace_ms=500,
    )


def python(settings, topic, partition):
    consumer = new_consumer(settings, ErrorWatch(""))
    consumer.assign([ClientPartition(topic, partition, 0)])
    return consumer


def soon():
    time.sleep(random.uniform(0, 0.02))


def close_many(use_one):
    """Open and close clients from several threads; none of them may stand still."""
    until_s = time.monotonic() + FOR_S
    closed = []

    def work():
        while time.monotonic() < until_s:
            use_one()
            closed.append(1)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(CLOSERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0, until_s + PATIENT_S - time.monotonic()))

    assert not any(worker.is_alive() for worker in workers)
    assert len(closed) > CLOSERS


@pytest.fixture(scope="module")
def shortened(kafka):
    """A topic whose last partition has lost its first records."""
    name = fresh_name("closing")
    kafka.create_topic(name, PARTITIONS)
    last = ClientPartition(name, PARTITIONS - 1, KEPT_FROM)
    values = ["value"] * (KEPT_FROM + 1)
    Produce(kafka.bootstrap_servers)(name, values, partition=last.partition)
    admin = ask([kafka.bootstrap_servers])
    for answer in admin.delete_records([last]).values():
        answer.result(30)
    return name


@pytest.mark.parametrize("kind", [native, python])
def test_a_client_below_the_log_is_closed(settings, shortened, kind):
    asked = (KEPT_FROM,) if kind is native else ()

    def use_one():
        reading = kind(settings, shortened, PARTITIONS - 1, *asked)
        soon()
        reading.close()

    close_many(use_one)


@pytest.fixture
def damaged(kafka, servers, settings):
    """A topic whose second batch is damaged; the client sees an offset in its bytes."""
    if servers.name != "processes":
        pytest.skip("the log is a file of this machine")
    name = fresh_name("damaged")
    kafka.create_topic(name, 1)
    for _ in range(3):
        record = Record("value", headers=[("text", b"k" * 200)])
        Produce(kafka.bootstrap_servers)(name, [record])
    segments.damage(segments.segment(kafka, name), 1, "flipped")
    with closing(python(settings, name, 0)) as consumer:
        came = consumer.consume(5, PATIENT_S)
    errors = [message.error() for message in came]
    assert ClientError._AUTO_OFFSET_RESET in [e.code() for e in errors if e], errors
    return name


def test_a_client_whose_range_ends_before_the_damage_is_closed(settings, damaged):
    def use_one():
        reading = native(settings, damaged, 0, 1)
        while reading.next() is not None:
            pass
        reading.close()

    close_many(use_one)
