"""``kafka-tx doctor`` at brokers that let users do little, and at real clocks."""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType
from typer.testing import CliRunner

from integration.cluster.rights import grant, guarded_kafka, login_of
from integration.cluster.running import running
from integration.cluster.waiting import wait_until
from kafka_tx.cli.main import app
from kafka_tx.model import TopicPartition as Partition
from kafka_tx.own_topics import MARKER_TOPIC
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Committed, Ledger

TOPIC, GROUP = "orders", "of-orders"
IN_GROUP = {"group.id": GROUP}


@pytest.fixture(scope="module")
def guarded(servers):
    with running(guarded_kafka(servers, ["none", "reader", "all"])) as cluster:
        cluster.create_topic(TOPIC, 1)
        topics, operations = ResourceType.TOPIC, AclOperation
        grant(cluster, "reader", (topics, TOPIC, operations.READ))
        grant(
            *(cluster, "all", (topics, TOPIC, operations.READ)),
            (topics, TOPIC, operations.WRITE),
            (topics, MARKER_TOPIC, operations.READ),
            (topics, MARKER_TOPIC, operations.DESCRIBE_CONFIGS),
            (ResourceType.GROUP, GROUP, operations.READ),
            (ResourceType.TRANSACTIONAL_ID, "kafka_tx.", operations.WRITE),
        )
        member = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **IN_GROUP})
        begin = [TopicPartition(TOPIC, 0, 0)]
        wait_until(
            "the group has a coordinator",
            lambda: member.commit(offsets=begin, asynchronous=False),
        )
        member.close()
        yield cluster


def findings(*asked):
    done = CliRunner().invoke(app, ["doctor", "--json", *asked])
    return {one["what"]: one for one in json.loads(done.stdout)}


def of_user(cluster, user):
    options = login_of(cluster, user)
    given = [f"{name}={value}" for name, value in options.items()]
    servers = options["bootstrap.servers"]
    return findings(
        *("--bootstrap-servers", servers, "--topic", TOPIC, "--group", GROUP),
        *[word for each in given for word in ("--kafka", each)],
    )


def test_it_tells_what_a_user_may_not_do(guarded):
    found = {user: of_user(guarded, user) for user in ("none", "reader", "all")}
    verdicts = {
        user: [each[what]["verdict"] for what in ("rights", "group", "promises")]
        for user, each in found.items()
    }

    assert verdicts == {
        "none": ["bad", "bad", "bad"],
        "reader": ["advice", "bad", "bad"],
        "all": ["good", "good", "good"],
    }, found
    assert "may not WRITE orders" in found["reader"]["rights"]["text"]
    assert found["all"]["versions"]["text"].startswith("transaction.version is 2")


def test_it_finds_a_marker_topic_that_forgets(guarded):
    before = of_user(guarded, "all")["markers"]
    guarded.create_topic(MARKER_TOPIC, 1, config={"cleanup.policy": "delete"})
    try:
        after = of_user(guarded, "all")["markers"]
    finally:
        guarded.delete_topic(MARKER_TOPIC)

    assert before["verdict"] == "good"
    assert (after["verdict"], "cleanup.policy=delete" in after["text"]) == ("bad", True)


def test_it_finds_records_from_the_future(kafka, topic):
    name = topic(1)
    asked = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    clocks = [findings(*asked)["clock"]]
    for ahead_s in (0, 3_600):
        producer.produce(name, b"x", timestamp=int((time.time() + ahead_s) * 1_000))
        producer.flush()
        clocks.append(findings(*asked)["clock"])

    assert [each["verdict"] for each in clocks] == ["good", "good", "advice"]
    assert "s in the future" in clocks[-1]["text"]


def test_it_compares_the_clock_of_a_database(postgresql, monkeypatch):
    url = postgresql
    same = findings("--store", url)["clocks"]
    now = time.time()
    monkeypatch.setattr("kafka_tx.sql.store.time.time", lambda: now - 60)
    other = findings("--store", url)["clocks"]

    assert (same["verdict"], other["verdict"]) == ("good", "advice")
    assert "+6" in other["text"]


def test_it_finds_what_retention_soon_takes(kafka, topic, tmp_path):
    name, url = topic(1), f"sqlite:///{tmp_path}/state.db"
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(100):
        producer.produce(name, b"x", partition=0)
    producer.flush()
    kafka.delete_records(name, {0: 5})

    def retention(at):
        with closing(SqlStore(url, "job")) as store:
            position = Committed(1, {Partition(name, 0): at})
            Ledger(store).adopt(store.acquire(), position)
        asked = ("--bootstrap-servers", kafka.bootstrap_servers, "--store", url)
        return findings(*asked)["retention"]["verdict"]

    assert [retention(at) for at in (2, 6, 90)] == ["bad", "advice", "good"]


@pytest.mark.parametrize(
    ("config", "verdict", "says"),
    [
        ({"retention.ms": "-1"}, "good", "keeps them"),
        ({"cleanup.policy": "compact"}, "bad", "cleanup.policy=delete"),
        *(
            pytest.param(*each, marks=pytest.mark.all)
            for each in (
                ({"retention.ms": "86400000"}, "advice", "after 1 days"),
                ({"max.message.bytes": "1000"}, "bad", "max.message.bytes=1048588"),
            )
        ),
    ],
)
def test_a_dead_letter_topic_is_checked_as_a_job_does(
    kafka, topic, config, verdict, says
):
    servers, name = kafka.bootstrap_servers, topic(1, config=config)
    given = "--bootstrap-servers", servers, "--dead-letter-topic", name
    found = findings(*given)["letters"]

    assert (found["verdict"], says in found["text"]) == (verdict, True), found


@pytest.mark.parametrize(
    ("user", "verdict", "says"),
    [("reader", "bad", "Grant WRITE"), ("all", "unknown", "do not tell")],
)
def test_a_dead_letter_topic_is_checked_with_the_rights_of_the_user(
    guarded, user, verdict, says
):
    options = login_of(guarded, user)
    given = [f"{name}={value}" for name, value in options.items()]
    found = findings(
        *("--bootstrap-servers", options["bootstrap.servers"]),
        *("--dead-letter-topic", TOPIC),
        *[word for each in given for word in ("--kafka", each)],
    )["letters"]

    assert (found["verdict"], says in found["text"]) == (verdict, True), found
