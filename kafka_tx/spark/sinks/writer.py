"""``df.write.format("kafka_tx")``: Spark's Kafka sink, for one DataFrame.

Columns ``key``, ``value``, ``topic``, ``partition``, ``headers`` (and ``timestamp``
with ``timestampColumn=true``), the option ``topic``, and ``kafka.*``. At-least-once;
``write_transaction`` uses it for exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
