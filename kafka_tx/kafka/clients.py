"""Making librdkafka clients: callbacks, logging, and errors in their settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient

from kafka_tx.errors import ConfigError
from kafka_tx.kafka.client_settings import advice_for_old_pkcs12, is_secret
from kafka_tx.kafka.errors import ErrorWatch, without_secrets
from kafka_tx.kafka.tokens import PROVIDER, token_of
from kafka_tx.logs import same_events

_Client = TypeVar("_Client")

_CLOSED_WITHIN_S = 5.0
_PEM_FILES = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
}
"""Settings of librdkafka that name PEM files, with the options of Java for them."""


class _ClosedInTime(Consumer):
    """A consumer whose ``close`` ends.

    librdkafka 2.16 never destroys a consumer that is told at that moment that an offset
    it fetches is out of range; see ``client_close`` in ``native/src/client.c``.
    """

    def close(self) -> None:
        """Close it on a thread of its own, and wait some seconds for that."""
        close = super().close
        closing = Thread(target=same_events(close), name="kafka_tx-close", daemon=True)
        if _has_begun(closing):
            closing.join(_CLOSED_WITHIN_S)
        else:
            close()


def _has_begun(thread: Thread) -> bool:
    """Start it, unless there are too many threads or the process ends."""
    if sys.is_finalizing():  # Python 3.11 would wait for the thread
        return False
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def new_admin(settings: Mapping[str, str], watch: ErrorWatch) -> AdminClient:
    """An admin client that reports to ``watch``; raises ConfigError.

    Its requests create no topic.
    """
    usable = {k: v for k, v in settings.items() if k != "isolation.level"}
    usable["allow.auto.create.topics"] = "false"
    return _made(lambda conf: AdminClient(conf, logger=watch), usable, watch)


def new_consumer(
    settings: Mapping[str, str],
    watch: ErrorWatch,
    statistics: Callable[[str], None] | None = None,
    *,
    on_commit: Callable[[ClientError | None, list[TopicPartition]], None] | None = None,
) -> Consumer:
    """A consumer that reports to ``watch`` and gives its figures to ``statistics``.

    Close it: one that is only dropped may never end. librdkafka wants a group id even
    of a consumer that joins no group. Raises ConfigError.
    """
    named: dict[str, Any] = {"group.id": "kafka-tx", **settings}
    if statistics is not None:
        named["stats_cb"] = statistics
    if on_commit is not None:
        named["on_commit"] = on_commit
    return _made(lambda conf: _ClosedInTime(conf, logger=watch), named, watch)


def new_producer(settings: Mapping[str, str], watch: ErrorWatch) -> Producer:
    """A producer that reports to ``watch``; raises ConfigError."""
    usable = {k: v for k, v in settings.items() if k not in ("group.id",)}
    return _made(lambda conf: Producer(conf, logger=watch), usable, watch)


def addresses(settings: Mapping[str, str]) -> str:
    """The addresses the user gave, for messages."""
    return settings.get("bootstrap.servers") or settings.get("metadata.broker.list", "")


def _made(
    make: Callable[[dict[str, Any]], _Client],
    settings: Mapping[str, Any],
    watch: ErrorWatch,
) -> _Client:
    settings = dict(settings)
    provider = settings.pop(PROVIDER, None)
    if provider:
        token_of(provider)  # an error is raised here, not in a callback
        settings["oauth_cb"] = lambda _: token_of(provider)
    try:
        return make({**settings, "error_cb": watch})
    except (KafkaException, ValueError, TypeError) as error:
        detail = error.args[0] if error.args else error
        text = detail.str() if hasattr(detail, "str") else str(detail)
        raise refused_settings(text, settings, watch) from None


def refused_settings(
    text: str, settings: Mapping[str, Any], watch: ErrorWatch
) -> ConfigError:
    """The error if librdkafka refuses to make a client; ``text`` is its reason."""
    secrets = {k: v for k, v in settings.items() if is_secret(k)}
    return ConfigError(
        f"the Kafka client cannot be made: {without_secrets(text, secrets)}."
        f" Brokers: {watch.addresses}.{_advice(text, settings)}",
        option="kafka",
    )


def _advice(text: str, settings: Mapping[str, Any]) -> str:
    if "PKCS#12" in text and "unsupported" in text:
        return advice_for_old_pkcs12(settings.get("ssl.keystore.location", "it"))
    if "GSSAPI" in text or "Kerberos" in text.title():
        return (
            " The published packages of confluent-kafka come without Kerberos: install"
            " librdkafka with it and `pip install --no-binary confluent-kafka"
            " confluent-kafka`."
        )
    for name, of_java in _PEM_FILES.items():
        if name in text:
            return (
                f" The file {settings.get(name)} of option 'kafka.{of_java}' (or"
                f" 'kafka.{name}') must exist on this machine, be readable by this"
                " user, and be PEM."
            )
    if "No such configuration property" in text:
        return " The installed confluent-kafka is too old for it: upgrade it."
    return ""
