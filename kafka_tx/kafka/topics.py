"""Topics as brokers describe them, and which of them a subscription means."""

from __future__ import annotations

import ctypes
import re
import time
from array import array
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Uuid, __version__

from kafka_tx.kafka.clients import addresses, new_producer
from kafka_tx.kafka.errors import ErrorWatch, client_error, is_absent, translated
from kafka_tx.model import (
    Assigned,
    Broker,
    Subscription,
    TopicDescription,
    Topics,
)

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

    from kafka_tx.kafka.admin import NativeTopics

_MADE_WITHIN_S, _PAUSE_S = 3.0, 0.1
"""Time for all brokers to learn of a topic that was just created."""

_FORGETFUL = (2, 16, 1)
"""The newest version of the client that keeps ids; all since 2.6 do."""

_NO_LEADER = ClientError.LEADER_NOT_AVAILABLE


def check_written(topic: str, settings: Mapping[str, str], timeout_s: float) -> None:
    """Check that a topic can be written to; it may have been created a moment ago.

    Raises:
        UnknownTopicError: It does not exist.
        AuthenticationError: The user may not see it, or is refused.
        BrokerUnavailableError: No broker answered in time.
    """
    watch = ErrorWatch(addresses(settings))
    producer = new_producer(settings, watch)
    began = time.monotonic()
    while True:
        try:
            error = producer.list_topics(topic, timeout=timeout_s).topics[topic].error
        except KafkaException as exception:
            producer.poll(0)
            watch.raise_refusal()
            error = client_error(exception)
        waits = time.monotonic() - began < _MADE_WITHIN_S
        if error is None:
            return
        if not (waits and is_absent(error)):
            raise translated(error, f"topic '{topic}'", watch)
        time.sleep(_PAUSE_S)


def names_of(wanted: Subscription) -> list[str] | None:
    """The names a subscription gives, without repetition; None for a pattern."""
    if isinstance(wanted, Topics):
        return sorted(set(wanted.names))
    if isinstance(wanted, Assigned):
        return sorted({partition.topic for partition in wanted.partitions})
    return None


def shrunk(
    before: Mapping[str, TopicDescription],
    now: Mapping[str, TopicDescription],
    named: list[str] | None,
) -> bool:
    """Whether a topic seen before is absent or, under the same id, smaller."""
    for name in before if named is None else named:
        old, new = before.get(name), now.get(name)
        if old is None:
            continue
        if new is None:
            return True
        if len(new.leaders) < len(old.leaders) and new.topic_id == old.topic_id:
            return True
    return False


def readable(metadata: ClusterMetadata) -> list[str]:
    """The names of the topics of a metadata answer that can be read."""
    return [
        name
        for name, topic in metadata.topics.items()
        if topic.partitions
        and (topic.error is None or topic.error.code() == _NO_LEADER)
    ]


def from_metadata(metadata: ClusterMetadata) -> dict[str, TopicDescription]:
    """Every readable topic of a metadata answer; topic ids are not in it."""
    found = {}
    for name in readable(metadata):
        leaders = {
            number: _broker(metadata.brokers.get(partition.leader))
            for number, partition in metadata.topics[name].partitions.items()
        }
        found[name] = TopicDescription(name, leaders)
    return found


def from_description(description: Any) -> TopicDescription:  # noqa: ANN401 - client's
    """A topic from an answer to ``describe_topics``."""
    leaders = {
        partition.id: _broker(partition.leader) for partition in description.partitions
    }
    return TopicDescription(description.name, leaders, _id(description.topic_id))


def from_native(answer: NativeTopics) -> dict[str, TopicDescription | ClientError]:
    """The topics of an answer of native code, or their errors."""
    topics, addresses = answer
    brokers = {number: Broker(*at, number) for number, at in addresses.items()}
    found: dict[str, TopicDescription | ClientError] = {}
    for name, topic_id, packed, code, text in topics:
        numbers = array("i", packed)
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        leaders = {number: brokers.get(leader) for number, leader in pairs}
        found[name] = (
            ClientError(code, text)
            if code
            else TopicDescription(name, leaders, _known(topic_id or ""))
        )
    return found


def _id(topic_id: Any) -> str | None:  # noqa: ANN401 - client's
    """The text of a topic id; brokers before 2.8 send zeros.

    confluent-kafka leaks a reference to each id, 120 bytes a topic and answer
    (``Admin_c_TopicDescription_to_py``): it is dropped here.
    """
    text = str(topic_id) if topic_id is not None else ""
    if isinstance(topic_id, Uuid) and _version() <= _FORGETFUL:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(topic_id))
    return _known(text)


def _known(text: str) -> str | None:
    """A topic id; None: the broker knows none."""
    return None if text.strip("A=") == "" else text


@cache
def _version() -> tuple[int, ...]:
    """The client's, from itself.

    Metadata of packages would be looked for in Spark's jar, too, which is on the path
    of Spark's Python processes: 60 ms in each of them.
    """
    return tuple(map(int, re.findall(r"[0-9]+", str(__version__))[:3]))


def _broker(node: Any) -> Broker | None:  # noqa: ANN401 - client's
    if node is None or node.id < 0 or not node.host:
        return None
    return Broker(node.host, node.port, node.id)
