"""The batch reader: ``spark.read.format("kafka_tx")``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_tx import assembly
from kafka_tx.config import FromCommitted, SourceConfig
from kafka_tx.errors_first import raises_own_error_first
from kafka_tx.model import (
    Assigned,
    AtOffset,
    Earliest,
    Latest,
    LogBounds,
    LogPosition,
    OffsetRange,
    TopicPartition,
)
from kafka_tx.offsets.discovery import Discovery, Found, is_another
from kafka_tx.offsets.loss import Losses, OutOfRange
from kafka_tx.offsets.position_checks import Finding, PositionCheck, check_position
from kafka_tx.planning.log_bounds import Bounds, EpochEnds
from kafka_tx.planning.open_ranges import (
    OpenRange,
    Positions,
    bound,
    came_since,
    open_ranges,
    ranges_of,
)
from kafka_tx.planning.split import task_ranges
from kafka_tx.planning.start_positions import (
    assigned_partitions,
    check_given,
    committed_or,
    positions_of,
)
from kafka_tx.protocols import ClusterView
from kafka_tx.spark.source.ranges import read_range
from kafka_tx.stored import VERSION, check_same_version


class OpenPartition(InputPartition):
    """The range of one task of a batch.

    Attributes:
        task: The range; None: none was known when the batch was planned.
        planned: Every partition of the plan, given to one task: it also reads those
            that have come since.
    """

    def __init__(
        self, task: OpenRange | None, planned: frozenset[TopicPartition] | None
    ) -> None:
        super().__init__(str(task))
        self.task = task
        self.planned = planned
        self.version = VERSION


@raises_own_error_first("partitions", "read")
class KafkaTxBatchReader(DataSourceReader):
    """Reads the records between two offsets of each partition, once.

    Planned on the driver's machine, once for each ``load()``; read on executors, by
    every job on it.
    """

    def __init__(self, config: SourceConfig) -> None:
        self._config = config

    def partitions(self) -> Sequence[InputPartition]:
        """Find the partitions and cut them into tasks."""
        with closing(assembly.cluster_view(self._config)) as view:
            return plan(self._config, view)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of a task, with bounds known by now (executor)."""
        if isinstance(partition, OpenPartition):
            driver = getattr(partition, "version", None)
            check_same_version(driver, "the range of this task")
            for wanted in self._bound(partition):
                yield from read_range(self._config, wanted)

    def _bound(self, partition: OpenPartition) -> list[OffsetRange]:
        task, planned = partition.task, partition.planned
        if task is not None and task.is_fixed and planned is None:
            return [task.given()]
        with closing(assembly.log_view(self._config)) as view:
            ranges = [] if task is None else [bound(self._config, view, task)]
            if planned is not None:
                ranges += came_since(self._config, view, planned)
        return [wanted for wanted in ranges if len(wanted)]


def plan(config: SourceConfig, view: ClusterView) -> list[OpenPartition]:
    """The tasks of a batch read.

    Raises:
        OffsetsError: Starts and ends contradict each other or the topic.
        DataLossError: A start lies below the log start, or is of a topic that was made
            anew, and ``failOnDataLoss`` is true.
        UnknownTopicError: A topic or partition named by the user does not exist.
        KafkaError: The cluster cannot be asked.
    """
    if not isinstance(config.start, FromCommitted):
        check_given(config.start, config.end)
    found = Discovery(view.topics, config.subscription).find()
    partitions = assigned_partitions(config, found)
    starts = _starts(config, view, found, partitions)
    ends = positions_of(partitions, config.end, starting=False)
    pieces = _pieces(config, view, starts, ends)
    tasks = open_ranges(starts, ends, pieces, found.topic_ids())
    if _is_final(config, starts, ends):
        return [OpenPartition(task, None) for task in tasks]
    return [
        OpenPartition(tasks[0] if tasks else None, frozenset(partitions)),
        *(OpenPartition(task, None) for task in tasks[1:]),
    ]


