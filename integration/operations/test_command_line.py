"""``kafka-tx`` on stores and brokers that are servers."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from sqlalchemy import make_url
from typer.testing import CliRunner

import kafka_tx
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.sizes import in_all
from integration.topologies.tally import ending as ending_topology
from kafka_tx.cli.main import app
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.kafka.group_offsets import KafkaGroupOffsetStore
from kafka_tx.metrics.events import OffsetsCommitted
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    BatchMetadata,
    CommittedOffset,
    LogPosition,
    OffsetRange,
    TopicPartition,
    Topics,
    TransactionAttempt,
)
from kafka_tx.running.lag_watch import LagWatch
from kafka_tx.sql.maps import TransactionalMap
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.layout.commit_stats import TaskSums
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from kafka_tx.zookeeper.offsets import ZooKeeperOffsetStore
from kafka_tx.zookeeper.store import ZooKeeperStore

COMMITTED, RECORDS = 3, 10


def run(*arguments: str):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def commit(store, offsets, ids=None):
    ledger = Ledger(store)
    committed = Committed(txid=1, offsets=offsets, topic_ids=ids or {})
    ledger.adopt(ledger.acquire(), committed)
    store.close()


def test_status_lists_the_ids_below_a_root_of_zookeeper(zookeeper):
    url = f"zookeeper://{zookeeper.hosts}/command-line"
    for name in ("b", "a"):
        commit(ZooKeeperStore(url, name), {TopicPartition(name, 0): COMMITTED})
    with closing(ZooKeeperStore(url, "never-wrote")) as store:
        store.acquire()

    found = run("status", "--store", url, "--json")

    assert [one["id"] for one in found] == ["a", "b"]
    assert found[0]["offsets"] == {"a": {"0": COMMITTED}}


def test_a_root_that_does_not_exist_has_no_ids(zookeeper):
    assert run("status", "--store", f"zookeeper://{zookeeper.hosts}/no", "--json") == []


@pytest.mark.parametrize(
    ("kind", "kept"),
    [pytest.param("postgresql", 100, marks=pytest.mark.all), ("zookeeper", 8)],
)
def test_history_is_that_of_the_last_transactions(request, kind, kept):
    server = request.getfixturevalue(kind)
    is_sql = kind == "postgresql"
    url = server if is_sql else f"zookeeper://{server.hosts}/history"
    store = SqlStore(url, "orders") if is_sql else ZooKeeperStore(url, "orders")
    ledger, partition = Ledger(store), TopicPartition("orders", 0)
    epoch = ledger.acquire()
    for txid in range(1, kept + 3):
        planned = OffsetRange(partition, 10 * (txid - 1), 10 * txid)
        ledger.plan(epoch, BatchMetadata(txid, (planned,)))
        read = TaskSums(records=10 * txid)
        ledger.commit(epoch, txid, 1_700_000_000_000 + txid, from_tasks=read)
    store.close()

    rows = run("history", "--store", url, "--id", "orders", "--json")

    assert [row["txid"] for row in rows] == list(range(3, kept + 3))
    assert [row["records"] for row in rows] == [10 * row["txid"] for row in rows]
    assert {row["after_ms"] for row in rows[1:]} == {1}


def test_lag_from_postgresql_and_real_brokers(kafka, topic, produce, postgresql):
    name = topic(1)
    produce(name, ["x"] * RECORDS)
    commit(SqlStore(postgresql, "orders"), {TopicPartition(name, 0): COMMITTED})
    kafka.delete_records(name, {0: 2})

    (row,) = run(
        *("lag", "--store", postgresql, "--id", "orders", "--json"),
        *("--bootstrap-servers", kafka.bootstrap_servers),
    )

    assert (row["end"], row["lag"]) == (RECORDS, RECORDS - COMMITTED)
    assert (row["log_start"], row["headroom"]) == (2, COMMITTED - 2)


@pytest.mark.parametrize("unread", [*in_all(2, 9), 6])
def test_of_a_topic_made_anew_all_is_lag(kafka, topic, produce, tmp_path, unread):
    """By the tool, and by what is scraped while no query runs."""
    name, url = topic(1), f"sqlite:///{tmp_path}/s.db"
    partition = TopicPartition(name, 0)
    produce(name, ["x"] * 6)
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    view = KafkaClusterView(client_settings(options, purpose="admin"))
    ids = {name: str(view.topics(Topics((name,)))[name].topic_id)}
    commit(SqlStore(url, "orders"), {partition: 6}, ids)
    registry = MetricsRegistry()
    registry.record_offsets(
        OffsetsCommitted(
            id="orders",
            committed={partition: LogPosition(6, ids[name])},
            committed_at_ms=0,
            commit_ms=0,
            bounds=view.bounds([partition]),
        )
    )
    watch = LagWatch(registry, lambda: {"orders": [partition]}, lambda _: view, 999)

    kafka.delete_topic(name)
    kafka.create_topic(name, 1)
    produce(name, ["y"] * unread)
    watch.poll()
    watch.close()
    (row,) = run(
        *("lag", "--store", url, "--id", "orders", "--json"),
        *("--bootstrap-servers", kafka.bootstrap_servers),
    )

    assert (row["lag"], row["headroom"]) == (unread, 0)
    for metric, shown in (("lag", unread), ("retention_headroom", 0)):
        samples = registry.samples()[f"kafka_tx_{metric}_records"]
        assert samples["orders", name, "0"] == (shown,)


def test_lag_is_served_for_prometheus_without_a_driver(kafka, topic, produce, tmp_path):
    name, url = topic(1), f"sqlite:///{tmp_path}/s.db"
    produce(name, ["x"] * RECORDS)
    commit(SqlStore(url, "orders"), {TopicPartition(name, 0): COMMITTED})
    command = [
        Path(sys.executable).with_name("kafka-tx"),
        *("lag", "--store", url, "--bootstrap-servers", kafka.bootstrap_servers),
        *("--serve", "0"),
    ]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as exporter:
        try:
            assert exporter.stdout is not None
            served = exporter.stdout.readline().strip()
            shown = requests.get(served, timeout=30).text
        finally:
            exporter.terminate()

    labels = f'{{id="orders",partition="0",topic="{name}"}}'
    assert f"kafka_tx_lag_records{labels} {RECORDS - COMMITTED}" in shown


class NoPoison(kafka_tx.BasicBolt):
    """Fails one row again and again, each time with another object in the text."""

    def execute(self, row, collector):
        if row.str == "poison":
            raise kafka_tx.FailedException(f"poison of {object()}")


@pytest.mark.all
def test_a_record_that_always_fails_is_skipped_and_the_topology_goes_on(
    spark, kafka, topic, produce, tmp_path, caplog
):
    caplog.set_level(logging.INFO, "kafka_tx")
    name, url = topic(1), f"sqlite:///{tmp_path}/offsets.db"
    produce(name, ["v"] * 2 + ["poison"] + ["v"] * 2)

    def start():
        hosts = kafka_tx.BrokerHosts(kafka.bootstrap_servers)
        given = {"id": name, "scheme": kafka_tx.MetadataScheme(), "store": url}
        config = kafka_tx.SpoutConfig(hosts=hosts, topic=name, **given)
        builder = kafka_tx.TopologyBuilder(name)
        builder.set_spout("spout", kafka_tx.KafkaSpout(config))
        builder.set_bolt("bolt", NoPoison()).shuffle_grouping("spout")
        return ending_topology(builder.build().start(spark))

    def committed():
        return run("offsets", "show", "--store", url, "--id", name, "--json")

    def waits_for(offset):
        wait_until(f"{offset} is stored", lambda: committed() == {name: {"0": offset}})

    with start() as handle:
        waits_for(2)
        wait_until("it fails again", lambda: handle.status.failed > 2)
    (failed,) = [line for line in caplog.messages if f"{name}-0 [2, 3)" in line]
    assert "failed: bolt: poison of <object object at 0x" in failed
    assert f"(logged once for this reason) [id={name}" in failed
    done = run(
        *("skip", "--store", url, "--id", name, "--records", f"{name}-0:2-3"),
        *("--bootstrap-servers", kafka.bootstrap_servers, "--yes", "--json"),
    )
    with start():
        produce(name, ["v"])
        waits_for(6)

    assert done["changes"][0] == f"{name}-0: [2, 3)"


def test_maps_beside_a_store_that_is_copied_stay_and_both_stores_say_so(
    postgresql, tmp_path
):
    here, id_ = f"sqlite:///{tmp_path}/s.db", fresh_name("copied").replace("-", "_")
    there = make_url(postgresql).render_as_string(hide_password=True)
    row = pa.table({"key": ["a"], "value": [1]})
    counts = TransactionalMap(here, id_)

    def runs(url, txid):
        """A job's batch: the map is written, then the txid is committed."""
        with closing(SqlStore(url, id_)) as store:
            ledger, partition = Ledger(store), TopicPartition("orders", 0)
            epoch = ledger.acquire()
            planned = OffsetRange(partition, txid - 1, txid)
            ledger.plan(epoch, BatchMetadata(txid, (planned,)))
            made = TransactionAttempt.of(txid, epoch=epoch, number=1)
            numbering = ledger.load().numbering
            counts.update(replace(made, source=id_, numbering=numbering), row)
            ledger.commit(epoch, txid, 1_700_000_000_000)

    runs(here, 1)

    copy = ("store", "copy", "--from", here, "--to", postgresql, "--id", id_)
    done = run(*copy, "--yes", "--json")
    runs(postgresql, 2)

    assert done["changes"][1] == (
        f"{id_}: not copied, its job goes on writing to: {id_} in {here}"
    )
    (old,) = run("status", "--store", here, "--id", id_, "--json")
    (new,) = run("status", "--store", postgresql, "--id", id_, "--json")
    assert (old["moved_to"], old["committed_txid"]) == (there, 1)
    assert (new.get("moved_to"), new["committed_txid"]) == (None, 2)
    assert counts.get(["a"]) == {"a": 2}
    with closing(SqlStore(postgresql, id_)) as copied:
        assert copied.sinks(Ledger(copied).load().numbering) == {}
    counts.close()


