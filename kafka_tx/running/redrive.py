"""Sends dead letters back to their records' partitions, each one exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
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
from kafka_tx.running.at_least_once.dead_letters import records_of

if TYPE_CHECKING:
    from kafka_tx.kafka.transaction import Transaction

_AT_ONCE = 1_000
"""Most dead letters in one transaction."""


class DeadLetterUnusableError(KafkaTxError):
    """A record of a dead-letter topic cannot be sent back."""

    error_class = "KAFKA_TX_LETTER_UNUSABLE"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a dead-letter topic.

    Attributes:
        record: The failed record, without the dead letter's own headers.
        about: The dead letter's own headers, by name; empty: it is no dead letter.
    """

    at: TopicPartition
    offset: int
    record: OutRecord
    about: Mapping[str, str]

    @property
    def where(self) -> str:
        """Partition and offset of the dead letter."""
        return f"{self.at}@{self.offset}"

    @property
    def keeps_time(self) -> bool:
        """Whether the record can be sent with its time; else a header has the time."""
        time_ms = self.record.timestamp_ms
        return dead_letter_form.timed(time_ms)[0] == time_ms

    @property
    def sent(self) -> OutRecord:
        """The record as it is sent back."""
        time_ms, late = dead_letter_form.timed(self.record.timestamp_ms)
        headers = [*(self.record.headers or ()), *late]
        return replace(self.record, headers=headers, timestamp_ms=time_ms)

    @property
    def origin(self) -> tuple[TopicPartition, int] | None:
        """Partition and offset of the failed record; None if headers lack them."""
        with suppress(KeyError, ValueError):
            at = TopicPartition(
                self.about[dead_letter_form.TOPIC],
                int(self.about[dead_letter_form.PARTITION]),
            )
            return at, int(self.about[dead_letter_form.OFFSET])
        return None


class Redrive:
    """The dead letters of one topic, and the group that stores which ones were sent.

    One transaction holds the sent records and the offsets of the group
    ``kafka_tx.<topic>``. So each dead letter is sent once, wherever a sender dies. A
    second sender fences the first one. The ``kafka.*`` options come without their
    prefix; ``timeout_ms`` is for each request to the brokers.
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
        """Ranges of dead letters that were not sent; ``sent``: of sent ones, too.

        ``is_sender``: no other sender is at work. Otherwise another sender may have an
        open transaction, also after its death: its offsets count as not committed.

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
        """The dead letters of a range.

        Raises:
            FetchError: They cannot be read now.
            OffsetOutOfRangeError: The log no longer holds them.
        """
        for batch in self._reader.read(wanted):
            for offset, record in records_of(batch):
                headers, about = dead_letter_form.split(record.headers or ())
                assert record.partition is not None
                at = TopicPartition(record.topic, record.partition)
                time_ms = dead_letter_form.time_of(about, record.timestamp_ms)
                record = replace(record, headers=headers, timestamp_ms=time_ms)
                yield DeadLetter(at, offset, record, about)

    def send(
        self,
        topics: set[str],
        reported: Callable[[list[DeadLetter]], None],
        *,
        skips: bool,
    ) -> None:
        """Send back all dead letters that were not sent.

        ``topics`` are those to send to, as far as known. ``reported`` is called with
        the dead letters of each committed transaction. ``skips``: leave out dead
        letters that cannot be sent back.

        Raises:
            DeadLetterUnusableError: One cannot be sent back. Reported ones were sent.
            DeliveryError: A record was refused. Nothing of its transaction is visible.
            KafkaError: The brokers refuse, do not answer, or another sender has begun.
        """
        moves = partial(
            sink_assembly.group_transaction,
            self._config.kafka,
            self.group,
            f"the dead letters of '{self._topic}'",
            topics,
        )
        while True:
            with suppress(BatchRefusedError), moves() as moving:
                for wanted in self.waiting(is_sender=True):
                    for start in range(wanted.start, wanted.end, _AT_ONCE):
                        end = min(start + _AT_ONCE, wanted.end)
                        some = OffsetRange(wanted.topic_partition, start, end)
                        reported(self._move(moving, some, skips=skips))
                return
            # refused: repeat it in smaller batches

    def usable(self, dead_letter: DeadLetter) -> DeadLetter:
        """The dead letter with the record to send back.

        Raises:
            DeadLetterUnusableError: Its headers do not name the failed record; or its
                value is missing, and the failed record is gone.
        """
        if dead_letter.origin is None:
            raise DeadLetterUnusableError(
                f"{dead_letter.where} is no dead letter: its headers do not say where"
                " the record was"
            )
        at, offset = dead_letter.origin
        record = replace(dead_letter.record, topic=at.topic, partition=at.partition)
        if dead_letter_form.BYTES in dead_letter.about:  # too large to have its value
            record = self._original(dead_letter, OffsetRange(at, offset, offset + 1))
        return replace(dead_letter, record=record)

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
            moving.send(dead_letter.sent for dead_letter in found)
            moving.add_position(some.topic_partition, some.end)
        moving.commit()
        return found

    def _original(self, dead_letter: DeadLetter, place: OffsetRange) -> OutRecord:
        """The failed record of a dead letter without value, if its log still has it."""
        size = int(dead_letter.about[dead_letter_form.BYTES])
        with suppress(KafkaTxError):
            for batch in self._reader.read(place):
                for _, record in records_of(batch):
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
