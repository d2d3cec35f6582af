"""From an input partition to record batches, on an executor."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors import (
    DataLossError,
    KafkaTxError,
    OffsetOutOfRangeError,
    OtherTopicError,
)
from kafka_tx.logs import event_log
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.offsets.position_checks import BELIEVED_AFTER_MS, Finding
from kafka_tx.planning.replays import replay_impossible
from kafka_tx.running.worker_python import task_done
from kafka_tx.source.read_reports import ReadReport
from kafka_tx.stored import VERSION, check_same_version

logger = event_log(__name__)

_BELIEVED_AFTER_S = BELIEVED_AFTER_MS[Finding.CUT] / 1_000
_PAUSE_S = 1.0
_LONG = 1_000


NO_SCHEMAS: Mapping[str, str] = {}


class RangePartition(InputPartition):
    """The range of one task.

    Its value has no class of ours: Spark pickles each partition apart, and takes twice
    the time for classes by name.
    """

    def __init__(
        self, wanted: OffsetRange, schemas: Mapping[str, str] = NO_SCHEMAS
    ) -> None:
        partition, topic_id = wanted.topic_partition, wanted.topic_id
        at = tuple(partition), wanted.start, wanted.end, topic_id, wanted.leader_epoch
        super().__init__((VERSION, at, dict(schemas)) if schemas else (VERSION, at))

    @property
    def wanted(self) -> OffsetRange:
        """The range. Raises FormatError: The driver has another version."""
        check_same_version(self.value[0], "the range of this task")
        partition, *others = self.value[1]
        return OffsetRange(TopicPartition(*partition), *others)

    @property
    def schemas(self) -> Mapping[str, str]:
        """By side the schemas with which the batch was planned."""
        return self.value[2] if len(self.value) > 2 else NO_SCHEMAS


def read_range(
    config: SourceConfig, wanted: OffsetRange, schemas: Mapping[str, str] = NO_SCHEMAS
) -> Iterator[pa.RecordBatch]:
    """Read one range; records that are gone meanwhile follow the loss rule.

    A range whose topic was made anew since it was planned is gone as a whole. The next
    batch begins at the start of the new topic.

    ``schemas``: by side the schemas with which the batch was planned.

    Raises:
        RecordFormatError: A record has no value in the format of the options.
        SchemaError, RegistryError: As of ``TypedBatches``.
        DataLossError: Part of the range is gone and ``failOnDataLoss`` is true.
        ReplayImpossibleError: The same in a transactional batch.
        OtherTopicError: ``failOnDataLoss`` is false, and the topic was made anew while
            it was read: rows were already emitted. The next try leaves the range out.
        KafkaError: The range cannot be read now; Spark retries the task.
    """
    try:
        typed = assembly.typed_batches(config, schemas)
        for batch in _read(config, wanted):
            yield from typed(batch)
    finally:
        task_done()


def _read(config: SourceConfig, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    reader = assembly.range_reader(config)
    given, records, read_bytes, skipped, newest = wanted, 0, 0, 0, None
    believed_s = 0.0
    while len(wanted):
        try:
            for batch in reader.read(wanted):
                records += batch.num_rows
                read_bytes += sum(_length(batch.column(n)) for n in ("key", "value"))
                newest = _newest_ms(batch, newest)
                wanted = _after(wanted, batch)
                believed_s = 0.0
                yield batch
            break
        except OffsetOutOfRangeError as error:
            left = _left(wanted, error)
            is_given_in_part = wanted != given and isinstance(error, OtherTopicError)
            if left.end < wanted.end:
                believed_s = believed_s or time.monotonic() + _BELIEVED_AFTER_S
                if time.monotonic() < believed_s:
                    time.sleep(_PAUSE_S)  # it may be the answer of a former leader
                    continue
            if must_fail(config) or left == wanted:
                raise lost(config, wanted, error) from error
            if is_given_in_part:  # rows of the recreated topic were already emitted
                raise
            tx_id = config.transactions and config.transactions.id
            logger.warning("%s: reading %s", error, left, id=tx_id)
            skipped += len(wanted) - len(left)
            wanted = left
    from kafka_tx.spark.source.reports import send_read_report  # planners never do

    send_read_report(ReadReport(given, records, read_bytes, skipped, newest))


def must_fail(config: SourceConfig) -> bool:
    """Whether missing records stop the query, so no batch is read in part."""
    transactions = config.transactions
    is_fixed = transactions is not None and transactions.mode == "transactional"
    return config.fails_on_data_loss or is_fixed


def _after(wanted: OffsetRange, batch: pa.RecordBatch) -> OffsetRange:
    """The rest of a range after one of its batches was returned."""
    if not batch.num_rows:
        return wanted
    last = int(batch.column("offset")[batch.num_rows - 1].as_py())
    return wanted.between(min(last + 1, wanted.end), wanted.end)


def _left(wanted: OffsetRange, error: OffsetOutOfRangeError) -> OffsetRange:
    """The part of a range that the log holds; nothing where it is another topic's."""
    if isinstance(error, OtherTopicError):
        return wanted.between(wanted.end, wanted.end)
    log_start = int(error.fields["log_start"])  # type: ignore[call-overload]
    log_end = int(error.fields["log_end"])  # type: ignore[call-overload]
    end = min(wanted.end, max(log_end, wanted.start))
    return wanted.between(min(max(log_start, wanted.start), end), end)


def _length(column: pa.Array) -> int:
    """Bytes of its values, from its ends: pyarrow's functions take 50 ms to import."""
    if not len(column):
        return 0
    ends = memoryview(column.buffers()[1]).cast("i")
    return int(ends[column.offset + len(column)] - ends[column.offset])


def _newest_ms(batch: pa.RecordBatch, before: int | None) -> int | None:
    """The newest record timestamp; None as long as no record has one."""
    found = _greatest(batch.column("timestamp"))
    if found is None or found <= 0:  # -1: written without a timestamp
        return before
    return max(found // 1000, before or 0)


def _greatest(column: pa.Array) -> int | None:
    """Of 64-bit values; without pyarrow's functions, which take 60 ms to import.

    Numpy is imported already if it is there: by pyarrow.
    """
    numpy = sys.modules.get("numpy")
    is_long = len(column) > _LONG
    if column.null_count or (is_long and numpy is None):
        from pyarrow import compute

        greatest: int | None = compute.max(column.cast(pa.int64())).as_py()
        return greatest
    numbers = memoryview(column.buffers()[1]).cast("q")
    values = numbers[column.offset : column.offset + len(column)]
    if is_long and numpy is not None:
        return int(numpy.asarray(values).max())
    return max(values, default=None)


def lost(
    config: SourceConfig, wanted: OffsetRange, error: OffsetOutOfRangeError
) -> KafkaTxError:
    """The error that stops the query or the task."""
    transactions = config.transactions
    if transactions is not None and transactions.mode == "transactional":
        text = (
            f"{wanted} of '{transactions.id}' cannot be read any more: {error.message}."
        )
        available = error.fields.get("log_start"), error.fields.get("log_end")
        return replay_impossible(text, wanted, available=available)
    return DataLossError(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"Could not read records in offset [{wanted.start}, {wanted.end}) for topic"
        f" partition {wanted.topic_partition}: {error.message}",
        "",
        **error.fields,
    )
