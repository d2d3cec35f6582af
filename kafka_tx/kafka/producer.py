"""Writing records: delivered before the call returns, or an error naming the record.

``Sender`` is at-least-once; ``part_transaction`` builds exactly once on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from kafka_tx.errors import DeliveryError, WriteDeniedError
from kafka_tx.kafka.clients import addresses, new_producer
from kafka_tx.kafka.errors import ErrorWatch, is_absent, is_refused, is_unreachable

Headers = Sequence[tuple[str, bytes | None]]

_POLL_EVERY = 500
_CONNECT_S = 1.0
_IN_FLIGHT = 5
"""As many requests as an idempotent producer may have on their way."""
_PASSING = {
    ClientError._MSG_TIMED_OUT,
    ClientError._PURGE_QUEUE,
    ClientError._PURGE_INFLIGHT,
    ClientError.NOT_ENOUGH_REPLICAS,
    ClientError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.KAFKA_STORAGE_ERROR,
}
_WAIT_S = 0.1


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record to write; a partition or timestamp of None is left to Kafka."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


_NOTHING = OutRecord("", None, None)

Told: TypeAlias = Callable[[DeliveryError | None], None]
_Delivered: TypeAlias = Callable[[ClientError | None, Message], None]


class Sender:
    """Sends records asynchronously and awaits every delivery (executor); one thread.

    Args:
        settings: From ``client_settings(…, purpose="producer")``.
        timeout_ms: The longest wait for one record (librdkafka's
            ``delivery.timeout.ms`` where the user did not set it).
    """

    def __init__(self, settings: Mapping[str, str], timeout_ms: int = 120_000) -> None:
        self.settings = settings
        """As they were given."""
        self._watch = ErrorWatch(addresses(settings))
        given = {
            "delivery.timeout.ms": str(timeout_ms),
            "topic.metadata.propagation.max.ms": "5000",  # until a topic is unknown
            "enable.idempotence": _can_be_idempotent(settings),
            **settings,
        }
        self._producer: Producer = new_producer(given, self._watch)
        self._failed: DeliveryError | None = None
        self._sent = 0
        # without a connection, an idempotent producer asks for its id and waits 500 ms
        self._connects_first = (
            given["enable.idempotence"] == "true" and "transactional.id" not in given
        )
        self.last: OutRecord | None = None
        """The record that was handed to the client last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._producer.purge()

    def send(self, records: Iterable[OutRecord]) -> int:
        """Send all; returns their number once every one is delivered.

        Raises:
            DeliveryError: A record was refused; names its topic, key and size.
            AuthenticationError: Credentials, permission or TLS.
        """
        count = self.queue(records)
        self.flush()
        return count

    def queue(self, records: Iterable[OutRecord]) -> int:
        """Hand all to the client, to be delivered by the next ``flush``.

        Raises: as ``send``, also for records that were queued before.
        """
        count = 0
        for record in records:
            self._send_one(record, self._delivered)
            count += 1
        return count

    def post(self, record: OutRecord, told: Told) -> None:
        """Hand one to the client; ``told`` gets its error or None, in a later call.

        Raises:
            DeliveryError: The client itself refuses the record; ``told`` is not called.
            AuthenticationError: as ``send``.
        """

        def delivered(error: ClientError | None, _: Message) -> None:
            told(None if error is None else refused_record(record, error))

        self._send_one(record, delivered)

    def flush(self) -> None:
        """Wait until everything sent is delivered.

        Raises: as ``send``.
        """
        try:
            while self._producer.flush(_WAIT_S):
                self._check()
        except KafkaException as error:  # the producer is lost, with what it holds
            raise refused_record(self.last or _NOTHING, error.args[0]) from error
        self._check()

    @property
    def client(self) -> Producer:
        """The producer, for transactions."""
        return self._producer

    @property
    def watch(self) -> ErrorWatch:
        """What the producer reported."""
        return self._watch

    def _send_one(self, record: OutRecord, delivered: _Delivered) -> None:
        more = _more(record)
        if self._sent == 0 and self._connects_first:
            with suppress(KafkaException):  # told by what is sent
                self._producer.list_topics(record.topic, timeout=_CONNECT_S)
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    on_delivery=delivered,
                    **more,
                )
            except BufferError:
                self._producer.poll(_WAIT_S)
                self._check()
            except KafkaException as error:
                raise refused_record(record, error.args[0]) from error
            else:
                break
        self.last = record
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)
            self._check()

    def _delivered(self, error: ClientError | None, message: Message) -> None:
        if error is None:
            return
        record = OutRecord(message.topic() or "", message.key(), message.value())
        failed = refused_record(record, error)
        former = self._failed
        # A broker refuses a batch of records as a whole: the largest one is at fault.
        if former is None or (failed.code, -failed.size) < (former.code, -former.size):
            self._failed = failed

    def _check(self) -> None:
        self._watch.raise_refusal()
        if self._failed is not None:
            self._producer.flush(1)  # what failed with it is told with it
            raise self._failed


def _can_be_idempotent(settings: Mapping[str, str]) -> str:
    """As the Java client: a retry repeats and reorders nothing, unless set otherwise.

    librdkafka refuses settings that contradict it.
    """
    acks = settings.get("acks") or settings.get("request.required.acks") or "all"
    retries = settings.get("retries") or settings.get("message.send.max.retries", "1")
    in_flight = settings.get("max.in.flight.requests.per.connection")
    in_flight = in_flight or settings.get("max.in.flight", "5")
    is_fifo = settings.get("queuing.strategy", "fifo") == "fifo"
    fits = acks in {"all", "-1"} and int(retries) > 0 and int(in_flight) <= _IN_FLIGHT
    return str(fits and is_fifo).lower()


def _more(record: OutRecord) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if record.partition is not None:
        more["partition"] = record.partition
    if record.timestamp_ms is not None:
        more["timestamp"] = record.timestamp_ms
    if record.headers:
        more["headers"] = list(record.headers)
    return more


def refused_record(record: OutRecord, error: ClientError) -> DeliveryError:
    """The error of one record, for the client's; it may be retried if a broker died."""
    return delivery_error(record.topic, record.key, _size(record), error)


def delivery_error(
    topic: str, key: bytes | None, size: int, error: ClientError
) -> DeliveryError:
    """The same for a record of which only this is known."""
    kind = WriteDeniedError if is_refused(error) else DeliveryError
    return kind(
        f"{_named(topic, key, size)} was not written:"
        f" {error.str()}{_advice(error, topic)}",
        topic=topic,
        key=key,
        size=size,
        code=error.name(),
        retryable=is_unreachable(error) or error.code() in _PASSING,
    )


def described(record: OutRecord) -> str:
    """A record for the text of an error: its topic, its key and its size."""
    return _named(record.topic, record.key, _size(record))


def _named(topic: str, key: bytes | None, size: int) -> str:
    shown = "null" if key is None else repr(key[:100])
    return f"a record for topic '{topic}' with key {shown} and {size} bytes"


def _size(record: OutRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")


def _advice(error: ClientError, topic: str) -> str:
    if error.code() == ClientError.MSG_SIZE_TOO_LARGE:
        return (
            ". Raise 'kafka.max.request.size' here and 'max.message.bytes' of the topic"
        )
    if is_absent(error):
        return ". Create the topic; without permission to describe it, it looks so too"
    if is_refused(error):
        return f". Grant the user WRITE and DESCRIBE on topic '{topic}' (ACLs)"
    return ""
