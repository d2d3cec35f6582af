"""Bolts: the user code of a topology.

=============  ======================================  ==============================
bolt           is given                                acks
=============  ======================================  ==============================
BasicBolt      single rows, or Arrow batches           by itself, after ``execute``
BatchBolt      one batch of rows, then its end         by itself
 committer     the same; its end in the commit phase   by itself
DataFrameBolt  the batch as a Spark DataFrame          by itself
RichBolt       single rows (at-least-once only)        the user's code does
=============  ======================================  ==============================

A bolt class is instantiated for every attempt and task, on the executor or driver that
runs the task. An instance keeps nothing from one batch to the next. The class declares
its output in ``fields`` (and, for more streams than one, in ``streams``).

A ``FailedException`` from any method of a bolt causes a replay of the batch. Any other
exception stops the topology with that error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.rows.fields import DEFAULT_STREAM, FieldsLike
from kafka_tx.topology.rows.row import Row

TOPOLOGY_ID = "topology.id"
"""The setting that holds the id of a running topology."""
SINK_MEMORY = "topology.sink.memory."
"""Prefix of the settings, by sink id, that hold the markers the driver has read."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The task in which an instance of a bolt runs.

    Attributes:
        component: The bolt's name in the topology.
        task: Index of this task within the component, from 0.
        tasks: Actual number of the component's tasks in this batch.
        attempt: The attempt of this instance. In an at-least-once topology the txid is
            the number of the chunk of records.
        settings: The settings given to the topology; in a transactional topology on
            Spark also the topology's id.
    """

    component: str
    task: int
    tasks: int
    attempt: TransactionAttempt
    settings: Mapping[str, Any]


class Collector(Protocol):
    """Takes the rows that a bolt emits, and puts the attempt before their values."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one row: one value for each declared field, without ``tx``.

        Raises:
            ConfigError: The stream is not declared, or the number of values is wrong.
        """

    def emit_arrow(
        self,
        batch: pa.RecordBatch,
        stream: str = DEFAULT_STREAM,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Emit a record batch (or table) with the declared fields as its columns.

        A ``tx`` column may be left in it; it is ignored.

        Args:
            batch: The rows.
            stream: A declared stream.
            rows: For each emitted row, the index of its source row in the batch of
                ``execute_arrow``. Only at-least-once topologies use it, to find the
                record that failed. None: one row for each given row, in order.

        Raises:
            ConfigError: Columns are missing or not declared, or a type does not fit; or
                ``rows`` is needed to find the source rows.
        """

    def reset_timeout(self, row: Row) -> None:
        """Begin the row's time-out again, because its work takes long but goes on.

        At-least-once topologies only, and only for the row in ``execute``: other
        kinds have no time-out for rows. Source: Storm, OutputCollector.resetTimeout.
        """


