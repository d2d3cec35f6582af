"""``kafka-tx`` on stores and brokers that are servers."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from kafka_tx.cli.main import app
from kafka_tx.model import TopicPartition
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger import Committed, Ledger
from kafka_tx.zookeeper.store import ZooKeeperStore

COMMITTED, RECORDS = 3, 10


def run(*arguments: str):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def commit(store, offsets):
    ledger = Ledger(store)
    ledger.adopt(ledger.acquire(), Committed(txid=1, offsets=offsets))
    store.close()


def test_status_lists_the_ids_below_a_root_of_zookeeper(zookeeper):
    url = f"zookeeper://{zookeeper.hosts}/command-line"
    for name in ("b", "a"):
        commit(ZooKeeperStore(url, name), {TopicPartition(name, 0): COMMITTED})
    ZooKeeperStore(url, "never-wrote").acquire()

    found = run("status", "--store", url, "--json")

    assert [one["id"] for one in found] == ["a", "b"]
    assert found[0]["offsets"] == {"a": {"0": COMMITTED}}


def test_a_root_that_does_not_exist_has_no_ids(zookeeper):
    assert run("status", "--store", f"zookeeper://{zookeeper.hosts}/no", "--json") == []


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
