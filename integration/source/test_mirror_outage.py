"""The mirror into a Kafka group never holds the planner up, whatever the brokers do."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import Consumer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from integration.cluster.processes.kafka import FILE
from integration.cluster.proxied import ProxiedKafka, proxies_to
from integration.cluster.proxy import Proxy
from integration.cluster.records import Produce
from integration.cluster.running import running
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.promptness import TRIES
from kafka_tx import assembly
from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import TopicPartition
from kafka_tx.spark.source.stream import KafkaTxStreamReader

WITHIN_S = 60
MAY_DIFFER_S = 8


@pytest.fixture(autouse=True)
def quick_plans(monkeypatch):
    def view(config):
        return made(replace(config, request_timeout_ms=3_000))

    made = assembly.cluster_view
    monkeypatch.setattr(assembly, "cluster_view", view)


class Planner:
    """Spark's planning process of one query, driven as Spark drives it."""

    def __init__(self, servers, topic, store, **options):
        self.options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "tx.id": f"mirror-{uuid.uuid4().hex}",
            "tx.store": store,
            "fetchOffset.numRetries": "1",
            **options,
        }
        self.reader = KafkaTxStreamReader(self.options)
        self.at = self.reader.initialOffset()

    def step(self):
        """Plan the next batch; the time of a failed step counts too."""
        self.at = self.reader.latestOffset(self.at, ReadAllAvailable())
        return self.at

    def seconds_of_a_step(self):
        began = time.monotonic()
        self.ends()
        return time.monotonic() - began

    def seconds_to(self, end):
        began = time.monotonic()
        wait_until("it has planned all", lambda: self.ends() >= end)
        return time.monotonic() - began

    def ends(self):
        try:
            return sum(n for topic in self.only_topics() for n in topic.values())
        except KafkaTxError:
            return -1

    def only_topics(self):
        return [v for k, v in self.step().items() if not k.startswith("_")]


def groups_offset(servers, group, topic):
    settings = client_settings({"bootstrap.servers": servers}, purpose="admin")
    mirror = GroupMirror(settings, group, timeout_ms=5_000)
    try:
        found = mirror.load([TopicPartition(topic, 0)])
        return sum(at.offset for at in found.values())
    finally:
        mirror.close()


@pytest.mark.all
def test_a_query_with_a_group_recovers_as_fast_as_one_without(mortal_kafka, tmp_path):
    topic = f"mirrored-{uuid.uuid4().hex[:8]}"
    mortal_kafka.create_topic(topic, 1)
    produce = Produce(mortal_kafka.bootstrap_servers)
    servers = mortal_kafka.bootstrap_servers
    plain = Planner(servers, topic, f"sqlite:///{tmp_path}/plain.db")
    group = f"group-{topic}"
    mirrored = Planner(
        servers,
        topic,
        f"sqlite:///{tmp_path}/mirrored.db",
        **{"tx.commitGroupId": group},
    )
    end = 0

    def go_on():
        nonlocal end
        produce(topic, ["v"] * 5)
        end += 5
        return [planner.seconds_to(end) for planner in (plain, mirrored)]

    try:
        go_on()
        for away in (Killed, Paused):
            tried = list[tuple[list[float], list[float]]]()
            while not any(map(is_as_fast, tried)):
                assert len(tried) < TRIES, tried  # a machine that halts slows one down
                with away(mortal_kafka):  # a step commits what a mirror cannot send now
                    met = [planner.seconds_of_a_step() for planner in (plain, mirrored)]
                tried.append((met, go_on()))
        mirrored.step()
        wait_until(
            "the group has the newest offsets",
            lambda: groups_offset(servers, group, topic) == end,
        )
    finally:
        plain.reader.stop()
        mirrored.reader.stop()


@contextmanager
def occupied(servers, group, topic):
    """An ordinary consumer is a member of the group: nobody else can write to it."""
    member = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        member.subscribe([topic])
        wait_until("a member", lambda: member.poll(0.1) or member.assignment())
        yield
    finally:
        member.close()


def test_a_fenced_owner_never_sets_the_group_back(kafka, tmp_path):
    """It was refused, and tries again when another owner has gone further."""
    topic, group = fresh_name("fenced"), fresh_name("group")
    kafka.create_topic(topic, 1)
    servers = kafka.bootstrap_servers
    send = Produce(servers)
    ids = {"tx.id": topic, "tx.sinkBatchIds": "ignored"}
    given = {"tx.commitGroupId": group, **ids}
    store = f"sqlite:///{tmp_path}/store.db"

    def commit(planner, end):
        send(topic, ["v"] * 5)
        planner.seconds_to(end)
        planner.step()

    def is_at(end):
        return groups_offset(servers, group, topic) == end

    with closing_planner(servers, topic, store, given) as first:
        with occupied(servers, group, topic):
            commit(first, 5)
            wait_until("it was refused", lambda: first.reader._mirror_failures)
        with closing_planner(servers, topic, store, given) as second:
            commit(second, 10)
            wait_until("the new owner has written", lambda: is_at(10))
            assert first.reader._mirror.flush(WITHIN_S)
            first.reader.stop()
            assert is_at(10)


@contextmanager
def closing_planner(servers, topic, store, given):
    planner = Planner(servers, topic, store, **given)
    try:
        yield planner
    finally:
        planner.reader.stop()


def test_brokers_that_move_are_found_through_the_address_that_was_given(tmp_path):
    """The given name leads to where they are now, and nothing else is left."""
    topic, group = fresh_name("moved"), fresh_name("group")
    proxied = ProxiedKafka()
    with running(proxied), proxies_to(proxied.proxies[1].target) as (given,):
        proxied.cluster.create_topic(topic, 1)
        produce = Produce(proxied.cluster.bootstrap_servers)
        planner = Planner(
            given.address,
            topic,
            f"sqlite:///{tmp_path}/store.db",
            **{"tx.commitGroupId": group},
        )
        try:
            produce(topic, ["v"] * 5)
            planner.seconds_to(5)
            move(proxied)
            produce(topic, ["v"] * 5)
            planner.seconds_to(10)
            planner.step()
            wait_until(
                "the group has the newest offsets",
                lambda: groups_offset(given.address, group, topic) == 10,
            )
        finally:
            planner.reader.stop()


def move(proxied):
    """Let the only broker have another address; nobody answers at the old one."""
    node, old = proxied.nodes[1], proxied.proxies[1]
    proxied.proxies[1] = Proxy(old.target)
    proxied.proxies[1].start()
    file = node.place / FILE
    file.write_text(file.read_text().replace(old.address, proxied.proxies[1].address))
    old.stop()
    proxied.cluster.restart()


def is_as_fast(measured):
    """Both the step during the outage and what came after it."""
    return all(with_group < without + MAY_DIFFER_S for without, with_group in measured)


class Away:
    def __init__(self, kafka):
        self.kafka = kafka


class Killed(Away):
    def __enter__(self):
        for broker in self.kafka.brokers:
            self.kafka.kill(broker)

    def __exit__(self, *_):
        self.kafka.heal()


class Paused(Away):
    def __enter__(self):
        for broker in self.kafka.brokers:
            self.kafka.pause(broker)

    def __exit__(self, *_):
        self.kafka.heal()
