"""Messages of tasks: rows to other tasks, and reports to the driver.

All messages are picklable. Rows between tasks of one process are not converted.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.declare.groupings import AllRouter, Router, router_for
from kafka_tx.topology.plan.physical import Edge, TaskId
from kafka_tx.topology.rows.blocks import (
    MOST_BYTES,
    Block,
    Rows,
    bounded,
    size,
    to_batch,
    weight,
)
from kafka_tx.topology.rows.fields import Fields

Roots: TypeAlias = npt.NDArray[np.int64]
"""Numbers of records within the in-flight chunks."""

NO_ROOTS: Roots = np.empty(0, np.int64)

TORN = "Spark ran a task again, and other tasks had rows of its first run already"
"""Why the packets that were sent differ from the packets that were received."""


@dataclass(frozen=True, slots=True)
class Packet:
    """Rows of one stream on their way to one task of a component.

    Attributes:
        target: The component that reads them.
        task: The index of the component's task.
        source: The component that emitted them.
        id: A random number, new whenever a task makes the packet. It shows if Spark
            runs a task again after other tasks have rows of its first run.
    """

    target: str
    task: int
    source: str
    stream: str
    block: Block
    id: int = field(default_factory=lambda: secrets.randbits(64), compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        head = (self.target, self.task, self.source, self.stream)
        if isinstance(self.block, pa.RecordBatch):
            return _arrow_packet, (*head, _to_bytes(self.block), self.id)
        return Packet, (*head, self.block, self.id)


@dataclass(frozen=True, slots=True)
class Suspended:
    """Bolts of a task that wait for the commit phase, each pickled with its output."""

    task: TaskId
    bolts: Mapping[str, bytes]


class Emitted(NamedTuple):
    """How many rows a component of a task emitted."""

    component: str
    rows: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of a task that has done its part.

    Attributes:
        emitted: Rows by component.
        facts: The spout's facts about its partitions.
        packets: The xor of the ids of all packets that it sent or received.
    """

    task: TaskId
    emitted: tuple[Emitted, ...]
    facts: Mapping[str, Any]
    packets: int


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """Replay the batch: user code ordered it, or its records cannot be read now.

    Attributes:
        stops: The error that stops the topology if replays do not help. Set only after
            damaged records of a batch; and in an at-least-once topology after an error
            in ``prepare``, without a bad record.
    """

    attempt: TransactionAttempt
    component: str
    task: int
    reason: str
    stops: KafkaTxError | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"component '{self.component}', task {self.task}: {self.reason}"


@dataclass(frozen=True, slots=True)
class BatchStopped:
    """No replay helps: stop the topology with this error."""

    attempt: TransactionAttempt
    error: KafkaTxError


@dataclass(frozen=True, slots=True, eq=False)
class RootsFailed:
    """Records that a bolt failed, for one reason; ``roots`` ascend, each once."""

    component: str
    reason: str
    roots: Roots


@dataclass(frozen=True, slots=True, eq=False)
class TreeReport(TaskReport):
    """The report of a task of an at-least-once topology, with its records' results.

    Attributes:
        begun: Runs ``[first, end)`` of records that this task read.
        failed: Records that its bolts failed, and why.
        untried: Records of rows that no bolt was given, because the time was over.
        open: Records of rows that a rich bolt neither acked nor failed.
        took_s: How long the task worked, without the preparation of its bolts.
    """

    begun: tuple[tuple[int, int], ...]
    failed: tuple[RootsFailed, ...]
    untried: Roots
    open: Roots
    took_s: float


Message: TypeAlias = Packet | Suspended | TaskReport | BatchFailed | BatchStopped
"""Any message that a task sends."""


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    """The batch as an Arrow stream; a slice without the rest of its buffers."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _arrow_packet(
    target: str, task: int, source: str, stream: str, data: bytes, id_: int
) -> Packet:
    with pa.ipc.open_stream(data) as reader:
        return Packet(target, task, source, stream, reader.read_next_batch(), id_)


_ROWS_PER_PACKET = 8192


class Outgoing:
    """The packets that one task of a source sends along one edge.

    Plain rows are collected into larger packets, which cost less; record batches are
    sent as they are.
    """

    def __init__(self, edge: Edge, fields: Fields, source_task: int) -> None:
        self._edge = edge
        self._fields = fields
        self._waiting: dict[int, Rows] = {}
        self._bytes: dict[int, int] = {}
        self._router: Router = (
            AllRouter(1)  # Spark spreads the rows
            if edge.as_arrow
            else router_for(edge.given.grouping, fields, edge.tasks, source_task)
        )

    def put(self, block: Block) -> Iterator[Packet]:
        """Take rows; yield the packets that are full."""
        if self._edge.as_arrow:
            block = to_batch(block, self._fields, self._edge.given.source)
        for task, part in bounded(self._router.route(block)):
            if isinstance(part, pa.RecordBatch):
                yield from self._flush(task)
                yield self._packet(task, part)
            else:
                waiting = self._waiting.setdefault(task, [])
                waiting.extend(part)
                bytes_ = self._bytes[task] = self._bytes.get(task, 0) + weight(part)
                if size(waiting) >= _ROWS_PER_PACKET or bytes_ >= MOST_BYTES:
                    yield from self._flush(task)

    def flush(self) -> Iterator[Packet]:
        """Yield packets of the rows that still wait."""
        for task in sorted(self._waiting):
            yield from self._flush(task)

    def _flush(self, task: int) -> Iterator[Packet]:
        rows = self._waiting.pop(task, None)
        self._bytes.pop(task, None)
        if rows:
            yield self._packet(task, rows)

    def _packet(self, task: int, block: Block) -> Packet:
        given = self._edge.given
        return Packet(self._edge.target, task, given.source, given.stream, block)
