"""What was read, in a few numbers: whether a replay holds the same records."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa


class Fingerprint:
    """Count, size and checksum of Kafka records.

    The same records give the same fingerprint however they are cut into batches. It
    covers offsets, keys and values; a null differs from empty bytes.
    """

    def __init__(self) -> None:
        self.records = 0
        """How many."""
        self.bytes = 0
        """Of keys and values."""
        self._offsets = 0
        self._columns = {"key": (0, 0), "value": (0, 0)}

    def add(self, batch: pa.RecordBatch) -> None:
        """The next records, in offset order."""
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
        """As JSON."""
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
