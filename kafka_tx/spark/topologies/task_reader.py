"""What reads Kafka in the tasks of any topology."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.model import OffsetRange


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Opens the fastest reader of the machine that reads, not of the driver's."""

    config: SourceConfig

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """See ``protocols.RangeReader``."""
        yield from assembly.range_reader(self.config).read(wanted)
