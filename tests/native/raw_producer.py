"""Records as no Python producer makes them: header keys that are no text."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import confluent_kafka.cimpl

_END, _TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADERS = 0, 1, 3, 4, 7, 10
_COPY, _PRODUCER = 2, 0

Header = tuple[bytes, bytes | None]


class RawProducer:
    """A producer by librdkafka's own interface; ``close`` it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._library = ctypes.CDLL(confluent_kafka.cimpl.__file__)
        for name in ("conf_new", "new", "headers_new"):
            getattr(self._library, f"rd_kafka_{name}").restype = ctypes.c_void_p
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._library.rd_kafka_conf_set(
            conf, b"bootstrap.servers", bootstrap_servers.encode(), None, 0
        )
        made = self._library.rd_kafka_new(_PRODUCER, conf, None, 0)
        self._client = ctypes.c_void_p(made)

    def produce(self, topic: str, headers: Sequence[Header]) -> None:
        """Append one record to partition 0 and wait until it is in the log."""
        raw = ctypes.c_void_p(self._library.rd_kafka_headers_new(len(headers)))
        for key, value in headers:
            self._library.rd_kafka_header_add(
                raw,
                key,
                ctypes.c_ssize_t(len(key)),
                value,
                ctypes.c_ssize_t(len(value or b"")),
            )
        name = ctypes.c_char_p(topic.encode())
        code = self._library.rd_kafka_producev(
            *(self._client, _TOPIC, name, _PARTITION, ctypes.c_int32(0)),
            *(_VALUE, ctypes.c_char_p(b"v"), ctypes.c_size_t(1), _FLAGS, _COPY),
            *(_HEADERS, raw, _END),
        )
        assert code == 0
        assert self._library.rd_kafka_flush(self._client, 10_000) == 0

    def close(self) -> None:
        """Release the client."""
        self._library.rd_kafka_destroy(self._client)
