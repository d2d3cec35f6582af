"""Spark's Kafka sink: ``df.write`` and ``writeStream`` with ``format("kafka_tx")``.

Columns ``key``, ``value``, ``topic``, ``partition``, ``headers`` (and ``timestamp``
with ``timestampColumn=true``), the option ``topic``, and ``kafka.*``. At-least-once.
``write_transaction`` uses the first for exactly once. The second writes exactly once
with ``tx.id``, as long as its checkpoint lives: it counts Spark's batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import ConfigError
from kafka_tx.errors_first import tells_first
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.part_transaction import Written
from kafka_tx.running.kept_batches import KeptBatches
from kafka_tx.spark.sinks.rows import check_columns, out_batches
from kafka_tx.spark.speculation import refuse_speculative_tasks
from kafka_tx.spark.versions.names import BATCH_ID, QUERY_ID, RUN_ID
from kafka_tx.spark.versions.streams import StreamWriter, record_batches
from kafka_tx.transactions.marker_rules import begun_elsewhere, check_cut

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class PartMessage(WriterCommitMessage):
    """What a task tells the driver of the part that it was given.

    Attributes:
        config: By which it was written, without what the driver knew of the markers.
    """

    index: int
    written: Written
    config: SinkConfig


@tells_first("write", "commit")
class KafkaTxWriter(DataSourceArrowWriter):
    """A batch write. Made on the driver, ``write`` runs in each task."""

    def __init__(self, config: SinkConfig, schema: StructType) -> None:
        if config.id is not None and config.txid is None:
            raise ConfigError(
                "df.write with 'tx.id' has no txid that would tell a replay from a new"
                " batch. Use kafka_tx.write_transaction(df, attempt, options), or leave"
                " 'tx.id' away and write at least once",
                option="tx.id",
                value=config.id,
            )
        check_columns(schema, config)
        self._config = config

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; returns when every one is delivered (executor)."""
        return write_part(self._config, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have delivered; write the parts for which there was no task.

        Spark runs none for rows that it knows to be empty. Their markers count: an
        older writer of such a part finds the batch written.
        """
        if self._config.id is None:
            return
        given = {m.index for m in messages if isinstance(m, PartMessage)}
        for index in range(self._config.parts):
            if index not in given:
                sink_assembly.part_transaction(self._config, index).write(())


def write_part(
    config: SinkConfig, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Write what one task was given (executor).

    Raises:
        DeliveryError: A record was refused; names its topic, key and size.
        ConfigError: A row has no topic and there is no option ``topic``; with ``tx.id``
            also: ``spark.speculation`` is on.
    """
    if config.id is None or config.txid is None:
        sender = sink_assembly.borrow_sender(config)
        with sender:
            for batch in out_batches(batches, config):
                sender.write(batch)
            sender.flush()
        sink_assembly.give_back_sender(sender)
        return WriterCommitMessage()
    refuse_speculative_tasks("exactly-once Kafka sinks")
    context = TaskContext.get()
    assert context is not None
    index = context.partitionId()
    part = sink_assembly.part_transaction(config, index)
    with closing(KeptBatches(batches)) as kept:
        written = part.write(_Records(kept, config))
    return PartMessage(index, written, replace(config, memory=""))


class _Records:
    """The records of a part, each time that they are looked through."""

    def __init__(self, kept: KeptBatches, config: SinkConfig) -> None:
        self._kept = kept
        self._config = config

    def __iter__(self) -> Iterator[OutBatch]:
        return out_batches(iter(self._kept), self._config)


@tells_first("write", "commit")
class KafkaTxStreamWriter(StreamWriter):
    """A streaming write: at-least-once; with ``tx.id`` exactly once per checkpoint.

    With ``tx.id`` each task writes its part of Spark's batch in one Kafka transaction
    that also commits the batch's number, under the id of the query, which is the
    checkpoint's. A batch that Spark runs again finds its parts done.

    Spark does not tell tasks how many they are, so a batch that an earlier run has left
    half-written may come cut into other tasks. Its tasks do not write what is missing
    but hand it to ``commit``, which knows all of them.

    Made by the driver as the query starts, before any task: the markers are read then,
    and each task reads only what came after that.

    Raises:
        ConfigError: An option or a column is missing or illegal; the marker topic is
            not compacted.
        AuthenticationError, KafkaError: With ``tx.id``: the markers cannot be read.
    """

    def __init__(self, config: SinkConfig, schema: StructType) -> None:
        if config.id is not None and config.topic is None:
            raise ConfigError(
                "writeStream with 'tx.id' needs option 'topic', also beside a column"
                " of that name: the batch's number is committed as an offset of it",
                option="topic",
            )
        check_columns(schema, config)
        if config.id is not None:
            config = replace(config, memory=sink_assembly.remembered(config))
        self._config = config

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write one task's rows; returns when every one is delivered (executor)."""
        config = self._config
        if config.id is not None:
            config = _of_this_batch(config)
        return write_part(config, record_batches(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """All tasks have delivered, or hold the rest of a half-written batch.

        Raises:
            ReplayDiffersError: It is cut in another way. Nothing was written.
        """
        reported = [message for message in messages if isinstance(message, PartMessage)]
        if any(message.written.held is not None for message in reported):
            _write_the_rest(reported)
        if any(
            message.written.looked for message in reported
        ):  # the first batch of a run
            _end_open_parts(reported)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed; what others delivered stays. Without ``tx.id`` it comes again.

        With it, the next try finds their parts done.
        """


def _write_the_rest(reported: list[PartMessage]) -> None:
    held = [message for message in reported if message.written.held is not None]
    confirmed = {
        message.index: message.written.digest
        for message in reported
        if message.written.held is None
    }
    config = held[0].config
    memory = sink_assembly.marker_log(config).recall(config.id or "")
    for message in held:
        part = sink_assembly.sink_part(config, message.index)
        check_cut(part, begun_elsewhere(part, memory.markers), confirmed)
    for message in held:
        writing = sink_assembly.part_transaction(
            replace(config, looks=False), message.index
        )
        writing.write(message.written.held or ())


def _end_open_parts(reported: list[PartMessage]) -> None:
    """Abort what an earlier run left open in parts for which this one has no task."""
    config = reported[0].config
    if not sink_assembly.holds_readers_up(config):
        return
    memory = sink_assembly.marker_log(config).recall(config.id or "")
    known = {marker.index for marker in memory.markers}
    for index in sorted(known - {message.index for message in reported}):
        sink_assembly.part_transaction(config, index).end_open()


def _of_this_batch(config: SinkConfig) -> SinkConfig:
    context = TaskContext.get()
    assert context is not None
    batch, query, run = map(context.getLocalProperty, (BATCH_ID, QUERY_ID, RUN_ID))
    if batch is None or query is None or run is None:
        raise ConfigError(
            "this Spark does not tell tasks of a stream their batch. Leave 'tx.id' away"
            " and write at least once, or use kafka_tx.write_transaction",
            option="tx.id",
            value=config.id,
        )
    # Spark counts batches from 0 and does not tell tasks how many they are.
    return replace(
        config, txid=int(batch) + 1, parts=0, life=query, run=run, looks=True
    )
