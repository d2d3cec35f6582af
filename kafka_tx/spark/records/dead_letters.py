"""Writes records that have no retry left to a dead-letter topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from kafka_tx import assembly
from kafka_tx.config import SinkConfig, SourceConfig
from kafka_tx.kafka.producer import OutRecord, Sender
from kafka_tx.model import OffsetRange
from kafka_tx.protocols import RangeReader
from kafka_tx.spark.topologies.serial_worker import SerialWorker
from kafka_tx.topology.times import milliseconds

PREFIX = "kafka_tx."
"""Of the headers topic, partition, offset, error and attempts."""

_LONGEST_ERROR = 2_000


@dataclass(frozen=True, slots=True)
class Letter:
    """Records that failed together too often.

    Attributes:
        records: Which.
        attempts: How often each was processed.
        error: Why it failed the last time.
    """

    records: OffsetRange
    attempts: int
    error: str


class DeadLetters:
    """Reads given-up records again and sends them on, on a thread of its own.

    Key, value, timestamp and headers stay as they were, but a time outside of the years
    1 to 9999, which brokers may refuse, becomes the present one. The headers
    ``kafka_tx.topic``, ``kafka_tx.partition``, ``kafka_tx.offset``, ``kafka_tx.error``
    and ``kafka_tx.attempts`` come behind them. At least once: after a crash a letter
    may be written again.

    Args:
        topic: Where to.
        source: How records are read; with headers.
    """

    def __init__(self, topic: str, source: SourceConfig) -> None:
        self._topic = topic
        self._source = source
        self._worker = SerialWorker(f"kafka-tx letters to {topic}")
        self._reader: RangeReader | None = None
        self._sender: Sender | None = None

    def write(
        self, letter: Letter, answer: Callable[[int, Exception | None], None]
    ) -> None:
        """Write it; ``answer`` gets the number of records, or the error."""

        def work() -> None:
            try:
                written = self._write(letter)
            except Exception as error:  # noqa: BLE001 - told to who asked
                self._sender = None  # what it failed with, it would fail with again
                answer(0, error)
            else:
                answer(written, None)

        self._worker.submit(work)

    def _write(self, letter: Letter) -> int:
        if self._reader is None:
            self._reader = assembly.range_reader(self._source)
        if self._sender is None:
            config = SinkConfig(kafka=self._source.kafka, topic=self._topic)
            self._sender = assembly.sender(config)
        return self._sender.send(out_records(self._reader, letter, self._topic))

    def close(self, timeout_s: float) -> bool:
        """End, after what was asked for; False if that takes longer."""
        return self._worker.close(timeout_s)


def out_records(reader: RangeReader, letter: Letter, topic: str) -> Iterator[OutRecord]:
    """The records of a letter as they are written.

    Raises:
        OffsetOutOfRangeError: They are gone.
        FetchError: They cannot be read now.
    """
    for batch in reader.read(letter.records):
        times = milliseconds(batch)
        for row, time_ms in zip(_without_times(batch).to_pylist(), times, strict=True):
            about = {
                "topic": row["topic"],
                "partition": row["partition"],
                "offset": row["offset"],
                "error": letter.error[:_LONGEST_ERROR],
                "attempts": letter.attempts,
            }
            own = [(f"{PREFIX}{k}", str(v).encode()) for k, v in about.items()]
            former = [(h["key"], h["value"]) for h in row.get("headers") or ()]
            yield OutRecord(
                topic,
                row["key"],
                row["value"],
                headers=[*former, *own],
                timestamp_ms=time_ms,
            )


def _without_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns(["timestamp"])