def test_records_are_not_skipped_in_zookeeper_and_nothing_changes(zookeeper):
    url, partition = f"zookeeper://{zookeeper.hosts}/skip", TopicPartition("orders", 0)
    offsets = ZooKeeperOffsetStore(url, "orders")
    offsets.acquire(0, 1)
    offsets.store({partition: CommittedOffset(2)})
    before = offsets.load([partition])

    refused = CliRunner().invoke(
        app,
        [
            *("skip", "--store", url, "--id", "orders", "--records", "orders-0:2-3"),
            *("--bootstrap-servers", "127.0.0.1:1", "--yes"),
        ],
    )

    assert refused.exit_code == 1
    told = " ".join(refused.output.split())
    assert "records of 'orders' are only skipped in a SQL database. Nothing was" in told
    assert "Set retry_limit and dead_letter_topic of its spout instead" in told
    assert offsets.load([partition]) == before
    offsets.close()


def test_lag_of_a_topology_whose_offsets_are_in_kafka(kafka, topic, produce):
    name, group = topic(2), fresh_name("group")
    produce(name, ["x"] * RECORDS)
    settings = client_settings(
        {"bootstrap.servers": kafka.bootstrap_servers}, purpose="admin"
    )
    offsets = KafkaGroupOffsetStore(settings, group)
    offsets.store({TopicPartition(name, 0): CommittedOffset(0)})
    offsets.close()

    (row,) = run(
        *("lag", "--store", "kafka:", "--id", group, "--json"),
        *("--bootstrap-servers", kafka.bootstrap_servers),
    )

    assert (row["id"], row["committed"], row["lag"]) == (group, 0, row["end"])


