"""Rows of a task that can be looked through again, where Spark gives them once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pyarrow as pa

_IN_MEMORY_BYTES = 64 << 20


class KeptBatches:
    """Arrow batches that are kept as they come, in memory and then in a file.

    The file is a temporary one without a name: it goes when the process ends, too.

    Args:
        batches: Looked through once, as far as it is needed.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        self._schemas: list[pa.Schema] = []
        self._ends = [0]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """All batches from the first on."""
        place = 0
        while place < len(self._schemas):
            yield self._read(place)
            place += 1
        for batch in self._batches:
            self._keep(batch)
            yield batch

    def close(self) -> None:
        """Forget them."""
        self._file.close()

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._file.seek(self._ends[-1])
        self._file.write(batch.serialize())
        self._schemas.append(batch.schema)
        self._ends.append(self._file.tell())

    def _read(self, place: int) -> pa.RecordBatch:
        start, end = self._ends[place : place + 2]
        self._file.seek(start)
        return pa.ipc.read_record_batch(
            pa.py_buffer(self._file.read(end - start)), self._schemas[place]
        )
