"""Options of Kafka's clients that are refused, and what replaces each.

The wording and the choice are Spark's, where Spark refuses them, too.
"""

from __future__ import annotations

from typing import Literal

Purpose = Literal["consumer", "admin", "producer"]
"""The kind of client that settings are for."""

_JAVA_CLASS = "A Java class cannot be loaded by this connector."
_BYTES = "are deserialized as byte arrays with ByteArrayDeserializer. Use DataFrame"

REFUSED_FOR_READING = {
    "auto.offset.reset": (
        "Instead set the source option 'startingOffsets' to 'earliest' or 'latest' to"
        " specify where to start. Structured Streaming manages which offsets are"
        " consumed internally, rather than relying on the kafkaConsumer to do it. This"
        " will ensure that no data is missed when new topics/partitions are dynamically"
        " subscribed. Note that 'startingOffsets' only applies when a new Streaming"
        " query is started, and that resuming will always pick up from where the query"
        " left off. See the docs for more details."
    ),
    "key.deserializer": (
        f"as keys {_BYTES} operations to explicitly deserialize the keys."
    ),
    "value.deserializer": (
        f"as values {_BYTES} operations to explicitly deserialize the values."
    ),
    "enable.auto.commit": (
        "Offsets are kept in the checkpoint and, with the option 'tx.id', in the store;"
        " 'tx.commitGroupId' mirrors them to a consumer group."
    ),
}
"""Spark's refusals of its source, and what replaces each."""

REFUSED_FOR_WRITING = {
    "key.serializer": "as keys are serialized with ByteArraySerializer.",
    "value.serializer": "as value are serialized with ByteArraySerializer.",
}
"""Spark's refusals of its sink."""

REFUSED = {
    "interceptor.classes": (
        f"{_JAVA_CLASS} Use DataFrame operations to look at or change the records."
    ),
    "ssl.engine.factory.class": f"{_JAVA_CLASS} Use PEM files or a PKCS12 keystore.",
    "sasl.login.class": f"{_JAVA_CLASS} Use 'kafka.sasl.jaas.config'.",
    "sasl.client.callback.handler.class": (
        f"{_JAVA_CLASS} Use 'kafka.sasl.jaas.config' with PLAIN, SCRAM, OAUTHBEARER or"
        " Kerberos, or 'kafka.sasl.oauthbearer.token.provider' with a function in"
        " Python."
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        f"{_JAVA_CLASS} Use 'kafka.sasl.oauthbearer.token.endpoint.url'."
    ),
    "sasl.oauthbearer.jwt.validator.class": f"{_JAVA_CLASS} Leave it out.",
}
"""Refused for every kind of client: they name Java classes."""

REFUSED_SOMEWHERE = frozenset(REFUSED_FOR_READING) | frozenset(REFUSED_FOR_WRITING)
"""Names that are refused for one kind of client and without meaning for the others."""


def refusals(purpose: Purpose) -> dict[str, str]:
    """Every refused name for this kind of client and what replaces it."""
    special = REFUSED_FOR_WRITING if purpose == "producer" else REFUSED_FOR_READING
    return {**REFUSED, **special}
