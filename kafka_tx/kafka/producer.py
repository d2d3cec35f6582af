"""A client that writes records and reports the result of each one.

``sender`` writes at least once with it, ``transaction`` exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import DeliveryError, WriteDeniedError
from kafka_tx.kafka.clients import addresses, new_consumer, new_producer
from kafka_tx.kafka.errors import (
    ErrorWatch,
    client_error,
    is_absent,
    is_refused,
    is_unreachable,
)
from kafka_tx.kafka.out_record import OutRecord, checked_headers
from kafka_tx.sinks.batch_sizes import SentRecord

if TYPE_CHECKING:
    from kafka_tx.kafka.out_batch import OutBatch

_RECORDS_PER_POLL = 500
CONNECT_S = 1.0
_IN_FLIGHT = 5
"""The most in-flight requests of an idempotent producer."""
PURGED = {ClientError._PURGE_QUEUE, ClientError._PURGE_INFLIGHT}
_PASSING = PURGED | {
    ClientError._MSG_TIMED_OUT,
    ClientError.NOT_ENOUGH_REPLICAS,
    ClientError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.KAFKA_STORAGE_ERROR,
}
_DENIED = {
    ClientError.TOPIC_AUTHORIZATION_FAILED,
    ClientError.CLUSTER_AUTHORIZATION_FAILED,
}
_TOO_LARGE = {ClientError.MSG_SIZE_TOO_LARGE, ClientError.RECORD_LIST_TOO_LARGE}
_SAID = {ClientError.INVALID_RECORD, ClientError.INVALID_TIMESTAMP}
_BY_ONE = {*_SAID, ClientError._INVALID_DIFFERENT_RECORD}
"""A whole batch is refused for what is wrong with one of its records."""
SUSPECT = tuple(_TOO_LARGE | _BY_ONE)
"""A whole batch may be refused with these, innocent records included."""
WAIT_S = 0.1
"""In a wait of 0.2 s or more, confluent-kafka goes on after a fatal error: it may then
raise an object that is no exception, which ends the process."""
TIMEOUT_MS = 120_000

Tell: TypeAlias = Callable[[DeliveryError | None], None]
"""Gets a record's error, or None when it is delivered."""
Delivered: TypeAlias = Callable[[ClientError | None, Message], None]
Check: TypeAlias = Callable[[], None]
"""Called while a client waits; what it raises ends the waiting."""


