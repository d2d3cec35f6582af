"""Writes records that have no retry left to a dead-letter topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import pyarrow as pa

from kafka_tx import assembly, sink_assembly
from kafka_tx.clock import now_ms
from kafka_tx.config import SinkConfig, SourceConfig
from kafka_tx.errors import (
    DamagedRecordsError,
    DeliveryError,
    FetchError,
    KafkaTxError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.kafka.dead_letter_form import (
    BYTES,
    ERROR,
    LONGEST_ERROR,
    LONGEST_KEY,
    SHORTEST_ERROR,
    TIME,
    TOPIC_ID,
    headers_of,
    split,
    timed,
)
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.sender import Sender
from kafka_tx.logs import event_log
from kafka_tx.model import OffsetRange
from kafka_tx.protocols import RangeReader
from kafka_tx.running.serial_worker import SerialWorker
from kafka_tx.sinks.letter_topic import TopicFacts
from kafka_tx.topology.at_least_once.lineage import runs_of
from kafka_tx.topology.reasons import cut

logger = event_log(__name__)

_TOO_LARGE = {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"}
_BAD_TIME = "INVALID_TIMESTAMP"
_REFUSALS = _TOO_LARGE | {_BAD_TIME}
"""Codes of records that are written in another form."""

_FACTS_S = 600.0
"""How long an answer of the brokers about the topic counts."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Records that failed together in each of some attempts; ``error`` is the last."""

    records: OffsetRange
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class Buried:
    """The records of a part of a dead letter that are in the dead-letter topic now.

    Attributes:
        present: Their offsets, as ascending runs; the part's other offsets have no
            record.
        cut: Number of records without their value.
    """

    present: tuple[tuple[int, int], ...] = ()
    cut: int = 0

    @property
    def written(self) -> int:
        """Number of records."""
        return sum(end - start for start, end in self.present)


class LetterUnreadError(FetchError):
    """Records of a dead letter cannot be read now, or are gone.

    ``damage``: the cause, if they are damaged; else None.
    """

    damage: DamagedRecordsError | None = None


Answer = Callable[[OffsetRange, Buried | Exception], None]
"""Gets the result of a part of a dead letter."""


