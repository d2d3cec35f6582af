"""At-least-once topologies whose offsets are in a Kafka group, which forgets."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

import kafka_tx
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.topologies.spout_job import Work, done, topology, tries
from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors import (
    GroupOccupiedError,
    StateCorruptedError,
    StateError,
    StateLostError,
)
from kafka_tx.kafka import group_offsets
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import (
    Assigned,
    CommittedOffset,
    Earliest,
    Latest,
    LogPosition,
    TopicPartition,
)
from kafka_tx.stored import GROUPS


@pytest.fixture
def group(kafka, topic):
    """A topic of two partitions, and the offsets of a group of the same name."""
    name = topic(2)
    partitions = [TopicPartition(name, n) for n in range(2)]
    source = SourceConfig(
        subscription=Assigned(tuple(partitions)),
        kafka={"bootstrap.servers": kafka.bootstrap_servers},
        start=Earliest(),
    )
    store = assembly.offset_store("kafka:", name, source)
    yield name, partitions, store
    store.close()


def config(kafka, name):
    return kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        id=name,
        scheme=kafka_tx.MetadataScheme(),
        store="kafka:",
        start_offset_time=Latest(),
        state_update_interval_ms=200,
    )


@pytest.mark.all
def test_offsets_of_idle_partitions_are_written_again_while_it_runs(
    kafka, group, produce, spark, tmp_path, monkeypatch
):
    name, partitions, store = group
    monkeypatch.setattr(group_offsets, "_RENEW_MS", 500)
    handle = topology(config(kafka, name), Work(str(tmp_path))).start(spark)
    try:
        produce(name, ["a"] * 5, partition=0)
        assert handle.process_all_available(180)

        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.delete_consumer_groups([name])[name].result(60)

        wait_until("all offsets", lambda: len(store.load(partitions)) == 2)
        assert [o.offset for o in store.load(partitions).values()] == [5, 0]
    finally:
        handle.stop()


@pytest.mark.all
def test_a_topic_that_is_deleted_ends_neither_the_topology_nor_the_mirror(
    kafka, topic, produce, spark, tmp_path
):
    stays, goes = (topic(1) for _ in range(2))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    given = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers, refresh_freq_secs=1),
        topic=f"{stays}|{goes}",
        is_pattern=True,
        id=stays,
        scheme=kafka_tx.MetadataScheme(),
        store="kafka:",
        state_update_interval_ms=200,
    )
    handle = topology(given, Work(str(tmp_path))).start(spark)
    try:
        produce(stays, ["a"] * 5)
        produce(goes, ["a"] * 3)
        assert handle.process_all_available(180)
        admin.delete_topics([goes])[goes].result(60)
        produce(stays, ["b"] * 4)

        partitions = [TopicPartition(stays, 0), TopicPartition(goes, 0)]
        own = mirror_of(kafka, stays)
        wait_until(
            "offsets",
            lambda: [at.offset for at in own.load(partitions).values()] == [9],
        )
        other = mirror_of(kafka, f"m-{stays}")
        at = [LogPosition(offset, None) for offset in (7, 3)]
        other.store(dict(zip(partitions, at, strict=True)))
        assert other.load(partitions) == {partitions[0]: at[0]}
        assert handle.isActive
    finally:
        handle.stop(timeout_s=20)


def mirror_of(kafka, group):
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    return GroupMirror(client_settings(settings, purpose="admin"), group)


def test_offsets_that_expired_in_part_are_no_fresh_start(
    kafka, group, produce, spark, tmp_path
):
    name, partitions, store = group
    for partition in range(2):
        produce(name, ["a"] * 5, partition=partition)
    store.store({partitions[1]: CommittedOffset(5)})
    built = topology(config(kafka, name), Work(str(tmp_path)))

    with pytest.raises(StateError, match=f"none of {partitions[0]}") as caught:
        built.start(spark)
    assert f"--group {name} --reset-offsets --topic {name}:0" in str(caught.value)

    store.store({partitions[0]: CommittedOffset(0)})  # as --to-earliest does
    handle = built.start(spark)
    try:
        assert handle.process_all_available(180)
    finally:
        handle.stop()
    assert done(tmp_path) == {(0, offset) for offset in range(5)}


@pytest.mark.all
def test_metadata_that_cannot_be_read_is_mended_by_resetting_the_offset(
    kafka, group, produce, spark, tmp_path
):
    name, partitions, store = group
    produce(name, ["a"] * 5, partition=0)
    store.store({p: CommittedOffset(2 * (p.partition == 0)) for p in partitions})
    set_offset(kafka, name, 3, metadata=f"kafka_tx:{GROUPS.number}:0:-:broken")
    built = topology(config(kafka, name), Work(str(tmp_path)))

    with pytest.raises(StateCorruptedError, match="--reset-offsets"):
        built.start(spark)
    set_offset(kafka, name, 3)  # as kafka-consumer-groups --reset-offsets does

    handle = built.start(spark)
    try:
        assert handle.process_all_available(180)
    finally:
        handle.stop()
    assert done(tmp_path) == {(0, offset) for offset in range(3, 5)}


def test_a_group_that_is_reset_stops_it_and_a_restart_goes_on_there(
    kafka, group, produce, spark, tmp_path
):
    name, partitions, store = group
    built = topology(config(kafka, name), Work(str(tmp_path)))
    handle = built.start(spark)
    try:
        produce(name, ["a"] * 5, partition=0)
        assert handle.process_all_available(180)
        set_offset(kafka, name, 3)  # as kafka-consumer-groups --reset-offsets does
        produce(name, ["b"], partition=0)
        reason = "at 3, left at 5.*reset-offsets.*Start again if the stored offsets are"
        with pytest.raises(StateLostError, match=reason):
            handle.awaitTermination(PATIENT_S)
    finally:
        handle.stop()
    assert store.load(partitions[:1])[partitions[0]] == CommittedOffset(3)

    handle = built.start(spark)
    try:
        assert handle.process_all_available(180)
    finally:
        handle.stop()
    seen = Counter((t.partition, t.offset) for t in tries(tmp_path))
    assert seen == {(0, n): 1 + (n >= 3) for n in range(6)}


def set_offset(kafka, group, offset, **more):
    """Commit an offset of the topic's first partition, from outside."""
    at = ClientPartition(group, 0, offset, **more)
    given = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    with closing(Consumer({**given, "enable.auto.commit": False})) as consumer:
        consumer.commit(offsets=[at], asynchronous=False)


@pytest.mark.all
def test_a_consumer_that_joins_the_group_for_a_moment_ends_nothing(
    kafka, group, produce, spark, tmp_path
):
    name, partitions, store = group
    handle = topology(config(kafka, name), Work(str(tmp_path))).start(spark)
    try:
        assert handle.process_all_available(180)
        given = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": name}
        guest = Consumer({**given, "enable.auto.commit": False})
        guest.subscribe([name])
        wait_until("it has joined", lambda: guest.poll(0.2) or guest.assignment())
        produce(name, ["a"] * 5, partition=0)
        wait_until("the records", lambda: len(done(tmp_path)) == 5)
        with pytest.raises(GroupOccupiedError):
            store.store({partitions[0]: CommittedOffset(0)})
        assert not handle.process_all_available(1)
        assert handle.isActive

        guest.close()
        assert handle.process_all_available(180)
        assert store.load(partitions[:1])[partitions[0]].offset == 5
    finally:
        handle.stop()


@pytest.mark.all
def test_brokers_tell_how_long_they_keep_offsets(group):
    _, _, store = group

    assert store._store._mirror.retention_ms() == 7 * 24 * 3_600_000
    assert store.renew_ms() == 3_600_000
