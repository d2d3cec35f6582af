"""Records without a try left, on librdkafka's mock cluster."""

from __future__ import annotations

import itertools
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest

from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors import DeliveryError
from kafka_tx.model import Assigned, Earliest, OffsetRange, TopicPartition
from kafka_tx.running.at_least_once.dead_letters import (
    Buried,
    DeadLetter,
    DeadLetters,
    LetterUnreadError,
    out_records,
)
from kafka_tx.sinks.letter_topic import TopicFacts
from kafka_tx.testing.mock import MockCluster

ORDERS = TopicPartition("orders", 0)

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster():
    with MockCluster() as made:
        made.create_topic("orders")
        for n in range(4):
            made.produce(
                "orders",
                None if n == 2 else f"v{n}".encode(),
                key=b"k",
                timestamp_ms=1_000 + n,
                headers=[("trace", b"t1"), ("empty", None)],
            )
        made.flush()
        yield made


@pytest.fixture(scope="module")
def source(cluster):
    return SourceConfig(
        subscription=Assigned((ORDERS,)),
        kafka={"bootstrap.servers": cluster.bootstrap_servers},
        start=Earliest(),
        include_headers=True,
        poll_timeout_ms=5_000,
    )


@pytest.fixture
def topic(cluster):
    name = f"in-{next(_numbers)}"
    cluster.create_topic(name)
    return name


@pytest.fixture
def dead(cluster):
    name = f"dead-{next(_numbers)}"
    cluster.create_topic(name)
    return name


def write(topic, source, *dead_letters):
    """What each letter was answered."""
    made = DeadLetters(topic, source)
    answers: SimpleQueue[Any] = SimpleQueue()
    for dead_letter in dead_letters:
        made.write(dead_letter, lambda _, result: answers.put(result))
    found = [answers.get(timeout=60) for _ in dead_letters]
    assert made.close(5)
    return found


def dead_letter(start, end):
    return DeadLetter(
        OffsetRange(ORDERS, start, end), attempts=4, error="no address: Köln"
    )


def test_a_letter_is_the_record_and_why_it_failed(source, dead):
    assert write(dead, source, dead_letter(1, 3)) == [Buried(((1, 3),))]

    reader = assembly.range_reader(source)
    wanted = OffsetRange(TopicPartition(dead, 0), 0, 2)
    rows = [r for b in reader.read(wanted) for r in b.to_pylist()]
    assert [(r["key"], r["value"]) for r in rows] == [(b"k", b"v1"), (b"k", None)]
    assert [round(r["timestamp"].timestamp() * 1_000) for r in rows] == [1_001, 1_002]
    assert [(h["key"], h["value"]) for h in rows[0]["headers"]] == [
        ("trace", b"t1"),
        ("empty", None),
        ("kafka_tx.topic", b"orders"),
        ("kafka_tx.partition", b"0"),
        ("kafka_tx.offset", b"1"),
        ("kafka_tx.error", "no address: Köln".encode()),
        ("kafka_tx.attempts", b"4"),
        ("kafka_tx.format", b"3"),
    ]


def test_a_record_that_is_gone_is_told_so(source, dead):
    (error,) = write(dead, source, dead_letter(8, 9))

    assert isinstance(error, LetterUnreadError)


def test_a_topic_that_is_missing_is_an_error_that_names_it(source):
    impatient = {**source.kafka, "topic.metadata.propagation.max.ms": "500"}
    (error,) = write("missing", replace(source, kafka=impatient), dead_letter(0, 1))

    assert isinstance(error, DeliveryError)
    assert "missing" in str(error)


@pytest.mark.parametrize("far_ms", [253_402_300_800_000, -62_135_596_800_001, 2**62])
def test_a_record_of_a_time_that_python_cannot_show_can_be_a_letter(
    source, cluster, topic, dead, far_ms
):
    cluster.produce(topic, b"far", timestamp_ms=far_ms)
    cluster.flush()
    far = TopicPartition(topic, 0)
    made = DeadLetter(OffsetRange(far, 0, 1), attempts=1, error="no")

    assert write(dead, source, made) == [Buried(((0, 1),))]

    wanted = OffsetRange(TopicPartition(dead, 0), 0, 1)
    (batch,) = assembly.range_reader(source).read(wanted)
    assert batch["timestamp"][0].as_py().year > 2000


def test_a_record_that_does_not_fit_is_a_letter_without_its_value(
    source, cluster, topic, dead
):
    """Its offset and the others of the same letter are written all the same."""
    for value in (b"small", b"x" * 200_000):
        cluster.produce(topic, value, key=b"k", headers=[("trace", b"t1")])
    cluster.flush()
    narrow = replace(source, kafka={**source.kafka, "message.max.bytes": "100000"})
    large = TopicPartition(topic, 0)
    text = "\ud800" + "ö" * 5_000
    made = DeadLetter(OffsetRange(large, 0, 2), attempts=3, error=text)

    assert write(dead, narrow, made) == [Buried(((0, 2),), 1)]

    reader = assembly.range_reader(source)
    wanted = OffsetRange(TopicPartition(dead, 0), 0, 2)
    rows = [r for b in reader.read(wanted) for r in b.to_pylist()]
    assert [(r["key"], r["value"]) for r in rows] == [(b"k", b"small"), (b"k", None)]
    headers = {h["key"]: h["value"] for h in rows[1]["headers"]}
    assert "trace" not in headers
    assert headers["kafka_tx.bytes"] == b"200000"
    where = (headers[f"kafka_tx.{word}"] for word in ("topic", "partition", "offset"))
    assert list(where) == [topic.encode(), b"0", b"1"]
    error = headers["kafka_tx.error"]
    assert len(error) <= 2_000
    assert error.decode().startswith("?öö")


def test_a_letter_that_fits_only_without_its_key_is_cut_once(
    source, cluster, topic, dead
):
    """It is refused with its value, and again with its key."""
    cluster.produce(topic, b"x" * 9_000, key=b"k" * 9_000)
    cluster.flush()
    narrow = replace(source, kafka={**source.kafka, "message.max.bytes": "8000"})
    large = OffsetRange(TopicPartition(topic, 0), 0, 1)

    answers = write(dead, narrow, DeadLetter(large, attempts=1, error="no"))

    assert answers == [Buried(((0, 1),), cut=1)]


def test_a_time_that_the_client_cannot_write_stands_in_a_header():
    facts = TopicFacts("dead", 1)
    schema = {"topic": "t", "partition": 0, "offset": 0, "key": b"k", "value": b"v"}
    times = pa.array([0], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_pylist([schema]).append_column("timestamp", times)

    (record,) = out_records(batch, dead_letter(0, 1), facts)

    assert record.timestamp_ms is None
    assert dict(record.headers or ())["kafka_tx.timestamp_ms"] == b"0"
