"""Which rights the exactly-once sink needs, and what it says when one is missing."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from integration.cluster.rights import grant, guarded_kafka, login_of
from integration.cluster.running import running
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import AuthenticationError, WriteDeniedError
from kafka_tx.kafka import marker_topic
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.native_producer import NativeProducer
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.producer import Deliveries
from kafka_tx.kafka.sender import Sender
from kafka_tx.model import TransactionAttempt
from kafka_tx.own_topics import MARKER_TOPIC
from tests.prompt_errors import prompt_error

USERS = ["none", "describe", "name", "group", "topic", "offset", "marker", "all"]
WELL_BELOW_A_TIMEOUT_S = 20.0
"""Requests give up after 30 s."""


@pytest.fixture(scope="module")
def guarded(servers):
    """A broker whose second listener knows users by name, none of whom may anything."""
    with running(guarded_kafka(servers, USERS)) as cluster:
        cluster.create_topic("out", 1, config={"max.message.bytes": "50000"})
        yield cluster


def rights(sink):
    """All that a sink needs, by name, a line of the docs' table each."""
    topics, operations = ResourceType.TOPIC, AclOperation
    return {
        "topic": (topics, "out", operations.WRITE),
        "offset": (topics, "out", operations.READ),
        "name": (ResourceType.TRANSACTIONAL_ID, f"kafka_tx.{sink}.", operations.WRITE),
        "group": (ResourceType.GROUP, f"kafka_tx.{sink}.", operations.READ),
        "marker": (topics, MARKER_TOPIC, operations.WRITE),
        "marker read": (topics, MARKER_TOPIC, operations.READ),
        "create": (topics, MARKER_TOPIC, operations.CREATE),
    }


def part(cluster, user, password="sesame", sink=None):
    options = login_of(cluster, user, password)
    config = SinkConfig(
        kafka=options,
        topic="out",
        id=sink or f"of-{user}",
        attempt=TransactionAttempt(1, 0),
    )
    return sink_assembly.part_transaction(config, 0)


RECORDS = [OutRecord("out", b"k", b"v")]
MANY = RECORDS * 10_000
"""More than the topic takes at once, which this user may not ask."""


def refused(writing):
    def write():
        writing.write(RECORDS)

    return str(prompt_error(write, WELL_BELOW_A_TIMEOUT_S, AuthenticationError))


@pytest.mark.all
def test_a_wrong_password_is_named(guarded):
    text = refused(part(guarded, "all", "wrong"))

    assert "wrong" not in text.replace("wrong-", "")
    assert "sasl" in text


@pytest.mark.parametrize(
    ("user", "missing", "words"),
    [
        ("name", {"name"}, ["WRITE", "transactional id 'kafka_tx.of-name.0'"]),
        ("group", {"group"}, ["READ", "group 'kafka_tx.of-group.0'"]),
        ("topic", {"topic"}, ["WRITE", "topic 'out'"]),
        ("offset", {"offset"}, ["READ", "topic 'out'"]),
        (
            "marker",
            {"marker", "marker read", "create"},
            ["CREATE", f"topic '{MARKER_TOPIC}'", "kafka-topics.sh --create"],
        ),
    ],
)
def test_a_missing_right_is_named_with_what_it_is_for(guarded, user, missing, words):
    needed = rights(f"of-{user}")
    grant(guarded, user, *(needed[name] for name in needed.keys() - missing))

    text = refused(part(guarded, user))

    for word in words:
        assert word in text


def test_a_team_writes_no_markers_of_another_team(guarded):
    """As docs/security.md says: markers are fenced by the rights on their topic."""
    guarded.create_topic("team-a.markers", 1, config={"cleanup.policy": "compact"})
    write = AclOperation.WRITE
    grant(guarded, "all", (ResourceType.TOPIC, "team-a.markers", write))
    forged = OutRecord("team-a.markers", b'["part","a","",0]', b'[2,""]')

    def send(user):
        settings = client_settings(login_of(guarded, user), purpose="producer")
        with Sender(settings) as sender:
            sender.send([forged])

    send("all")
    with pytest.raises(WriteDeniedError, match="WRITE and DESCRIBE on topic 'team-a"):
        send("none")


def test_a_record_that_comes_after_the_refusal_is_told_the_same(guarded):
    """It may describe the topic, so that the client takes records until then."""
    guarded.create_topic("closed", 1)
    describe = (ResourceType.TOPIC, "closed", AclOperation.DESCRIBE)
    grant(guarded, "describe", describe)
    settings = client_settings(login_of(guarded, "describe"), purpose="producer")
    client = NativeProducer(settings, Deliveries())

    def send_until_it_raises():
        for _ in range(600):
            client.produce(OutRecord("closed", None, b"v"), lambda: None)
            client.flush_for(0.1)

    with pytest.raises(WriteDeniedError, match="WRITE and DESCRIBE on topic 'closed"):
        send_until_it_raises()


def test_the_rights_of_the_readme_are_enough(guarded, caplog, monkeypatch):
    monkeypatch.setattr(marker_topic, "_unchecked", set())  # warns once in a process
    sink = fresh_name("of-all")
    grant(guarded, "all", *rights(sink).values())

    with caplog.at_level(logging.WARNING):
        assert part(guarded, "all", sink=sink).write(MANY).now
    assert "do not tell the cleanup.policy" in caplog.text
    assert "Grant DESCRIBE_CONFIGS" in caplog.text
    caplog.clear()
    describe = (ResourceType.TOPIC, MARKER_TOPIC, AclOperation.DESCRIBE_CONFIGS)
    grant(guarded, "all", describe)
    wait_until("the policy is told", lambda: policy_is_told(guarded, caplog))
    assert not part(guarded, "all", sink=sink).write(MANY).now


def policy_is_told(guarded, caplog):
    """Whether a first batch of a sink warns of nothing: rights come a little later."""
    marker_topic._unchecked.clear()
    caplog.clear()
    sink = fresh_name("of-all")
    grant(guarded, "all", *rights(sink).values())
    with caplog.at_level(logging.WARNING):
        part(guarded, "all", sink=sink).write(RECORDS)
    return "cleanup.policy" not in caplog.text
