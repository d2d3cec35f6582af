"""Writes records that have no retry left to a dead-letter topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from kafka_tx import assembly, sink_assembly
from kafka_tx.config import SinkConfig, SourceConfig
from kafka_tx.errors import (
    ConfigError,
    DeliveryError,
    FetchError,
    KafkaTxError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.kafka.dead_letter_form import (
    BYTES,
    LONGEST_ERROR,
    LONGEST_KEY,
    headers_of,
    split,
    timed,
)
from kafka_tx.kafka.producer import OutRecord
from kafka_tx.kafka.sender import Sender
from kafka_tx.logs import event_log
from kafka_tx.model import OffsetRange
from kafka_tx.protocols import RangeReader
from kafka_tx.running.serial_worker import SerialWorker
from kafka_tx.topology.at_least_once.lineage import runs_of
from kafka_tx.topology.reasons import cut

logger = event_log(__name__)

_TOO_LARGE = {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Records that failed together in each of some attempts; ``error`` is the last."""

    records: OffsetRange
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class Buried:
    """What a dead-letter topic has now of a part of a dead letter.

    Attributes:
        present: The offsets whose records it has, as ascending runs; the others of the
            part have no record.
        cut: Number of records without their value.
    """

    present: tuple[tuple[int, int], ...] = ()
    cut: int = 0

    @property
    def written(self) -> int:
        """Number of records."""
        return sum(end - start for start, end in self.present)


class LetterUnreadError(FetchError):
    """Records of a dead letter cannot be read now, or are gone."""


Answer = Callable[[OffsetRange, Buried | Exception], None]
"""Gets the result of a part of a dead letter."""


class DeadLetters:
    """Reads given-up records again and sends them on, on a thread of its own.

    Key, value, timestamp and headers stay as they were (``source`` must include
    headers). The headers ``kafka_tx.topic``, ``kafka_tx.partition``,
    ``kafka_tx.offset``, ``kafka_tx.error`` and ``kafka_tx.attempts`` follow. A time
    that cannot be written becomes the present one, and the header
    ``kafka_tx.timestamp_ms`` has it (see ``dead_letter_form.timed``). If a dead letter
    is too large for the topic, it has neither the value nor the headers of the record.
    Its header ``kafka_tx.bytes`` has the size of the value, and the other headers name
    the record's offset. Writes are at least once: after a crash a dead letter may be
    written again.
    """

    def __init__(self, topic: str, source: SourceConfig) -> None:
        self._topic = topic
        self._source = source
        self._config = SinkConfig(kafka=source.kafka, topic=topic)
        self._worker = SerialWorker(f"kafka-tx letters to {topic}")
        self._reader: RangeReader | None = None
        self._sender: Sender | None = None
        self._is_cut_off = False

    def check(self) -> None:
        """Check that the topic can be written to (driver, at the start).

        Raises:
            ConfigError: The topic does not exist, and brokers do not create it.
            KafkaError: The brokers refuse the user, or do not answer.
        """
        try:
            sink_assembly.check_topic(self._config)
        except UnknownTopicError as error:
            raise ConfigError.illegal(
                "dead_letter_topic",
                self._topic,
                "a topic that exists. Create it: a record without a try left would"
                " stop the topology",
                error.message,
            ) from None

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
            cut = self._bury(out_records(batch, dead_letter, self._topic))
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
            raise LetterUnreadError(str(error)) from error

    def _bury(self, records: Iterable[OutRecord]) -> int:
        """Write records; return how many of them had to leave their values behind."""
        too_large: list[tuple[OutRecord, DeliveryError]] = []
        for record in records:
            self._post(record, too_large)
        self._flush(too_large)
        for record, error in too_large:
            logger.warning("a dead letter is written without its value: %s", error)
            failed: list[tuple[OutRecord, DeliveryError]] = []
            self._post(without_value(record), failed)
            self._flush(failed)
            for _, again in failed:
                raise again
        return len(too_large)

    def _post(
        self, record: OutRecord, failed: list[tuple[OutRecord, DeliveryError]]
    ) -> None:
        def reported(error: DeliveryError | None) -> None:
            if error is not None:
                failed.append((record, error))

        if self._sender is None:
            self._sender = sink_assembly.sender(self._config)
        try:
            self._sender.post(record, reported)
        except DeliveryError as error:  # the client itself refuses it
            reported(error)

    def _flush(self, failed: list[tuple[OutRecord, DeliveryError]]) -> None:
        if self._sender is not None:
            self._sender.flush()
        for _, error in failed:
            if error.code not in _TOO_LARGE:
                raise error

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
    batch: pa.RecordBatch, dead_letter: DeadLetter, topic: str
) -> Iterator[OutRecord]:
    """The records of a batch, in the form in which they are written."""
    for offset, record in records_of(batch):
        assert record.partition is not None
        where = record.topic, record.partition, offset
        error = cut(dead_letter.error, LONGEST_ERROR)
        own = headers_of(*where, error, dead_letter.attempts)
        time_ms, late = timed(record.timestamp_ms)
        headers = [*(record.headers or ()), *own, *late]
        yield replace(
            record, topic=topic, partition=None, headers=headers, timestamp_ms=time_ms
        )


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


def without_value(record: OutRecord) -> OutRecord:
    """The same dead letter with only the record's place, and its key if it is short."""
    _, own = split(record.headers or ())
    own[BYTES] = str(len(record.value or b""))
    key = record.key if len(record.key or b"") <= LONGEST_KEY else None
    headers = [(name, text.encode()) for name, text in own.items()]
    return replace(record, key=key, value=None, headers=headers)
