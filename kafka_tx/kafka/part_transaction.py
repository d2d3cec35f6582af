"""One part of one batch: one Kafka transaction that also commits its txid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import DeliveryError, KafkaError, OutOfOrderError
from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.errors import ErrorWatch, client_error, translated
from kafka_tx.kafka.producer import OutRecord, Sender, described

_Answer = TypeVar("_Answer")

_TIMEOUT_MS = "120000"
_WAIT_S = 60.0
_AGAIN_S = 0.1
_TIMEOUT = "transaction.timeout.ms"
_MOVING = {
    ClientError.NOT_COORDINATOR,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.UNSTABLE_OFFSET_COMMIT,
    ClientError._TRANSPORT,
}
_LOST = {
    ClientError._FENCED,
    ClientError._FATAL,
    ClientError._STATE,
    ClientError.INVALID_TXN_STATE,
    ClientError.INVALID_PRODUCER_EPOCH,
    ClientError.PRODUCER_FENCED,
    ClientError.INVALID_PRODUCER_ID_MAPPING,
}
"""What a producer is told that is fenced, or whose transaction is ended."""


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of which batch: ``index`` of ``parts``, of the sink's ``id``.

    Attributes:
        life: What the txids are counted in where that is less than the sink's life:
            the id of Spark's query, whose batch ids start again with a new checkpoint.
    """

    id: str
    txid: int
    index: int
    parts: int
    life: str = ""

    @property
    def name(self) -> str:
        """The transactional id: a new writer of the part fences every older one."""
        return f"kafka_tx.{self.id}.{self.index}"

    @property
    def group(self) -> str:
        """The consumer group that remembers the txid."""
        return f"{self.name}.{self.life}" if self.life else self.name


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
                self._send(sender, records)
                self._mark(sender)
            except BaseException:
                self._abort(client)
                raise
            return self._committed(sender)

    @contextmanager
    def _begun(self) -> Iterator[Sender]:
        settings = {
            _TIMEOUT: _TIMEOUT_MS,
            **self._settings,
            "transactional.id": self._part.name,
        }
        # the client wants it; and what is delivered later would be aborted anyway
        timeout_ms = int(float(settings[_TIMEOUT]))
        with Sender(settings, min(timeout_ms, int(_TIMEOUT_MS))) as sender:
            what = f"opening transaction {self._part.name}"
            self._asked(sender, what, lambda: sender.client.init_transactions(_WAIT_S))
            yield sender

    def _is_done(self) -> bool:
        found = self._committed_marker()
        if found.offset < 0:
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

    def _committed_marker(self) -> ClientPartition:
        with self._group() as consumer:

            def look() -> ClientPartition:
                found = consumer.committed([self._marker], timeout=_WAIT_S)[0]
                if found.error is not None:
                    raise KafkaException(found.error)
                return found

            return _patiently(look)

    def _send(self, sender: Sender, records: Iterable[OutRecord]) -> None:
        try:
            sender.send(records)
        except DeliveryError as error:
            if getattr(ClientError, error.code, None) not in _LOST:
                raise
            raise self._lost(sender, str(error)) from error

    def _mark(self, sender: Sender) -> None:
        marker = ClientPartition(
            self._marker.topic, 0, self._part.txid, metadata=str(self._part.parts)
        )
        with self._group() as consumer:
            group = consumer.consumer_group_metadata()
        what = f"adding txid {self._part.txid} to transaction {self._part.name}"
        send = sender.client.send_offsets_to_transaction
        self._asked(sender, what, lambda: send([marker], group, 30))

    def _committed(self, sender: Sender) -> bool:
        what = f"committing txid {self._part.txid} of {self._part.name}"
        try:
            self._asked(sender, what, lambda: sender.client.commit_transaction(_WAIT_S))
        except KafkaError:
            with self._begun():  # fences the transaction in doubt
                if self._is_done():
                    return True
            raise
        return True

    def _abort(self, client: Producer) -> None:
        with suppress(KafkaException):  # the next ``init_transactions`` aborts it
            client.purge()
            client.abort_transaction(30)

    def _asked(
        self, sender: Sender, what: str, request: Callable[[], _Answer]
    ) -> _Answer:
        """Make a request of the transaction, with our errors."""
        try:
            return _patiently(request)
        except KafkaException as exception:
            sender.watch.raise_refusal()
            error = client_error(exception)
            if error.code() in _LOST or error.fatal():
                raise self._lost(sender, f"{what}: {error.str()}") from exception
            raise translated(error, what, sender.watch) from exception

    def _lost(self, sender: Sender, detail: str) -> KafkaError:
        part, last = self._part, sender.last
        until = f" Sent last: {described(last)}." if last else ""
        limit = self._settings.get(_TIMEOUT, _TIMEOUT_MS)
        return KafkaError(
            f"the brokers ended the transaction of part {part.index} of txid"
            f" {part.txid} of sink '{part.id}'; nothing of it is visible. {detail}."
            f"{until} Either it was open for longer than 'kafka.{_TIMEOUT}' ({limit}"
            " ms): raise it, or write smaller batches; or another writer of the same"
            " part has begun: give each its own tx.id.",
            id=part.id,
            txid=part.txid,
            topic=last.topic if last else None,
            key=last.key if last else None,
        )

    @contextmanager
    def _group(self) -> Iterator[Consumer]:
        settings = {
            name: value
            for name, value in self._settings.items()
            if name.startswith(("bootstrap", "security", "sasl", "ssl"))
        }
        settings["group.id"] = self._part.group
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


def _patiently(request: Callable[[], _Answer]) -> _Answer:
    """Ask again while a coordinator moves from one broker to another."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return request()
        except KafkaException as exception:
            error = client_error(exception)
            passes = error.retriable() or error.code() in _MOVING
            if not passes or time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_S)
