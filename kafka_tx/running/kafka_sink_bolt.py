"""A bolt that writes to Kafka, in both kinds of topologies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from kafka_tx import sink_assembly
from kafka_tx.errors import ConfigError, FailedException, KafkaTxError
from kafka_tx.kafka.out_batch import OutBatch, as_bytes, checked_ms
from kafka_tx.kafka.out_record import OutRecord, checked_headers, checked_topic
from kafka_tx.kafka.sender import Sender
from kafka_tx.logs import event_log
from kafka_tx.options.sink import parse_sink
from kafka_tx.sinks.admission import check_mode
from kafka_tx.topology.declare.bolts import (
    SINK_MEMORY,
    BatchBolt,
    RichBolt,
    TaskContext,
)
from kafka_tx.topology.declare.kafka_message import (
    FieldMapper,
    FieldTopic,
    Mapper,
    TopicSelector,
)
from kafka_tx.topology.rows.row import Row

if TYPE_CHECKING:
    from kafka_tx.config import SinkConfig
    from kafka_tx.errors import DeliveryError

logger = event_log(__name__)

Delivery = Literal["async", "sync", "forget"]
_DELIVERIES = ("async", "sync", "forget")


def write_part(
    config: SinkConfig, task: int, records: Iterable[OutRecord | OutBatch]
) -> None:
    """Write one task's part of a batch exactly once (executor).

    The first task also ends what readers wait for, if an earlier run had more tasks.
    Raises: as ``PartTransaction.write`` and ``end_open_parts``.
    """
    written = sink_assembly.part_transaction(config, task).write(records)
    if written.has_read_all and task == 0:
        sink_assembly.end_open_parts(config, range(config.parts))


class KafkaBolt(BatchBolt, RichBolt):
    """Writes each row as a Kafka record; emits nothing.

    =============================  ====================================================
    topology                       guarantee for a row
    =============================  ====================================================
    transactional, ``tx.id``       **exactly once**: a committer. In the commit phase,
                                   each task writes its part of a batch and the txid in
                                   one Kafka transaction. A replay skips a part that is
                                   written.
    transactional                  at least once: a batch is done when all its records
                                   are delivered. A replay writes them again.
    at-least-once                  at least once: a row whose record is delivered is
                                   acked. Otherwise this row alone fails.
    =============================  ====================================================

    Exactly once needs a transactional spout (an opaque one is refused), bolts that emit
    the same rows for the same txid, and a parallelism that does not change. The bolt
    refuses a replay with other rows, because records in Kafka cannot be taken back.
    Readers need ``isolation.level=read_committed``.

    If a broker is lost, the batch is replayed. A record that can never be written (too
    large, unknown topic, no permission) stops a transactional topology; the error names
    the record's topic, key and size.

    Args:
        options: As for ``df.write``: ``kafka.bootstrap.servers``, other ``kafka.*``,
            ``topic``, and ``tx.id``, the name of this sink, for exactly once.
        topic: A name, ``FieldTopic`` or a function of a row; None: option ``topic``.
            A row is not written if the function or field gives None.
        mapper: Makes the record of a row: ``FieldMapper``, or a function that returns a
            ``KafkaMessage``.
        delivery: ``async`` awaits deliveries before the batch, or the chunk of records,
            is done. ``sync`` awaits each delivery before the next row. ``forget``
            awaits none, so failures are not noticed.

    Raises:
        ConfigError: An option is missing or illegal.

    Source: Storm, KafkaBolt.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        topic: TopicSelector | None = None,
        mapper: Mapper | None = None,
        *,
        delivery: Delivery = "async",
    ) -> None:
        config = parse_sink(options)
        if delivery not in _DELIVERIES:
            raise ConfigError.illegal("delivery", delivery, ", ".join(_DELIVERIES))
        if config.id is not None and delivery != "async":
            raise ConfigError.illegal("delivery", delivery, "async, with 'tx.id'")
        _check_selectors(topic, mapper)
        chosen = topic or config.topic
        if chosen is None:
            raise ConfigError(
                "KafkaBolt needs a topic: the option 'topic', or the argument 'topic'"
                " (a name, FieldTopic or a function of a row)",
                option="topic",
            )
        if config.topic is None and isinstance(chosen, str):
            config = replace(config, topic=chosen)
        if config.id is not None and config.topic is None:
            raise ConfigError(
                "exactly once needs the option 'topic' too, beside topics by row: the"
                " txid is committed as an offset of it",
                option="topic",
            )
        self._config = config
        self._topic = chosen
        self._mapper = FieldMapper() if mapper is None else mapper
        self._delivery = delivery
        self.committer = config.id is not None  # type: ignore[misc] # by option

    @property
    def is_vectorised(self) -> bool:
        """Whether rows come as Arrow batches: not if topic or mapper is a function."""
        by_field = isinstance(self._topic, str | FieldTopic)
        return by_field and isinstance(self._mapper, FieldMapper)

    def remembered(self) -> dict[str, str]:
        """A setting with the sink's present markers; empty without ``tx.id``.

        The driver calls it at a start, before it becomes the owner: tasks then read
        only later markers. If the brokers do not answer, the result is empty, and each
        task reads all markers itself.

        Raises:
            ConfigError: The marker topic is not compacted.
            AuthenticationError, KafkaError: The brokers refuse.
            StateCorruptedError: The marker topic holds other records.
        """
        if self._config.id is None:
            return {}
        try:
            known = sink_assembly.remembered(self._config)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            logger.warning("tasks read the markers themselves: %s", error)
            return {}
        return {f"{SINK_MEMORY}{self._config.id}": known}

    def prepare(self, context: TaskContext, collector: Any) -> None:  # noqa: ANN401
        """Called for every batch or chunk, in each task."""
        if self.committer:
            check_mode(context.attempt, f"the sink '{self._config.id}'")
        self._context = context
        self._collector: Any = collector if hasattr(collector, "ack") else None
        self._sender: Sender | None = None
        self._of_part: list[OutRecord | pa.RecordBatch] = []
        self._skipped = 0

    def execute(self, row: Row) -> None:
        """Map one row and send it; with ``tx.id``: keep it for the commit phase."""
        record = self._record(row)
        if self._collector is not None:
            self._post(row, record)
        elif record is not None:
            with _asking_for_replay():
                self._take(record)

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        """Map rows and send them; with ``tx.id``: keep them for the commit phase."""
        if self.committer:
            self._of_part.append(batch)
            return
        with _asking_for_replay():
            self._write(self._out_batch(batch))

    def finish_batch(self) -> None:
        """Await all deliveries; with ``tx.id``: write the part, in the commit phase."""
        with _asking_for_replay():
            if self.committer:
                self._write_part()
            else:
                self._finish()

    def cleanup(self) -> None:
        """At-least-once: await open deliveries, and ack or fail their rows."""
        if self._collector is not None:
            self._finish()
        elif self._sender is not None:  # failed
            self._sender.purge()
            self._sender = None

    def __getstate__(self) -> dict[str, Any]:  # without a producer
        if self.__dict__.get("_sender") is not None:
            with _asking_for_replay():
                self._finish()
        return self.__dict__.copy()

    # --- writing ---

    def _take(self, record: OutRecord) -> None:
        if self.committer:
            self._of_part.append(record)
        elif self._delivery == "forget":
            self._opened().post(record, _forget)
        else:
            sender = self._opened()
            sender.queue((record,))
            if self._delivery == "sync":
                sender.flush()

    def _write(self, batch: OutBatch) -> None:
        if self._delivery == "async":
            self._opened().write(batch)
        else:
            for record in batch.records():
                self._take(record)

    def _post(self, row: Row, record: OutRecord | None) -> None:
        if record is None:
            self._collector.ack(row)
        elif self._delivery == "forget":
            self._opened().post(record, _forget)
            self._collector.ack(row)
        else:
            sender = self._opened()
            sender.post(record, partial(self._settle, row))
            if self._delivery == "sync":
                sender.flush()

    def _settle(self, row: Row, error: DeliveryError | None) -> None:
        if error is None:
            self._collector.ack(row)
        else:
            self._collector.fail(row, str(error))

    def _write_part(self) -> None:
        context = self._context
        attempt = context.attempt
        config = replace(
            self._config,
            attempt=attempt,
            parts=context.tasks,
            run=str(attempt.epoch),
            reads_all_markers=True,
            memory=context.settings.get(f"{SINK_MEMORY}{self._config.id}", ""),
        )
        write_part(config, context.task, _PartRecords(self._of_part, self._out_batch))

    def _opened(self) -> Sender:
        if self._sender is None:
            is_awaited = self._delivery != "forget"
            self._sender = sink_assembly.borrow_sender(
                self._config, is_awaited=is_awaited
            )
        return self._sender

    def _finish(self) -> None:
        sender, self._sender = self._sender, None
        if sender is None:
            return
        if self._delivery == "forget":
            sender.poll()
        else:
            sender.flush()
        sender.give_back()

    # --- mapping ---

    def _record(self, row: Row) -> OutRecord | None:
        topic = self._topic if isinstance(self._topic, str) else self._topic(row)
        if topic is None:
            self._skip()
            return None
        message = self._mapper(row)
        return OutRecord(
            checked_topic(topic),
            as_bytes("key", message.key),
            as_bytes("value", message.value),
            checked_headers(message.headers),
            message.partition,
            checked_ms(message.timestamp_ms),
        )

    def _out_batch(self, batch: pa.RecordBatch) -> OutBatch:
        assert isinstance(self._mapper, FieldMapper)
        topic = self._topics(batch)
        if topic is None:
            self._skip(len(batch))
            topic, batch = "", batch.slice(0, 0)
        elif not isinstance(topic, str) and topic.null_count:
            self._skip(topic.null_count)
            topic, batch = topic.drop_null(), batch.filter(topic.is_valid())
        key, value = self._mapper.columns(batch)
        return OutBatch.of(topic, value, key)

    def _topics(self, batch: pa.RecordBatch) -> str | pa.Array | None:
        if isinstance(self._topic, str):
            return self._topic
        assert isinstance(self._topic, FieldTopic)
        index = self._topic.index(batch.schema.names)
        if index is None:
            return self._topic.default
        names = (None if n is None else str(n) for n in batch.column(index).to_pylist())
        return pa.array(names, pa.string())

    def _skip(self, rows: int = 1) -> None:
        self._skipped += rows
        if rows and self._skipped == rows:
            logger.warning(
                "component '%s' does not write some rows: their topic is None",
                self._context.component,
                attempt=self._context.attempt,
            )


class _PartRecords:
    """The records of a part, which can be iterated more than once."""

    def __init__(
        self,
        rows: list[OutRecord | pa.RecordBatch],
        columns: Callable[[pa.RecordBatch], OutBatch],
    ) -> None:
        self._rows = rows
        self._columns = columns

    def __iter__(self) -> Iterator[OutRecord | OutBatch]:
        for some in self._rows:
            yield some if isinstance(some, OutRecord) else self._columns(some)


def _check_selectors(topic: object, mapper: object) -> None:
    if not (topic is None or isinstance(topic, str) or callable(topic)):
        legal = "a name, FieldTopic or a function of a row"
        raise ConfigError.illegal("topic", topic, legal)
    if not (mapper is None or callable(mapper)):
        legal = "FieldMapper, or a function of a row that returns a KafkaMessage"
        raise ConfigError.illegal("mapper", mapper, legal)


def _forget(_: DeliveryError | None) -> None:
    """Ignore the result of a delivery."""


@contextmanager
def _asking_for_replay() -> Iterator[None]:
    try:
        yield
    except FailedException:
        raise
    except KafkaTxError as error:
        if error.retryable:
            raise FailedException(str(error)) from error
        raise