class ProducerClient:
    """One producer of the client's library, for one thread.

    Args:
        settings: From ``client_settings(…, purpose="producer")``.
        deliveries: Receives reports of records without a callback of their own.
        timeout_ms: ``delivery.timeout.ms``, unless the settings have one.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        deliveries: Deliveries,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.watch = ErrorWatch(addresses(settings))
        """The reports of the producer."""
        given = with_defaults(settings, timeout_ms)
        self.producer: Producer = new_producer(given, self.watch)
        """The library's own object."""
        self._deliveries = deliveries
        self._fatal: ClientError | None = None
        self._sent = 0
        self._connects_first = connects_first(given)
        self.last: OutRecord | None = None
        """The record that was handed to the client last."""

    def write(self, batch: OutBatch, check: Check) -> int:
        """Hand over records until one is refused; return how many. As ``produce``."""
        for count, record in enumerate(batch.records(), 1):
            self.produce(record, check)
            if self._deliveries.since_refusal:
                return count
        return len(batch)

    def produce(
        self, record: OutRecord, check: Check, delivered: Delivered | None = None
    ) -> None:
        """Hand over one record; its result is reported in a later call.

        ``delivered`` gets the report instead of ``deliveries``. A DeliveryError is the
        client's own refusal; no other report follows.
        """
        more = _more(record)
        if self._sent == 0 and self._connects_first:
            # the first send reports the same error
            with suppress(KafkaException, RuntimeError):
                self.producer.list_topics(record.topic, timeout=CONNECT_S)
        while True:
            try:
                self.producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    on_delivery=delivered or self._deliveries.of(record),
                    **more,
                )
            except BufferError:
                self._serve(self.producer.poll, WAIT_S)
                check()
            except KafkaException as error:
                self._serve(self.producer.poll, 0)  # may be the first to learn of it
                why = self._deliveries.cause(client_error(error))
                raise refused_here(record, why) from error
            else:
                break
        self.last = record
        self._sent += 1
        if self._sent % _RECORDS_PER_POLL == 0:
            self._serve(self.producer.poll, 0)
            check()

    def flush(self, check: Check) -> None:
        """Wait until everything sent is delivered or refused.

        Raises:
            DeliveryError: The producer and the records in it are lost.
        """
        while self._serve(self.producer.flush, WAIT_S):
            self._raise_fatal()
            check()
        self._raise_fatal()

    def flush_for(self, seconds: float) -> None:
        """As ``flush`` for a short time, whatever is left."""
        until = time.monotonic() + seconds
        while self._serve(self.producer.flush, WAIT_S) and time.monotonic() < until:
            pass

    def poll(self) -> None:
        """Report known results, without waiting; raises as ``flush``."""
        self._serve(self.producer.poll, 0)
        self._raise_fatal()

    def _serve(self, wait: Callable[[float], int], seconds: float) -> int:
        """Let the client call back; remember the error that ends it, told only once."""
        try:
            return wait(seconds)
        except KafkaException as error:
            self._fatal = client_error(error)
            if self._fatal.code() in _DENIED:
                self._deliveries.denied = self._fatal
            return len(self.producer)

    def _raise_fatal(self) -> None:
        if self._fatal is not None and self.last is not None:
            raise refused_record(self.last, self._fatal)

    def purge(self) -> None:
        """Drop undelivered records."""
        self.producer.purge()

    def __len__(self) -> int:
        """The number of in-flight records."""
        return len(self.producer)

    # --- transactions: what raises is the client's ``KafkaException``

    def init_transactions(self, seconds: float) -> None:
        """Fence an older producer of the transactional id."""
        self.producer.init_transactions(seconds)

    def begin_transaction(self) -> None:
        """Begin."""
        self.producer.begin_transaction()

    def commit_transaction(self, seconds: float) -> None:
        """Commit."""
        self.producer.commit_transaction(seconds)

    def abort_transaction(self, seconds: float) -> None:
        """Abort."""
        self.producer.abort_transaction(seconds)

    def offset_sender(
        self, reading: Mapping[str, str]
    ) -> Callable[[ClientPartition, float], None]:
        """A function that commits an offset of a group with the records, in seconds.

        ``reading`` are the settings of a consumer of the group.
        """
        watch = ErrorWatch(addresses(reading))
        with closing(new_consumer(reading, watch)) as consumer:
            metadata = consumer.consumer_group_metadata()
        send = self.producer.send_offsets_to_transaction
        return lambda offset, seconds: send([offset], metadata, seconds)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The client's report of one record.

    ``error`` is None if the record is delivered. ``tell`` is called with the outcome.
    """

    record: OutRecord
    partition: int
    error: ClientError | None
    tell: Tell | None = None

    def sizes(self) -> SentRecord:
        """The sizes of the record, for ``batch_sizes``."""
        headers = self.record.headers or ()
        of_headers = sum(len(k.encode()) + len(v or b"") for k, v in headers)
        size = _size(self.record) + of_headers
        return SentRecord(self.partition, size, len(headers), self.error is not None)


class Deliveries:
    """All reports of clients since the first refused batch, and the worst failure.

    It is the ``on_delivery`` of records without a callback of their own.
    """

    def __init__(self) -> None:
        self.since_refusal: list[Delivery] = []
        """All deliveries from the first record of a refused batch on."""
        self.failed: DeliveryError | None = None
        """Of a record that was not written for another reason."""
        self.denied: ClientError | None = None
        """Why brokers ended a client: it drops its records and takes no more."""

    def __call__(self, error: ClientError | None, message: Message) -> None:
        """The client calls this inside its own calls."""
        self._received(None, error, message)

    def of(self, record: OutRecord) -> Delivered:
        """A callback that knows the record: the message lacks headers and time."""
        if not record.headers and record.timestamp_ms is None:
            return self
        return partial(self._received, record)

    def _received(
        self, sent: OutRecord | None, error: ClientError | None, message: Message
    ) -> None:
        if error is None and not self.since_refusal:
            return
        if error is None or is_whole(error):
            self.since_refusal.append(
                _delivery(sent or _record(message), error, message)
            )
        else:
            self.fail(refused_record(sent or _record(message), self.cause(error)))

    def cause(self, error: ClientError) -> ClientError:
        """The right that a client lacks, if it dropped or took no record for that."""
        is_its_end = error.code() in {ClientError._FATAL, *PURGED}
        return self.denied if self.denied is not None and is_its_end else error

    def add(self, one: Delivery) -> None:
        """Take the report of a record that has its own callback."""
        if one.error is not None or self.since_refusal:
            self.since_refusal.append(one)

    def fail(self, failed: DeliveryError) -> None:
        """Record a failure; of several of one kind, that of the largest record."""
        former = self.failed
        if former is None or (failed.code, -failed.size) < (former.code, -former.size):
            self.failed = failed

    def take(self) -> list[Delivery]:
        """Take out everything recorded so far."""
        taken, self.since_refusal = self.since_refusal, []
        return taken


def is_whole(error: ClientError) -> bool:
    """Whether a whole batch may be refused with this, innocent records included."""
    return error.code() in SUSPECT


def is_too_large(error: ClientError) -> bool:
    """Whether a record or batch is refused for its size."""
    return error.code() in _TOO_LARGE


def is_guilty(one: Delivery) -> bool:
    """Whether a broker names this record as the cause of the refusal."""
    return one.error is not None and one.error.code() in _SAID


def _delivery(
    record: OutRecord, error: ClientError | None, message: Message
) -> Delivery:
    """A record that is sent again goes to the partition that was chosen."""
    partition = message.partition()
    chosen = -1 if partition is None else partition
    again = replace(record, partition=chosen if chosen >= 0 else None)
    return Delivery(again, chosen, error)


def _record(message: Message) -> OutRecord:
    """The record, without headers and at the time of writing."""
    return OutRecord(message.topic() or "", message.key(), message.value())


def with_defaults(settings: Mapping[str, str], timeout_ms: int) -> dict[str, str]:
    """The settings of a producer, completed with defaults."""
    return {
        "delivery.timeout.ms": str(timeout_ms),
        "topic.metadata.propagation.max.ms": "5000",  # until a topic is unknown
        "enable.idempotence": _can_be_idempotent(settings),
        **settings,
    }


def connects_first(given: Mapping[str, str]) -> bool:
    """Whether a producer asks for its first topic before it sends.

    Without a connection, an idempotent one asks for its id and waits 500 ms.
    """
    return given["enable.idempotence"] == "true" and "transactional.id" not in given


def _can_be_idempotent(settings: Mapping[str, str]) -> str:
    """As the Java client: retries repeat and reorder nothing, if settings allow it."""
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
        more["headers"] = list(checked_headers(record.headers) or ())
    return more


def refused_here(record: OutRecord, error: ClientError) -> DeliveryError:
    """The error of a record that the client refuses before it is sent."""
    return refused_record(record, error, is_own=error.code() in _TOO_LARGE)


def refused_record(
    record: OutRecord,
    error: ClientError,
    *,
    limit: int | None = None,
    is_own: bool = False,
) -> DeliveryError:
    """The error of one record, for the client's; it may be retried if a broker died.

    ``limit``: most bytes that the topic accepts. ``is_own``: this client refused it.
    """
    size = _size(record)
    advice = _advice(error, record.topic, limit, is_own=is_own)
    return delivery_error(record.topic, record.key, size, error, advice, is_own=is_own)


def delivery_error(
    topic: str,
    key: bytes | None,
    size: int,
    error: ClientError,
    advice: str | None = None,
    *,
    is_own: bool = False,
) -> DeliveryError:
    """The same for a record of which only this is known."""
    kind = WriteDeniedError if is_refused(error) else DeliveryError
    advice = _advice(error, topic, None) if advice is None else advice
    advice = advice or _advice_for_one(error, topic, has_key=key is not None)
    return kind(
        f"{_named(topic, key, size)} was not written: {error.str()}{advice}",
        topic=topic,
        key=key,
        size=size,
        code=error.name(),
        is_own=is_own,
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


def _advice(
    error: ClientError, topic: str, limit: int | None, *, is_own: bool = False
) -> str:
    if is_own:
        return (
            ". It is larger than 'kafka.max.request.size' or 'kafka.buffer.memory' lets"
            " this client send: raise both above the record; 'max.message.bytes' of"
            f" topic '{topic}' must be as large"
        )
    if is_too_large(error):
        takes = f" takes {limit} bytes" if limit else " takes less"
        return (
            f", alone in its batch: the topic '{topic}'{takes}. Raise the topic's"
            " 'max.message.bytes' above the record with its headers, or write smaller"
            " records; no setting of this client helps"
        )
    if error.code() == ClientError._UNKNOWN_PARTITION:
        return (
            f". Topic '{topic}' has fewer partitions than the number that the record"
            " names, which counts from 0: correct it, or leave it to Kafka (null)"
        )
    if is_absent(error):
        return ". Create the topic; without permission to describe it, it looks so too"
    if is_refused(error):
        return f". Grant the user WRITE and DESCRIBE on topic '{topic}' (ACLs)"
    return ""


def _advice_for_one(error: ClientError, topic: str, *, has_key: bool) -> str:
    """What is likely wrong with a record that brokers refuse on its own.

    Their words about it never arrive: librdkafka frees them before it reports.
    """
    if error.code() == ClientError.INVALID_RECORD and not has_key:
        return (
            f". It has no key, and a compacted topic takes none without: see"
            f" 'cleanup.policy' of topic '{topic}'. Give each record a key, or write to"
            " a topic that is not compacted"
        )
    if error.code() == ClientError.INVALID_TIMESTAMP:
        return (
            ". Its time is too far from the broker's clock: see"
            " 'message.timestamp.before.max.ms' and 'message.timestamp.after.max.ms'"
            f" (an hour by default) of topic '{topic}'. Correct the record's timestamp,"
            " or raise the setting"
        )
    return ""
