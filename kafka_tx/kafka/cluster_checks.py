"""Checks of a user's rights and of brokers' features, for ``kafka-tx doctor``.

A job does not ask in advance: brokers refuse what it may not do.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from kafka_tx.kafka.admin import AdminConnection, Deadline, replicas_of
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.clients import addresses, new_producer
from kafka_tx.kafka.errors import ErrorWatch, client_error, translated
from kafka_tx.model import TopicPartition, host_port

_WITHIN_MS = 10_000


class ClusterChecks:
    """Questions that no job asks; nothing is written, and no topic is made.

    Every method raises KafkaError if brokers refuse or do not answer. ``kafka`` are the
    user's options, without ``kafka.``.
    """

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka
        self._admin = AdminConnection(client_settings(kafka, purpose="admin"))

    def topic_rights(self, topic: str) -> frozenset[str]:
        """The operations on a topic that this user may do, such as ``READ``."""
        found = self._admin.client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True
        )
        return self._rights(found, f"the rights on topic '{topic}'") or frozenset()

    def replicas(self, topic: str) -> int:
        """How many replicas each partition has; 0: the topic is not known."""
        metadata = self._admin.metadata(Deadline(_WITHIN_MS), topic)
        return replicas_of(metadata, topic)

    def group_rights(self, group: str) -> frozenset[str] | None:
        """The same of a consumer group; None: the group does not exist."""
        found = self._admin.client.describe_consumer_groups(
            [group], include_authorized_operations=True
        )
        return self._rights(found, f"the rights on group '{group}'")

    def newest_ms(self, partitions: Iterable[TopicPartition]) -> int | None:
        """The newest timestamp of the records there; None: there are no records."""
        wanted = {
            ClientPartition(p.topic, p.partition): OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
            for p in partitions
        }
        topics = {partition.topic for partition in wanted}
        self._admin.learn_leaders(topics, Deadline(_WITHIN_MS))
        found = [
            self._answer(future, "the newest timestamps").timestamp
            for future in self._admin.client.list_offsets(wanted).values()
        ]
        return max((each for each in found if each >= 0), default=None)

    def begin_transactions(self, name: str) -> None:
        """Have the brokers take this transactional id, as the exactly-once sink does.

        They store it until ``transactional.id.expiration.ms``, 7 days by default.
        """
        settings = client_settings(self._kafka, purpose="producer")
        watch = ErrorWatch(addresses(settings))
        producer = new_producer({**settings, "transactional.id": name}, watch)
        try:
            producer.init_transactions(_WITHIN_MS / 1_000)
        except KafkaException as error:
            watch.raise_refusal()
            what = f"taking the transactional id '{name}'"
            raise translated(client_error(error), what, watch) from None

    def _rights(self, found: Mapping[str, Any], what: str) -> frozenset[str] | None:
        (future,) = found.values()
        answer = self._admin.wait(future, Deadline(_WITHIN_MS))
        if isinstance(answer, ClientError):
            if answer.code() == ClientError.GROUP_ID_NOT_FOUND:
                return None
            raise self._admin.failed(answer, what)
        return frozenset(each.name for each in answer.authorized_operations or ())

    def _answer(self, future: Any, what: str) -> Any:  # noqa: ANN401 - any request's
        answer = self._admin.wait(future, Deadline(_WITHIN_MS))
        if isinstance(answer, ClientError):
            raise self._admin.failed(answer, what)
        return answer


def finalized_features(host: str, port: int) -> dict[str, int]:
    """The features that a cluster has switched on, by name; old brokers have none.

    The request with which every client begins; before any log-in, and without TLS. The
    Python client does not show its answer.

    Raises:
        OSError: Nobody answers there, or in another form.
    """
    name = b"kafka-tx"  # letters, digits, - and . only
    head = struct.pack(">hhih", _API_VERSIONS, 3, 1, len(name)) + name + b"\0"
    body = head + bytes([len(name) + 1]) + name + b"\x021\0"
    with socket.create_connection((host, port), _WITHIN_MS / 1_000) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4).rjust(4, b"\0"))
            answer = _Reader(stream.read(min(size, _LONGEST)))
    try:
        return _features(answer)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        text = f"{host_port(host, port)} does not answer as a broker"
        raise OSError(text) from error


_API_VERSIONS = 18
_UNSUPPORTED_VERSION = 35
_FINALIZED = 2
_LONGEST = 1 << 20


def _features(answer: _Reader) -> dict[str, int]:
    _, error = answer.taken(">ih")
    if error == _UNSUPPORTED_VERSION:
        return {}
    if error:
        raise OSError(f"the broker answers with error {error}")
    for _ in range(answer.varint() - 1):
        answer.taken(">hhh")
        answer.skip_tags()
    answer.taken(">i")
    found: dict[str, int] = {}
    for _ in range(answer.varint()):
        tag, size = answer.varint(), answer.varint()
        part = _Reader(answer.bytes(size))
        if tag != _FINALIZED:
            continue
        for _ in range(part.varint() - 1):
            name = part.bytes(part.varint() - 1).decode()
            found[name], _ = part.taken(">hh")
            part.skip_tags()
    return found


class _Reader:
    """Kafka's flexible versions: compact arrays and tagged fields."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def bytes(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def taken(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.bytes(struct.calcsize(form)))

    def varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return found

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.bytes(self.varint())
