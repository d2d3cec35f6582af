"""The executor's side of Kafka spouts: reads the ranges of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from kafka_tx.errors import (
    FailedException,
    KafkaTxError,
    OffsetOutOfRangeError,
    OtherTopicError,
    ReplayImpossibleError,
)
from kafka_tx.model import OffsetRange
from kafka_tx.offsets.discovery import is_another
from kafka_tx.planning.replays import replay_impossible
from kafka_tx.protocols import RangeReader
from kafka_tx.topology.declare.spouts import Json
from kafka_tx.topology.rows.blocks import Block
from kafka_tx.topology.rows.schemes import Scheme


class Fingerprint:
    """Count, size and checksum of Kafka records.

    The same records give the same fingerprint however they are cut into batches. It
    covers offsets, keys and values; a null differs from empty bytes.
    """

    def __init__(self) -> None:
        self.records = 0
        """Number of records."""
        self.bytes = 0
        """Bytes of keys and values."""
        self._offsets = 0
        self._columns = {"key": (0, 0), "value": (0, 0)}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next records, in offset order."""
        self.records += batch.num_rows
        self._offsets = crc32(
            batch.column("offset").to_numpy().tobytes(), self._offsets
        )
        for name, (lengths, data) in self._columns.items():
            sizes, content = _lengths_and_data(batch.column(name))
            self.bytes += len(content)
            self._columns[name] = crc32(sizes, lengths), crc32(content, data)

    @property
    def checksum(self) -> str:
        """Five checksums as one text."""
        parts = [self._offsets, *self._columns["key"], *self._columns["value"]]
        return "".join(f"{part:08x}" for part in parts)

    def facts(self) -> dict[str, Any]:
        """The fingerprint as JSON."""
        return {"records": self.records, "bytes": self.bytes, "checksum": self.checksum}


def _lengths_and_data(column: pa.Array) -> tuple[bytes, memoryview | bytes]:
    """The length of each value, -1 for null, and all their bytes in one piece."""
    if not len(column):
        return b"", b""
    _, offsets, data = column.cast(pa.binary()).buffers()
    ends = np.frombuffer(offsets, np.int32)
    ends = ends[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(ends)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    if data is None:
        return lengths.tobytes(), b""
    return lengths.tobytes(), memoryview(data)[ends[0] : ends[-1]]


@dataclass(frozen=True, slots=True)
class KafkaBatch:
    """A ``BatchSource`` that reads ranges of Kafka's logs.

    Attributes:
        reader: Reads one range.
        scheme: Makes rows from records.
        txid: Named in errors.
        ranges: All ranges of the batch; task ``i`` of ``n`` reads ``i, i + n, …``.
        is_exact: Whether every attempt must read the same records.
        seen: By partition, the facts of the last read, if they are known.
    """

    reader: RangeReader
    scheme: Scheme
    txid: int
    ranges: tuple[OffsetRange, ...] = ()
    is_exact: bool = True
    seen: Mapping[str, Json] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of offsets."""
        return sum(map(len, self.ranges))

    def read(self, task: int, tasks: int, facts: dict[str, Json]) -> Iterator[Block]:
        """Yield this task's rows; add the facts of each range.

        Raises:
            ReplayImpossibleError: Exact, and the records are gone or differ, or the
                topic was re-created.
            FailedException: Not exact, and the records are gone, or the topic was
                re-created.
            FetchError: No progress in time.
            AuthenticationError: Credentials, permission or TLS.
        """
        for wanted in self.ranges[task::tasks]:
            name, read = str(wanted.topic_partition), Fingerprint()
            if len(wanted):
                try:
                    for batch in self.reader.read(wanted):
                        read.add(batch)
                        yield self.scheme.decode(batch).rows
                except OffsetOutOfRangeError as error:
                    raise self._gone(wanted, error) from error
            facts[name] = read.facts()
            self._check(wanted, facts[name], self.seen.get(name))

    def _gone(self, wanted: OffsetRange, error: OffsetOutOfRangeError) -> KafkaTxError:
        if not self.is_exact:
            return FailedException(f"{wanted} cannot be read any more: {error.message}")
        available = None
        if not isinstance(error, OtherTopicError):
            available = (error.fields.get("log_start"), error.fields.get("log_end"))
        return _cannot_be_replayed(self.txid, wanted, available, f"{error.message}.")

    def _check(self, wanted: OffsetRange, read: Json, seen: Json | None) -> None:
        if seen is not None and read != seen:
            reason = f"It held {seen} the last time and holds {read} now."
            available = (wanted.start, wanted.end)
            raise _cannot_be_replayed(self.txid, wanted, available, reason)


def _cannot_be_replayed(
    txid: int,
    wanted: OffsetRange,
    available: tuple[object, object] | None,
    reason: str,
) -> ReplayImpossibleError:
    """The error for a batch whose records cannot be read again."""
    return replay_impossible(
        f"txid {txid} holds {wanted}, and these records cannot be read as they were."
        f" {reason}",
        wanted,
        txid=txid,
        available=available,
        advice="Where all sinks are opaque, an opaque spout under the same id goes on"
        " with what is left. Otherwise begin anew: a new id, the option startingOffsets"
        " of the spout where it shall begin, and empty sinks.",
    )


def check_topics(
    txid: int, ranges: Iterable[OffsetRange], ids: Mapping[str, str]
) -> None:
    """Compare the topics of a planned batch with the present topics.

    An empty range reads nothing, so its topic does not matter; the next batch decides
    where to begin.

    Raises:
        ReplayImpossibleError: A topic was re-created under its name.
    """
    for wanted in ranges:
        was, now = wanted.topic_id, ids.get(wanted.topic_partition.topic)
        if len(wanted) and is_another(was, now):
            reason = f"The topic was re-created: its id was {was}, now {now}."
            raise _cannot_be_replayed(txid, wanted, None, reason)
