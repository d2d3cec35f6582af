"""From what the extension reports to the errors of the tree."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_tx.errors import (
    AuthenticationError,
    ConfigError,
    FetchError,
    KafkaTxError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.model import OffsetRange
from kafka_tx.planned_topic import replaced

_SECRET = re.compile(
    r"password|passphrase|secret|key\.pem|oauthbearer\.(config|extensions)", re.I
)


def translated(
    failure: Exception,
    wanted: OffsetRange,
    settings: Mapping[str, str],
    timeout_ms: int,
) -> KafkaTxError:
    """The error of the tree for a ``ReadError`` of the extension."""
    kind, _, name, position, log_start, log_end, text = failure.args
    where = settings.get("bootstrap.servers") or settings.get("metadata.broker.list")
    topic, partition = wanted.topic_partition
    detail = f"{text} ({name})" if name else text
    match kind:
        case "settings":
            return ConfigError(
                f"the Kafka client cannot be made: {_without_secrets(text, settings)}."
                f" Brokers: {where}.",
                option="kafka",
            )
        case "out of range":
            return OffsetOutOfRangeError(
                f"range {wanted} is not in the log: it holds [{log_start}, {log_end})"
                f" now (position {position}, brokers at {where}): {detail}",
                topic=topic,
                partition=partition,
                wanted=position,
                log_start=log_start,
                log_end=log_end,
            )
        case "replaced":
            return replaced(wanted, log_end)
        case "denied":
            return AuthenticationError(
                f"the brokers at {where} refused this client reading {wanted}"
                f"{_needing(name, topic)}: {detail}. Check"
                " 'kafka.security.protocol', 'kafka.sasl.*' and"
                " 'kafka.ssl.*', and the permissions (ACLs) of the user.",
                addresses=where,
            )
        case "unknown topic":
            return UnknownTopicError(
                f"reading {wanted}: {detail}. It does not exist at {where}."
            )
        case _:
            last = f" Last report of the client: {detail}." if text else ""
            return FetchError(
                f"range {wanted} could not be read:"
                f" {_what(kind, name, settings, timeout_ms)} at offset"
                f" {position}, brokers at {where}.{last}",
                topic=topic,
                partition=partition,
                start=wanted.start,
                end=wanted.end,
                position=position,
            )


def _what(kind: str, name: str, settings: Mapping[str, str], timeout_ms: int) -> str:
    if kind == "timed out":
        return f"no progress for {timeout_ms / 1000:g} s"
    if kind == "record":
        return "a record cannot be put into columns"
    if name == "_BAD_COMPRESSION":
        largest = settings.get("receive.message.max.bytes", "its default")
        return (
            "a batch of records is broken, or unpacks to more than"
            f" 'kafka.receive.message.max.bytes' ({largest}) lets it"
        )
    return "a record is broken or cannot be decoded"


def _needing(name: str, topic: str) -> str:
    is_right = name == "TOPIC_AUTHORIZATION_FAILED"
    return f", which needs READ on topic '{topic}'" if is_right else ""


def _without_secrets(text: str, settings: Mapping[str, str]) -> str:
    for name, value in settings.items():
        if value and _SECRET.search(name):
            text = text.replace(str(value), "***")
    return text
