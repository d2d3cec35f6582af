"""A Kafka transaction with bounded waits, and errors that name what it was for."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Self, TypeVar

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import DeliveryError, KafkaError
from kafka_tx.kafka.errors import (
    client_error,
    is_refused,
    is_unreachable,
    translated,
    unreachable,
)
from kafka_tx.kafka.native_producer import new_client
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.producer import (
    PURGED,
    Deliveries,
    Delivery,
    delivery_error,
    described,
    is_guilty,
    refused_record,
)
from kafka_tx.kafka.topic_limits import sizes_for
from kafka_tx.model import TopicPartition

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


class BatchRefusedError(DeliveryError):
    """A topic takes only smaller batches; nothing of the transaction is visible.

    The next transaction to that topic is sent in smaller ones.
    """

    retryable = True


class Transaction:
    """A producer with a transactional id; in a ``with`` statement it fences others.

    All topics are written in batches that each of them takes. A refused one ends the
    transaction: missing records cannot be sent again in it.

    Args:
        settings: From ``client_settings(…, purpose="producer")``.
        name: The transactional id.
        what: Names the written records in errors.
        reading: From ``client_settings(…, purpose="consumer")``.
        group: Its offsets are committed with the records.
        topics: Topics whose limits matter; later ones are added.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        name: str,
        what: str,
        reading: Mapping[str, str],
        group: str,
        topics: set[str] | None = None,
    ) -> None:
        self._name = name
        self._reading = {**reading, "group.id": group}
        self._what = what
        fixed = {"transactional.id": name, "allow.auto.create.topics": "false"}
        # brokers would make a topic of markers that loses them
        self._settings = {_TIMEOUT: _TIMEOUT_MS, **settings, **fixed}
        # The client requires it; records delivered later would be aborted anyway.
        timeout_ms = int(float(self._settings[_TIMEOUT]))
        for given in _WITHIN_TIMEOUT & self._settings.keys():
            given_ms = int(float(self._settings[given]))
            # 0: without limit
            shorter_ms = min(given_ms, timeout_ms) if given_ms > 0 else timeout_ms
            self._settings[given] = str(shorter_ms)
        self._sizes = sizes_for(settings)
        self._topics = set() if topics is None else topics
        known = [self._sizes.of(topic).size for topic in self._topics]
        self._at = min([*known, self._sizes.largest])
        self._settings["batch.size"] = str(self._at)
        self._deliveries = Deliveries()
        self.client = new_client(
            self._settings, self._deliveries, min(timeout_ms, int(_TIMEOUT_MS))
        )

    def __enter__(self) -> Self:
        initialise = self.client.init_transactions
        self._asked(
            f"WRITE on transactional id '{self._name}'", lambda: initialise(_SLICE_S)
        )
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        if error is not None:
            self.client.purge()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Begin; an error inside aborts."""
        self.client.begin_transaction()
        try:
            yield
        except BaseException:
            self._abort()
            raise

    def send(
        self, records: Iterable[OutRecord | OutBatch], *, is_small: bool = False
    ) -> None:
        """Write records; returns when all are delivered.

        ``is_small``: any topic takes them, so its limit need not be known.

        Raises:
            BatchRefusedError: Begin again, with another transaction.
            DeliveryError: A record was refused.
            KafkaError: The brokers ended the transaction.
        """
        try:
            for some in records:
                if isinstance(some, OutBatch):
                    self._write(some)
                    continue
                if not is_small:
                    self._meet(some.topic, some)
                self.client.produce(some, self._check)
            self.client.flush(self._check)
            self._check()
        except DeliveryError as error:
            reason = self._reason(error)
            if reason is error:
                raise
            raise reason from error

    def add_offset(self, offset: ClientPartition) -> None:
        """Let an offset of the group be committed with the records."""
        send = self.client.offset_sender(self._reading)
        group = self._reading["group.id"]
        self._asked(
            f"READ on group '{group}' and on topic '{offset.topic}'",
            lambda: send(offset, _SLICE_S),
        )

    def add_position(
        self, at: TopicPartition, next_offset: int, metadata: str = ""
    ) -> None:
        """Let the group's next offset of a partition be committed with the records."""
        self.add_offset(
            ClientPartition(at.topic, at.partition, next_offset, metadata=metadata)
        )

    def commit(self) -> None:
        """Commit. After an error, which is a KafkaError, the outcome is unknown."""
        commit = self.client.commit_transaction
        self._asked(
            f"committing with transactional id '{self._name}' (whether it was committed"
            " is not known)",
            lambda: commit(_SLICE_S),
            may_be_visible=True,
        )

    def _abort(self) -> None:
        with suppress(KafkaException):  # the next ``init_transactions`` aborts it
            self.client.purge()
            self.client.abort_transaction(10)

    def _write(self, batch: OutBatch) -> None:
        for topic in batch.topics if len(batch) else ():
            self._meet(topic, batch)
        done = 0
        while done < len(batch):
            done += self.client.write(batch.rest(done), self._check)
            self._check()

    def _meet(self, topic: str, written: OutRecord | OutBatch) -> None:
        """Add a topic to this producer: its batches may have to be smaller."""
        if topic in self._topics:
            return
        self._topics.add(topic)
        if self._sizes.of(topic).size < self._at:
            if isinstance(written, OutBatch):
                written = written.only({topic}).record(0)
            raise self._refused(written)

    def _check(self) -> None:
        self.client.watch.raise_refusal()
        failed, refused = self._deliveries.failed, self._deliveries.since_refusal
        if failed is not None:
            raise failed
        if refused:
            raise self._refused(refused[0].record)

    def _refused(self, record: OutRecord) -> BatchRefusedError:
        return BatchRefusedError(
            f"{self._what}: a batch with {described(record)} is larger than its topic"
            " takes; nothing of it is visible. It is written again in smaller batches.",
            topic=record.topic,
            key=record.key,
            size=0,
            code="MSG_SIZE_TOO_LARGE",
        )

    def _reason(self, error: DeliveryError) -> KafkaError:
        """Why a record was not delivered: another record may be the cause."""
        self.client.flush_for(1)  # reports other failed records, too
        refused = [one for one in self._deliveries.take() if one.error is not None]
        if refused:
            return self._judged(refused)
        code = getattr(ClientError, error.code, None)
        if code in PURGED:
            return self._purged(error)
        return self._lost(str(error)) if code in _LOST else error

    def _judged(self, refused: list[Delivery]) -> DeliveryError:
        """Whether smaller batches would be taken, and if not, which record is not."""
        guilty = [one for one in refused if is_guilty(one)]
        topics: defaultdict[str, list[Delivery]] = defaultdict(list)
        for one in () if guilty else refused:
            topics[one.record.topic].append(one)
        limit = None
        for topic, deliveries in topics.items():
            size, verdict = self._sizes.settle(topic, deliveries, self._at)
            guilty += [deliveries[place] for place in verdict.alone]
            limit = size.limit if verdict.alone else limit
        for one in guilty:
            if one.error is not None:
                return refused_record(one.record, one.error, limit=limit)
        return self._refused(refused[0].record)

    def _asked(
        self, what: str, request: Callable[[], _Answer], *, may_be_visible: bool = False
    ) -> _Answer:
        """Make a request until it is answered, in time; the client goes on with it."""
        deadline = time.monotonic() + _WAIT_S
        watch = self.client.watch
        while True:
            try:
                return request()
            except KafkaException as exception:
                error = client_error(exception)
                with suppress(DeliveryError):
                    self.client.poll()  # hands the client's reports to ``watch``
                watch.raise_refusal()
                passes = error.retriable() or error.code() in _MOVING
                if not passes:
                    raise self._failed(error, what, may_be_visible) from exception
                if time.monotonic() > deadline:
                    if not is_unreachable(error):
                        raise self._failed(error, what, may_be_visible) from exception
                    raise unreachable(what, int(_WAIT_S * 1000), watch) from exception
            time.sleep(_AGAIN_S)

    def _failed(
        self, error: ClientError, what: str, may_be_visible: bool
    ) -> KafkaError:
        if error.code() in _LOST or (error.fatal() and not is_refused(error)):
            detail = f"{what}: {error.str()}"
            return self._lost(detail, may_be_visible=may_be_visible)
        return translated(error, f"{self._what}: {what}", self.client.watch)

    def _purged(self, error: DeliveryError) -> KafkaError:
        """Records are only purged when the transaction failed: ask it why."""
        try:
            # refused, or aborted with the rest
            self.add_offset(ClientPartition(error.topic, 0, 0))
        except KafkaError as why:
            reason = getattr(why.__cause__, "args", (None,))[0]
            if isinstance(reason, ClientError):
                told = delivery_error(error.topic, error.key, error.size, reason)
                return self._lost(str(told)) if reason.code() in _LOST else told
        return error

    def _lost(self, detail: str, *, may_be_visible: bool = False) -> KafkaError:
        last = self.client.last
        until = f" Sent last: {described(last)}." if last else ""
        hidden = "" if may_be_visible else "; nothing of it is visible"
        limit = self._settings[_TIMEOUT]
        return KafkaError(
            f"the brokers ended the transaction of {self._what}{hidden}."
            f" {detail}.{until} Either it was open for longer than"
            f" 'kafka.{_TIMEOUT}' ({limit} ms): raise it, or write smaller batches; or"
            " another writer of the same part has begun. A newer try or run of this job"
            " writes the batch: stop the older run. Another job: give that one a tx.id"
            " of its own.",
            topic=last.topic if last else None,
            key=last.key if last else None,
        )
