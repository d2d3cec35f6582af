"""Which rights reading needs, in all doors, and what is said when one is missing.

The users have no more than the page on security says, and a topic for dead letters.
"""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType
from typer.testing import CliRunner

import kafka_tx
from integration.bounded import read_out
from integration.cluster.records import Produce
from integration.cluster.rights import grant, guarded_kafka, login_of
from integration.cluster.running import running
from integration.consuming import committed_records
from integration.reading import reader
from integration.sizes import in_all
from kafka_tx import assembly
from kafka_tx.cli.main import app
from kafka_tx.config import FromCommitted, SourceConfig, TransactionsConfig
from kafka_tx.errors import AuthenticationError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import LogBounds, LogPosition, OffsetRange, TopicPartition, Topics
from kafka_tx.own_topics import MARKER_TOPIC
from tests.inspected_pythons import each_python_starts_once as each_python_starts_once
from tests.prompt_errors import prompt_error

PARTITION = TopicPartition("in", 0)
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
WRITE, CREATE = AclOperation.WRITE, AclOperation.CREATE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
NAME = ResourceType.TRANSACTIONAL_ID
MARKERS = [(TOPIC, MARKER_TOPIC, each) for each in (READ, WRITE, CREATE)]
SINK = "kafka_tx.rejecting.dead-letters."
RIGHTS = {
    "none": [],
    "reader": [(TOPIC, "in", READ), (TOPIC, "orders", READ)],
    "looker": [(TOPIC, "in", READ), (GROUP, "g", DESCRIBE)],
    "keeper": [(TOPIC, "in", READ), (GROUP, "g", READ)],
    "burier": [(TOPIC, "orders", READ), (TOPIC, "dead", WRITE)],
    "rejecter": [
        *((TOPIC, "orders", READ), (TOPIC, "dead", READ), (TOPIC, "dead", WRITE)),
        *((NAME, SINK, WRITE), (GROUP, SINK, READ), *MARKERS),
    ],
}
"""By user: what the docs' table says, one more line of it each."""
WELL_BELOW_A_TIMEOUT_S = 20.0
"""Requests give up after 30 s."""


@pytest.fixture(scope="module")
def guarded(servers):
    """A broker whose second listener knows users by name and what each may."""
    with running(guarded_kafka(servers, RIGHTS)) as cluster:
        cluster.create_topic("in", 1)
        cluster.create_topic("orders", 1)
        cluster.create_topic("dead", 1)
        for topic in ("in", "orders"):
            Produce(cluster.bootstrap_servers)(topic, ["a", "b", "c"])
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


@pytest.mark.parametrize("kind", ["native", *in_all("python")])
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


def test_a_topic_whose_right_was_taken_away_is_named_beside_others(guarded):
    """Topologies stop with this, and go on where they were once it is given back."""
    view = assembly.cluster_view(config(guarded, "reader"))

    denied = refused(lambda: view.bounds([PARTITION, TopicPartition("dead", 0)]))

    assert "dead" in denied


@pytest.mark.parametrize("kind", ["native", *in_all("python")])
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


@pytest.mark.usefixtures("each_python_starts_once")
@pytest.mark.parametrize(("user", "verdict"), [("looker", "bad"), ("keeper", "good")])
def test_the_doctor_names_the_right_that_is_missing(guarded, user, verdict):
    login = login_of(guarded, user)
    asked = ["--bootstrap-servers", login["bootstrap.servers"], "--group", "g"]
    for name, value in login.items():
        asked += ["--kafka", f"{name}={value}"]

    done = CliRunner().invoke(app, ["doctor", "--json", *asked])

    (group,) = (one for one in json.loads(done.stdout) if one["what"] == "group")
    assert group["verdict"] == verdict
    assert ("READ" in group["text"]) == (verdict == "bad")


# --- topologies and dead letters ------------------------------------------------------


class Fails(kafka_tx.BasicBolt):
    def execute(self, row, collector):
        raise kafka_tx.FailedException("nobody is at home")


@contextmanager
def each_record(cluster, user, spark, store, **more):
    """An at-least-once topology of a user."""
    given = login_of(cluster, user)
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(given.pop("bootstrap.servers")),
        topic="orders" if more else "in",
        id="g",
        kafka=given,
        scheme=kafka_tx.MetadataScheme(),
        store=store,
        **more,
    )
    builder = kafka_tx.TopologyBuilder("rights")
    builder.set_spout("in", kafka_tx.KafkaSpout(config))
    bolt = Fails() if more else Takes()
    builder.set_bolt("bolt", bolt).shuffle_grouping("in")
    handle = builder.build().start(spark)
    try:
        assert handle.process_all_available(180)
        yield handle
    finally:
        handle.stop()


class Takes(kafka_tx.BasicBolt):
    def execute(self, row, collector):
        """Nothing is done with it."""


def in_batches(cluster, user, spark, tmp_path):
    """Run a transactional topology of a user; the number of its records."""
    given = {f"kafka.{n}": v for n, v in login_of(cluster, user).items()}
    spout = kafka_tx.TransactionalKafkaSpout({**given, "subscribe": "in"})
    builder = kafka_tx.TransactionalTopologyBuilder("rights", "in", spout)
    builder.set_bolt("bolt", Takes).shuffle_grouping("in")
    settings = {"tx.store": f"sqlite:///{tmp_path}/numbered.db"}
    handle = builder.build().start(spark, settings)
    try:
        assert handle.process_all_available(180)
        return handle.status.committed_txid
    finally:
        handle.stop()


@pytest.mark.all
def test_a_transactional_topology_needs_read(guarded, spark, tmp_path):
    assert in_batches(guarded, "reader", spark, tmp_path)


@pytest.mark.all
def test_an_at_least_once_topology_needs_read(guarded, spark, tmp_path):
    with each_record(guarded, "reader", spark, f"sqlite:///{tmp_path}/s.db") as handle:
        assert handle.status.completed == 3
    with each_record(guarded, "keeper", spark, "kafka:"):
        pass
    assert load(config(guarded, "keeper"))[PARTITION].offset == 3


@pytest.mark.all
def test_dead_letters_need_write(guarded, spark, tmp_path):
    url = f"sqlite:///{tmp_path}/s.db"
    bury = {"dead_letter_topic": "dead", "retry_limit": 0}
    before = len(committed_records(guarded.bootstrap_servers, "dead"))
    text = refused(
        lambda: each_record(guarded, "reader", spark, url, **bury).__enter__()
    )
    assert "topic 'dead'" in text
    with each_record(guarded, "burier", spark, url, **bury):
        pass
    found = committed_records(guarded.bootstrap_servers, "dead")
    assert [each.value for each in found[before:]] == [b"a", b"b", b"c"]


@pytest.mark.all
def test_rejected_rows_need_the_rights_of_a_sink(guarded, spark, tmp_path):
    given = {f"kafka.{n}": v for n, v in login_of(guarded, "rejecter").items()}
    df = reader(spark, given.pop("kafka.bootstrap.servers"), subscribe="orders")
    named = {"tx.id": "rejecting", "tx.store": f"sqlite:///{tmp_path}/s.db"}
    rejects = kafka_tx.with_dead_letters(
        lambda df, attempt: df.where("value = X'61'").selectExpr("*", "'a' AS reason"),
        "dead",
    )
    before = len(committed_records(guarded.bootstrap_servers, "dead"))

    writer = df.options(**given, **named).load().writeStream.foreachBatch(rejects)
    read_out(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))

    found = committed_records(guarded.bootstrap_servers, "dead")
    assert [each.value for each in found[before:]] == [b"a"]
