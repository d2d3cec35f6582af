"""From the options a user gives for Kafka to the settings of a librdkafka client."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from kafka_tx.errors import ConfigError
from kafka_tx.kafka import translations
from kafka_tx.kafka.librdkafka_names import COMMON, CONSUMER_ONLY, PRODUCER_ONLY
from kafka_tx.kafka.security import jaas_settings, tls_settings
from kafka_tx.kafka.tokens import PROVIDER
from kafka_tx.kafka.translations import (
    Purpose,
    refusals,
    room_for_fetches,
    steady_reconnects,
    within_bounds,
)
from kafka_tx.logs import event_log

_log = event_log(__name__)
_said: set[str] = set()

_SECRET_PARTS = ("password", "secret", "key.pem", "passphrase", "jaas", "keystore.key")
_SECRET_NAMES = ("sasl.oauthbearer.config", "sasl.oauthbearer.extensions")

_PROTOCOLS = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
"""What the clients take before ``://`` of an address."""

_ALWAYS = {"enable.metrics.push": "false", "reconnect.backoff.max.ms": "1000"}
_DEFAULTS: dict[Purpose, dict[str, str]] = {
    "admin": {"isolation.level": "read_uncommitted", "socket.timeout.ms": "30000"},
    "consumer": {
        "isolation.level": "read_uncommitted",
        "check.crcs": "true",
        "socket.timeout.ms": "30000",
        "fetch.wait.max.ms": "1",  # other requests to the broker wait for a fetch
        "fetch.error.backoff.ms": "50",
        "fetch.queue.backoff.ms": "2",
        "queued.max.messages.kbytes": "16384",
        "topic.metadata.propagation.max.ms": "5000",
        "statistics.interval.ms": "1000",
    },
    "producer": {
        "partitioner": "murmur2_random",
        "message.max.bytes": "100000000",  # brokers enforce their own limit
        "socket.timeout.ms": "30000",
    },
}
_FIXED = {"allow.auto.create.topics": "false"}
_FIXED_OF_CONSUMERS = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}


class ClientSettings(dict[str, str]):
    """Settings of one client: a dict whose text never shows a secret."""

    def __repr__(self) -> str:
        shown = {k: "***" if is_secret(k) else v for k, v in self.items()}
        return f"ClientSettings({shown!r})"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return (ClientSettings, (dict(self),))


def is_secret(name: str) -> bool:
    """Whether the value of this name (Java's or librdkafka's) must not be shown."""
    lowered = name.lower()
    return lowered in _SECRET_NAMES or any(part in lowered for part in _SECRET_PARTS)


def client_settings(options: Mapping[str, str], *, purpose: Purpose) -> ClientSettings:
    """Settings of a client from Spark-style options without their prefix ``kafka.``.

    Names are taken in any case. Java's names are translated; librdkafka's own pass
    through and win. Names of the other kind of client are dropped, so that one set of
    options serves all. Numbers that only Java takes become the nearest one. A name
    without effect is logged, once in a process.

    The settings of an ``admin`` client keep ``isolation.level``: it decides which end
    of a partition is asked for, and is taken out before a client is made.

    Raises:
        ConfigError: A name is refused (with what replaces it) or unknown (with the
            nearest known one), a value cannot be translated, or the addresses of the
            brokers are missing.
    """
    given = {name.strip().lower(): str(v).strip() for name, v in options.items()}
    provider = given.pop(PROVIDER, "")
    _refuse(given, purpose)
    _refuse_foreign_mechanism(given)
    if not (given.get("bootstrap.servers") or given.get("metadata.broker.list")):
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka"
            f" {'producer' if purpose == 'producer' else 'consumer'}",
            option="kafka.bootstrap.servers",
        )
    _check_addresses(given)
    usable = _names_of(purpose)
    chosen: dict[str, str] = {**tls_settings(given), **jaas_settings(given)}
    native: dict[str, str] = {}
    for name, value in given.items():
        _translate(name, value, purpose, chosen, native)
    chosen |= native
    settings = within_bounds({n: v for n, v in chosen.items() if n in usable})
    if purpose == "consumer":
        settings |= {**room_for_fetches(settings), **_FIXED_OF_CONSUMERS}
    settings = {**_ALWAYS, **_DEFAULTS[purpose], **settings, **_FIXED}
    if provider:
        settings |= {"sasl.mechanisms": "OAUTHBEARER", PROVIDER: provider}
    return ClientSettings(settings | steady_reconnects(settings))


def _names_of(purpose: Purpose) -> frozenset[str]:
    if purpose == "producer":
        return COMMON | PRODUCER_ONLY
    return COMMON | (CONSUMER_ONLY if purpose == "consumer" else {"isolation.level"})


def _refuse(given: Mapping[str, str], purpose: Purpose) -> None:
    for name, advice in refusals(purpose).items():
        if name in given:
            stop = "" if advice.startswith("as ") else "."
            raise ConfigError(
                f"Kafka option '{name}' is not supported{stop} {advice}",
                option=f"kafka.{name}",
            )


def _refuse_foreign_mechanism(given: Mapping[str, str]) -> None:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or ""
    if mechanism.upper() == "AWS_MSK_IAM":
        raise ConfigError.illegal(
            "kafka.sasl.mechanism",
            mechanism,
            "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI",
            "Amazon's brokers take tokens, too: set it to OAUTHBEARER and"
            f" 'kafka.{PROVIDER}' to a function that signs them: see docs/security.md.",
        )


def _check_addresses(given: Mapping[str, str]) -> None:
    for name in ("bootstrap.servers", "metadata.broker.list"):
        for address in given.get(name, "").split(","):
            scheme, separator, _ = address.strip().partition("://")
            if separator and scheme.upper() not in _PROTOCOLS:
                raise ConfigError.illegal(
                    f"kafka.{name}", given[name], "host:port, separated by commas"
                )


def _translate(
    name: str,
    value: str,
    purpose: Purpose,
    chosen: dict[str, str],
    native: dict[str, str],
) -> None:
    """Put one option into ``chosen`` (translated) or ``native`` (passed through)."""
    if name in translations.IN_TLS or name in translations.IN_JAAS:
        return
    if name in translations.NO_EFFECT:
        _say_once(name)
        return
    row = translations.find(name, purpose)
    if row is not None:
        for target, text in row.apply(value).items():
            chosen.setdefault(target, text)
    elif name in COMMON or name in CONSUMER_ONLY or name in PRODUCER_ONLY:
        native[name] = value
    elif name not in translations.known_names():
        raise _unknown(name)


def _say_once(name: str) -> None:
    if name not in _said:
        _said.add(name)
        _log.warning("option 'kafka.%s' has no effect here", name)


def _unknown(name: str) -> ConfigError:
    known = COMMON | CONSUMER_ONLY | PRODUCER_ONLY | translations.known_names()
    nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    hint = f"did you mean 'kafka.{nearest[0]}'?" if nearest else "leave it out."
    return ConfigError(
        f"option 'kafka.{name}' is known neither to Kafka's Java client nor to"
        f" librdkafka; {hint}",
        option=f"kafka.{name}",
    )
