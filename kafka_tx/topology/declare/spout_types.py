"""Which values a spout's settings take; others are refused by name before use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from kafka_tx.errors import ConfigError
from kafka_tx.topology.declare.spout_hosts import BrokerHosts, StaticHosts, ZkHosts

_PLAIN: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "text"),
    "bool": ((bool,), "True or False"),
}
_HOSTS = 'BrokerHosts("host:9092"), ZkHosts("host:2181") or StaticHosts({0: "host"})'


SCHEMES = "a Scheme, such as RawScheme() or StringScheme()"


def is_scheme(value: object) -> bool:
    """Whether records can be decoded with it; a class has to be called first."""
    return (
        hasattr(value, "fields")
        and hasattr(value, "decode")
        and not isinstance(value, type)
    )


def check_types(config: Any) -> None:  # noqa: ANN401 - a SpoutConfig
    """Refuse what another language would not have compiled.

    Raises:
        ConfigError: Names the setting, the value and what it may be.
    """
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
