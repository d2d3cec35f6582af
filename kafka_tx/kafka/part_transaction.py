"""One part of one batch: one Kafka transaction that also commits its txid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import (
    DeliveryError,
    KafkaError,
    OutOfOrderError,
    ReplayDiffersError,
)
from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.errors import ErrorWatch, client_error, translated
from kafka_tx.kafka.parts import Digest, Part, read_marker
from kafka_tx.kafka.producer import OutRecord, Sender, delivery_error, described

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
_PURGED = {ClientError._PURGE_QUEUE, ClientError._PURGE_INFLIGHT}
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


class PartTransaction:
    """One part, written once (executor).

    1. ``init_transactions`` fences an older writer of the part and aborts what it left.
    2. The txid committed last is read back. It is this one: the part is done, and the
       records given are only compared with those that were written.
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
            ReplayDiffersError: The txid is committed with other records.
            DeliveryError, AuthenticationError, KafkaError: Nothing of it is visible.
        """
        with self._begun() as sender:
            done = self._done()
            if done is not None:
                self._compare(done, records)
                return False
            client = sender.client
            client.begin_transaction()
            digest = Digest()
            try:
                self._send(sender, digest.of(records))
                self._mark(sender, digest)
            except BaseException:
                self._abort(client)
                raise
            return self._committed(sender)

    def _compare(self, done: Digest, records: Iterable[OutRecord]) -> None:
        part, now = self._part, Digest()
        for _ in now.of(records):
            pass
        if part.compares and done.rows is not None and now != done:
            raise ReplayDiffersError(
                f"part {part.index} of txid {part.txid} of sink '{part.id}' was written"
                f" with {done.rows} rows, and the replay holds {now.rows} rows, or as"
                " many with other keys or values. Nothing was written now. Either the"
                " plan is not deterministic, or its parallelism was changed, or an"
                " opaque batch was planned anew. Undo that; or compare the topic with"
                " the source, and go on with another tx.id of the sink, which writes"
                " the whole batch again.",
                id=part.id,
                txid=part.txid,
                part=part.index,
            )

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

    def _done(self) -> Digest | None:
        """What is committed for this txid; None: nothing."""
        found = self._committed_marker()
        if found.offset < 0:
            return None
        part = self._part
        parts, digest = read_marker(found.metadata)
        same = found.offset == part.txid
        moved = same and 0 not in (parts, part.parts) and parts != part.parts
        if found.offset > part.txid or moved:
            raise OutOfOrderError(
                f"part {part.index} of txid {part.txid} of sink '{part.id}' comes after"
                f" txid {found.offset} in {parts} parts. A sink writes each txid once,"
                f" in order, always in the same number of parts (now {part.parts}).",
                id=part.id,
                txid=part.txid,
                committed=found.offset,
            )
        return digest if same else None

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
            code = getattr(ClientError, error.code, None)
            if code in _PURGED:
                raise self._purged(sender, error) from error
            if code not in _LOST:
                raise
            raise self._lost(sender, str(error)) from error

    def _purged(self, sender: Sender, error: DeliveryError) -> KafkaError:
        """Records are only purged when the transaction failed: ask it why."""
        try:
            self._mark(sender, Digest())  # refused, or aborted with the rest
        except KafkaError as why:
            reason = getattr(why.__cause__, "args", (None,))[0]
            if isinstance(reason, ClientError):
                return delivery_error(error.topic, error.key, error.size, reason)
        return error

    def _mark(self, sender: Sender, digest: Digest) -> None:
        marker = ClientPartition(
            self._marker.topic,
            0,
            self._part.txid,
            metadata=f"{self._part.parts} {digest}",
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
                if self._done() is not None:
                    return True
            raise
        return True

    def _abort(self, client: Producer) -> None:
        with suppress(KafkaException):  # the next ``init_transactions`` aborts it
            client.purge()
            client.abort_transaction(10)

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