def _starts(
    config: SourceConfig,
    view: ClusterView,
    found: Found,
    partitions: list[TopicPartition],
) -> Positions:
    """The starts of the partitions; committed offsets are read only here."""
    if not isinstance(config.start, FromCommitted):
        return positions_of(partitions, config.start, starting=True)
    known = _committed(config, view, found, partitions)
    starts = committed_or(config, view, partitions, config.start, known)
    return {partition: AtOffset(offset) for partition, offset in starts.items()}


def _committed(
    config: SourceConfig,
    view: ClusterView,
    found: Found,
    partitions: list[TopicPartition],
) -> dict[TopicPartition, int]:
    """Offsets in the store, otherwise in the group, as far as the log still has them.

    0 for another topic; after an unclean election, the end of the log in common.
    """
    losses, ids = Losses(OutOfRange.of(config.fails_on_data_loss)), found.topic_ids()
    from_group = assembly.group_offsets(config)
    positions = {} if from_group is None else from_group(partitions)
    positions |= assembly.stored_offsets(config)
    at = {
        p: positions[p] if positions[p].topic_id else _of_topic(positions[p], p, ids)
        for p in partitions
        if p in positions
    }
    bounds = _other_leaders(view, at)
    known = {}
    for partition, position in at.items():
        known[partition] = position.offset
        if is_another(position.topic_id, ids.get(partition.topic)):
            losses.judge(partition, PositionCheck(Finding.ANEW, position.offset))
            known[partition] = 0
        elif partition in bounds:
            check = check_position(position, bounds[partition])
            if check.finding is Finding.CUT:
                known[partition] = losses.judge(partition, check)
    return known


def _of_topic(
    position: LogPosition, partition: TopicPartition, ids: Mapping[str, str]
) -> LogPosition:
    """The position of a group, which brokers drop with its topic."""
    return replace(position, topic_id=ids.get(partition.topic))


def _other_leaders(
    view: ClusterView, positions: Mapping[TopicPartition, LogPosition]
) -> Bounds:
    """Bounds of the logs with another leader than that of the position."""
    asked = {p: at for p, at in positions.items() if at.leader_epoch is not None}
    if not asked:
        return {}
    bounds = EpochEnds(view).completed(view.bounds(list(asked)), asked)
    return {
        p: found
        for p, found in bounds.items()
        if isinstance(found, LogBounds) and found.epoch_ends
    }


def _pieces(
    config: SourceConfig, view: ClusterView, starts: Positions, ends: Positions
) -> list[OffsetRange]:
    """The ranges if tasks ran now; empty if nothing depends on them yet."""
    limits = config.limits
    is_cut = limits.min_partitions or limits.max_records_per_partition
    starts_first = all(isinstance(start, Earliest) for start in starts.values())
    ends_last = all(isinstance(end, Latest) for end in ends.values())
    if starts_first and ends_last and not is_cut:
        return []
    return task_ranges(
        _readable(config, view, ranges_of(config, view, starts, ends)),
        min_partitions=limits.min_partitions,
        max_records=limits.max_records_per_partition,
    )


def _is_final(config: SourceConfig, starts: Positions, ends: Positions) -> bool:
    """Whether no later partition can belong to this read."""
    given = [*starts.values(), *ends.values()]
    return isinstance(config.subscription, Assigned) or (
        bool(given) and all(isinstance(position, AtOffset) for position in given)
    )


def _readable(
    config: SourceConfig, view: ClusterView, ranges: list[OffsetRange]
) -> list[OffsetRange]:
    losses = Losses(OutOfRange.of(config.fails_on_data_loss))
    earliest = view.offsets({r.topic_partition: Earliest() for r in ranges})
    readable = []
    for wanted in ranges:
        log_start = earliest.get(wanted.topic_partition)
        if isinstance(log_start, int) and wanted.start < log_start and len(wanted):
            log = LogBounds(min(log_start, wanted.end), wanted.end)
            trimmed = PositionCheck(Finding.TRIMMED, wanted.start, log)
            first = losses.judge(wanted.topic_partition, trimmed)
            wanted = wanted.between(first, wanted.end)
        readable.append(wanted)
    return readable
