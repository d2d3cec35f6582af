"""Addresses of brokers and partitions."""

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.model import Broker, TopicPartition
from kafka_tx.topology.declare.spout_hosts import (
    BrokerHosts,
    StaticHosts,
    ZkHosts,
    parse_broker,
)


def test_a_broker_is_a_host_and_perhaps_a_port():
    assert parse_broker("kafka") == Broker("kafka", 9092)
    assert parse_broker("kafka:1234") == Broker("kafka", 1234)
    assert parse_broker("[::1]") == Broker("::1", 9092)
    assert parse_broker("[::1]:1234") == Broker("::1", 1234)


@pytest.mark.parametrize(
    "text",
    ["", ":9092", "a:b", "a:1:2", "a:", "::1", "[]", "h]:9", "[::1]x:9", "[::1:9"],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigError, match="host:port"):
        parse_broker(text)


def test_static_hosts_name_the_leader_of_each_partition():
    hosts = StaticHosts({1: "b:1", 0: "a", 2: "a:9092"})

    assert hosts.bootstrap_servers == "a:9092,b:1"
    assert hosts.leaders("t") == {
        TopicPartition("t", 0): Broker("a"),
        TopicPartition("t", 1): Broker("b", 1),
        TopicPartition("t", 2): Broker("a"),
    }


def test_hosts_that_name_nobody_are_refused():
    with pytest.raises(ConfigError, match="partition"):
        StaticHosts({})
    with pytest.raises(ConfigError, match="broker"):
        BrokerHosts(" ")


@pytest.mark.parametrize("kind", [BrokerHosts, ZkHosts])
def test_the_time_between_two_polls_is_checked(kind):
    assert kind("a:1").refresh_freq_secs == 60
    with pytest.raises(ConfigError, match="refresh_freq_secs"):
        kind("a:1", refresh_freq_secs=0)
