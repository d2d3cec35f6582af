"""A Kafka cluster inside this process, for demos and quick tests: librdkafka's mock.

It listens on real sockets, so that other processes (Spark's workers) can use it. It
keeps about 5 MB or 100,000 records of a partition, knows no topic ids and forgets
everything when it is closed.
"""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any

import confluent_kafka.cimpl
from confluent_kafka import Producer

from kafka_tx.errors import KafkaError

_PRODUCER = 0
_TEXT_BYTES = 512


class MockCluster:
    """Brokers in a background thread of this process; use it in a ``with`` statement.

    Args:
        brokers: How many; their addresses are ``bootstrap_servers``.
    """

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        configuration = self._library.rd_kafka_conf_new()
        # the client only carries the cluster: it has no broker and must not say so
        _set(self._library, configuration, b"log_level", b"0")
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
        code = self._library.rd_kafka_mock_topic_create(
            self._cluster, name.encode(), partitions, 1
        )
        if code:
            raise KafkaError(f"mock topic '{name}' cannot be created: error {code}")

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
        self._library.rd_kafka_mock_broker_set_down(self._cluster, broker_id)

    def start_broker(self, broker_id: int = 1) -> None:
        """Let a stopped broker answer again at its old address."""
        self._library.rd_kafka_mock_broker_set_up(self._cluster, broker_id)

    def close(self) -> None:
        """Stop the brokers and forget their records. Calling it twice is harmless."""
        self.flush()
        self._producer = None
        if self._cluster:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._client)
            self._cluster = self._client = None

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _set(library: ctypes.CDLL, configuration: int, name: bytes, value: bytes) -> None:
    library.rd_kafka_conf_set(configuration, name, value, None, 0)


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
