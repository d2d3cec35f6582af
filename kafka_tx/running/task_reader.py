"""Reads Kafka in the tasks of both kinds of topologies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.model import OffsetRange
from kafka_tx.topology.rows.times import with_python_times


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Opens the fastest reader that the task's machine has, not the driver's.

    A timestamp outside of the years 1 to 9999, which Python does not support, is null.
    """

    config: SourceConfig

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """See ``protocols.RangeReader``."""
        reader = assembly.range_reader(self.config)
        yield from map(with_python_times, reader.read(wanted))
