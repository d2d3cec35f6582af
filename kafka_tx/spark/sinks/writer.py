"""Spark's Kafka sink: ``df.write`` and ``writeStream`` with ``format("kafka_tx")``.

Columns ``key``, ``value``, ``topic``, ``partition``, ``headers`` (and ``timestamp``
with ``timestampColumn=true``), the option ``topic``, and ``kafka.*``. At-least-once.
``write_transaction`` uses the first for exactly once. The second writes exactly once
with ``tx.id``, as long as its checkpoint lives: it counts Spark's batches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import DataType, StructType

from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import ConfigError
from kafka_tx.errors_first import raises_own_error_first
from kafka_tx.kafka.dead_letter_form import COMPARED
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.part_transaction import Written
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.worker_python import task_done
from kafka_tx.sinks.marker_rules import begun_elsewhere, check_cut
from kafka_tx.spark.speculation import refuse_speculative_tasks
from kafka_tx.spark.versions.names import BATCH_ID, QUERY_ID, RUN_ID, SESSION_ZONE
from kafka_tx.spark.versions.streams import StreamWriter
from kafka_tx.spark.versions.workers import whole
from kafka_tx.stored import VERSION, check_same_version

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
_TIMES = ("timestamp", "timestamp_ntz")
_IN_MEMORY_BYTES = 64 << 20


@dataclass
class PartMessage(WriterCommitMessage):
    """Reported to the driver by a task: the result of its part.

    ``config`` is without what the driver knew of the markers: before the driver writes
    what is left, all of them are read anew.
    """

    index: int
    written: Written
    config: SinkConfig


@raises_own_error_first("write", "commit")
class KafkaTxWriter(DataSourceArrowWriter):
    """A batch write. Made on the driver, ``write`` runs in each task."""

    def __init__(self, config: SinkConfig, schema: StructType) -> None:
        if config.id is not None and config.attempt is None:
            raise ConfigError(
                "df.write with 'tx.id' has no txid that would tell a replay from a new"
                " batch. Use kafka_tx.write_transaction(df, attempt, options), or leave"
                " 'tx.id' away and write at least once",
                option="tx.id",
                value=config.id,
            )
        is_running = config.attempt is not None
        self._config = _with_schemas(config, schema, is_running=is_running)
        self._version = VERSION

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; returns when every one is delivered (executor)."""
        check_same_version(getattr(self, "_version", None), "this write")
        return write_part(self._config, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have delivered; write the parts for which there was no task.

        Spark runs none for rows that it knows to be empty. Their markers count: an
        older writer of such a part finds the batch written.
        """
        if self._config.id is not None:
            given = {m.index for m in messages if isinstance(m, PartMessage)}
            for index in range(self._config.parts):
                if index not in given:
                    sink_assembly.part_transaction(self._config, index).write(())
        task_done()


def write_part(
    config: SinkConfig, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Write what one task was given (executor).

    Raises:
        DeliveryError: A record was refused; names its topic, key and size.
        ConfigError: A row has no topic and there is no option ``topic``; with ``tx.id``
            also: ``spark.speculation`` is on.
    """
    try:
        return _written(config, batches)
    finally:
        task_done()


def _written(
    config: SinkConfig, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    if config.id is None or config.attempt is None:
        if config.formats:
            return _checked_and_sent(config, batches)
        return _sent(config, _out_batches(batches, config))
    refuse_speculative_tasks("exactly-once Kafka sinks")
    context = TaskContext.get()
    assert context is not None
    index = context.partitionId()
    part = sink_assembly.part_transaction(config, index)
    with closing(_RepeatableBatches(batches, config)) as records:
        written = part.write(records)
    return PartMessage(index, written, replace(config, memory=""))


def _checked_and_sent(
    config: SinkConfig, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Encode all rows of the task before one is sent: a value may not fit."""
    with closing(_RepeatableBatches(batches, config)) as records:
        for _ in records:
            pass
        return _sent(config, iter(records))


def _sent(config: SinkConfig, batches: Iterator[OutBatch]) -> WriterCommitMessage:
    sender = sink_assembly.borrow_sender(config)
    with sender:
        for batch in batches:
            sender.write(batch)
        sender.flush()
    sender.give_back()
    return WriterCommitMessage()


@raises_own_error_first("write", "commit")
class KafkaTxStreamWriter(StreamWriter):
    """A streaming write: at-least-once; with ``tx.id`` exactly once per checkpoint.

    With ``tx.id`` each task writes its part of Spark's batch in one Kafka transaction
    that also commits the batch's number, under the id of the query, which is the
    checkpoint's. A batch that Spark runs again finds its parts done.

    Spark does not tell tasks how many they are, so a batch that an earlier run has left
    half-written may be split into other tasks. Its tasks do not write what is missing
    but hand it to ``commit``, which knows all of them.

    Made by the driver for each batch, before its tasks: schemas are fetched and the
    markers read then, and each task reads only what came after that.

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
        config = _with_schemas(config, schema, is_running=True)
        if config.id is not None:
            config = replace(config, memory=sink_assembly.remembered(config))
        self._config = config
        self._version = VERSION

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; returns when every one is delivered (executor)."""
        check_same_version(getattr(self, "_version", None), "this write")
        config = self._config
        if config.id is not None:
            config = _of_this_batch(config)
        return write_part(config, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """All tasks have delivered, or returned the rest of a half-written batch.

        Raises:
            ReplayDiffersError: The batch is split differently. Nothing was written.
        """
        parts = [message for message in messages if isinstance(message, PartMessage)]
        if any(message.written.unwritten is not None for message in parts):
            _write_the_rest(parts)
        if any(message.written.has_read_all for message in parts):
            tasks = {message.index for message in parts}
            sink_assembly.end_open_parts(parts[0].config, tasks)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed; what others delivered stays.

        Without ``tx.id`` it is written again. With it, the next try finds their parts
        done.
        """


def _write_the_rest(parts: list[PartMessage]) -> None:
    unwritten = [message for message in parts if message.written.unwritten is not None]
    confirmed = {
        message.index: message.written.digest
        for message in parts
        if message.written.unwritten is None
    }
    config = unwritten[0].config
    memory = sink_assembly.marker_log(config).recall(config.id or "")
    for message in unwritten:
        part = sink_assembly.sink_part(config, message.index)
        check_cut(part, begun_elsewhere(part, memory.markers), confirmed)
    for message in unwritten:
        writing = sink_assembly.part_transaction(
            replace(config, reads_all_markers=False), message.index
        )
        writing.write(message.written.unwritten or ())


def _with_schemas(
    config: SinkConfig, schema: StructType, *, is_running: bool
) -> SinkConfig:
    """The configuration with the schemas of now, once all columns fit (driver).

    ``is_running``: as of ``writer_schema``.

    Raises:
        ConfigError: A column or a schema is missing or illegal, or they do not fit.
        RegistryError: The schema registry does not answer, or refuses the client.
    """
    _check_columns(schema, config)
    if not config.formats:
        return config
    from kafka_tx.schemas.readers import writer_schema
    from kafka_tx.schemas.writing import check_schema

    formats = []
    kinds = {field.name: field.dataType.jsonValue() for field in schema.fields}
    for each in config.formats:
        if each.side in kinds:
            found = writer_schema(
                each, registers=config.registers, is_running=is_running
            )
            check_schema(found, kinds[each.side], each.side)
            formats.append(replace(each, reader=found, registry={}))
    return replace(config, formats=tuple(formats))


def _check_columns(schema: StructType, config: SinkConfig) -> None:
    """Check the columns as Spark's sink does, with its texts; raises ConfigError."""
    found: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if config.topic is None and "topic" not in found:
        raise ConfigError(
            "topic option required when no 'topic' attribute is present. Use the topic"
            " option for setting a topic.",
            option="topic",
        )
    if "value" not in found:
        raise ConfigError("Required attribute 'value' not found", option="value")
    if config.takes_timestamp and "timestamp" not in found:
        raise ConfigError(
            "option 'timestampColumn' is true, and there is no column 'timestamp'",
            option="timestampColumn",
        )
    typed = {each.side for each in config.formats}
    for name, legal in _types_read(config).items():
        if schema.names.count(name) > 1:
            raise ConfigError(
                f"several columns have the name '{name}'. Select the columns to write"
                " before the write, each name once",
                option=name,
            )
        if name in typed:
            continue
        kind = found[name].simpleString() if name in found else legal[0]
        if kind not in legal:
            raise ConfigError(
                f"{name} attribute unsupported type {kind}. {name} must be a(n)"
                f" {' or '.join(legal)}",
                option=name,
            )


def _types_read(config: SinkConfig) -> dict[str, tuple[str, ...]]:
    """The legal types of the columns that are read: the option replaces ``topic``."""
    types = {**_TYPES, "timestamp": _TIMES} if config.takes_timestamp else dict(_TYPES)
    if config.topic is not None:
        del types["topic"]
    return types


def _out_batches(
    batches: Iterator[pa.RecordBatch], config: SinkConfig
) -> Iterator[OutBatch]:
    """Turn rows into records. The option ``topic`` wins over the column, as in Spark.

    Raises:
        ConfigError: ``KAFKA_NULL_TOPIC_IN_DATA``; a partition below 0; a header without
            a key; a time of 0, or a ``timestamp_ntz`` in an unknown zone.
    """
    context = TaskContext.get()
    zone = context.getLocalProperty(SESSION_ZONE) if context else None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        topic = config.topic or found["topic"]
        if not isinstance(topic, str) and topic.null_count:
            raise ConfigError(
                "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the"
                " producer contains a null topic. Use the `topic` option for"
                " setting a default topic.",
                option="topic",
            )
        yield OutBatch.of(
            topic,
            found["value"],
            found.get("key"),
            headers=found.get("headers"),
            partition=found.get("partition"),
            timestamp=found.get("timestamp") if config.takes_timestamp else None,
            zone=zone,
            compared=found.get(COMPARED),
        )


class _RepeatableBatches:
    """The records of a part, which can be iterated several times.

    Their Arrow batches are taken only as far as needed, and stored in memory and then
    in a temporary file without a name, which also goes when the process ends. Columns
    with a schema are stored as they are written: they are encoded once.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], config: SinkConfig) -> None:
        self._batches = batches
        self._config = config
        self._encoders = sink_assembly.avro_columns(config)
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        self._schemas: list[pa.Schema] = []
        self._ends = [0]

    def __iter__(self) -> Iterator[OutBatch]:
        return _out_batches(self._from_the_first(), self._config)

    def _from_the_first(self) -> Iterator[pa.RecordBatch]:
        for place in range(len(self._schemas)):
            yield self._read(place)
        for batch in map(self._encoded, whole(self._batches)):
            self._save(batch)
            yield batch

    def _encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With the bytes of columns that have a schema; raises ConfigError."""
        for name, encoder in self._encoders.items():
            index = batch.schema.get_field_index(name)
            made = encoder.encoded(batch.column(index))
            batch = batch.set_column(index, name, made)
            place = batch.schema.get_field_index("headers")
            if place >= 0:
                headers = encoder.headers(batch.column(place))
                batch = batch.set_column(place, "headers", headers)
        return batch

    def close(self) -> None:
        self._file.close()

    def _save(self, batch: pa.RecordBatch) -> None:
        self._file.seek(self._ends[-1])
        self._file.write(batch.serialize())
        self._schemas.append(batch.schema)
        self._ends.append(self._file.tell())

    def _read(self, place: int) -> pa.RecordBatch:
        start, end = self._ends[place : place + 2]
        self._file.seek(start)
        import pyarrow as pa

        return pa.ipc.read_record_batch(
            pa.py_buffer(self._file.read(end - start)), self._schemas[place]
        )


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
        config,
        attempt=TransactionAttempt(int(batch) + 1, 0),
        parts=0,
        life=query,
        run=run,
        reads_all_markers=True,
    )
