"""A topic of its own, filled with records and counted as the brokers confirm them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from threading import Lock

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.cimpl import NewTopic

from kafka_tx.errors import BrokerUnavailableError, KafkaError
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.clients import addresses
from kafka_tx.kafka.errors import client_error

_REQUEST_MS = 30_000


class Feed:
    """Writes values into one topic, for demos; nothing else may write to it.

    Idempotent, so that a value the brokers confirmed is in the log exactly once. One
    thread sends; any thread may look at the counts.

    Args:
        kafka: Options of the clients, without the prefix ``kafka.``.
        topic: Its name; ``create_topic`` makes it.
        partitions: Values go round all of them.

    Raises:
        ConfigError: An option cannot be used.
    """

    def __init__(self, kafka: Mapping[str, str], topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        settings = client_settings(kafka, purpose="producer")
        self._addresses = addresses(settings)
        self._admin = AdminConnection(client_settings(kafka, purpose="admin"))
        self._producer = Producer(
            {**settings, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._lock = Lock()
        self._confirmed: Counter[str] = Counter()
        self._total = 0
        self._sent = 0
        self._failure: ClientError | None = None

    @property
    def confirmed(self) -> int:
        """How many records are in the log for certain."""
        return self._total

    def counts(self) -> Counter[str]:
        """How often each value was confirmed."""
        with self._lock:
            return Counter(self._confirmed)

    def create_topic(self) -> None:
        """Create the topic with one replica of each partition.

        Raises:
            KafkaError: It exists, or a broker refuses.
            BrokerUnavailableError: No broker answered in time.
            AuthenticationError: Credentials, permission or TLS.
        """
        deadline = Deadline(_REQUEST_MS)
        self._admin.metadata(deadline)
        new = NewTopic(self.topic, self.partitions, 1)
        (future,) = self._admin.client.create_topics([new]).values()
        answer = self._admin.wait(future, deadline)
        if isinstance(answer, ClientError):
            raise self._admin.failed(answer, f"topic '{self.topic}'")

    def delete_topic(self) -> None:
        """Delete the topic with its records.

        Raises: as ``create_topic``.
        """
        (future,) = self._admin.client.delete_topics([self.topic]).values()
        answer = self._admin.wait(future, Deadline(_REQUEST_MS))
        if isinstance(answer, ClientError):
            raise self._admin.failed(answer, f"topic '{self.topic}'")

    def send(self, value: str) -> None:
        """Queue one record; waits while the queue is full.

        Raises:
            KafkaError: It or an earlier one was refused.
        """
        while True:
            self._check()
            try:
                self._producer.produce(
                    self.topic,
                    value.encode(),
                    partition=self._sent % self.partitions,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as exception:
                self._failure = client_error(exception)
            else:
                self._sent += 1
                return

    def poll(self, timeout_s: float) -> None:
        """Let confirmations in, for so long at most."""
        self._producer.poll(timeout_s)

    def flush(self) -> None:
        """Wait until everything that was sent is confirmed.

        Raises:
            BrokerUnavailableError: Something is not confirmed after 30 s.
            KafkaError: A record was refused.
        """
        deadline = time.monotonic() + _REQUEST_MS / 1000
        while self._producer.flush(0.5):
            self._check()
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"{self._sent - self._total} records were sent to"
                    f" {self._addresses} and not confirmed within"
                    f" {_REQUEST_MS // 1000} s",
                    addresses=self._addresses,
                )
        self._check()

    def _delivered(self, error: ClientError | None, message: Message) -> None:
        if error is not None:
            self._failure = error
            return
        value = message.value()
        assert isinstance(value, bytes)
        with self._lock:
            self._confirmed[value.decode()] += 1
            self._total += 1

    def _check(self) -> None:
        if self._failure is not None:
            raise KafkaError(
                f"{self._addresses} refused a record for topic '{self.topic}':"
                f" {self._failure.str()}",
                topic=self.topic,
            )
