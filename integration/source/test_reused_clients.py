"""Clients that read one small range after another, while the cluster changes."""

import random
import time
from statistics import median
from unittest import mock

import pytest

from integration.cluster.records import Produce
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.log_ends import log_ends
from integration.promptness import TRIES
from kafka_tx.errors import KafkaError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native import reader as native_reader
from kafka_tx.native.idle_clients import idle
from kafka_tx.native.reader import NativeRangeReader
from tests.native.asking import count_clients

SOON_S = 20
"""A new client finds its way by then; nothing waited for a time-out."""


@pytest.fixture
def made(monkeypatch):
    """How many clients were made in this test, one by one."""
    idle.close_all()
    return count_clients(monkeypatch)


def reader_of(cluster, isolation="read_uncommitted", **more):
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "isolation.level": isolation,
        **more,
    }
    settings = client_settings(options, purpose="consumer")
    return NativeRangeReader(settings, timeout_ms=30_000)


def rows(cluster, topic, start, end, partition=0, isolation="read_uncommitted"):
    wanted = OffsetRange(TopicPartition(topic, partition), start, end)
    return [
        (row["offset"], row["value"])
        for batch in reader_of(cluster, isolation).read(wanted)
        for row in batch.to_pylist()
    ]


def values(*wanted, **more):
    return [value for _, value in rows(*wanted, **more)]


def quickly(what):
    started = time.monotonic()
    found = what()
    assert time.monotonic() - started < SOON_S
    return found


@pytest.mark.all
def test_a_broker_that_was_killed_and_came_back_is_read_on(mortal_kafka, made):
    name = fresh_name()
    mortal_kafka.create_topic(name)
    Produce(mortal_kafka.bootstrap_servers)(name, ["a", "b", "c"])
    assert values(mortal_kafka, name, 0, 1) == [b"a"]

    mortal_kafka.kill(1)
    mortal_kafka.heal()

    assert quickly(lambda: values(mortal_kafka, name, 1, 3)) == [b"b", b"c"]
    idle.close_all()


@pytest.mark.all
def test_a_leader_that_moved_is_found(kafka_pair, made):
    name = fresh_name("moved")
    kafka_pair.create_topic(name, 4, replication=2)
    Produce(kafka_pair.bootstrap_servers)(name, ["a", "b"], partition=0)
    assert values(kafka_pair, name, 0, 1) == [b"a"]
    leader = kafka_pair.leader(name, 0)
    (heir,) = set(kafka_pair.brokers) - {leader}

    kafka_pair.kill(leader)
    try:
        wait_until("the heir leads", lambda: kafka_pair.leader(name, 0) == heir)
        assert quickly(lambda: values(kafka_pair, name, 1, 2)) == [b"b"]
    finally:
        kafka_pair.restart(leader)


def test_a_topic_made_anew_is_read_as_it_is_now(kafka, topic, produce, made):
    name = topic()
    produce(name, ["old"] * 5)
    assert values(kafka, name, 0, 2) == [b"old"] * 2
    kafka.delete_topic(name)

    def make():
        kafka.create_topic(name)
        return True

    wait_until("the topic is gone", make)
    produce(name, ["new"] * 5)

    found = wait_until_read(lambda: values(kafka, name, 2, 5))
    assert found == [b"new"] * 3


def wait_until_read(read):
    """A deleted topic may be told of for some time after it was made anew."""
    found: list[bytes] = []

    def try_to_read():
        try:
            found[:] = read()
        except KafkaError:
            return False
        return True

    wait_until("the topic can be read", try_to_read)
    return found


def test_a_new_partition_is_found(kafka, topic, produce, made):
    name = topic(1)
    produce(name, ["a"])
    assert values(kafka, name, 0, 1) == [b"a"]

    kafka.add_partitions(name, 2)
    produce(name, ["b"], partition=1)

    assert quickly(lambda: values(kafka, name, 0, 1, partition=1)) == [b"b"]


@pytest.mark.parametrize(
    "isolation",
    ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.all)],
)
def test_any_order_of_ranges_gives_what_a_single_read_gives(
    kafka, topic, produce, made, isolation
):
    name, chance = topic(), random.Random(11)
    for number in range(24):
        kind = chance.choice([produce, produce.committed, produce.aborted])
        kind(name, [f"{number}-{n}" for n in range(chance.randrange(1, 12))])
    produce(name, ["last"])
    end = log_ends(kafka.bootstrap_servers, name)[0]
    whole = rows(kafka, name, 0, end, isolation=isolation)
    made.clear()

    for _ in range(150):
        start = chance.randrange(end)
        stop = min(end, start + chance.choice([1, 5, 60, 200]))
        found = rows(kafka, name, start, stop, isolation=isolation)
        assert found == [row for row in whole if start <= row[0] < stop], (start, stop)

    assert len(made) < 140, "clients were hardly ever used again"


def test_ranges_up_to_the_end_of_a_growing_log_keep_one_client(
    kafka, topic, produce, made
):
    name = topic()
    for number in range(30):
        written = [f"{number}-{n}" for n in range(10)]
        produce(name, written)
        found = values(kafka, name, number * 10, number * 10 + 10)
        assert found == [value.encode() for value in written]

    assert len(made) < 5


def test_the_question_for_the_topic_id_is_not_delayed_by_a_fetch_at_the_end_of_the_log(
    kafka, topic, produce, monkeypatch
):
    held_ms = 400
    monkeypatch.setattr(native_reader, "_WAIT_AT_MOST_MS", held_ms)
    name, reader = topic(), reader_of(kafka, **{"fetch.wait.max.ms": str(held_ms)})
    produce(name, ["a"])
    client = reader.client()
    id_ = client.topic_id(name, 10_000)
    reader.keep(client)
    wanted = OffsetRange(TopicPartition(name, 0), 0, 1, topic_id=id_)
    assert id_

    def took_s(wait_ms):
        times = []
        with mock.patch.object(native_reader, "_SMALL_WAIT_MS", wait_ms):
            for _ in range(3):
                began_s = time.monotonic()
                assert [batch.num_rows for batch in reader.read(wanted)] == [1]
                times.append(time.monotonic() - began_s)
        return median(times)

    now_ms = native_reader._SMALL_WAIT_MS
    assert any(took_s(now_ms) + 0.2 < took_s(held_ms) for _ in range(TRIES))
