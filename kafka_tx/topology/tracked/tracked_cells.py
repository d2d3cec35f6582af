"""Bolts of at-least-once topologies at work: rows are acked or failed one by one.

Whatever a bolt raises in ``execute``, ``SystemExit`` included, fails the row it was
given, and that row's records are replayed; so does a value that does not fit. Only a
``DeclarationError`` (a stream that is not declared, say) stops the topology, since it
would fail every record for ever.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator

import numpy as np

from kafka_tx.topology.declare.bolts import BasicBolt, RichBolt, TaskContext
from kafka_tx.topology.declare.graph import Component
from kafka_tx.topology.reasons import reason_of
from kafka_tx.topology.rows.blocks import to_batch, to_rows
from kafka_tx.topology.rows.fields import DeclarationError, Fields
from kafka_tx.topology.rows.row import Row, row_class
from kafka_tx.topology.tracked.lineage import Tracked
from kafka_tx.topology.tracked.tracked_outlets import (
    Piece,
    RecordOutlet,
    RichOutlet,
    TrackedOutlet,
)
from kafka_tx.topology.tracked.trees import TaskTrees
from kafka_tx.transactions.root_blocks import Edges, Roots

_MOST_TRIES = 64
"""Failing calls after which what is left of a batch fails as a whole: when a service is
down every row fails, and looking for the guilty one would only cost time."""

STOPS = (DeclarationError, KeyboardInterrupt, GeneratorExit)
"""What is no failure of the record at hand."""

_NOBODY = np.empty(0, np.int64)


class RecordCell(ABC):
    """A bolt at work in one task."""

    _bolt: BasicBolt | RichBolt
    _outlet: TrackedOutlet

    @property
    def emitted(self) -> int:
        """Rows emitted so far."""
        return self._outlet.emitted

    @property
    @abstractmethod
    def row(self) -> int | None:
        """The row of what it was fed that it is at work on; None: all of them."""

    @property
    def resets(self) -> int:
        """How often the bolt reset a time-out."""
        return self._outlet.resets

    @abstractmethod
    def prepare(self, context: TaskContext) -> None:
        """Called once, first."""

    @abstractmethod
    def feed(
        self, source: str, stream: str, fields: Fields, given: Tracked
    ) -> list[Piece]:
        """Give the bolt rows; return what it emitted."""

    @abstractmethod
    def finish(self) -> list[Piece]:
        """All rows were given: clean up; return what was emitted by it."""

    def close(self) -> None:
        """Clean up after a failure."""
        self._bolt.cleanup()


class BasicRecordCell(RecordCell):
    """A basic bolt: a row is acked when ``execute`` returns, and fails when it raises.

    A bolt that works on record batches is called again with halves of a batch that
    raised, until the rows that are to blame are found; their neighbours are acked.
    """

    _bolt: BasicBolt
    _outlet: RecordOutlet

    def __init__(
        self,
        bolt: BasicBolt,
        component: Component,
        wanted: Collection[str],
        trees: TaskTrees,
    ) -> None:
        self._bolt = bolt
        self._component = component
        self._outlet = RecordOutlet(component, wanted)
        self._trees = trees
        self._tries = 0

    @property
    def row(self) -> int | None:
        """See ``RecordCell``."""
        return self._outlet.row

    def prepare(self, context: TaskContext) -> None:
        """Prepare the bolt."""
        self._bolt.prepare(context)

    def feed(
        self, source: str, stream: str, fields: Fields, given: Tracked
    ) -> list[Piece]:
        """Execute all rows."""
        if self._component.reads_arrow:
            self._tries = _MOST_TRIES
            return list(self._batches(source, fields, given))
        return self._rows(row_class(source, stream, fields.names), given)

    def finish(self) -> list[Piece]:
        """Clean the bolt up."""
        self._bolt.cleanup()
        return []

    def _rows(self, kind: type[Row], given: Tracked) -> list[Piece]:
        outlet, execute = self._outlet, self._bolt.execute
        outlet.begin(len(given.lineage))
        failed: list[int] = []
        for index, row in enumerate(map(kind, to_rows(given.block))):
            outlet.row = index
            try:
                execute(row, outlet)
            except STOPS:
                raise
            except BaseException as error:  # noqa: BLE001 - a record fails on its own
                failed.append(index)
                self._fail(given, index, error)
        guilty = np.array(failed, np.int64)
        self._ack(given, guilty)
        return outlet.collect(given.lineage, guilty)

    def _batches(self, source: str, fields: Fields, given: Tracked) -> Iterator[Piece]:
        rows = len(given.lineage)
        self._outlet.begin(rows)
        try:
            batch = to_batch(given.block, fields, source)
            self._bolt.execute_arrow(batch, self._outlet)
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - a record fails on its own
            self._outlet.discard()
            self._tries -= 1
            if rows == 1 or self._tries <= 0:
                self._fail(given, None, error)
                return
            for part in (given.rows(0, rows // 2), given.rows(rows // 2, rows)):
                yield from self._batches(source, fields, part)
            return
        self._ack(given, _NOBODY)
        yield from self._outlet.collect(given.lineage, _NOBODY)

    def _ack(self, given: Tracked, failed: np.ndarray) -> None:
        roots, edges = given.lineage.roots, given.edges
        if len(failed):
            rows = np.setdiff1d(np.arange(len(given.lineage)), failed)
            entries = given.lineage.entries(rows)
            roots, edges = roots[entries], edges[entries]
        self._trees.add(roots, edges)

    def _fail(self, given: Tracked, row: int | None, error: BaseException) -> None:
        roots = given.lineage.roots
        mine = roots if row is None else roots[given.lineage.of(row)]
        self._trees.fail(mine, self._component.name, reason_of(error))


class RichRecordCell(RecordCell):
    """A rich bolt: acks and fails itself; what it raises fails the row it was given."""

    _bolt: RichBolt
    _outlet: RichOutlet
    row: int | None = None

    def __init__(
        self,
        bolt: RichBolt,
        component: Component,
        wanted: Collection[str],
        trees: TaskTrees,
    ) -> None:
        self._bolt = bolt
        self._name = component.name
        self._trees = trees
        self._open: dict[int, tuple[Row, Roots, Edges]] = {}
        self._outlet = RichOutlet(component, wanted, self._roots_of, self._end)

    def prepare(self, context: TaskContext) -> None:
        """Prepare the bolt."""
        self._bolt.prepare(context, self._outlet)

    def feed(
        self, source: str, stream: str, fields: Fields, given: Tracked
    ) -> list[Piece]:
        """Execute all rows."""
        kind = row_class(source, stream, fields.names)
        lineage, edges = given.lineage, given.edges
        for index, row in enumerate(map(kind, to_rows(given.block))):
            self.row = index
            mine = lineage.of(index)
            self._open[id(row)] = (row, lineage.roots[mine], edges[mine])
            try:
                self._bolt.execute(row)
            except STOPS:
                raise
            except BaseException as error:  # noqa: BLE001 - a record fails on its own
                self._end(row, False, reason_of(error))
        return self._outlet.collect()

    def finish(self) -> list[Piece]:
        """Clean the bolt up; it may still emit, ack and fail. Then it is too late."""
        self._bolt.cleanup()
        self._open.clear()
        return self._outlet.collect()

    def _roots_of(self, row: Row) -> Roots | None:
        known = self._open.get(id(row))
        return None if known is None else known[1]

    def _end(self, row: Row, acked: bool, reason: str) -> None:
        known = self._open.pop(id(row), None)
        if known is None:
            return
        _, roots, edges = known
        if acked:
            self._trees.add(roots, edges)
        else:
            self._trees.fail(roots, self._name, reason)
