"""Sends dead letters back to where their records were, each one once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafka_tx import assembly, sink_assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors import BrokerUnavailableError, KafkaTxError, UnknownTopicError
from kafka_tx.kafka import dead_letter_form
from kafka_tx.kafka.producer import OutRecord
from kafka_tx.kafka.transaction import BatchRefusedError
from kafka_tx.model import (
    Earliest,
    LogBounds,
    OffsetRange,
    TopicPartition,
    Topics,
    Unavailable,
)
from kafka_tx.topology.rows.times import milliseconds

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_tx.kafka.transaction import Transaction

_AT_ONCE = 1_000
"""Letters of one transaction, at most."""


class DeadLetterUnusableError(KafkaTxError):
    """A record of a dead-letter topic cannot be sent back."""

    error_class = "KAFKA_TX_LETTER_UNUSABLE"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One letter.

    Attributes:
        at: Its partition.
        offset: Its offset there.
        record: What is sent back, without the letter's own headers.
        about: The letter's own headers, by name; empty for a record that is no letter.
    """

    at: TopicPartition
    offset: int
    record: OutRecord
    about: Mapping[str, str]

    @property
    def where(self) -> str:
        """Where the letter is."""
        return f"{self.at}@{self.offset}"

    @property
    def origin(self) -> tuple[TopicPartition, int] | None:
        """Where its record was; None where it does not say so."""
        with suppress(KeyError, ValueError):
            at = TopicPartition(
                self.about[dead_letter_form.TOPIC],
                int(self.about[dead_letter_form.PARTITION]),
            )
            return at, int(self.about[dead_letter_form.OFFSET])
        return None

    @property
    def is_cut(self) -> bool:
        """Whether it is without the value, which did not fit."""
        return dead_letter_form.BYTES in self.about


