"""A Kafka transaction with bounded waits, and errors that name what it was for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from types import TracebackType
from typing import Self, TypeVar

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import DeliveryError, KafkaError
from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.errors import (
    ErrorWatch,
    client_error,
    is_refused,
    is_unreachable,
    translated,
    unreachable,
)
from kafka_tx.kafka.producer import OutRecord, Sender, delivery_error, described

_Answer = TypeVar("_Answer")

_TIMEOUT_MS = "120000"
_WAIT_S = 30.0
_SLICE_S = 0.5
_AGAIN_S = 0.1
_TIMEOUT = "transaction.timeout.ms"
_WITHIN_TIMEOUT = {"delivery.timeout.ms", "message.timeout.ms", "socket.timeout.ms"}
_MOVING = {
    ClientError.NOT_COORDINATOR,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.CONCURRENT_TRANSACTIONS,
    ClientError._TRANSPORT,
    ClientError._TIMED_OUT,
    ClientError._WAIT_COORD,
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
"""The errors of a producer that is fenced, or whose transaction was ended."""


class Transaction:
    """A producer with a transactional id; in a ``with`` statement it fences others.

    Args:
        settings: From ``client_settings(…, purpose="producer")``.
        name: The transactional id.
        what: What is written, for errors.
        reading: From ``client_settings(…, purpose="consumer")``.
        group: Whose offsets are committed with the records.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        name: str,
        what: str,
        reading: Mapping[str, str],
        group: str,
    ) -> None:
        self._name = name
        self._reading = {**reading, "group.id": group}
        self._what = what
        self._settings = {_TIMEOUT: _TIMEOUT_MS, **settings, "transactional.id": name}
        # the client wants it; and what is delivered later would be aborted anyway
        timeout_ms = int(float(self._settings[_TIMEOUT]))
        for given in _WITHIN_TIMEOUT & self._settings.keys():
            shorter_ms = min(int(float(self._settings[given])), timeout_ms)
            self._settings[given] = str(shorter_ms)
        self._sender = Sender(self._settings, min(timeout_ms, int(_TIMEOUT_MS)))

    def __enter__(self) -> Self:
        initialise = self._sender.client.init_transactions
        self._asked(
            f"WRITE on transactional id '{self._name}'",
            lambda: initialise(_SLICE_S),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sender.__exit__(kind, error, trace)

    @property
    def client(self) -> Producer:
        """The producer."""
        return self._sender.client

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Begin; what fails inside aborts."""
        self._sender.client.begin_transaction()
        try:
            yield
        except BaseException:
            self._abort()
            raise

    def send(self, records: Iterable[OutRecord]) -> None:
        """Write records; returns when all are delivered.

        Raises:
            DeliveryError: A record was refused.
            KafkaError: The brokers ended the transaction.
        """
        try:
            self._sender.send(records)
        except DeliveryError as error:
            code = getattr(ClientError, error.code, None)
            if code in _PURGED:
                raise self._purged(error) from error
            if code not in _LOST:
                raise
            raise self._lost(str(error)) from error

    def add_offset(self, offset: ClientPartition) -> None:
        """Let an offset of the group be committed with the records."""
        watch = ErrorWatch(addresses(self._reading))
        with closing(new_consumer(self._reading, watch)) as consumer:
            metadata = consumer.consumer_group_metadata()
        send = self._sender.client.send_offsets_to_transaction
        group = self._reading["group.id"]
        self._asked(
            f"READ on group '{group}' and on topic '{offset.topic}'",
            lambda: send([offset], metadata, _SLICE_S),
        )

    def commit(self) -> None:
        """Commit; if this raises, nobody knows whether it was committed.

        Raises:
            KafkaError: Refused, or not answered in time.
        """
        commit = self._sender.client.commit_transaction
        self._asked(
            f"committing with transactional id '{self._name}'", lambda: commit(_SLICE_S)
        )

    def _abort(self) -> None:
        with suppress(KafkaException):  # the next ``init_transactions`` aborts it
            self._sender.client.purge()
            self._sender.client.abort_transaction(10)

    def _asked(self, what: str, request: Callable[[], _Answer]) -> _Answer:
        """Make a request until it is answered, in time.

        The client goes on with a request that timed out when it is made again.
        """
        deadline = time.monotonic() + _WAIT_S
        watch = self._sender.watch
        while True:
            try:
                return request()
            except KafkaException as exception:
                error = client_error(exception)
                with suppress(
                    KafkaException
                ):  # hands the client's reports to ``watch``
                    self._sender.client.poll(0)
                watch.raise_refusal()
                passes = error.retriable() or error.code() in _MOVING
                if not passes:
                    raise self._failed(error, what) from exception
                if time.monotonic() > deadline:
                    if not is_unreachable(error):
                        raise self._failed(error, what) from exception
                    raise unreachable(what, int(_WAIT_S * 1000), watch) from exception
            time.sleep(_AGAIN_S)

    def _failed(self, error: ClientError, what: str) -> KafkaError:
        if error.code() in _LOST or (error.fatal() and not is_refused(error)):
            return self._lost(f"{what}: {error.str()}")
        return translated(error, f"{self._what}: {what}", self._sender.watch)

    def _purged(self, error: DeliveryError) -> KafkaError:
        """Records are only purged when the transaction failed: ask it why."""
        try:
            # refused, or aborted with the rest
            self.add_offset(ClientPartition(error.topic, 0, 0))
        except KafkaError as why:
            reason = getattr(why.__cause__, "args", (None,))[0]
            if isinstance(reason, ClientError):
                return delivery_error(error.topic, error.key, error.size, reason)
        return error

    def _lost(self, detail: str) -> KafkaError:
        last = self._sender.last
        until = f" Sent last: {described(last)}." if last else ""
        limit = self._settings[_TIMEOUT]
        return KafkaError(
            f"the brokers ended the transaction of {self._what}; nothing of it is"
            f" visible. {detail}.{until} Either it was open for longer than"
            f" 'kafka.{_TIMEOUT}' ({limit} ms): raise it, or write smaller batches; or"
            " another writer of the same part has begun: give each its own tx.id, and"
            " start Spark without 'spark.speculation'.",
            topic=last.topic if last else None,
            key=last.key if last else None,
        )
