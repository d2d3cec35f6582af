"""The streaming reader that Spark calls: it only translates Spark's names and dicts.

``read`` runs in Python workers on executors, the other methods in one long-lived
planning process on the driver's machine. The reader is pickled into both, so
connections are made on first use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, wraps
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors_first import raises_own_error_first
from kafka_tx.kafka.collector import collector_paused
from kafka_tx.logs import about
from kafka_tx.options.source import parse_source
from kafka_tx.planning.cluster_poller import ClusterState
from kafka_tx.planning.offset_json import MARK, SourceOffset, nested
from kafka_tx.planning.split import task_ranges
from kafka_tx.running.heartbeat import Heartbeat, end_with_session
from kafka_tx.running.sink_notes import note_of
from kafka_tx.schemas.planned import other_schemas
from kafka_tx.source.microbatches import MicroBatches
from kafka_tx.source.questions import Question
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.spark.source.ranges import RangePartition, read_range
from kafka_tx.spark.versions.streams import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from kafka_tx.spark.versions.workers import (
    SessionFolder,
    is_for_one_query,
    modules_loading,
)

if TYPE_CHECKING:
    from kafka_tx.kafka.mirror import MirrorThread


_PLANNING = (
    *("initialOffset", "latestOffset", "reportLatestOffset", "partitions", "commit"),
    "prepareForTriggerAvailableNow",
)


def _plans(kind: type[KafkaTxStreamReader]) -> type[KafkaTxStreamReader]:
    """Let planning log under the reader's ``tx.id``, and collect no cycles meanwhile.

    Plans make an object for each partition, and each few of them a collection.
    """

    def planning(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(reader: KafkaTxStreamReader, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - any
            transactions = reader._config.transactions
            quietly = collector_paused if reader._batches else modules_loading
            with quietly(), about(id=transactions and transactions.id):
                return method(reader, *given, **named)

        return call

    for name in _PLANNING:
        setattr(kind, name, planning(getattr(kind, name)))
    return kind


@lru_cache(maxsize=8)
def _of_tasks(options: tuple[tuple[str, str], ...]) -> SourceConfig:
    """The configuration; a worker reads the same options in each of its tasks."""
    return parse_source(dict(options), streaming=True)


@raises_own_error_first(*_PLANNING, "getDefaultReadLimit", "read")
@_plans
class KafkaTxStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Structured Streaming's view of the source. Made by Spark, never by users."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._batches: MicroBatches | None = None
        self._mirror: MirrorThread | None = None
        self._mirror_failures = 0
        self._is_bounded = False
        self._offsets: deque[tuple[dict[str, Any], SourceOffset]] = deque(maxlen=2)
        """The last ones: Spark gives each several times."""
        self._report: tuple[object, dict[str, Any]] = None, {}
        self._heartbeat: Heartbeat | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._options,)

    @cached_property
    def _config(self) -> SourceConfig:
        # Read on first use: an error in Spark's making of the reader loses its text.
        return parse_source(self._options, streaming=True)

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without checkpoint begins; asked more than once."""
        return self._planner().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limits of the options; Spark replaces them by "all" for Trigger.Once."""
        limits = self._config.limits
        if limits.max_records is not None:
            return ReadMaxRows(limits.max_records)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_records is not None:
            return ReadMinRows(limits.min_records)
        return ReadAllAvailable()

    def is_question(self, offset: dict[str, Any]) -> bool:
        """Whether ``offset`` is a question to the planner."""
        return Question.from_json(offset) is not None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; ``start`` itself, to the letter, for no batch.

        Also answers what ``for_each_transaction`` asks, by a ``Question``.
        """
        question = Question.from_json(start)
        if question is not None:
            return self._planner().number(question).to_json()
        everything = isinstance(limit, ReadAllAvailable)
        before = self._offset(start)
        end = self._planner().latest(before, everything=everything)
        if end is not before:
            given = end.to_json()
            self._offsets.append((given, end))
            return given
        if self._is_bounded:  # Spark ends this process now, mostly
            if self._mirror is not None:
                self._mirror.flush()
            self._planner().has_read_all()
        return start

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the end of this run."""
        self._is_bounded = True
        self._planner().prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Every partition's end for the progress report, and what metrics need."""
        cluster = self._planner().report()
        if cluster is None:
            return None
        if self._report[0] is not cluster:
            self._report = cluster, self._report_of(cluster)
        report = self._report[1]
        if self._config.transactions is not None:
            report[MARK]["mirrorFailures"] = self._mirror_failures
        return report

    def _report_of(self, cluster: ClusterState) -> dict[str, Any]:
        logs = cluster.bounds.items()
        report = SourceOffset({p: log.end for p, log in logs}).to_json()
        if self._config.transactions is not None:
            report[MARK] = {
                "logStart": nested({p: log.log_start for p, log in logs}),
                "topicIds": cluster.found.topic_ids(),
            }
        return report

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """One task for each range, cut further as the limits ask."""
        between = self._offset(start), self._offset(end)
        limits = self._config.limits
        planner = self._planner()
        pieces = task_ranges(
            planner.ranges(*between),
            min_partitions=limits.min_partitions,
            max_records=limits.max_records_per_partition,
        )
        others = other_schemas(planner.schemas, self._config.schemas)
        planned = {side: name for side, (name, _) in others.items()}
        return [RangePartition(piece, planned) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range (executor)."""
        assert isinstance(partition, RangePartition)
        wanted = partition.wanted  # first: a driver may have other options
        config = _of_tasks(tuple(self._options.items()))
        return read_range(config, wanted, partition.schemas)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything below ``end``; comes one batch late."""
        self._planner().finished(self._offset(end))

    def stop(self) -> None:
        """Release connections; Spark may never call it."""
        if self._mirror is not None:  # first: it reads the store
            self._mirror.close()
            self._mirror = None
        self._end_of_life()
        self._heartbeat = None
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _offset(self, data: dict[str, Any]) -> SourceOffset:
        """An offset that Spark gives; the same object for the same offset."""
        for known, offset in self._offsets:
            if known == data:
                return offset
        self._offsets.append((data, SourceOffset.from_json(data)))
        return self._offsets[-1][1]

    def _planner(self) -> MicroBatches:
        if self._batches is None:
            self._batches = self._open()
        return self._batches

    def _open(self) -> MicroBatches:
        config, transactions = self._config, self._config.transactions
        if is_for_one_query():
            end_with_session(SessionFolder().is_gone, self._end_of_life)
        view = assembly.cluster_view(config)
        clock = assembly.SystemClock()
        committed = assembly.group_offsets(config)
        byte_limit = assembly.byte_limit(config, clock)
        if transactions is None:
            return MicroBatches(config, view, clock, committed, byte_limit)
        assembly.check_group(config)
        sink = note_of(transactions.id)
        transactions = replace(
            transactions, sink_batch_ids=sink.believed(transactions.sink_batch_ids)
        )
        self._mirror = assembly.group_mirror(config, self._count_failure)
        planner = TransactionalMicroBatches(
            config,
            transactions,
            view,
            clock,
            assembly.ledger(transactions, retries=True),
            ledger_of=lambda tx_id: assembly.ledger(
                replace(transactions, id=tx_id), retries=True
            ),
            mirror=self._mirror,
            committed=committed,
            byte_limit=byte_limit,
            sink=sink,
        )
        self._heartbeat = Heartbeat(planner.answer, planner.let_go)
        return planner

    def _end_of_life(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def _count_failure(self) -> None:
        self._mirror_failures += 1
