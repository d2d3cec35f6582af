"""What at-least-once topologies read: Kafka's records, or given ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_tx.errors import KafkaTxError, OffsetOutOfRangeError
from kafka_tx.model import OffsetRange
from kafka_tx.protocols import RangeReader
from kafka_tx.topology.reasons import reason_of
from kafka_tx.topology.rows.fields import DeclarationError
from kafka_tx.topology.rows.schemes import Scheme
from kafka_tx.topology.tracked.records import Records
from kafka_tx.topology.tracked.trees import NO_ROOTS


@dataclass(frozen=True, slots=True)
class NumberedRange:
    """A range of a partition whose offsets have root numbers.

    ``range.start`` has the number ``first_root``, the next offset the next number.
    """

    range: OffsetRange
    first_root: int


@dataclass(frozen=True, slots=True)
class KafkaRecords:
    """Ranges of Kafka partitions; task ``i`` of ``n`` reads every n-th of them.

    Every offset of a range is *read*, also those without a record (holes), and those
    whose record gives no row: they are done with that. What of a range cannot be read,
    and every record that the scheme cannot decode, fails; the others go on.

    The facts of a partition: ``records``, how many there really were; ``errors``, the
    classes of what went wrong; and ``holes``, if there were any: the runs of offsets
    ``(start, end)`` without a record.

    Attributes:
        ranges: Which, in any order; several may be of one partition.
        reader: Reads one range.
        scheme: From records to rows.
    """

    ranges: tuple[NumberedRange, ...]
    reader: RangeReader
    scheme: Scheme

    def read(self, task: int, tasks: int, facts: dict[str, Any]) -> Iterator[Records]:
        """Yield the records of this task's ranges.

        Raises:
            AuthenticationError: Credentials, permission or TLS.
        """
        for numbered in self.ranges[task::tasks]:
            name = str(numbered.range.topic_partition)
            told = facts.setdefault(name, {"records": 0, "errors": []})
            yield from self._range(numbered, told)

    def _range(
        self, numbered: NumberedRange, told: dict[str, Any]
    ) -> Iterator[Records]:
        position, problem = numbered.range.start, ""
        shift = numbered.first_root - position
        batches = self.reader.read(numbered.range)
        while True:
            try:
                batch = next(batches, None)
            except KafkaTxError as error:
                if not (error.retryable or isinstance(error, OffsetOutOfRangeError)):
                    raise
                told["errors"].append(error.error_class)
                problem = str(error)
                break
            if batch is None:
                break
            if batch.num_rows:
                told["records"] += batch.num_rows
                _note_holes(told, position, batch.column("offset").to_numpy())
                yield from self._decoded(batch, position, shift)
                position = batch.column("offset")[-1].as_py() + 1
        if position < numbered.range.end:
            if not problem:
                told.setdefault("holes", []).append((position, numbered.range.end))
            left = np.arange(position, numbered.range.end) + shift
            yield Records([], NO_ROOTS, left, problem)

    def _decoded(
        self, batch: pa.RecordBatch, position: int, shift: int
    ) -> Iterator[Records]:
        """The rows of a batch; what the scheme cannot decode fails on its own."""
        offsets = batch.column("offset").to_numpy()
        try:
            decoded = self.scheme.decode(batch)
        except DeclarationError:
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


def _note_holes(
    told: dict[str, Any], position: int, offsets: npt.NDArray[np.int64]
) -> None:
    """Note what lies between ``position`` and the last of ``offsets`` (ascending)."""
    starts = np.concatenate(([position], offsets[:-1] + 1))
    (before,) = np.nonzero(starts < offsets)
    if len(before):
        runs = zip(starts[before].tolist(), offsets[before].tolist(), strict=True)
        told.setdefault("holes", []).extend(runs)
