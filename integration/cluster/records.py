"""Records into topics, as tests need them: nulls, headers, transactions and aborts."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

WITHIN_S = 60.0


@dataclass(frozen=True)
class Record:
    """One record. Strings are stored as UTF-8; None is null, b"" is empty.

    ``timestamp_ms`` None is the producer's clock; ``partition`` None is by key, or a
    random one for each record without a key.
    """

    value: str | bytes | None = None
    key: str | bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


Records = Iterable[Record | str | bytes | None]
"""What is not a ``Record`` is its value."""

Place = tuple[int, int]
"""Partition and offset that a record got."""


class Transaction:
    """A producer's open transaction; its records are in the log, undecided."""

    def __init__(self, settings: Mapping[str, object], id_: str) -> None:
        self._settings = {**settings, "transactional.id": id_}
        self.producer = self._new_producer()
        self.producer.begin_transaction()
        self.places: list[Place] = []

    def commit(self) -> None:
        """Return when readers of committed records see it."""
        self.producer.commit_transaction(WITHIN_S)
        self._new_producer()

    def abort(self) -> None:
        """Return when its markers are in the log."""
        self.producer.abort_transaction(WITHIN_S)
        self._new_producer()

    def _new_producer(self) -> Producer:
        """There is none for this id before all markers of the last one are written."""
        producer = Producer(self._settings)
        producer.init_transactions(WITHIN_S)
        return producer


class Produce:
    """``produce(topic, records)`` into one cluster; gives each record's place.

    Returns when the records are in the log, in the given order within a partition.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._troubles: deque[object] = deque(maxlen=3)
        self._settings: dict[str, object] = {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 5,
            "sticky.partitioning.linger.ms": 0,
            "log_level": 0,
            "error_cb": self._troubles.append,
        }
        self._producer = self._idempotent()

    def __call__(
        self, topic: str, records: Records, *, partition: int | None = None
    ) -> list[Place]:
        try:
            return self._send(self._producer, topic, records, partition)
        except (RuntimeError, KafkaException):
            self._producer = self._idempotent()  # that one may never deliver again
            raise

    def _idempotent(self) -> Producer:
        return Producer({**self._settings, "enable.idempotence": True})

    def committed(
        self, topic: str, records: Records, *, partition: int | None = None
    ) -> list[Place]:
        """Produce in a transaction of its own, and commit it."""
        transaction = self.open_transaction(topic, records, partition=partition)
        transaction.commit()
        return transaction.places

    def aborted(
        self, topic: str, records: Records, *, partition: int | None = None
    ) -> list[Place]:
        """Produce in a transaction of its own, and abort it."""
        transaction = self.open_transaction(topic, records, partition=partition)
        transaction.abort()
        return transaction.places

    def open_transaction(
        self, topic: str, records: Records, *, partition: int | None = None
    ) -> Transaction:
        """Produce in a new transaction, and leave it open."""
        begun = Transaction(self._settings, f"test-{uuid.uuid4().hex}")
        begun.places = self._send(begun.producer, topic, records, partition)
        return begun

    def _send(
        self, producer: Producer, topic: str, records: Records, partition: int | None
    ) -> list[Place]:
        places: dict[int, Place] = {}
        failures: list[object] = []

        def note(number: int, error: object, message: Message) -> None:
            if error is not None:
                failures.append(error)
                return
            at, offset = message.partition(), message.offset()
            assert at is not None
            assert offset is not None
            places[number] = (at, offset)

        count = 0
        for count, each in enumerate(records, start=1):
            record = each if isinstance(each, Record) else Record(each)
            fields = _fields(record, partition)
            _enqueue(producer, topic, {**fields, "on_delivery": partial(note, count)})
        producer.flush(WITHIN_S)
        if failures or len(places) != count:
            missing = count - len(places)
            raise RuntimeError(
                f"{missing} of {count} records not delivered to {topic} within"
                f" {WITHIN_S:.0f} s: {failures[:1]}; the client: {[*self._troubles]}"
            )
        return [places[number] for number in range(1, count + 1)]


def _enqueue(producer: Producer, topic: str, fields: dict[str, Any]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            producer.produce(topic, **fields)
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            # a partition that was added since the producer last asked
            unknown = error.args[0].code() == KafkaError._UNKNOWN_PARTITION
            if not unknown or time.monotonic() > deadline:
                raise
            producer.list_topics(topic, timeout=WITHIN_S)
        else:
            producer.poll(0)
            return


def _fields(record: Record, partition: int | None) -> dict[str, Any]:
    chosen = partition if record.partition is None else record.partition
    fields: dict[str, Any] = {"value": record.value, "key": record.key}
    if record.headers:
        fields["headers"] = list(record.headers)
    if record.timestamp_ms is not None:
        fields["timestamp"] = record.timestamp_ms
    if chosen is not None:
        fields["partition"] = chosen
    return fields
