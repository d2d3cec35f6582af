"""A Python source that has one batch without rows: what any source in Python costs.

A module of its own, since planners and workers import it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class EmptySource(DataSource):
    """``format("empty")``."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        return EmptyReader()


class EmptyReader(DataSourceStreamReader):
    """Its only batch ends at 1."""

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, *_: object) -> dict[str, int]:
        return {"n": 1}

    def partitions(self, start: object, end: object) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: object) -> Iterator[Any]:
        return iter(())
