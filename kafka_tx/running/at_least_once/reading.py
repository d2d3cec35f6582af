"""Reads for the tasks of an at-least-once Kafka spout: many ranges in few fetches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_tx.errors import (
    DamagedRecordsError,
    KafkaTxError,
    OffsetOutOfRangeError,
    RegistryError,
    UnknownTopicError,
)
from kafka_tx.model import OffsetRange
from kafka_tx.protocols import RangeReader
from kafka_tx.topology.at_least_once.records import Records
from kafka_tx.topology.reasons import reason_of
from kafka_tx.topology.rows.fields import DeclarationError
from kafka_tx.topology.rows.schemes import Scheme
from kafka_tx.topology.run.messages import NO_ROOTS

NEAR = 500
"""Ranges that are at most so many offsets apart are fetched together."""


@dataclass(frozen=True, slots=True)
class NumberedRange:
    """A range of a partition whose offsets have root numbers.

    ``range.start`` has the number ``first_root``, the next offset the next number.
    """

    range: OffsetRange
    first_root: int


@dataclass(frozen=True, slots=True)
class KafkaRecords:
    """Ranges of Kafka partitions; task ``i`` of ``n`` does every n-th fetch. Pickled.

    Ranges are in any order, and several may be of one partition. Every offset of a
    range counts as *read*. An offset without a record (a hole), or whose record gives
    no row, is then done. Offsets that cannot be read, and records that the scheme
    cannot decode, fail; the others go on.

    The facts of a partition: ``records``, how many there really were; ``errors``, the
    classes of all errors; ``holes``, if there are any: the runs of offsets ``(start,
    end)`` without a record; ``damaged``, if some are: the error of each failed fetch;
    and ``fetch_ms``: how long each fetch took, without the time of bolts.
    """

    ranges: tuple[NumberedRange, ...]
    reader: RangeReader
    scheme: Scheme

    def __len__(self) -> int:
        return sum(len(numbered.range) for numbered in self.ranges)

    def read(self, task: int, tasks: int, facts: dict[str, Any]) -> Iterator[Records]:
        """Yield the records of this task's fetches.

        Raises:
            AuthenticationError: Credentials, permission or TLS.
        """
        for ranges in fetches_of(self.ranges)[task::tasks]:
            name = str(ranges[0].range.topic_partition)
            of_partition = facts.setdefault(name, {"records": 0, "errors": []})
            fetch = _Fetch(self.reader, self.scheme, ranges[-1].range.end, of_partition)
            try:
                for numbered in ranges:
                    yield from fetch.records(numbered)
            finally:
                fetch.close()
            of_partition.setdefault("fetch_ms", []).append(fetch.took_ms)


def fetches_of(
    ranges: Iterable[NumberedRange], near: int = NEAR
) -> list[list[NumberedRange]]:
    """Group ranges that are near each other: failed records are mostly single ones.

    Records between the ranges are fetched and dropped.
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
    return found


class _Fetch:
    """Reads ascending ranges of a partition, to ``end``, with one fetch.

    After a failure, a new fetch begins with the next range. ``facts`` takes
    the facts of the partition.
    """

    def __init__(
        self, reader: RangeReader, scheme: Scheme, end: int, facts: dict[str, Any]
    ) -> None:
        self._reader = reader
        self._scheme = scheme
        self._end = end
        self._facts = facts
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None
        self.took_ms = 0.0
        """Time spent in the fetch."""

    def records(self, numbered: NumberedRange) -> Iterator[Records]:
        position, problem = numbered.range.start, ""
        shift = numbered.first_root - position
        batches = self._batches_of(numbered.range)
        while True:
            try:
                batch = next(batches, None)
            except KafkaTxError as error:
                is_gone = isinstance(error, (OffsetOutOfRangeError, UnknownTopicError))
                if not (error.retryable or is_gone):
                    raise
                self._facts["errors"].append(error.error_class)
                if isinstance(error, DamagedRecordsError):
                    self._facts.setdefault("damaged", []).append(error)
                problem = str(error)
                break
            if batch is None:
                break
            self._facts["records"] += batch.num_rows
            _add_holes(self._facts, position, batch.column("offset").to_numpy())
            yield from self._decoded(batch, position, shift)
            position = batch.column("offset")[-1].as_py() + 1
        if position < numbered.range.end:
            if not problem:
                hole = (position, numbered.range.end)
                self._facts.setdefault("holes", []).append(hole)
            left = np.arange(position, numbered.range.end) + shift
            yield Records([], NO_ROOTS, left, problem)

    def _batches_of(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The fetched batches of a range; no batch is empty."""
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

    def _decoded(
        self, batch: pa.RecordBatch, position: int, shift: int
    ) -> Iterator[Records]:
        """The rows of a batch; a record that the scheme cannot decode fails alone."""
        offsets = batch.column("offset").to_numpy()
        try:
            decoded = self._scheme.decode(batch)
        except (DeclarationError, RegistryError):  # not this record's fault
            raise
        except Exception as error:  # noqa: BLE001 - a record fails on its own
            yield from self._undecoded(batch, position, shift, error)
            return
        roots = offsets + shift
        if decoded.records is not None:
            roots = roots[decoded.records.to_numpy()]
        read = np.arange(position, offsets[-1] + 1) + shift
        yield Records(decoded.rows, roots, read)

    def _undecoded(
        self, batch: pa.RecordBatch, position: int, shift: int, error: Exception
    ) -> Iterator[Records]:
        half, offset = batch.num_rows // 2, batch.column("offset")[0].as_py()
        if half:
            middle = batch.column("offset")[half - 1].as_py() + 1
            yield from self._decoded(batch.slice(0, half), position, shift)
            yield from self._decoded(batch.slice(half), middle, shift)
            return
        if position < offset:
            yield Records([], NO_ROOTS, np.arange(position, offset) + shift)
        yield Records([], NO_ROOTS, np.array([offset + shift]), reason_of(error))

    def close(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


def _add_holes(
    facts: dict[str, Any], position: int, offsets: npt.NDArray[np.int64]
) -> None:
    """Add the holes from ``position`` to the last of ``offsets`` (ascending)."""
    starts = np.concatenate(([position], offsets[:-1] + 1))
    (before,) = np.nonzero(starts < offsets)
    if len(before):
        runs = zip(starts[before].tolist(), offsets[before].tolist(), strict=True)
        facts.setdefault("holes", []).extend(runs)