class DeadLetters:
    """Reads given-up records again and sends them on, on a thread of its own.

    Key, value, timestamp and headers stay as they were (``source`` must include
    headers), and the headers of ``dead_letter_form`` follow. A time that the topic
    refuses or would soon remove becomes the present one. If a dead letter is too large
    for the topic, it has neither the value nor the headers of the record. Writes are at
    least once: after a crash a dead letter may be written again.
    """

    def __init__(self, topic: str, source: SourceConfig) -> None:
        self._topic = topic
        self._source = source
        self._config = SinkConfig(kafka=source.kafka, topic=topic)
        self._worker = SerialWorker(f"kafka-tx letters to {topic}")
        self._reader: RangeReader | None = None
        self._sender: Sender | None = None
        self._is_cut_off = False
        self._facts = TopicFacts(topic, 0)
        self._facts_s = -inf

    def check(self) -> None:
        """Check that the topic takes dead letters (driver, at the start).

        Raises:
            ConfigError: The topic does not exist, and brokers do not create it; or it
                would refuse or remove dead letters.
            KafkaError: The brokers refuse the user, or do not answer.
        """
        self._facts = sink_assembly.check_letter_topic(
            "dead_letter_topic", self._config
        )
        self._facts_s = time.monotonic()

    def write(self, dead_letter: DeadLetter, answer: Answer) -> None:
        """Write a dead letter.

        ``answer`` gets parts of it, one after the other, as soon as they are written;
        an error comes with the rest. After ``close`` was cut off, no more is answered.
        """

        def work() -> None:
            position = dead_letter.records.start
            try:
                for part, written in self._parts(dead_letter):
                    answer(part, written)
                    position = part.end
                    if self._is_cut_off:
                        return
            except Exception as error:  # noqa: BLE001 - for the caller
                self._sender = None  # this sender would fail again
                end = dead_letter.records.end
                answer(dead_letter.records.between(position, end), error)

        self._worker.submit(lambda: None if self._is_cut_off else work())

    def _parts(self, dead_letter: DeadLetter) -> Iterator[tuple[OffsetRange, Buried]]:
        """Write the records of one batch after the other."""
        if self._sender is not None:
            self._sender.renew()
        wanted = dead_letter.records
        position = wanted.start
        for batch in self._batches(wanted):
            offsets = batch.column("offset").to_numpy()
            records = out_records(batch, dead_letter, self._topic_now())
            cut = self._bury(records, wanted.topic_id)
            end = int(offsets[-1]) + 1
            yield wanted.between(position, end), Buried(tuple(runs_of(offsets)), cut)
            position = end
        if position < wanted.end:
            yield wanted.between(position, wanted.end), Buried()

    def _batches(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        if self._reader is None:
            self._reader = assembly.range_reader(self._source)
        try:
            yield from self._reader.read(wanted)
        except KafkaTxError as error:
            is_gone = isinstance(error, (OffsetOutOfRangeError, UnknownTopicError))
            if not (error.retryable or is_gone):
                raise
            damage = error if isinstance(error, DamagedRecordsError) else None
            raise LetterUnreadError(str(error), damage=damage) from error

    def _topic_now(self) -> TopicFacts:
        """The facts about the topic; former ones if no broker answers."""
        if time.monotonic() - self._facts_s > _FACTS_S:
            self._facts_s = time.monotonic()
            with suppress(KafkaTxError):
                self._facts = sink_assembly.topic_facts(self._config)
        return self._facts

    def _bury(self, records: Iterable[OutRecord], topic_id: str | None) -> int:
        """Write records; return how many of them had to leave their values behind."""
        refused = self._sent(records)
        cut = 0
        while refused:
            again = []
            for record, error in refused:
                is_cut = BYTES in split(record.headers or ())[1]
                cut += error.code in _TOO_LARGE and not is_cut
                logger.warning("a dead letter is written in another form: %s", error)
                again.append(_changed(record, error, topic_id))
            refused = self._sent(again)
        return cut

    def _sent(
        self, records: Iterable[OutRecord]
    ) -> list[tuple[OutRecord, DeliveryError]]:
        """Write records; return those that the topic takes only in another form."""
        failed: list[tuple[OutRecord, DeliveryError]] = []
        for record in records:
            self._post(record, failed)
        if self._sender is not None:
            self._sender.flush()
        for _, error in failed:
            if error.code not in _REFUSALS:
                raise error
        return failed

    def _post(
        self, record: OutRecord, failed: list[tuple[OutRecord, DeliveryError]]
    ) -> None:
        def delivered(error: DeliveryError | None) -> None:
            if error is not None:
                failed.append((record, error))

        if self._sender is None:
            self._sender = sink_assembly.sender(self._config)
        try:
            self._sender.post(record, delivered)
        except DeliveryError as error:  # the client itself refuses it
            delivered(error)

    def close(self, timeout_s: float, *, finish: bool = True) -> bool:
        """End after all requested writes; False if that takes longer.

        What takes longer is cut off: at most the records of one batch are still being
        written then. Without ``finish`` the rest is cut off at once.
        """
        self._is_cut_off = self._is_cut_off or not finish
        is_closed = self._worker.close(timeout_s)
        self._is_cut_off = True
        return is_closed


def out_records(
    batch: pa.RecordBatch, dead_letter: DeadLetter, topic: TopicFacts
) -> Iterator[OutRecord]:
    """The records of a batch, in the form in which they are written."""
    times = topic.letter_times(now_ms())
    for offset, record in records_of(batch):
        assert record.partition is not None
        where = record.topic, record.partition, offset
        error = cut(dead_letter.error, LONGEST_ERROR)
        own = headers_of(*where, error, dead_letter.attempts)
        time_ms, late = timed(record.timestamp_ms, times)
        yield replace(
            record,
            topic=topic.name,
            partition=None,
            headers=[*(record.headers or ()), *own, *late],
            timestamp_ms=time_ms,
        )


def _changed(
    record: OutRecord, error: DeliveryError, topic_id: str | None
) -> OutRecord:
    """A refused dead letter in a form that its topic may take; raises the error."""
    if error.code in _TOO_LARGE:
        return without_value(record, error, topic_id)
    if record.timestamp_ms is None:
        raise error
    header = (TIME, str(record.timestamp_ms).encode())
    return replace(record, headers=[*(record.headers or ()), header], timestamp_ms=None)


def records_of(batch: pa.RecordBatch) -> Iterator[tuple[int, OutRecord]]:
    """The offset of each record, and the record as a producer would write it again."""
    times = batch.column("timestamp").view(pa.int64()).to_pylist()
    rows = batch.drop_columns(["timestamp"]).to_pylist()
    for row, time_us in zip(rows, times, strict=True):
        record = OutRecord(
            row["topic"],
            row["key"],
            row["value"],
            headers=[(h["key"], h["value"]) for h in row.get("headers") or ()],
            partition=row["partition"],
            timestamp_ms=None if time_us is None else time_us // 1_000,
        )
        yield row["offset"], record


def without_value(
    record: OutRecord, error: DeliveryError, topic_id: str | None
) -> OutRecord:
    """The same dead letter with only the record's place, and its key if it is short.

    If it was already without value, it is also without key and most of the reason.
    """
    _, own = split(record.headers or ())
    key = record.key if len(record.key or b"") <= LONGEST_KEY else None
    if BYTES in own:
        shorter = cut(own[ERROR], SHORTEST_ERROR)
        if key is None and shorter == own[ERROR]:
            raise error
        key, own[ERROR] = None, shorter
    else:
        own[BYTES] = str(len(record.value or b""))
        if topic_id:
            own[TOPIC_ID] = topic_id
    headers = [(name, text.encode()) for name, text in own.items()]
    return replace(record, key=key, value=None, headers=headers)
