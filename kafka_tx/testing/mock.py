"""A Kafka cluster inside this process, and a topic that is filled with records.

For demos and quick tests. The cluster is librdkafka's mock: it listens on real sockets,
so that other processes (Spark's workers) can use it. It keeps about 5 MB or 100,000
records of a partition, knows no topic ids and forgets everything when it is closed.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import create_connection
from threading import Event, Lock, Thread
from typing import Any

import confluent_kafka.cimpl
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.cimpl import NewTopic

from kafka_tx.errors import BrokerUnavailableError, KafkaError
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.clients import addresses
from kafka_tx.kafka.errors import client_error

_PRODUCER = 0
_TEXT_BYTES = 512
_SOON_S = 0.01


class MockCluster:
    """Brokers in a background thread of this process; use it in a ``with`` statement.

    Args:
        brokers: How many; their addresses are ``bootstrap_servers``.
    """

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        configuration = self._library.rd_kafka_conf_new()
        # The client only hosts the cluster: it has no broker, and must not log that.
        self._library.rd_kafka_conf_set(configuration, b"log_level", b"0", None, 0)
        self._client = self._library.rd_kafka_new(
            _PRODUCER, configuration, text, _TEXT_BYTES
        )
        if not self._client:
            raise KafkaError(f"the mock cluster cannot start: {text.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._cluster:
            raise KafkaError(f"a mock cluster of {brokers} brokers cannot start")
        self._producer: Producer | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, separated by commas."""
        found = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return str(found.decode())

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic; one that is used without it gets four partitions.

        Raises:
            KafkaError: The topic exists.
        """
        with self._awake():
            code = self._library.rd_kafka_mock_topic_create(
                self._cluster, name.encode(), partitions, 1
            )
        if code:
            raise KafkaError(f"mock topic '{name}' cannot be created: error {code}")

    @contextmanager
    def _awake(self) -> Iterator[None]:
        """Let a request of this process wait for the cluster no longer than it must.

        Its thread may sleep for a second, and does not always hear of such a request.
        It does hear of connections.
        """
        host, _, port = self.bootstrap_servers.partition(",")[0].rpartition(":")
        is_over = Event()

        def connect() -> None:
            while not is_over.wait(_SOON_S):
                with suppress(OSError):
                    create_connection((host, int(port)), 1).close()

        connecting = Thread(target=connect, name="kafka_tx-mock", daemon=True)
        connecting.start()
        try:
            yield
        finally:
            is_over.set()
            connecting.join()

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int = 0,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Queue one record; ``flush`` sends what is queued."""
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self.bootstrap_servers, "linger.ms": 1}
            )
        more: dict[str, Any] = {"headers": headers} if headers else {}
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key=key,
                    partition=partition,
                    timestamp=timestamp_ms,
                    **more,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                break

    def flush(self) -> None:
        """Wait until every queued record is in the log."""
        if self._producer is not None:
            self._producer.flush(30)

    def stop_broker(self, broker_id: int = 1) -> None:
        """Let a broker (the first is 1) refuse connections, keeping its records."""
        with self._awake():
            self._library.rd_kafka_mock_broker_set_down(self._cluster, broker_id)

    def start_broker(self, broker_id: int = 1) -> None:
        """Let a stopped broker answer again at its old address."""
        with self._awake():
            self._library.rd_kafka_mock_broker_set_up(self._cluster, broker_id)

    def close(self) -> None:
        """Stop the brokers and drop their records. Calling it twice is harmless."""
        self.flush()
        self._producer = None
        if self._cluster:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._client)
            self._cluster = self._client = None

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_POINTER, _TEXT, _NUMBER = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_conf_new": (_POINTER, []),
    "rd_kafka_conf_set": (
        _NUMBER,
        [_POINTER, _TEXT, _TEXT, _TEXT, ctypes.c_size_t],
    ),
    "rd_kafka_new": (_POINTER, [_NUMBER, _POINTER, _TEXT, ctypes.c_size_t]),
    "rd_kafka_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_new": (_POINTER, [_POINTER, _NUMBER]),
    "rd_kafka_mock_cluster_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, [_POINTER]),
    "rd_kafka_mock_topic_create": (_NUMBER, [_POINTER, _TEXT, _NUMBER, _NUMBER]),
    "rd_kafka_mock_broker_set_down": (_NUMBER, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_up": (_NUMBER, [_POINTER, ctypes.c_int32]),
}


def _library() -> ctypes.CDLL:
    """The librdkafka that confluent-kafka brought: the extension is linked to it."""
    library = ctypes.CDLL(confluent_kafka.cimpl.__file__)
    try:
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise KafkaError(
            f"the installed confluent-kafka hides librdkafka's mock cluster ({error});"
            " install the published package of confluent-kafka."
        ) from None
    return library


_REQUEST_MS = 30_000


class Feed:
    """Writes values into one topic, for demos; nothing else may write to it.

    Values go round all partitions. Idempotent, so that a value the brokers confirmed is
    in the log exactly once. One thread sends; any thread may read the counts.

    Args:
        kafka: Options of the clients, without the prefix ``kafka.``.

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
        """Delete the topic with its records; raises as ``create_topic``."""
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
        """Serve delivery reports for up to ``timeout_s``."""
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
