"""What the id of a topic is now, asked by who reads it.

A consumer of confluent-kafka cannot ask, and an admin client for each range would cost
more than a small range. So a process keeps one for each cluster.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicCollection

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.errors import is_absent, is_unreachable
from kafka_tx.kafka.librdkafka_names import CONSUMER_ONLY
from kafka_tx.kafka.topics import from_description

_CLIENTS_AT_MOST = 2

_Settings = tuple[tuple[str, str], ...]
_kept: dict[_Settings, AdminConnection] = {}
_lock = threading.Lock()


def topic_id_now(
    settings: Mapping[str, str], topic: str, timeout_ms: int
) -> str | None:
    """The id of the topic; empty: there is no such topic; None: nobody told in time.

    Threads may ask at once; they wait for each other.

    Args:
        settings: Of the consumer that reads.
        topic: Its name.
        timeout_ms: How long the brokers may take.

    Raises:
        AuthenticationError: A broker refuses the client.
        KafkaError: A broker answers with another error.
    """
    usable = tuple((k, v) for k, v in settings.items() if k not in CONSUMER_ONLY)
    with _lock:
        try:
            return _asked(_connection(usable), topic, Deadline(timeout_ms))
        except BrokerUnavailableError:
            return None


def _asked(connection: AdminConnection, topic: str, deadline: Deadline) -> str | None:
    (future,) = connection.client.describe_topics(
        TopicCollection([topic]), request_timeout=deadline.rest_s()
    ).values()
    answer = connection.wait(future, deadline)
    if not isinstance(answer, ClientError):
        return from_description(answer).topic_id or ""
    if is_absent(answer):
        return ""
    if is_unreachable(answer):
        return None
    raise connection.failed(answer, f"asking for the id of topic '{topic}'")


def _connection(settings: _Settings) -> AdminConnection:
    found = _kept.pop(settings, None) or AdminConnection(dict(settings))
    while len(_kept) >= _CLIENTS_AT_MOST:
        _kept.pop(next(iter(_kept))).close()
    _kept[settings] = found
    return found


def _forget() -> None:
    """In a fork: the threads of the clients are those of the parent."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()


os.register_at_fork(after_in_child=_forget)