def test_a_deleted_topic_is_trouble(kafka, topic, tmp_path):
    name, url = topic(1), f"sqlite:///{tmp_path}/s.db"
    commit(SqlStore(url, "orders"), {TopicPartition(name, 0): COMMITTED})
    kafka.delete_topic(name)

    result = CliRunner().invoke(
        app,
        ["lag", "--store", url, "--bootstrap-servers", kafka.bootstrap_servers],
    )

    assert result.exit_code == 1
    assert f"{name}-0: " in result.stdout


def test_an_id_is_set_to_a_time(kafka, topic, produce, tmp_path):
    name, url = topic(1), f"sqlite:///{tmp_path}/s.db"
    partition = TopicPartition(name, 0)
    commit(SqlStore(url, "orders"), {partition: 0})
    produce(name, ["x"] * COMMITTED)
    time.sleep(1)
    between = datetime.now(UTC).isoformat()
    time.sleep(1)
    produce(name, ["y"] * COMMITTED)

    answer = run(
        *("offsets", "set", "--store", url, "--id", "orders", "--to", between),
        *("--bootstrap-servers", kafka.bootstrap_servers, "--yes", "--json"),
    )

    store = SqlStore(url, "orders")
    committed = Ledger(store).load().committed
    store.close()
    assert answer["changes"][0] == f"{partition}: 0 -> {COMMITTED}"
    assert committed is not None
    assert committed.offsets == {partition: COMMITTED}
    assert committed.topic_ids


