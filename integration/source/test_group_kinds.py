"""Groups that take no offsets of consumers, where a job wants to keep its own."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from typer.testing import CliRunner

import kafka_tx
from integration.cluster.foreign_groups import ForeignGroup
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.sizes import in_all
from kafka_tx import assembly
from kafka_tx.cli.main import app
from kafka_tx.errors import ConfigError, KafkaError
from kafka_tx.kafka import group_kinds
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import LogPosition, TopicPartition
from kafka_tx.options.topology import TopologySettings
from kafka_tx.spark.source.stream import KafkaTxStreamReader
from kafka_tx.spark.transactional.topology import open_runner
from kafka_tx.transactions.ownership.takeover import DraftingStore

KINDS = {
    "share": "a share group, or a group of Kafka Streams",
    "streams": "a share group, or a group of Kafka Streams",
    "connect": "a group of the protocol 'connect'",
}


def begun(reader):
    try:
        reader.initialOffset()
    finally:
        reader.stop()


class Takes(kafka_tx.BasicBolt):
    def execute(self, row, collector):
        """Nothing is done with it."""


@pytest.fixture(scope="module")
def foreign(kafka):
    """A topic, and by kind the names of a group with a member and of one without."""
    name = fresh_name("in")
    kafka.create_topic(name, 1)
    address = kafka.bootstrap_servers.split(",")[0]
    first = GroupMirror(settings_of(kafka), fresh_name("first"))  # makes Kafka's topic
    first.store({TopicPartition(name, 0): LogPosition(0, None)})
    first.close()
    groups, members = {}, []
    for kind in KINDS:
        live, empty = fresh_name(kind), fresh_name(f"{kind}-empty")
        members.append(ForeignGroup(address, kind, live, name))
        ForeignGroup(address, kind, empty, name).leave()
        groups[kind] = live, empty
    yield name, groups
    for member in members:
        member.leave()


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_member_may_have_left_when_it_leaves(kafka, foreign, kind):
    """A broker removes a member that it did not hear for some time."""
    name, _ = foreign
    address = kafka.bootstrap_servers.split(",")[0]
    member = ForeignGroup(address, kind, fresh_name(kind), name)
    member.leave()
    member.leave()


def settings_of(cluster):
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    return client_settings(servers, purpose="admin")


def planner(kafka, topic, **options):
    return KafkaTxStreamReader(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **options,
        }
    )


@pytest.fixture
def starts(kafka, foreign, tmp_path):
    """By name: the starts of jobs that would keep offsets in a group, or read some."""
    topic, _ = foreign
    url = f"sqlite:///{tmp_path}/state.db"

    def source(group):
        named = {"tx.id": "job", "tx.store": url, "tx.commitGroupId": group}
        begun(planner(kafka, topic, **named))

    def committed(group):
        named = {"startingOffsets": "committed:earliest", "kafka.group.id": group}
        begun(planner(kafka, topic, **named))

    def transactional(group):
        source = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        spout = kafka_tx.TransactionalKafkaSpout({**source, "subscribe": topic})
        built = kafka_tx.TransactionalTopologyBuilder("topology", "in", spout)
        built.set_bolt("bolt", Takes).shuffle_grouping("in")
        topology = built.build()
        settings = TopologySettings(store=url, commit_group_id=group)
        store = DraftingStore(assembly.open_store(url, "topology"))
        engine: Any = None  # no batch begins
        registry = MetricsRegistry()
        open_runner(topology, topology.plan, engine, settings, store, registry)
        store.close()

    def at_least_once(group):
        config = planner(kafka, topic)._config
        with closing(assembly.offset_store("kafka:", group, config)) as offsets:
            offsets.acquire()

    return {
        "tx.commitGroupId": (source, transactional),
        "kafka.group.id": (committed,),
        "id": (at_least_once,),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_another_kind_is_refused_at_the_start(starts, foreign, kind):
    for group in foreign[1][kind]:
        for option, calls in starts.items():
            for call in calls:
                with pytest.raises(ConfigError, match=option) as caught:
                    call(group)
                assert f"Group '{group}' is {KINDS[kind]}" in str(caught.value)
                assert "Name a group that only this job uses" in str(caught.value)


@pytest.mark.parametrize("kind", ["streams", *in_all("share", "connect")])
def test_doctor_names_a_group_of_another_kind(kafka, foreign, kind):
    for group in foreign[1][kind]:
        asked = ["doctor", "--json", "--group", group]
        asked += ["--bootstrap-servers", kafka.bootstrap_servers]
        shown = json.loads(CliRunner().invoke(app, asked).stdout)
        (found,) = (each for each in shown if each["what"] == "group")
        assert found["verdict"] == "bad"
        assert KINDS[kind] in found["text"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_consumers_are_taken(kafka, topic, starts, protocol):
    name, group = topic(1), fresh_name(protocol)
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
    }
    for call in (call for calls in starts.values() for call in calls):
        call(fresh_name("new"))
    consumer = Consumer(settings)
    try:
        consumer.subscribe([name])
        wait_until("it joins", lambda: consumer.poll(0.1) or consumer.assignment())
        assert group_kinds.foreign_kind(settings_of(kafka), group) == ""
        at = [ClientPartition(name, 0, 0)]
        consumer.commit(offsets=at, asynchronous=False)
    finally:
        consumer.close()
    for call in (call for calls in starts.values() for call in calls):
        call(group)


def test_a_group_that_became_another_kind_is_named_by_the_next_try(kafka, foreign):
    topic, groups = foreign
    for group in groups["share"]:
        mirror = GroupMirror(settings_of(kafka), group)
        try:
            with pytest.raises(KafkaError, match=KINDS["share"]):
                mirror.store({TopicPartition(topic, 0): LogPosition(1, None)})
        finally:
            mirror.close()
