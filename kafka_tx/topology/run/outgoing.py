"""Rows that leave a task, sorted by where they go."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kafka_tx.topology.declare.groupings import Router, router_for
from kafka_tx.topology.plan.physical import Edge
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
from kafka_tx.topology.run.messages import Packet

_ROWS_PER_PACKET = 8192


class OneTask:
    """Router into a DataFrame: Spark spreads the rows, so they stay together here."""

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """The block, whole."""
        yield 0, block


class Outgoing:
    """What one task of a source sends along one edge.

    Plain rows wait for each other, so that a packet is worth its cost; record batches
    go as they are.
    """

    def __init__(self, edge: Edge, fields: Fields, source_task: int) -> None:
        self._edge = edge
        self._fields = fields
        self._waiting: dict[int, Rows] = {}
        self._bytes: dict[int, int] = {}
        self._router: Router = (
            OneTask()
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
        """Yield what still waits."""
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
