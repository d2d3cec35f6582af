"""The batch reader: ``spark.read.format("kafka_tx")``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_tx import assembly
from kafka_tx.config import FromCommitted, SourceConfig
from kafka_tx.model import Earliest, OffsetRange, TopicPartition
from kafka_tx.offsets.discovery import Discovery
from kafka_tx.offsets.split import task_ranges
from kafka_tx.protocols import ClusterView
from kafka_tx.spark.source.losses import Losses
from kafka_tx.spark.source.positions import (
    assigned_partitions,
    check_given,
    committed_or,
    ranges_between,
    resolve,
)
from kafka_tx.spark.source.ranges import RangePartition, read_range


class KafkaTxBatchReader(DataSourceReader):
    """Reads fixed ranges once. Planned on the driver's machine, read on executors."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve the ranges and cut them into tasks."""
        view = assembly.cluster_view(self._config)
        try:
            ranges = plan_ranges(self._config, view)
        finally:
            view.close()
        limits = self._config.limits
        pieces = task_ranges(
            ranges,
            min_partitions=limits.min_partitions,
            max_records=limits.max_records_per_partition,
        )
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range (executor)."""
        if isinstance(partition, RangePartition):
            yield from read_range(self._config, partition.wanted)


def plan_ranges(config: SourceConfig, view: ClusterView) -> list[OffsetRange]:
    """The ranges of a batch read.

    Raises:
        OffsetsError: Starts and ends contradict each other or the topic.
        DataLossError: A start lies below the log start and ``failOnDataLoss`` is true.
        KafkaError: The cluster cannot be asked.
    """
    start = config.start
    if not isinstance(start, FromCommitted):
        check_given(start, config.end)
    found = Discovery(view.topics, config.subscription).look()
    partitions = assigned_partitions(config, found)
    if isinstance(start, FromCommitted):
        known = _committed(config, partitions)
        starts = committed_or(config, view, partitions, start, known)
    else:
        starts = resolve(config, view, partitions, start, starting=True)
    ends = resolve(config, view, partitions, config.end, starting=False)
    return _readable(config, view, ranges_between(starts, ends))


def _committed(
    config: SourceConfig, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """What is committed, in the store or else in the group."""
    known = assembly.stored_offsets(config)
    from_group = assembly.group_offsets(config)
    return known if from_group is None else from_group(partitions) | known


def _readable(
    config: SourceConfig, view: ClusterView, ranges: list[OffsetRange]
) -> list[OffsetRange]:
    losses = Losses(fails=config.fails_on_data_loss)
    earliest = view.offsets({r.topic_partition: Earliest() for r in ranges})
    readable = []
    for wanted in ranges:
        log_start = earliest.get(wanted.topic_partition)
        if isinstance(log_start, int) and wanted.start < log_start and len(wanted):
            first = min(log_start, wanted.end)
            losses.trimmed(wanted.topic_partition, wanted.start, first)
            readable.append(OffsetRange(wanted.topic_partition, first, wanted.end))
        else:
            readable.append(wanted)
    return readable
