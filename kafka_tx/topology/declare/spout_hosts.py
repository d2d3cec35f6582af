"""Storm's hosts of spouts: who names the partitions and leaders; types of settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any

from kafka_tx.config import check_kind
from kafka_tx.errors import ConfigError
from kafka_tx.model import Broker, TopicPartition

_SERVERS = 'text such as "h1:9092,h2:9092"'


def parse_broker(text: str) -> Broker:
    """Read ``host`` (port 9092) or ``host:port``; IPv6 addresses have brackets.

    Raises:
        ConfigError: It is neither.
    """
    found = re.fullmatch(r"(\[[^][]+\]|[^][:]+)(?::([0-9]+))?", text.strip())
    if found is None:
        legal = "host or host:port, such as kafka:9092 or [::1]:9092"
        raise ConfigError.illegal("hosts", text, legal)
    return Broker(found[1].strip("[]"), int(found[2] or 9092))


@dataclass(frozen=True)
class StaticHosts:
    """A fixed list of partitions, each with its broker; no others are polled for.

    Attributes:
        brokers: ``{0: "host:9092", 1: "other"}``.
        refresh_freq_secs: Seconds until a partition that could not be started is tried
            again, and between two polls whether the topic was re-created.
    """

    brokers: Mapping[int, str]
    refresh_freq_secs: int = 60

    def __post_init__(self) -> None:
        legal = 'a dictionary such as {0: "host:9092", 1: "other"}'
        check_kind("hosts", self.brokers, Mapping, legal)
        for number, address in self.brokers.items():
            check_kind("hosts", number, int, legal)
            check_kind("hosts", address, str, legal)
        _check_seconds(self.refresh_freq_secs)
        if not self.brokers:
            raise ConfigError.illegal("hosts", self.brokers, "at least one partition")
        for address in self.brokers.values():
            parse_broker(address)

    @property
    def bootstrap_servers(self) -> str:
        """Every broker once."""
        found = {str(parse_broker(address)) for address in self.brokers.values()}
        return ",".join(sorted(found))

    def leaders(self, topic: str) -> dict[TopicPartition, Broker]:
        """The broker of each partition."""
        return {
            TopicPartition(topic, number): parse_broker(address)
            for number, address in self.brokers.items()
        }


@dataclass(frozen=True)
class ZkHosts:
    """Topics, leaders and brokers as they register in ZooKeeper: Kafka 3 and older.

    Attributes:
        connect: ``h1:2181,h2:2181``, with the cluster's chroot behind it if it has one;
            or ``zookeeper://h1:2181/chroot?tls=true&…`` with the options of a store.
        broker_zk_path: Where brokers register, below the chroot.
        refresh_freq_secs: Seconds between two requests for topics and leaders.
        bootstrap_servers: The clients' bootstrap servers; None: the leaders found.
    """

    connect: str = field(repr=False)
    broker_zk_path: str = "/brokers"
    refresh_freq_secs: int = 60
    bootstrap_servers: str | None = None

    def __post_init__(self) -> None:
        check_kind("connect", self.connect, str, '"h1:2181,h2:2181/chroot"')
        check_kind("broker_zk_path", self.broker_zk_path, str, "text")
        servers = self.bootstrap_servers
        check_kind("bootstrap_servers", servers, (str, NoneType), _SERVERS)
        _check_seconds(self.refresh_freq_secs)


@dataclass(frozen=True)
class BrokerHosts:
    """Polls brokers for topics and leaders: for every current Kafka cluster.

    Attributes:
        bootstrap_servers: ``h1:9092,h2:9092``.
        refresh_freq_secs: Seconds between two requests for topics and leaders.
    """

    bootstrap_servers: str
    refresh_freq_secs: int = 60

    def __post_init__(self) -> None:
        check_kind("hosts", self.bootstrap_servers, str, _SERVERS)
        if not self.bootstrap_servers.strip():
            legal = "host:port of at least one broker"
            raise ConfigError.illegal("hosts", self.bootstrap_servers, legal)
        _check_seconds(self.refresh_freq_secs)


Hosts = StaticHosts | ZkHosts | BrokerHosts


def _check_seconds(seconds: int) -> None:
    legal = "a whole number of seconds from 1"
    check_kind("refresh_freq_secs", seconds, int, legal)
    if seconds < 1:
        raise ConfigError.illegal("refresh_freq_secs", seconds, legal)


_PLAIN: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "text"),
    "bool": ((bool,), "True or False"),
}
_HOSTS = 'BrokerHosts("host:9092"), ZkHosts("host:2181") or StaticHosts({0: "host"})'


SCHEMES = "a Scheme, such as RawScheme() or StringScheme()"


def is_scheme(value: object) -> bool:
    """Whether the value is a scheme; a class is not, because you must call it first."""
    has_parts = hasattr(value, "fields") and hasattr(value, "decode")
    return has_parts and not isinstance(value, type)


def check_types(config: Any) -> None:  # noqa: ANN401 - a SpoutConfig
    """Refuse values of wrong types by a ConfigError."""
    for name, legal in _wrong(config):
        raise ConfigError.illegal(name, getattr(config, name), legal)


def _wrong(config: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    hosts: object = config.hosts
    kafka: object = config.kafka
    if not isinstance(hosts, BrokerHosts | ZkHosts | StaticHosts):
        yield "hosts", _HOSTS
    if not is_scheme(config.scheme):
        yield "scheme", SCHEMES
    if not isinstance(kafka, Mapping):
        yield "kafka", 'a dictionary of settings, such as {"security.protocol": "SSL"}'
    servers = config.zk_servers
    is_list = isinstance(servers, Sequence) and not isinstance(servers, str)
    if servers is not None and not is_list:
        yield "zk_servers", "a list of host names"
    for setting in fields(config):
        kind, _, optional = str(setting.type).partition(" | ")
        value = getattr(config, setting.name)
        if kind not in _PLAIN or (value is None and optional == "None"):
            continue
        wanted, legal = _PLAIN[kind]
        is_odd = isinstance(value, bool) and kind != "bool"
        if is_odd or not isinstance(value, wanted):
            yield setting.name, legal + (" or None" if optional else "")
