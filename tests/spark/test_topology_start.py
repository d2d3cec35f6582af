"""A start that fails leaves nothing open; with stand-ins for a session."""

from __future__ import annotations

import socket
import sys
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_tx.errors import ComponentError, ConfigError
from kafka_tx.metrics.endpoint import serve
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.running.at_least_once.spout import KafkaSpout
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.declare.spout_config import SpoutConfig
from kafka_tx.topology.declare.spout_hosts import BrokerHosts
from kafka_tx.topology.declare.spouts import Spout

WITHIN_S = 60
ClientServer = type("ClientServer", (), {})


class Pass(BasicBolt):
    fields = ()

    def execute(self, row, collector):
        pass


class Closed(Spout):
    """Cannot be opened."""

    fields = ("key",)
    mode = "transactional"

    def __init__(self):
        self.is_closed = False

    def open(self):
        raise ConnectionError("nobody there")

    def initialize_transaction(self, txid, previous):
        raise AssertionError

    def batch(self, attempt, metadata):
        raise AssertionError

    def empty_batch(self):
        return None

    def close(self):
        self.is_closed = True


class Failing(Closed):
    """Fails as soon as it is asked for a batch."""

    def open(self):
        pass

    def initialize_transaction(self, txid, previous):
        raise ConnectionError("nobody there")


def session(**conf: str) -> Any:
    context = SimpleNamespace(
        getConf=lambda: conf,
        applicationId=uuid.uuid4().hex,
        _gateway=ClientServer(),
        pythonExec=sys.executable,
    )
    return SimpleNamespace(
        sparkContext=context, conf=conf, _jsparkSession=None, version="4.2.0"
    )


@pytest.fixture
def config():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    yield {"tx.store": f"memory:{uuid.uuid4().hex}", "tx.metricsPort": port}
    with socket.socket() as probe:  # no endpoint has it
        probe.bind(("127.0.0.1", port))


def test_a_spout_that_cannot_be_opened_is_closed_and_so_are_the_metrics(config):
    spout = Closed()
    builder = TransactionalTopologyBuilder("jobs", "spout", spout)
    builder.set_bolt("pass", Pass).shuffle_grouping("spout")

    with pytest.raises(ConnectionError, match="nobody there"):
        builder.build().start(session(), config)

    assert spout.is_closed


def test_a_run_that_failed_is_shown_until_its_topology_runs_again(config):
    """As a program does that starts a topology again and again, without a stop."""
    builder = TransactionalTopologyBuilder("jobs", "spout", Failing())
    builder.set_bolt("pass", Pass).shuffle_grouping("spout")
    topology, handles = builder.build(), []
    with serve(MetricsRegistry(), config["tx.metricsPort"]) as other:
        for _ in range(3):
            handles.append(topology.start(session(), config))
            with pytest.raises(ComponentError, match="nobody there"):
                handles[-1].awaitTermination(WITHIN_S)

            runs = [handle.metrics for handle in handles]
            shown = [each for each in other._server.shown() if each in runs]
            assert shown == runs[-1:]

        for handle in handles:
            handle.stop()
        assert handles[-1].metrics not in other._server.shown()


def test_wrong_ports_of_the_driver_are_refused_before_a_spout_is_opened(
    config, monkeypatch
):
    opened = []
    monkeypatch.setattr(KafkaSpout, "judge", lambda *given: opened.append(given))
    monkeypatch.setattr(KafkaSpout, "poller", lambda *given: opened.append(given))
    hosts = BrokerHosts("127.0.0.1:1")
    builder = TopologyBuilder("jobs")
    builder.set_spout("spout", KafkaSpout(SpoutConfig(hosts=hosts, topic="t")))
    builder.set_bolt("pass", Pass).shuffle_grouping("spout")
    spark = session(**{"spark.kafka_tx.driver.ports": "none"})

    with pytest.raises(ConfigError, match=r"spark\.kafka_tx\.driver\.ports"):
        builder.build().start(spark, config)

    assert opened == []
