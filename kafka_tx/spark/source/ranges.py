"""From an input partition to record batches, on an executor."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors import (
    DataLossError,
    KafkaTxError,
    OffsetOutOfRangeError,
    ReplayImpossibleError,
)
from kafka_tx.model import OffsetRange
from kafka_tx.spark.source.receipts import send_receipt
from kafka_tx.spark.worker_heap import task_done

logger = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(str(wanted))
        self.wanted = wanted


def read_range(config: SourceConfig, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Read one range; records that retention removed meanwhile follow the loss rule.

    Raises:
        DataLossError: Part of the range is gone and ``failOnDataLoss`` is true.
        ReplayImpossibleError: The same in a transactional batch.
        KafkaError: The range cannot be read now; Spark retries the task.
    """
    try:
        yield from _read(config, wanted)
    finally:
        task_done()


def _read(config: SourceConfig, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    reader = assembly.range_reader(config)
    asked, read_bytes = wanted, 0
    while len(wanted):
        try:
            for batch in reader.read(wanted):
                read_bytes += _data_bytes(batch)
                yield batch
            break
        except OffsetOutOfRangeError as error:
            log_start = int(error.fields["log_start"])  # type: ignore[call-overload]
            if config.fails_on_data_loss or log_start <= wanted.start:
                raise _lost(config, wanted, error) from error
            logger.warning("%s: reading on from %d", error, log_start)
            end = wanted.end
            wanted = OffsetRange(wanted.topic_partition, min(log_start, end), end)
    send_receipt(asked, read_bytes, wanted.start - asked.start)


def _data_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of keys and values, without what Arrow adds."""
    return sum(_length(batch.column(name)) for name in ("key", "value"))


def _length(column: pa.Array) -> int:
    """From the column's ends: pyarrow's functions take 50 ms to import in a worker."""
    if not len(column):
        return 0
    ends = memoryview(column.buffers()[1]).cast("i")
    return int(ends[column.offset + len(column)] - ends[column.offset])


def _lost(
    config: SourceConfig, wanted: OffsetRange, error: OffsetOutOfRangeError
) -> KafkaTxError:
    transactions = config.transactions
    if transactions is not None and transactions.mode == "transactional":
        return ReplayImpossibleError(
            f"{wanted} of '{transactions.id}' cannot be read any more: {error.message}."
            " A transactional batch holds the same records on every try or stops.",
            **error.fields,
        )
    return DataLossError(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"Could not read records in offset [{wanted.start}, {wanted.end}) for topic"
        f" partition {wanted.topic_partition}: {error.message}",
        **error.fields,
    )
