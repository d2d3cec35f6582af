"""A source and a sink in Python that do nothing: what the way through Spark costs.

``format("nothing")`` reads records that were never written: number ``n`` was "produced"
``n * EVERY_S`` after the time of the option ``since_ns``, and has this time as its
value. Its sink drops all rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from kafka_tx.running.worker_python import task_done

EVERY_S = 0.02
PARTITIONS = 4


class Nothing(DataSource):
    """The data source; ``register`` makes its name known."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        task_done()  # as kafka_tx: without it PySpark collects its heap each time

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return _Reader(int(self.options["since_ns"]))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer()


def register(spark: SparkSession) -> None:
    spark.dataSource.register(Nothing)


class _Reader(DataSourceStreamReader):
    def __init__(self, since_ns: int) -> None:
        self._since_ns = since_ns

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"end": 0}

    def latestOffset(self, start: Mapping[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        gone_s = (time.time_ns() - self._since_ns) / 1e9
        return {"end": max(start["end"], int(gone_s / EVERY_S) + 1)}

    def partitions(
        self, start: Mapping[str, int], end: Mapping[str, int]
    ) -> list[InputPartition]:
        every = range(start["end"], end["end"])
        parts = (list(every[n::PARTITIONS]) for n in range(PARTITIONS))
        return [InputPartition(part) for part in parts if part]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        step_ns = int(EVERY_S * 1e9)
        values = [str(self._since_ns + n * step_ns).encode() for n in partition.value]
        yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
        task_done()

    def commit(self, end: Mapping[str, int]) -> None:
        pass


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        task_done()
        return WriterCommitMessage()
