"""What topologies wait for, and for how long, on real Spark and brokers."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

import kafka_tx
from integration.cluster.records import Produce
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.reading import Run
from kafka_tx.cli.main import app

TIME_OUT_MS = 1_500
STEP_S = 0.002
"""So short that hardly one is looked at twice, though the machine halts meanwhile."""


class Long(kafka_tx.BasicBolt):
    """Needs four time-outs for the record named ``long``, and says that it goes on."""

    def execute(self, row: Any, collector: Any) -> None:
        ends_s = time.monotonic() + 4 * TIME_OUT_MS / 1_000
        while row.str == "long" and time.monotonic() < ends_s:
            time.sleep(STEP_S)
            collector.reset_timeout(row)


class Nothing(kafka_tx.BasicBolt):
    def execute(self, row: Any, collector: Any) -> None:
        pass


def at_least_once(spark, kafka, name, bolt, settings, **config):
    given = {"hosts": kafka_tx.BrokerHosts(kafka.bootstrap_servers), **config}
    spout = kafka_tx.SpoutConfig(
        topic=name, id=name, scheme=kafka_tx.StringScheme(), **given
    )
    builder = kafka_tx.TopologyBuilder(f"patience-{name}")
    builder.set_spout("spout", kafka_tx.KafkaSpout(spout))
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    return builder.build().start(spark, settings)


def in_transactions(
    spark, kafka, name, store, spout_class=kafka_tx.TransactionalKafkaSpout
):
    spout = spout_class(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": name,
            "startingOffsets": "earliest",
        }
    )
    builder = kafka_tx.TransactionalTopologyBuilder(f"tx-{name}", "spout", spout)
    builder.set_bolt("bolt", Nothing).shuffle_grouping("spout")
    return builder.build().start(spark, {"tx.store": store})


@pytest.mark.all
def test_a_bolt_that_resets_the_time_out_has_all_the_time_it_needs(
    spark, kafka, topic, produce, tmp_path
):
    name = topic(1)
    produce(name, ["v", "long", "v"])
    settings = {"tx.store": f"sqlite:///{tmp_path}/o.db", "tx.timeoutMs": TIME_OUT_MS}

    handle = at_least_once(spark, kafka, name, Long(), settings, retry_limit=0)
    try:
        assert handle.process_all_available(PATIENT_S)
        status = handle.status
    finally:
        handle.stop()

    assert (status.completed, status.failed, status.skipped) == (3, 0, 0)


@pytest.mark.all
def test_a_topic_that_is_not_there_yet_is_waited_for_without_empty_transactions(
    spark, kafka, produce, tmp_path
):
    name, store = fresh_name("late"), f"sqlite:///{tmp_path}/s.db"
    tracked_store = {"tx.store": f"sqlite:///{tmp_path}/o.db"}
    tracked = at_least_once(spark, kafka, name, Nothing(), tracked_store)
    handle = in_transactions(spark, kafka, name, store)
    try:
        time.sleep(3)  # 60 transactions were made in 10 s
        before = handle.status.committed_txid
        kafka.create_topic(name, 2)
        for partition in range(2):
            produce(name, ["v"] * 5, partition=partition)
        assert handle.process_all_available(PATIENT_S)
        recent = handle.recentProgress
        wait_until("all is completed", lambda: tracked.status.completed == 10)
    finally:
        tracked.stop()
        handle.stop()

    assert (before or 0) <= 1
    assert sum(batch.records for batch in recent) == 10


@pytest.mark.all
def test_a_topic_made_anew_is_read_from_its_beginning_however_long_it_is(
    spark, kafka, topic, produce, tmp_path
):
    """One log looks as before, and is hardly asked; one has less than was read.

    Then it is deleted, the only one there was: nothing is left to be waited for.
    """
    name = topic(2)
    for partition in (0, 1):
        produce(name, ["v"] * 6, partition=partition)
    kafka.delete_records(name, {0: 2})
    fixed = kafka_tx.StaticHosts(
        dict.fromkeys((0, 1), kafka.bootstrap_servers), refresh_freq_secs=1
    )
    stores = [f"sqlite:///{tmp_path}/{at}.db" for at in ("asked", "fixed", "numbered")]
    asked = at_least_once(spark, kafka, name, Nothing(), {"tx.store": stores[0]})
    given = at_least_once(
        spark, kafka, name, Nothing(), {"tx.store": stores[1]}, hosts=fixed
    )
    numbered = in_transactions(
        spark, kafka, name, stores[2], kafka_tx.OpaqueTransactionalKafkaSpout
    )
    handles = (asked, given, numbered)

    def records():
        for handle in handles:
            assert handle.process_all_available(PATIENT_S)
        completed = asked.status.completed, given.status.completed
        return *completed, records_of(numbered)

    try:
        first = records()
        kafka.delete_topic(name)
        kafka.create_topic(name, 2)
        produce(name, ["v"] * 6, partition=0)
        produce(name, ["v"] * 4, partition=1)
        second = records()
        kafka.delete_topic(name)
        are_idle = [handle.process_all_available(PATIENT_S) for handle in handles]
    finally:
        for handle in handles:
            handle.stop()

    assert first == (10, 10, 10)
    assert second == (20, 20, 20)
    assert all(are_idle)


@pytest.mark.all
def test_at_another_cluster_behind_the_same_name_no_position_counts(
    spark, kafka, mortal_kafka, topic, produce, tmp_path
):
    """Its topics have other ids. A source stops, and goes on where a person says."""
    name, store = topic(1), f"sqlite:///{tmp_path}/source.db"
    mortal_kafka.create_topic(name, 1)
    produce(name, [f"v{n}" for n in range(6)])
    Produce(mortal_kafka.bootstrap_servers)(name, [f"v{n}" for n in range(9)])

    def processed(cluster):
        tracked_store = {"tx.store": f"sqlite:///{tmp_path}/tracked.db"}
        handles = (
            at_least_once(spark, cluster, name, Nothing(), tracked_store),
            in_transactions(
                spark,
                cluster,
                name,
                f"sqlite:///{tmp_path}/numbered.db",
                kafka_tx.OpaqueTransactionalKafkaSpout,
            ),
        )
        try:
            for handle in handles:
                assert handle.process_all_available(PATIENT_S)
            return handles[0].status.completed, records_of(handles[1])
        finally:
            for handle in handles:
                handle.stop()

    def read(cluster, checkpoint):
        servers = cluster.bootstrap_servers
        source = Run(spark, servers, subscribe=name, tx__id=name, tx__store=store)
        return source.until_done(tmp_path / checkpoint)

    assert processed(kafka) == (6, 6)
    assert processed(mortal_kafka) == (9, 9)
    assert len(read(kafka, "first")) == 6
    with pytest.raises(StreamingQueryException, match="or this is another cluster"):
        read(mortal_kafka, "first")
    command = ["offsets", "set", "--store", store, "--id", name, "--yes"]
    command += ["--bootstrap-servers", mortal_kafka.bootstrap_servers]
    result = CliRunner().invoke(
        app, [*command, "--offsets", f'{{"{name}": {{"0": 6}}}}']
    )
    assert result.exit_code == 0, result.output
    assert read(mortal_kafka, "second") == [b"v6", b"v7", b"v8"]


def records_of(handle):
    return sum(batch.records for batch in handle.recentProgress)


@pytest.mark.all
def test_stop_keeps_its_bound_while_the_brokers_that_keep_the_offsets_are_away(
    spark, mortal_kafka
):
    name = fresh_name("away")
    mortal_kafka.create_topic(name, 20)
    produce = Produce(mortal_kafka.bootstrap_servers)
    for partition in range(20):
        produce(name, ["v"] * 2, partition=partition)
    handle = at_least_once(
        spark,
        mortal_kafka,
        name,
        Nothing(),
        {"tx.store": "kafka:"},
        state_update_interval_ms=600_000,
    )
    try:
        wait_until("all is completed", lambda: handle.status.completed == 40)
        mortal_kafka.kill(1)
        began = time.monotonic()
        with suppress(kafka_tx.errors.KafkaTxError):
            handle.stop(timeout_s=5)
        took_s = time.monotonic() - began
    finally:
        mortal_kafka.heal()
        handle.stop(timeout_s=5)

    assert took_s < 25, "one bound for all partitions, not one for each"
    assert not handle.isActive