class Redrive:
    """The letters of one topic, and the group that remembers which were sent.

    A transaction holds the records that are sent and the group's offsets. So each
    letter is sent once, wherever a sender dies. A second sender ends the first one.

    Args:
        kafka: The ``kafka.*`` options, without their prefix.
        topic: Of the letters.
        timeout_ms: For each question to the brokers.

    Attributes:
        group: ``kafka_tx.<topic>``.
    """

    def __init__(self, kafka: Mapping[str, str], topic: str, timeout_ms: int) -> None:
        self.group = f"kafka_tx.{topic}"
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._config = SourceConfig(
            subscription=Topics((topic,)),
            kafka={**kafka, "isolation.level": "read_committed"},
            start=Earliest(),
            include_headers=True,
            poll_timeout_ms=timeout_ms,
            num_retries=1,
        )
        self._reader = assembly.range_reader(self._config)

    def waiting(
        self, *, sent: bool = False, is_sender: bool = False
    ) -> list[OffsetRange]:
        """Where letters are that were not sent; ``sent``: those that were, too.

        ``is_sender``: no other sender is at work. Else one may be, or may have died
        with an open transaction: that counts as not committed, and is not waited for.

        Raises:
            UnknownTopicError: The topic does not exist.
            KafkaError: The brokers refuse, or do not answer.
        """
        with closing(assembly.cluster_view(self._config)) as view:
            found = view.topics(self._config.subscription).get(self._topic)
            if found is None:
                raise UnknownTopicError(
                    f"the topic '{self._topic}' does not exist; give the topic that the"
                    " job writes its dead letters to"
                )
            bounds = view.bounds(found.partitions)
        logs = {at: _known(at, log) for at, log in sorted(bounds.items())}
        done = {} if sent else self._positions(list(logs), is_sender=is_sender)
        return [
            OffsetRange(at, max(done.get(at, 0), log.log_start), log.end)
            for at, log in logs.items()
            if max(done.get(at, 0), log.log_start) < log.end
        ]

    def read(self, wanted: OffsetRange) -> Iterator[DeadLetter]:
        """The letters of a range.

        Raises:
            FetchError: They cannot be read now.
            OffsetOutOfRangeError: They are gone.
        """
        for batch in self._reader.read(wanted):
            for offset, record in _records(batch):
                yield _dead_letter(offset, record)

    def send(
        self,
        topics: set[str],
        reported: Callable[[list[DeadLetter]], None],
        *,
        skips: bool,
    ) -> None:
        """Send back all letters that were not sent.

        Args:
            topics: Where to, as far as known.
            reported: Gets the letters of each transaction, once it is committed.
            skips: Pass over letters that cannot be sent back.

        Raises:
            DeadLetterUnusableError: One cannot be sent back. Those before it were.
            DeliveryError: A record was refused. Nothing of its transaction is visible.
            KafkaError: The brokers refuse, do not answer, or another sender has begun.
        """
        while True:
            with suppress(BatchRefusedError):  # again, in smaller batches
                self._send(topics, reported, skips=skips)
                return

    def usable(self, dead_letter: DeadLetter) -> DeadLetter:
        """The letter with what is sent back.

        Raises:
            DeadLetterUnusableError: It does not say where its record was; or it is
                without the value, and the record is gone.
        """
        if dead_letter.origin is None:
            raise DeadLetterUnusableError(
                f"{dead_letter.where} is no dead letter: its headers do not say where"
                " the record was"
            )
        at, offset = dead_letter.origin
        record = replace(dead_letter.record, topic=at.topic, partition=at.partition)
        if dead_letter.is_cut:
            record = self._original(dead_letter, OffsetRange(at, offset, offset + 1))
        return replace(dead_letter, record=record)

    def _send(
        self,
        topics: set[str],
        reported: Callable[[list[DeadLetter]], None],
        *,
        skips: bool,
    ) -> None:
        what = f"the dead letters of '{self._topic}'"
        kafka = self._config.kafka
        with sink_assembly.group_transaction(kafka, self.group, what, topics) as moving:
            for wanted in self.waiting(is_sender=True):
                for start in range(wanted.start, wanted.end, _AT_ONCE):
                    end = min(start + _AT_ONCE, wanted.end)
                    some = OffsetRange(wanted.topic_partition, start, end)
                    reported(self._move(moving, some, skips=skips))

    def _move(
        self, moving: Transaction, some: OffsetRange, *, skips: bool
    ) -> list[DeadLetter]:
        found = []
        for dead_letter in self.read(some):
            try:
                found.append(self.usable(dead_letter))
            except DeadLetterUnusableError:
                if not skips:
                    raise
        with moving.writing():
            moving.send(dead_letter.record for dead_letter in found)
            moving.add_position(some.topic_partition, some.end)
        moving.commit()
        return found

    def _original(self, dead_letter: DeadLetter, place: OffsetRange) -> OutRecord:
        """The record of a letter without value, if it is still where it was."""
        size = int(dead_letter.about[dead_letter_form.BYTES])
        with suppress(KafkaTxError):
            for batch in self._reader.read(place):
                for _, record in _records(batch):
                    same_time = record.timestamp_ms == dead_letter.record.timestamp_ms
                    if same_time and len(record.value or b"") == size:
                        return record
        raise DeadLetterUnusableError(
            f"{dead_letter.where} is without the value ({size} bytes, too large for"
            f" '{self._topic}'), and its record is no longer at {place}"
        )

    def _positions(
        self, partitions: list[TopicPartition], *, is_sender: bool
    ) -> dict[TopicPartition, int]:
        level = "read_committed" if is_sender else "read_uncommitted"
        kafka = {**self._config.kafka, "isolation.level": level}
        return sink_assembly.group_positions(
            kafka, self.group, partitions, self._timeout_ms
        )


def _known(at: TopicPartition, log: LogBounds | Unavailable) -> LogBounds:
    if isinstance(log, Unavailable):
        raise BrokerUnavailableError(f"the log of {at} is not available: {log.reason}")
    return log


def _dead_letter(offset: int, found: OutRecord) -> DeadLetter:
    headers, about = dead_letter_form.split(found.headers or ())
    assert found.partition is not None
    at = TopicPartition(found.topic, found.partition)
    return DeadLetter(at, offset, replace(found, headers=headers), about)


def _records(batch: pa.RecordBatch) -> Iterator[tuple[int, OutRecord]]:
    """What was read, as it would be written where it is; with its offsets."""
    times = milliseconds(batch)
    rows = batch.drop_columns(["timestamp"]).to_pylist()
    for row, time_ms in zip(rows, times, strict=True):
        yield (
            row["offset"],
            OutRecord(
                row["topic"],
                row["key"],
                row["value"],
                headers=[(h["key"], h["value"]) for h in row["headers"] or ()],
                partition=row["partition"],
                timestamp_ms=time_ms,
            ),
        )
