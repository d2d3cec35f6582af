"""Whichever provider runs them, servers obey the same interface."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from kazoo.client import KazooClient

from integration.cluster.child import Child, state_of
from integration.cluster.jars import REPOSITORY
from integration.cluster.records import Produce, Record
from integration.cluster.running import running
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import is_listening, wait_until

pytestmark = pytest.mark.all


def values_of(bootstrap_servers, topic, count, partition=0):
    """Read a partition from its start until ``count`` records are there."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes | None] = []
    deadline = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        values += [m.value() for m in consumer.consume(count, 0.5) if not m.error()]
    consumer.close()
    return values


def log_start(bootstrap_servers, topic, partition=0):
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.list_topics(topic, timeout=10)  # see AdminConnection.learn_leaders
    wanted = TopicPartition(topic, partition)
    answers = admin.list_offsets({wanted: OffsetSpec.earliest()})
    return answers[wanted].result(60).offset


# --- topics -------------------------------------------------------------------------


def test_what_is_produced_can_be_read_back_in_order(kafka, topic, produce):
    name = topic(partitions=2)

    produce(name, [str(number) for number in range(500)], partition=1)

    values = values_of(kafka.bootstrap_servers, name, 500, partition=1)
    assert values == [str(number).encode() for number in range(500)]


def test_a_topic_grows_and_goes(kafka, topic):
    name = topic(partitions=1)

    kafka.add_partitions(name, 3)

    assert kafka.leader(name, 2) == 1
    kafka.delete_topic(name)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    assert name not in admin.list_topics(timeout=10).topics


def test_deleted_records_move_the_log_start(kafka, topic, produce):
    name = topic()
    produce(name, ["a", "b", "c"])

    kafka.delete_records(name, {0: 2})

    assert log_start(kafka.bootstrap_servers, name) == 2
    assert values_of(kafka.bootstrap_servers, name, 1) == [b"c"]


def test_retention_trims_a_topic_within_seconds(kafka, topic, produce):
    name = topic(config={"retention.ms": "1000", "segment.ms": "1000"})
    produce(name, ["old"])

    wait_until(
        "the old segment is deleted",
        lambda: log_start(kafka.bootstrap_servers, name) == 1,
    )


def test_compaction_makes_holes_within_seconds(kafka, topic, produce):
    name = topic(
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
        }
    )
    produce(name, [Record(value, key="k") for value in ("first", "second")])
    time.sleep(0.2)  # older than segment.ms by the broker's clock: the next one closes

    produce(name, [Record("last", key="k")])

    wait_until(
        "only the newest record of a closed segment is left",
        lambda: values_of(kafka.bootstrap_servers, name, 2)[:2] == [b"second", b"last"],
    )


# --- faults -------------------------------------------------------------------------


def test_a_killed_broker_comes_back_with_its_records_and_address(servers):
    with running(servers.kafka(settings={"log.retention.bytes": "-1"})) as cluster:
        cluster.create_topic("t")
        Produce(cluster.bootstrap_servers)("t", ["before"])
        before = cluster.bootstrap_servers

        cluster.kill(1)
        cluster.restart(1)

        assert cluster.bootstrap_servers == before
        assert values_of(before, "t", 1) == [b"before"]


def test_the_other_broker_leads_after_a_kill_and_both_are_in_sync_later(kafka_pair):
    name = fresh_name("killed")
    kafka_pair.create_topic(name)
    victim = kafka_pair.leader(name, 0)
    (heir,) = set(kafka_pair.brokers) - {victim}

    kafka_pair.kill(victim)
    wait_until("the heir leads", lambda: kafka_pair.leader(name, 0) == heir)
    Produce(kafka_pair.address(heir))(name, ["meanwhile"])
    kafka_pair.restart(victim)

    wait_until("both in sync", lambda: kafka_pair.in_sync(name, 0) == {1, 2})
    assert values_of(kafka_pair.bootstrap_servers, name, 1) == [b"meanwhile"]


def test_a_paused_broker_loses_its_leadership_and_returns(kafka_pair):
    name = fresh_name("paused")
    kafka_pair.create_topic(name)
    victim = kafka_pair.leader(name, 0)
    (heir,) = set(kafka_pair.brokers) - {victim}

    kafka_pair.pause(victim)
    wait_until("the heir leads", lambda: kafka_pair.leader(name, 0) == heir)
    kafka_pair.unpause(victim)

    wait_until("both in sync", lambda: kafka_pair.in_sync(name, 0) == {1, 2})


