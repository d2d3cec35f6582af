"""Names that were meant for this package and mean nothing are refused at every door."""

import logging

import pytest

from kafka_tx import KafkaBolt, OpaqueTransactionalKafkaSpout, TransactionalKafkaSpout
from kafka_tx.errors import ConfigError
from kafka_tx.options import names
from kafka_tx.options.sink import GIVEN_BY_US, parse_sink
from kafka_tx.options.source import parse_source
from kafka_tx.options.topology import parse_at_least_once_settings, parse_settings

BROKERS = {"kafka.bootstrap.servers": "a:9092"}
READ = BROKERS | {"subscribe": "a"}
WRITE = BROKERS | {"topic": "a"}


def stream(name):
    parse_source(READ | {name: "1"}, streaming=True)


def batch(name):
    parse_source(READ | {name: "1"}, streaming=False)


def sink(name):
    parse_sink(WRITE | {name: "1"})


def bolt(name):
    KafkaBolt(WRITE | {name: "1"})


def settings(name):
    parse_settings({name: "1"})


def record_settings(name):
    parse_at_least_once_settings({name: "1"})


def spout(name):
    TransactionalKafkaSpout(READ | {name: "1"})


def opaque_spout(name):
    OpaqueTransactionalKafkaSpout(READ | {name: "1"})


SOURCES, SINKS = (stream, batch), (sink, bolt)
TOPOLOGIES, SPOUTS = (settings, record_settings), (spout, opaque_spout)
DOORS = (*SOURCES, *SINKS, *TOPOLOGIES, *SPOUTS)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "name",
    [
        *("tx_id", "TX_ID", "tx-id", "txId", "txid", "tx id", "tx_store", "tx-store"),
        *("tx_mode", "txMode", "tx.storeUrl", "tx_anything", "tx"),
        *("transactional.id", "transaction.id", "transactional_id", "transactionalId"),
    ],
)
def test_what_was_meant_for_transactions_is_refused(door, name):
    with pytest.raises(ConfigError) as raised:
        door(name)

    assert f"'{name.lower()}'" in str(raised.value).lower()


@pytest.mark.parametrize(
    ("doors", "name", "meant"),
    [
        ((*SOURCES, *SINKS), "tx_id", "tx.id"),
        ((*SOURCES, *SINKS), "txid", "tx.id"),
        ((*SOURCES, *SINKS), "transactional.id", "tx.id"),
        (SOURCES, "tx_commit_group_id", "tx.commitGroupId"),
        (SOURCES, "max_offsets_per_trigger", "maxOffsetsPerTrigger"),
        (SOURCES, "fail_on_data_loss", "failOnDataLoss"),
        (SOURCES, "failondataloss ", "failOnDataLoss"),
        (SOURCES, "topics", "subscribe"),
        (SINKS, "topics", "topic"),
        (SINKS, "tx_marker_topic", "tx.markerTopic"),
        (SINKS, "marker_topic", "tx.markerTopic"),
        (SINKS, "timestamp_column", "timestampColumn"),
        ((*SOURCES, *SINKS), "kafka_isolation_level", "kafka.isolation.level"),
        (TOPOLOGIES, "tx_store", "tx.store"),
        (TOPOLOGIES, "tx_max_pending", "tx.maxPending"),
        (TOPOLOGIES, "topology_max_spout_pending", "topology.max.spout.pending"),
        ((record_settings,), "tx_deployment", "tx.deployment"),
    ],
)
def test_the_name_that_was_meant_is_shown_as_it_is_documented(doors, name, meant):
    for door in doors:
        with pytest.raises(ConfigError, match=f"(?i)did you mean '(?-i:{meant})'"):
            door(name)


@pytest.mark.parametrize("door", SINKS)
@pytest.mark.parametrize("name", GIVEN_BY_US)
def test_names_between_driver_and_tasks_are_neither_taken_nor_suggested(door, name):
    for given in (name, name.replace(".", "_")):
        with pytest.raises(ConfigError) as raised:
            door(given)

        shown = str(raised.value).replace(f"unknown option '{given}'", "")
        assert not any(f"'{inner}'" in shown for inner in GIVEN_BY_US)


@pytest.mark.parametrize("door", SPOUTS)
def test_a_spout_says_where_a_topology_has_its_id_and_its_store(door):
    with pytest.raises(ConfigError, match=r"'tx_store'.*first argument.*'tx\.store'"):
        door("tx_store")


@pytest.mark.parametrize("door", [*SOURCES, *SINKS])
@pytest.mark.parametrize("name", ["mergeSchema", "numPartitions", "header"])
def test_what_may_be_meant_for_spark_is_ignored_with_a_warning(
    door, name, caplog, monkeypatch
):
    monkeypatch.setattr(names, "_named", set())  # warns once in a process

    with caplog.at_level(logging.WARNING):
        door(name)

    assert f"unknown option '{name}' is ignored".lower() in caplog.text.lower()
