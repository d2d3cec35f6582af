"""Writing records: delivered before the call returns, or an error naming the record.

``Sender`` is at-least-once. ``PartTransaction`` writes one part of one batch in one
Kafka transaction that also commits the txid, so that a replay finds the part done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import DeliveryError, OutOfOrderError
from kafka_tx.kafka.clients import addresses, new_consumer, new_producer
from kafka_tx.kafka.errors import ErrorWatch, translated

Headers = Sequence[tuple[str, bytes | None]]

_POLL_EVERY = 500
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


class Sender:
    """Sends records asynchronously and awaits every delivery (executor).

    Args:
        settings: From ``client_settings(…, purpose="producer")``.
        timeout_ms: The longest wait for one record (librdkafka's
            ``delivery.timeout.ms`` where the user did not set it).
    """

    def __init__(self, settings: Mapping[str, str], timeout_ms: int = 120_000) -> None:
        self._watch = ErrorWatch(addresses(settings))
        given = {"delivery.timeout.ms": str(timeout_ms), **settings}
        self._producer: Producer = new_producer(given, self._watch)
        self._failed: DeliveryError | None = None

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
        count = 0
        for record in records:
            self._send_one(record)
            count += 1
            if count % _POLL_EVERY == 0:
                self._producer.poll(0)
                self._check()
        self.flush()
        return count

    def flush(self) -> None:
        """Wait until everything sent is delivered.

        Raises: as ``send``.
        """
        while self._producer.flush(_WAIT_S):
            self._check()
        self._check()

    @property
    def client(self) -> Producer:
        """The producer, for transactions."""
        return self._producer

    @property
    def watch(self) -> ErrorWatch:
        """What the producer reported."""
        return self._watch

    def _send_one(self, record: OutRecord) -> None:
        more: dict[str, Any] = {}
        if record.partition is not None:
            more["partition"] = record.partition
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        if record.headers:
            more["headers"] = list(record.headers)
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    on_delivery=self._delivered,
                    **more,
                )
            except BufferError:
                self._producer.poll(_WAIT_S)
                self._check()
            except KafkaException as error:
                raise _refused(record, error.args[0]) from error
            else:
                return

    def _delivered(self, error: ClientError | None, message: Message) -> None:
        if error is None:
            return
        record = OutRecord(message.topic() or "", message.key(), message.value())
        failed = _refused(record, error)
        former = self._failed
        # A broker refuses a batch of records as a whole: the largest one is at fault.
        if former is None or (failed.code, -failed.size) < (former.code, -former.size):
            self._failed = failed

    def _check(self) -> None:
        self._watch.raise_refusal()
        if self._failed is not None:
            self._producer.flush(1)  # what failed with it is told with it
            raise self._failed


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of which batch: ``index`` of ``parts``, of the sink's ``id``."""

    id: str
    txid: int
    index: int
    parts: int

    @property
    def name(self) -> str:
        """The transactional id and the group that remembers the txid."""
        return f"kafka_tx.{self.id}.{self.index}"


class PartTransaction:
    """One part, written once (executor).

    1. ``init_transactions`` fences an older writer of the part and aborts what it left.
    2. The txid committed last is read back. It is this one: the part is done, skip.
    3. Records and the txid (as the offset of a group of the part) are committed as one.
    4. An outcome that is not known is resolved by reading the txid again, with a new
       producer, which fences the one in doubt.
    """

    def __init__(self, settings: Mapping[str, str], part: Part, marker: str) -> None:
        self._settings = settings
        self._part = part
        self._marker = ClientPartition(marker, 0)

    def write(self, records: Iterable[OutRecord]) -> bool:
        """Write the records in one transaction; False if they were written before.

        Raises:
            OutOfOrderError: A later txid is committed, or the same one in another
                number of parts.
            DeliveryError, AuthenticationError, KafkaError: Nothing of it is visible.
        """
        with self._begun() as sender:
            if self._is_done():
                return False
            client = sender.client
            client.begin_transaction()
            try:
                sender.send(records)
                self._mark(client)
            except BaseException:
                self._abort(client)
                raise
            return self._committed(sender)

    @contextmanager
    def _begun(self) -> Iterator[Sender]:
        settings = {
            "transaction.timeout.ms": "120000",  # not below the delivery time-out
            **self._settings,
            "transactional.id": self._part.name,
        }
        with Sender(settings) as sender:
            try:
                sender.client.init_transactions(60)
            except KafkaException as error:
                sender.watch.raise_refusal()
                what = f"opening transaction {self._part.name}"
                raise translated(error.args[0], what, sender.watch) from error
            yield sender

    def _is_done(self) -> bool:
        with self._group() as consumer:
            found = consumer.committed([self._marker], timeout=30)[0]
        if found.error is not None or found.offset < 0:
            return False
        part, parts = self._part, int(found.metadata or self._part.parts)
        same = found.offset == part.txid
        if found.offset > part.txid or (same and parts != part.parts):
            raise OutOfOrderError(
                f"part {part.index} of txid {part.txid} of sink '{part.id}' comes after"
                f" txid {found.offset} in {parts} parts. A sink writes each txid once,"
                f" in order, always in the same number of parts (now {part.parts}).",
                id=part.id,
                txid=part.txid,
                committed=found.offset,
            )
        return bool(same)

    def _mark(self, client: Producer) -> None:
        marker = ClientPartition(
            self._marker.topic, 0, self._part.txid, metadata=str(self._part.parts)
        )
        with self._group() as consumer:
            group = consumer.consumer_group_metadata()
            client.send_offsets_to_transaction([marker], group, 30)

    def _committed(self, sender: Sender) -> bool:
        try:
            sender.client.commit_transaction(60)
        except KafkaException as error:
            with self._begun():  # fences the transaction in doubt
                if self._is_done():
                    return True
            what = f"committing txid {self._part.txid} of {self._part.name}"
            raise translated(error.args[0], what, sender.watch) from error
        return True

    def _abort(self, client: Producer) -> None:
        try:
            client.purge()
            client.abort_transaction(30)
        except KafkaException:
            return  # the next ``init_transactions`` aborts it

    @contextmanager
    def _group(self) -> Iterator[Consumer]:
        settings = {
            name: value
            for name, value in self._settings.items()
            if name.startswith(("bootstrap", "security", "sasl", "ssl"))
        }
        settings["group.id"] = self._part.name
        watch = ErrorWatch(addresses(settings))
        consumer = new_consumer(settings, watch)
        try:
            yield consumer
        except KafkaException as error:
            watch.raise_refusal()
            what = f"reading the txid of {self._part.name}"
            raise translated(error.args[0], what, watch) from error
        finally:
            consumer.close()


def _refused(record: OutRecord, error: ClientError) -> DeliveryError:
    size = len(record.key or b"") + len(record.value or b"")
    key = "null" if record.key is None else repr(record.key[:100])
    return DeliveryError(
        f"a record for topic '{record.topic}' with key {key} and {size} bytes was not"
        f" written: {error.str()}",
        topic=record.topic,
        key=record.key,
        size=size,
        code=error.name(),
    )