def test_a_broker_that_is_shut_down_hands_over(kafka_pair):
    name = fresh_name("handed")
    kafka_pair.create_topic(name)
    victim = kafka_pair.leader(name, 0)
    (heir,) = set(kafka_pair.brokers) - {victim}

    kafka_pair.shut_down(victim)

    wait_until("the heir leads", lambda: kafka_pair.leader(name, 0) == heir)
    kafka_pair.restart(victim)


def test_transactions_work_on_both_brokers_of_a_pair(kafka_pair):
    name = fresh_name("transactions")
    kafka_pair.create_topic(name, 2)
    produce = Produce(kafka_pair.bootstrap_servers)

    produce.aborted(name, ["no"], partition=0)
    produce.committed(name, ["yes"], partition=0)

    values = values_of(kafka_pair.bootstrap_servers, name, 1)
    assert values == [b"yes"]


# --- ZooKeeper ----------------------------------------------------------------------


@pytest.fixture
def client(zookeeper):
    client = KazooClient(zookeeper.hosts, timeout=10.0)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


def test_brokers_register_in_zookeeper_and_vanish_when_killed(kafka_zk, client):
    registered = "/brokers/ids"

    def both():
        return sorted(client.get_children(registered)) == ["1", "2"]

    wait_until("both are there", both)

    kafka_zk.kill(2)

    wait_until("2 is gone", lambda: client.get_children(registered) == ["1"])
    kafka_zk.restart(2)
    wait_until("both are there again", both)


def test_brokers_of_kafka_3_take_records(kafka_zk):
    name = fresh_name("three")
    kafka_zk.create_topic(name, 2)

    Produce(kafka_zk.bootstrap_servers).committed(name, ["x"], partition=1)

    values = values_of(kafka_zk.bootstrap_servers, name, 1, partition=1)
    assert values == [b"x"]


def test_a_topic_can_be_made_while_another_broker_takes_over_the_cluster(
    kafka_zk, client
):
    def controller():
        return json.loads(client.get("/controller")[0])["brokerid"]

    former = controller()
    kafka_zk.pause(former)
    wait_until("another broker leads the cluster", lambda: controller() != former)
    kafka_zk.unpause(former)

    name = fresh_name("moving")
    kafka_zk.create_topic(name, 2)

    assert kafka_zk.leader(name, 1) in kafka_zk.brokers


def test_a_killed_zookeeper_comes_back_with_its_nodes(zookeeper, client):
    client.ensure_path("/kept")
    client.set("/kept", b"value")

    zookeeper.kill()
    zookeeper.restart()

    value, _ = client.retry(client.get, "/kept")
    assert value == b"value"


def test_a_paused_zookeeper_is_silent_and_then_answers(zookeeper, client):
    client.ensure_path("/silent")

    zookeeper.pause()
    with pytest.raises(client.handler.timeout_exception):
        client.get_async("/silent").get(timeout=0.5)
    zookeeper.unpause()

    assert client.retry(client.exists, "/silent")


# --- processes ----------------------------------------------------------------------

BUSY = """
import hashlib, threading
from itertools import repeat

for _ in range(6):
    pieces = repeat(bytes(1_000_000))
    threading.Thread(target=lambda: [hashlib.sha256(piece) for piece in pieces]).start()
print("busy", flush=True)
"""


def test_what_is_paused_stands_still(tmp_path):
    child = Child([sys.executable, "-c", BUSY], tmp_path / "log")
    try:
        wait_until("it is busy", lambda: child.tail() == "busy")
        for _ in range(10):
            child.pause()
            child.pause()
            threads = Path(f"/proc/{child.pid}/task").iterdir()
            assert {state_of(int(thread.name)) for thread in threads} == {"T"}
            child.unpause()
    finally:
        child.kill()
    child.pause()


# --- the run's end ------------------------------------------------------------------

STARTS_AND_WAITS = """
import sys
from integration.cluster.provider import chosen

cluster = chosen().kafka()
cluster.start()
print(cluster.bootstrap_servers, flush=True)
sys.stdin.read()
"""


def test_a_killed_run_leaves_no_broker_behind():
    run = subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_WAITS],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with run:
        assert run.stdout is not None
        address = run.stdout.readline().strip()
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        assert admin.list_topics(timeout=10).brokers

        run.send_signal(signal.SIGKILL)

    port = int(address.rpartition(":")[2])
    wait_until("nothing listens there", lambda: not is_listening(port))
