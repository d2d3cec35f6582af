"""Which rights the source needs, and what it says when one is missing."""

from __future__ import annotations

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from integration.cluster.records import Produce
from integration.cluster.rights import grant, guarded_kafka, login_of
from integration.cluster.running import running
from kafka_tx import assembly
from kafka_tx.config import FromCommitted, SourceConfig, TransactionsConfig
from kafka_tx.errors import AuthenticationError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import LogBounds, LogPosition, OffsetRange, TopicPartition, Topics
from tests.prompt_errors import prompt_error

PARTITION = TopicPartition("in", 0)
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
RIGHTS = {
    "none": [],
    "reader": [(ResourceType.TOPIC, "in", READ)],
    "looker": [(ResourceType.TOPIC, "in", READ), (ResourceType.GROUP, "g", DESCRIBE)],
    "keeper": [(ResourceType.TOPIC, "in", READ), (ResourceType.GROUP, "g", READ)],
}
"""By user: what the docs' table says, one more line of it each."""
WELL_BELOW_A_TIMEOUT_S = 20.0
"""Requests give up after 30 s."""


@pytest.fixture(scope="module")
def guarded(servers):
    """A broker whose second listener knows users by name and what each may."""
    with running(guarded_kafka(servers, RIGHTS)) as cluster:
        cluster.create_topic("in", 1)
        Produce(cluster.bootstrap_servers)("in", ["a", "b", "c"])
        for user, rights in RIGHTS.items():
            if rights:
                grant(cluster, user, *rights)
        yield cluster


def config(cluster, user, password="sesame"):
    return SourceConfig(
        subscription=Topics(("in",)),
        kafka=login_of(cluster, user, password),
        start=FromCommitted(),
        transactions=TransactionsConfig(id="rights", commit_group_id="g"),
        poll_timeout_ms=30_000,
    )


def refused(call):
    return str(prompt_error(call, WELL_BELOW_A_TIMEOUT_S, AuthenticationError))


def read(given):
    reader = assembly.range_reader(given)
    return sum(batch.num_rows for batch in reader.read(OffsetRange(PARTITION, 0, 3)))


@pytest.mark.parametrize("kind", ["native", "python"])
def test_read_on_the_topic_is_all_that_reading_needs(guarded, kind, monkeypatch):
    monkeypatch.setenv("KAFKA_TX_READER", kind)
    given = config(guarded, "reader")
    view = assembly.cluster_view(given)

    assert view.topics(Topics(("in",))).keys() == {"in"}
    (seen,) = view.bounds([PARTITION]).values()
    assert isinstance(seen, LogBounds)
    assert (seen.log_start, seen.end) == (0, 3)
    assert view.topic_ids(["in"]) == {"in": seen.topic_id}
    assert assembly.cluster_view(config(guarded, "none")).topic_ids(["in"]) == {}
    assert read(given) == 3
    denied = refused(lambda: read(config(guarded, "none")))
    assert "in-0" in denied
    assert "READ on topic 'in'" in denied


@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_wrong_password_is_named_by_planner_and_readers(guarded, kind, monkeypatch):
    monkeypatch.setenv("KAFKA_TX_READER", kind)
    given = config(guarded, "reader", "open sesame")

    for text in (
        refused(lambda: assembly.cluster_view(given).topics(Topics(("in",)))),
        refused(lambda: read(given)),
        refused(lambda: load(given)),
    ):
        assert "kafka.sasl" in text
        assert "open sesame" not in text


def load(given):
    committed = assembly.group_offsets(given)
    assert committed is not None
    return committed([PARTITION])


def test_a_committed_start_needs_describe_on_the_group(guarded):
    assert load(config(guarded, "looker")) == {}
    text = refused(lambda: load(config(guarded, "reader")))

    assert "DESCRIBE on group 'g'" in text


def test_the_mirror_needs_read_on_the_group(guarded):
    def store(user):
        kafka = config(guarded, user).kafka
        GroupMirror(client_settings(kafka, purpose="admin"), "g").store(
            {PARTITION: LogPosition(2, None)}
        )

    store("keeper")
    text = refused(lambda: store("looker"))

    assert load(config(guarded, "keeper"))[PARTITION].offset == 2
    assert "READ on group 'g'" in text