class RichCollector(Protocol):
    """Takes the rows that a ``RichBolt`` emits, acks and fails."""

    def emit(
        self,
        values: Sequence[Any],
        anchors: Iterable[Row] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one row, anchored on these input rows.

        The records of the anchors complete only after the emitted row completes. A row
        that is named twice counts twice and still completes. Without anchors the row is
        not tracked: its failure is logged and replays nothing.

        Raises:
            ConfigError: The stream is not declared, the number of values is wrong, or
                an anchor is not a row of this bolt, or was acked before.
        """

    def ack(self, row: Row) -> None:
        """This bolt is done with the row. A second ack or fail of it is ignored."""

    def reset_timeout(self, row: Row) -> None:
        """See ``Collector``."""

    def fail(self, row: Row, reason: str = "failed by the bolt") -> None:
        """Replay the records of the row; dead letters contain the reason."""


class Bolt:
    """The base of all bolts. Subclass one of the other classes, not this one."""

    fields: FieldsLike = ()
    """Fields of the default stream, without ``tx``: names, pairs (name, type), DDL text
    such as ``"word string, count bigint"``, or an Arrow schema; empty when nothing is
    emitted there."""

    streams: Mapping[str, FieldsLike] = {}
    """Further named streams and their fields."""

    committer: ClassVar[bool] = False
    """True for a batch bolt whose ``finish_batch`` belongs to the commit phase."""

    @property
    def is_vectorised(self) -> bool:
        """False: ``execute`` is given rows although there is ``execute_arrow``."""
        return True

    def cleanup(self) -> None:
        """Release all resources; called once, also after a failure.

        Not called on an instance that is lost with its process.
        """


class BasicBolt(Bolt):
    """Handles rows one by one; each is acked when ``execute`` returns.

    Override ``execute``, or ``execute_arrow`` (then ``execute`` is never called).
    """

    def prepare(self, context: TaskContext) -> None:
        """Called once, before the first row."""

    def execute(self, row: Row, collector: Collector) -> None:
        """Handle one row; emitted rows are anchored on it."""
        raise NotImplementedError

    def execute_arrow(self, batch: pa.RecordBatch, collector: Collector) -> None:
        """Handle many rows at once; column 0 is ``tx``, a struct (txid, attempt_id)."""
        raise NotImplementedError


class BatchBolt(Bolt):
    """Handles the rows of one batch in one task, and gets a call at their end.

    Lifecycle of an instance: ``prepare``; ``execute`` or ``execute_arrow`` any number
    of times, also never; ``finish_batch``; ``cleanup``. For a committer everything up
    to the last ``execute`` belongs to the processing phase and ``finish_batch`` to the
    commit phase, which comes in txid order, and possibly again for the same txid: it
    must store the txid with its result, and skip a txid that is stored already.

    Between the phases a committer on executors is pickled: it opens connections in
    ``finish_batch``, or runs on the driver.

    Override ``execute``, or ``execute_arrow`` (then ``execute`` is never called).
    """

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        """Called once, before the first row. Keep the collector for emitting."""

    def execute(self, row: Row) -> None:
        """Handle one row."""
        raise NotImplementedError

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        """Handle many rows at once; column 0 is ``tx``, a struct (txid, attempt_id)."""
        raise NotImplementedError

    def finish_batch(self) -> None:
        """Called after the last row of the batch in this task.

        Also called if the task has no rows: an empty batch has its (zero) result, too.
        """


class Committer:
    """Marks a batch bolt as committer: ``class Sum(Committer, BatchBolt)``."""

    committer: ClassVar[bool] = True


class RichBolt(Bolt):
    """Handles rows one by one, and acks or fails each itself; at-least-once only.

    A row that is neither acked nor failed times out and is replayed.
    """

    def prepare(self, context: TaskContext, collector: RichCollector) -> None:
        """Called once, before the first row. Keep the collector for emitting."""

    def execute(self, row: Row) -> None:
        """Handle one row."""
        raise NotImplementedError


class DataFrameBolt(Bolt):
    """A function from DataFrame to DataFrame, planned by Spark.

    Give the function, or subclass and override ``transform``. It is called on the
    driver for every attempt, with a DataFrame for each grouping in the order they were
    declared; their first column is ``tx``. It must not run an action.

    Args:
        function: Called with the DataFrame(s); returns one that has the declared fields
            as columns, with or without ``tx``.
        fields: Their names and types; types are required, because Spark must know them
            before a record is read.
    """

    def __init__(
        self, function: Callable[..., Any] | None = None, fields: FieldsLike = ()
    ) -> None:
        self._function = function
        if fields:
            self.fields = fields

    def transform(self, *frames: Any) -> Any:  # noqa: ANN401 - Spark is not known here
        """The DataFrame this bolt makes of its inputs."""
        if self._function is None:
            raise NotImplementedError
        return self._function(*frames)


def reads_arrow(bolt: Bolt) -> bool:
    """Whether the bolt overrides ``execute_arrow`` and so never sees single rows."""
    return bolt.is_vectorised and _overrides(bolt, "execute_arrow")


def does_something(bolt: Bolt) -> bool:
    """Whether the bolt overrides one of the methods that are given rows."""
    if isinstance(bolt, DataFrameBolt):
        return bolt._function is not None or _overrides(bolt, "transform")
    return _overrides(bolt, "execute") or _overrides(bolt, "execute_arrow")


def _overrides(bolt: Bolt, method: str) -> bool:
    for kind in type(bolt).__mro__:
        if method in vars(kind):
            return kind not in (BasicBolt, BatchBolt, RichBolt, DataFrameBolt)
    return False
