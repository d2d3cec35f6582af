"""Tasks of at-least-once topologies: rows are tracked back to their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.at_least_once.lineage import (
    Lineage,
    Positions,
    TaskTrees,
    Tracked,
)
from kafka_tx.topology.at_least_once.pace import ROWS_PER_TURN, Pace, Turns
from kafka_tx.topology.at_least_once.records import (
    AtLeastOncePacket,
    AtLeastOnceSource,
    Records,
)
from kafka_tx.topology.at_least_once.running_bolts import (
    STOPS,
    AtLeastOnceRunningBolt,
    RunningBasicBolt,
    RunningRichBolt,
)
from kafka_tx.topology.declare.bolts import BasicBolt, RichBolt
from kafka_tx.topology.declare.graph import Component
from kafka_tx.topology.declare.groupings import Router, router_for
from kafka_tx.topology.plan.physical import Edge, PhysicalPlan, TaskId
from kafka_tx.topology.reasons import reason_of
from kafka_tx.topology.rows.blocks import Block, bounded, pieces, size
from kafka_tx.topology.run.messages import (
    NO_ROOTS,
    BatchFailed,
    BatchStopped,
    Emitted,
    Message,
    Packet,
    Roots,
)
from kafka_tx.topology.run.task_failures import component_error
from kafka_tx.topology.run.tasks import StageTask

_POSITION = "\0position"


class AtLeastOnceTask(StageTask):
    """The task of a chunk of records.

    It has the lifecycle of ``Task``, in one phase. An error of a bolt in ``execute``
    fails rows. An error outside of ``execute`` ends the task, and the chunk is
    replayed. When its time is over, the task reads no more records, and gives its bolts
    no more rows of other tasks.
    """

    _raised = (KeyboardInterrupt, GeneratorExit)

    def __init__(
        self,
        plan: PhysicalPlan,
        task: TaskId,
        attempt: TransactionAttempt,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(plan, task, attempt)
        self._trees = TaskTrees()
        self._pace = pace
        self._turns = Turns(pace)
        self._emitted: dict[str, int] = {}
        self._routers: dict[tuple[str, Edge], Router] = {}
        self._feeds = 0
        self._given: tuple[AtLeastOnceRunningBolt, Tracked] | None = None

    def process(
        self,
        packets: Iterable[AtLeastOncePacket] = (),
        source: AtLeastOnceSource | None = None,
    ) -> Iterator[Message]:
        """Process all rows; yield packets, then the report, or one failure."""
        yield from self._guarded(self._process(packets, source), packets)

    def _failed(self, error: BaseException) -> BatchFailed | BatchStopped:
        is_code = isinstance(error, ImportError) or (
            isinstance(error, AttributeError)
            and str(error).startswith("Can't get attribute")
        )
        is_lacking = self._moment == "unpickle" and is_code
        if self._moment == "execute" or is_lacking:  # a package: no record's fault
            return super()._failed(error)
        where = (self._component, self.id.task)
        reason = f"{self._moment}: {reason_of(error)}"
        is_first = self._moment == "prepare"
        stops = component_error(error, self._attempt, *where) if is_first else None
        return BatchFailed(self._attempt, *where, reason, stops)

    @property
    def component(self) -> str:
        """The user's component that works now; empty: none."""
        return self._component

    @property
    def place(self) -> tuple[int, int | None, int] | None:
        """The row and reset that the bolt has reached. Any thread may call it."""
        given = self._given
        if given is None:
            return None
        running, _ = given
        return self._feeds, running.outlet.row, running.outlet.resets

    def roots_at_work(self) -> Roots:
        """The records of the row that a bolt works on. Any thread may call it."""
        given = self._given
        if given is None:
            return NO_ROOTS
        running, tracked = given
        row, lineage = running.outlet.row, tracked.lineage
        if row is None or row >= len(lineage):
            return np.unique(lineage.roots)
        return np.unique(lineage.roots[lineage.of(row)])

    def _process(
        self, packets: Iterable[AtLeastOncePacket], source: AtLeastOnceSource | None
    ) -> Iterator[Message]:
        self._emitted = dict.fromkeys(self._stage.components, 0)
        self._open(self._stage.components)
        clock = self._pace.clock if self._pace else float
        began_s = clock()
        if source is not None:
            yield from self._read(source)
        for packet in packets:
            self._passed ^= packet.id
            with self._calling(packet.target, "unpickle"):
                given = Tracked(packet.rows(), packet.lineage, packet.stream)
            for part in self._in_turns(given):
                self._deliver(packet.target, packet.source, part)
                yield from self._ready()
        for name in [
            name for name in self._stage.components if name in self._running_bolts
        ]:
            running = self._running_bolts.pop(name)
            with self._calling(name, "cleanup"):
                left = running.finish()
            self._emit(name, left)
            self._emitted[name] = running.outlet.emitted
            yield from self._ready()
        emitted = tuple(Emitted(name, rows) for name, rows in self._emitted.items())
        took_s = clock() - began_s
        yield self._trees.report(self.id, emitted, self._facts, self._passed, took_s)

    def _running_bolt(self, component: Component, bolt: object) -> Any:  # noqa: ANN401 - chunks have other classes
        wanted = self._wanted(component.name)
        if isinstance(bolt, BasicBolt):
            is_late = self._turns.is_late
            return RunningBasicBolt(bolt, component, wanted, self._trees, is_late)
        if isinstance(bolt, RichBolt):
            return RunningRichBolt(bolt, component, wanted, self._trees)
        return super()._running_bolt(component, bolt)

    # --- rows in ---

    def _read(self, source: AtLeastOnceSource) -> Iterator[Packet]:
        name = self._stage.components[0]
        chunks = iter(source.read(self.id.task, self._stage.tasks, self._facts))
        while not self._turns.is_over:
            with self._calling(name):
                records = next(chunks, None)
            if records is None:
                return
            for part in self._records_in_turns(name, records):
                self._trees.begin(part.read)
                if part.error:
                    self._trees.fail(part.read, name, part.error)
                self._emitted[name] += size(part.block)
                self._emit(name, [Tracked(part.block, Lineage(part.roots))])
                yield from self._ready()
        close = getattr(chunks, "close", None)
        if close is not None:
            close()

    def _records_in_turns(self, name: str, records: Records) -> Iterator[Records]:
        """Parts of the records while there is time; the rest does not begin."""
        roots = records.roots
        is_given_here = any(edge.is_local for edge in self._plan.edges[name])
        if not is_given_here or not len(roots) or (np.diff(roots) < 0).any():
            yield records
            return
        start = begun = 0
        while start < len(roots) and not self._turns.is_over:
            last = min(start + self._turns.rows, len(roots)) - 1
            end = int(np.searchsorted(roots, roots[last], side="right"))
            read = len(records.read)
            if end < len(roots):
                read = int(np.searchsorted(records.read, roots[end]))
            self._turns.begin()
            block = records.block[start:end]
            yield Records(block, roots[start:end], records.read[begun:read])
            self._turns.done()
            start, begun = end, read

    def _in_turns(self, given: Tracked) -> Iterator[Tracked]:
        """Parts of a packet while there is time; the rest is left untried.

        Rows that come from no record are given in any case: they do not come again.
        """
        start, rows = 0, len(given.lineage)
        while start < rows and not self._turns.is_over:
            end = min(start + self._turns.rows, rows)
            self._turns.begin()
            yield given if end - start == rows else given.rows(start, end)
            self._turns.done()
            start = end
        if start < rows:
            left = given.rows(start, rows) if start else given
            self._trees.leave(left.lineage.roots)
            if len(lone := left.lineage.without_roots()):
                yield left.of(lone)

    def _deliver(self, name: str, source: str, given: Tracked) -> None:
        running = self._running_bolts[name]
        fields = self._plan.graph.fields(source, given.stream)
        rows = len(given.lineage)
        for start in range(0, rows, ROWS_PER_TURN):
            end = min(start + ROWS_PER_TURN, rows)
            part = given if rows <= ROWS_PER_TURN else given.rows(start, end)
            self._component = name  # without _calling, which is dear for small blocks
            self._given = running, part
            self._feeds += 1
            emitted = running.feed(source, fields, part)
            self._given = None
            self._component = ""
            self._emit(name, emitted)

    # --- rows out ---

    def _emit(self, name: str, emitted: Iterable[Tracked]) -> None:
        for piece in emitted:
            for edge in self._plan.edges[name]:
                if edge.given.stream != piece.stream or not len(piece.lineage):
                    continue
                if edge.is_local:
                    self._deliver(edge.target, name, piece)
                else:
                    self._route(name, edge, piece)

    def _route(self, name: str, edge: Edge, piece: Tracked) -> None:
        router = self._routers.get((name, edge))
        if router is None:
            fields = self._plan.graph.fields(name, piece.stream)
            router = router_for(edge.given.grouping, fields, edge.tasks, self.id.task)
            self._routers[(name, edge)] = router
        with self._calling(edge.target):
            block = _with_positions(piece.block)
            routed = self._routed(router, name, block, piece.lineage)
            untyped = self._plan.graph.fields(name, piece.stream).types is None
            for task, part in bounded(routed):
                mine = _routed_piece(piece, part)
                for one, pickled in self._pickled(name, mine, untyped):
                    head = (edge.target, task, name, one.stream, one.block)
                    packet = AtLeastOncePacket(
                        *head, lineage=one.lineage, pickled=pickled
                    )
                    self._packets.append(packet)

    def _pickled(
        self, name: str, piece: Tracked, untyped: bool
    ) -> Iterator[tuple[Tracked, bytes]]:
        """Rows in parts, pickled if that may fail; a row that fails does so alone."""
        if not untyped or isinstance(piece.block, pa.RecordBatch):
            yield piece, b""
            return
        try:
            pickled = self._plan.dumps(piece.block)
        except Exception as error:  # noqa: BLE001 - a record fails on its own
            count = len(piece.lineage)
            if count == 1:
                reason = f"it cannot be pickled: {reason_of(error)}"
                self._trees.fail(piece.lineage.roots, name, reason)
                return
            for half in np.array_split(np.arange(count), 2):
                yield from self._pickled(name, piece.of(half), untyped)
            return
        yield piece, pickled

    def _routed(
        self, router: Router, name: str, block: Block, lineage: Lineage
    ) -> list[tuple[int, Block]]:
        """The targets of rows; a row whose values cannot be grouped fails alone."""
        try:
            return list(router.route(block))
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - a record fails on its own
            if size(block) == 1:
                (row,) = _positions(block)
                roots = lineage.roots[lineage.of(int(row))]
                self._trees.fail(roots, name, reason_of(error))
                return []
        return [
            routed
            for half in pieces(block, -(-size(block) // 2))
            for routed in self._routed(router, name, half, lineage)
        ]


def _with_positions(block: Block) -> Block:
    """The block with the number of each row behind its values, for routers to carry."""
    if isinstance(block, pa.RecordBatch):
        return block.append_column(_POSITION, pa.array(np.arange(block.num_rows)))
    return [(*row, number) for number, row in enumerate(block)]


def _routed_piece(piece: Tracked, part: Block) -> Tracked:
    """The rows of a piece that a router put together, without their numbers."""
    rows = _positions(part)
    if isinstance(part, pa.RecordBatch) and len(rows) < len(piece.lineage):
        block = part.remove_column(part.num_columns - 1)
        return Tracked(block, piece.lineage.take(rows), piece.stream)
    return piece.of(rows)


def _positions(part: Block) -> Positions:
    if isinstance(part, pa.RecordBatch):
        found: Positions = part.column(part.num_columns - 1).to_numpy()
        return found
    return np.fromiter((row[-1] for row in part), np.int64, len(part))
