"""Values of other kinds are refused where they are given, by name."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest

from kafka_tx.errors import ConfigError

kafka_tx: Any = import_module("kafka_tx")
"""As one meets it who does not ask a type checker."""

BROKERS = {"kafka.bootstrap.servers": "b:9092"}
ATTEMPT = kafka_tx.TransactionAttempt(1, 1)
SINK = BROKERS | {"topic": "t", "tx.id": "sink"}


async def waits(*_):
    """Would do nothing if it was called."""


def yields(*_):
    """Would do nothing, either."""
    yield


class Waits:
    async def __call__(self, *_):
        """Nor would this."""


CASES: dict[str, list[Callable[[], object]]] = {
    "hosts": [
        lambda: kafka_tx.StaticHosts(["h:9092"]),
        lambda: kafka_tx.StaticHosts({"0": "h"}),
        lambda: kafka_tx.StaticHosts({0: 9092}),
        lambda: kafka_tx.BrokerHosts(["h:9092"]),
    ],
    "connect": [lambda: kafka_tx.ZkHosts(["h:2181"])],
    "broker_zk_path": [lambda: kafka_tx.ZkHosts("h", broker_zk_path=3)],
    "bootstrap_servers": [lambda: kafka_tx.ZkHosts("h", bootstrap_servers=["h"])],
    "refresh_freq_secs": [
        lambda: kafka_tx.ZkHosts("h:2181", refresh_freq_secs="60"),
        lambda: kafka_tx.BrokerHosts("h:9092", refresh_freq_secs=None),
        lambda: kafka_tx.StaticHosts({0: "h"}, refresh_freq_secs=True),
    ],
    "options": [
        lambda: kafka_tx.TransactionalKafkaSpout("b:9092"),
        lambda: kafka_tx.OpaqueTransactionalKafkaSpout(["b:9092"]),
        lambda: kafka_tx.KafkaBolt("b:9092"),
        lambda: kafka_tx.write_transaction("df", ATTEMPT, "opts"),
    ],
    "scheme": [
        lambda: kafka_tx.TransactionalKafkaSpout(
            BROKERS | {"subscribe": "t"}, scheme=kafka_tx.RawScheme
        ),
    ],
    "topology id": [
        lambda: kafka_tx.TopologyBuilder(None),
        lambda: kafka_tx.TransactionalTopologyBuilder(5, "s", object()),
    ],
    "topic": [lambda: kafka_tx.KafkaBolt(BROKERS, topic=5)],
    "mapper": [lambda: kafka_tx.KafkaBolt(SINK, mapper="x")],
    "key": [lambda: kafka_tx.FieldMapper(key=5)],
    "field": [lambda: kafka_tx.FieldTopic(None)],
    "name": [lambda: kafka_tx.TransactionalMap("memory:", 5)],
    "state": [
        lambda: kafka_tx.SnapshotValue("map"),
        lambda: kafka_tx.update_map("df", ATTEMPT, "map"),
    ],
    "function": [
        lambda: kafka_tx.for_each_transaction("save"),
        lambda: kafka_tx.for_each_transaction(waits),
        lambda: kafka_tx.for_each_transaction(partial(yields, 1)),
        lambda: kafka_tx.for_each_transaction(Waits()),
        lambda: kafka_tx.with_dead_letters(yields, "t"),
    ],
    "write": [lambda: kafka_tx.write_to_table("df", ATTEMPT, "t", waits)],
    "attempt": [
        lambda: kafka_tx.update_map("df", 1, "map"),
        lambda: kafka_tx.append_once("df", 1, "sqlite://", "t"),
        lambda: kafka_tx.append_to_table("df", 1, "t"),
        lambda: kafka_tx.append_files("df", 1, "/t"),
        lambda: kafka_tx.write_transaction("df", 1, SINK),
    ],
    "parts": [lambda: kafka_tx.write_transaction("df", ATTEMPT, SINK, parts="4")],
    "path": [
        lambda: kafka_tx.append_files("df", ATTEMPT, 5),
        lambda: kafka_tx.read_files("spark", None),
        lambda: kafka_tx.clean_files("spark", ""),
    ],
    "format": [lambda: kafka_tx.append_files("df", ATTEMPT, "/t", "delta")],
    "partition_by": [
        lambda: kafka_tx.append_files("df", ATTEMPT, "/t", partition_by="day")
    ],
    "table": [lambda: kafka_tx.append_to_table("df", ATTEMPT, 5)],
    "sink": [lambda: kafka_tx.append_to_table("df", ATTEMPT, "t", sink=5)],
    "config": [lambda: kafka_tx.KafkaSpout({"topic": "t"})],
}


@pytest.mark.parametrize(
    ("name", "make"), [(name, make) for name in CASES for make in CASES[name]]
)
def test_a_value_of_another_kind_is_refused_by_name(name, make):
    with pytest.raises(ConfigError, match=rf"option '{name}' is .*legal: "):
        make()