def test_a_store_is_copied_to_zookeeper_and_back(zookeeper, tmp_path):
    url, back = f"sqlite:///{tmp_path}/s.db", f"sqlite:///{tmp_path}/back.db"
    there = f"zookeeper://{zookeeper.hosts}/{fresh_name('copied')}"
    for name in ("a", "b"):
        commit(SqlStore(url, name), {TopicPartition("orders", 0): COMMITTED})

    run("store", "copy", "--from", url, "--to", there, "--yes", "--json")
    run("store", "copy", "--from", there, "--to", back, "--yes", "--json")

    for one, other in ((url, there), (there, back), (url, back)):
        answer = run("store", "verify", "--store", one, "--against", other, "--json")
        assert answer == {"ids": 2, "problems": {}}


@pytest.mark.all
def test_ids_are_watched_in_a_terminal(postgresql):
    """A real one, of 80 columns."""
    commit(SqlStore(postgresql, "watched"), {TopicPartition("orders", 0): COMMITTED})
    ours, theirs = pty.openpty()
    command = [
        Path(sys.executable).with_name("kafka-tx"),
        *("top", "--store", postgresql, "-n", "2", "--every", "0.1"),
    ]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}

    with subprocess.Popen(command, stdout=theirs, env=environment) as top:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux ends a terminal like this
            while some := os.read(ours, 4096):
                shown += some
        assert top.wait(180) == 0
    os.close(ours)

    assert shown.count(b"watched") == 2
    assert b"records/s" in shown


@pytest.mark.all
def test_doctor_looks_at_topics_and_at_what_retention_has_taken(
    kafka, topic, produce, tmp_path
):
    name, url = topic(1), f"sqlite:///{tmp_path}/s.db"
    produce(name, ["x"] * RECORDS)
    commit(SqlStore(url, "orders"), {TopicPartition(name, 0): COMMITTED})
    asked = ["doctor", "--json", "--store", url, "--topic", name]
    asked += ["--bootstrap-servers", kafka.bootstrap_servers]

    def verdicts():
        found = json.loads(CliRunner().invoke(app, asked).stdout)
        return {one["what"]: one["verdict"] for one in found}

    before = verdicts()
    kafka.delete_records(name, {0: COMMITTED + 1})
    after = verdicts()

    assert (before["topic"], before["retention"]) == ("good", "good")
    assert (after["topic"], after["retention"]) == ("good", "bad")
