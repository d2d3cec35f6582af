"""What tasks of an at-least-once Kafka spout read: many ranges, few fetches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_tx.model import OffsetRange
from kafka_tx.protocols import RangeReader
from kafka_tx.topology.rows.schemes import Scheme
from kafka_tx.topology.tracked.record_sources import KafkaRecords, NumberedRange
from kafka_tx.topology.tracked.records import Records

NEAR = 500
"""Ranges that are no further apart are fetched together."""


@dataclass(frozen=True, slots=True)
class Read:
    """Ranges of one partition, ascending, that one fetch covers."""

    ranges: tuple[NumberedRange, ...]

    @property
    def end(self) -> int:
        """Where the fetch ends."""
        return self.ranges[-1].range.end


def reads_of(ranges: Iterable[NumberedRange], near: int = NEAR) -> tuple[Read, ...]:
    """Put ranges together that lie near each other: failed records mostly are single.

    What lies between them is fetched and thrown away.
    """
    found: list[list[NumberedRange]] = []
    for numbered in sorted(ranges, key=lambda each: each.range):
        last = found[-1][-1].range if found else None
        wanted = numbered.range
        if (
            last is not None
            and last.topic_partition == wanted.topic_partition
            and wanted.start - last.end <= near
        ):
            found[-1].append(numbered)
        else:
            found.append([numbered])
    return tuple(Read(tuple(together)) for together in found)


@dataclass(frozen=True, slots=True)
class ChunkRecords:
    """A chunk of Kafka records; task ``i`` of ``n`` reads every n-th fetch. Pickled.

    The facts are those of ``KafkaRecords`` and, by partition, ``fetch_ms``: how long
    each fetch took, without what bolts did meanwhile.
    """

    reads: tuple[Read, ...]
    reader: RangeReader
    scheme: Scheme

    def read(self, task: int, tasks: int, facts: dict[str, Any]) -> Iterator[Records]:
        """Yield the records of this task's fetches.

        Raises:
            AuthenticationError: Credentials, permission or TLS.
        """
        for read in self.reads[task::tasks]:
            reader = SpanReader(self.reader, read.end)
            records = KafkaRecords(read.ranges, reader, self.scheme)
            try:
                yield from records.read(0, 1, facts)
            finally:
                reader.close()
            told = facts[str(read.ranges[0].range.topic_partition)]
            told.setdefault("fetch_ms", []).append(reader.took_ms)


class SpanReader:
    """Reads ascending ranges of a partition out of one fetch.

    A fetch that failed is begun anew with the next range.
    """

    def __init__(self, reader: RangeReader, end: int) -> None:
        self._reader = reader
        self._end = end
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None
        self.took_ms = 0.0
        """Time spent in the fetch."""

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """See ``protocols.RangeReader``."""
        while True:
            batch = self._rest if self._rest is not None else self._next(wanted)
            self._rest = None
            if batch is None:
                return
            offsets = batch.column("offset").to_numpy()
            low, high = np.searchsorted(offsets, [wanted.start, wanted.end]).tolist()
            if high < len(offsets):
                self._rest = batch
            if low < high:
                yield batch.slice(low, high - low)
            if high < len(offsets) or offsets[-1] + 1 >= wanted.end:
                return

    def _next(self, wanted: OffsetRange) -> pa.RecordBatch | None:
        began = time.monotonic()
        try:
            if self._batches is None:
                span = wanted.between(wanted.start, self._end)
                self._batches = self._reader.read(span)
            return next(self._batches, None)
        except Exception:
            self._batches = None
            raise
        finally:
            self.took_ms += (time.monotonic() - began) * 1000

    def close(self) -> None:
        """Release the fetch."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
