"""Streaming readers and writers, and questions to them, on every line of Spark.

Spark 4.2 asks readers for limits and starts, 4.0 and 4.1 do not. The source is written
for the newer interface. Older versions call ``latestOffset()`` without the start and
the limit of the batch; ``StartlessReader`` derives both from Spark's earlier calls.
Writers get Arrow record batches; Spark 4.0 knows by another class that they want them.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)

if TYPE_CHECKING:
    import pyarrow as pa

    StreamWriter = DataSourceStreamWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamWriter
    except ImportError:  # Spark 4.0
        from pyspark.sql.datasource import DataSourceArrowWriter

        class StreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """Its worker looks for the latter also in streams; others get rows."""


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    TAKES_LIMITS = True
    """Whether Spark hands start and limit to ``latestOffset``."""
except ModuleNotFoundError:  # Spark 4.0 and 4.1
    TAKES_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """The limit of one batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything."""

    @dataclass(frozen=True)
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """About so many bytes."""

        max_bytes: int

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """At most this many offsets."""

        max_rows: int

    @dataclass(frozen=True)
    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """At least this many offsets."""

        min_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark runs one batch where a bounded run is asked for."""


__all__ = [
    "TAKES_LIMITS",
    "AnswerPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamWriter",
    "SupportsTriggerAvailableNow",
    "as_this_spark_calls_it",
]


class AnswerPartition(InputPartition):
    """The planner's answer to a question that came as a call of ``partitions``."""


class StartlessReader(DataSourceStreamReader):
    """A reader as Spark 4.0 and 4.1 call it (planning process; ``read``: executor).

    Where the next batch begins:

    * Spark asks for an end once for each batch, and runs the batch if this end differs
      from the end before. So Spark is at the last end that it got.
    * After a restart Spark first asks for the partitions between the newest offset in
      its log and the same offset. If that batch is unfinished, Spark then asks for the
      batch's partitions. Spark is at the end of its last request.
    * If Spark asks for an end before anything else, it has no offset yet. The start is
      the initial offset, for which Spark asks later, and which must not change then.

    Args:
        reader: As Spark 4.2 calls it, and with ``is_question``.
    """

    def __init__(self, reader: DataSourceStreamReader) -> None:
        self._reader = reader
        self._initial: dict[str, Any] | None = None
        self._at: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._reader,)

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without checkpoint begins."""
        if self._initial is None:
            self._initial = self._reader.initialOffset()
        return self._initial

    def latestOffset(self) -> dict[str, Any]:
        """The end of the next batch, as far as the options let it go."""
        start = self._at or self.initialOffset()
        self._at = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        return self._at

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """The tasks between two ends; or the answer to a question."""
        if self._reader.is_question(start):
            limit = self._reader.getDefaultReadLimit()
            return [AnswerPartition(self._reader.latestOffset(start, limit))]
        self._at = end
        return self._reader.partitions(start, end) if start != end else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range (executor)."""
        yield from self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything below ``end``; comes one batch late."""
        self._reader.commit(end)

    def stop(self) -> None:
        """Release connections."""
        self._reader.stop()


def as_this_spark_calls_it(reader: DataSourceStreamReader) -> DataSourceStreamReader:
    """The reader itself, or one that this version of Spark knows how to call."""
    return reader if TAKES_LIMITS else StartlessReader(reader)


def answer_of(stream: Any, question: Any, limit: Any) -> dict[str, Any]:  # noqa: ANN401
    """The planner's answer to a question, which is asked as an offset of the stream.

    Raises:
        Py4JError: The planner raised, or cannot be reached.
    """
    found: dict[str, Any]
    if TAKES_LIMITS:
        found = json.loads(stream.latestOffset(question, limit).json())
        return found
    (partition,) = stream.planInputPartitions(question, question)
    pickled = bytes(partition.pickedPartition())
    answer = pickle.loads(pickled)  # noqa: S301 - by a process of this query
    assert isinstance(answer, AnswerPartition)
    found = answer.value
    return found
