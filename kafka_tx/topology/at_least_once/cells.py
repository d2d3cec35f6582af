"""Bolts of at-least-once topologies at work: rows are acked or failed one by one.

Whatever a bolt raises in ``execute``, ``SystemExit`` included, fails the row it was
given, and that row's records are replayed; so does a value that does not fit, or that
Python cannot hold. A ``DeclarationError`` (such as an undeclared stream) stops the
topology if the bolt is to blame: if all rows of a task so far raised one, and at least
20 did. In ``execute_arrow`` it always stops the topology.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator

import numpy as np

from kafka_tx.topology.at_least_once.collectors import (
    AtLeastOnceOutlet,
    BasicOutlet,
    RichOutlet,
    RootsOfRow,
)
from kafka_tx.topology.at_least_once.lineage import TaskTrees, Tracked
from kafka_tx.topology.declare.bolts import BasicBolt, RichBolt, TaskContext
from kafka_tx.topology.declare.graph import Component
from kafka_tx.topology.reasons import reason_of
from kafka_tx.topology.rows.blocks import to_batch, to_rows
from kafka_tx.topology.rows.fields import DeclarationError, Fields
from kafka_tx.topology.rows.row import Row, row_class

_SURE = 20
"""If so many rows, and all, contradict the declaration, the bolt is to blame."""

STOPS = (DeclarationError, KeyboardInterrupt, GeneratorExit)
"""Errors that are no failure of the current record."""

_ENDS = (KeyboardInterrupt, GeneratorExit)

_NOBODY = np.empty(0, np.int64)


class AtLeastOnceCell(ABC):
    """A bolt at work in one task."""

    _bolt: BasicBolt | RichBolt
    _outlet: AtLeastOnceOutlet
    _component: Component
    _trees: TaskTrees
    _rows_given = _rows_misused = 0

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
    def feed(self, source: str, fields: Fields, given: Tracked) -> list[Tracked]:
        """Give the bolt rows; return what it emitted."""

    @abstractmethod
    def finish(self) -> list[Tracked]:
        """All rows were given: clean up; return what was emitted by it."""

    def close(self) -> None:
        """Clean up after a failure."""
        self._bolt.cleanup()

    def _made(self, kind: type[Row], given: Tracked) -> Iterator[Row | None]:
        # None for a row with a value that Python cannot hold: it failed
        try:
            return map(kind, to_rows(given.block))
        except Exception:  # noqa: BLE001 - found again below, row by row
            return (self._one(kind, given, row) for row in range(len(given.lineage)))

    def _one(self, kind: type[Row], given: Tracked, row: int) -> Row | None:
        try:
            (values,) = to_rows(given.block[row : row + 1])
        except Exception as error:  # noqa: BLE001 - a record fails on its own
            self._fail(given, row, error)
            return None
        return kind(values)

    def _raised(self, error: BaseException) -> None:
        """Raise the error of a row again where the bolt is to blame, not the row."""
        self._rows_misused += isinstance(error, DeclarationError)
        if self._rows_misused == self._rows_given >= _SURE:
            raise error

    def _fail(self, given: Tracked, row: int | None, error: BaseException) -> None:
        roots = given.lineage.roots
        mine = roots if row is None else roots[given.lineage.of(row)]
        self._trees.fail(mine, self._component.name, reason_of(error))


class AtLeastOnceBasicCell(AtLeastOnceCell):
    """A basic bolt: a row is acked when ``execute`` returns, and fails when it raises.

    A bolt that works on record batches is called again with halves of a batch that
    raised, until the rows that are to blame are found; their neighbours are acked. When
    the time of the task is over (``is_late``), what was not in a call of its own is
    left untried.
    """

    _bolt: BasicBolt
    _outlet: BasicOutlet

    def __init__(
        self,
        bolt: BasicBolt,
        component: Component,
        wanted: Collection[str],
        trees: TaskTrees,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self._bolt = bolt
        self._component = component
        self._outlet = BasicOutlet(component, wanted)
        self._trees = trees
        self._is_late = is_late
        self._is_judged = False

    @property
    def row(self) -> int | None:
        """See ``AtLeastOnceCell``."""
        return self._outlet.row

    def prepare(self, context: TaskContext) -> None:
        """Prepare the bolt."""
        self._bolt.prepare(context)

    def feed(self, source: str, fields: Fields, given: Tracked) -> list[Tracked]:
        """Execute all rows."""
        if self._component.reads_arrow:
            self._is_judged = False
            return list(self._batches(source, fields, given))
        kind = row_class(source, given.stream, fields.names)
        return self._rows(self._made(kind, given), given)

    def finish(self) -> list[Tracked]:
        """Clean the bolt up."""
        self._bolt.cleanup()
        return []

    def _rows(self, rows: Iterator[Row | None], given: Tracked) -> list[Tracked]:
        outlet, execute = self._outlet, self._bolt.execute
        outlet.begin(len(given.lineage))
        failed: list[int] = []
        given_before = self._rows_given
        for index, row in enumerate(rows):
            outlet.row = index
            if row is None:
                failed.append(index)
                continue
            try:
                execute(row, outlet)
            except _ENDS:
                raise
            except BaseException as error:  # noqa: BLE001 - a record fails on its own
                self._rows_given = given_before + index + 1
                self._raised(error)
                failed.append(index)
                self._fail(given, index, error)
        self._rows_given = given_before + len(given.lineage)
        return outlet.collect(given.lineage, np.array(failed, np.int64))

    def _batches(
        self, source: str, fields: Fields, given: Tracked
    ) -> Iterator[Tracked]:
        rows = len(given.lineage)
        if self._is_judged and self._is_late():
            self._trees.leave(given.lineage.roots)
            return
        self._outlet.begin(rows)
        try:
            batch = to_batch(given.block, fields, source)
            self._bolt.execute_arrow(batch, self._outlet)
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - a record fails on its own
            self._outlet.discard()
            if rows == 1:
                self._is_judged = True
                self._fail(given, None, error)
                return
            for part in (given.rows(0, rows // 2), given.rows(rows // 2, rows)):
                yield from self._batches(source, fields, part)
            return
        self._is_judged = True
        yield from self._outlet.collect(given.lineage, _NOBODY)


class RichCell(AtLeastOnceCell):
    """A rich bolt: acks and fails itself; what it raises fails the row it was given."""

    _bolt: RichBolt
    _outlet: RichOutlet
    row: int | None = None
    _last_failed: Row | None = None

    def __init__(
        self,
        bolt: RichBolt,
        component: Component,
        wanted: Collection[str],
        trees: TaskTrees,
    ) -> None:
        self._bolt = bolt
        self._component = component
        self._trees = trees
        self._outlet = RichOutlet(component, wanted, self._failed)

    def prepare(self, context: TaskContext) -> None:
        """Prepare the bolt."""
        self._bolt.prepare(context, self._outlet)

    def feed(self, source: str, fields: Fields, given: Tracked) -> list[Tracked]:
        """Execute all rows."""
        kind = row_class(source, given.stream, fields.names)
        outlet, execute = self._outlet, self._bolt.execute
        outlet.begin(given.lineage)
        given_before = self._rows_given
        for index, row in enumerate(self._made(kind, given)):
            if row is None:
                continue
            self.row = index
            outlet.give(row, index)
            try:
                execute(row)
            except _ENDS:
                raise
            except BaseException as error:  # noqa: BLE001 - a record fails on its own
                self._rows_given = given_before + index + 1
                self._raised(error)
                if outlet.end() or self._last_failed is not row:
                    self._fail(given, index, error)
            outlet.leave()
        self._rows_given = given_before + len(given.lineage)
        return outlet.collect()

    def finish(self) -> list[Tracked]:
        """Clean the bolt up; it may still emit, ack and fail. Then it is too late."""
        self._bolt.cleanup()
        self._trees.leave_open(self._outlet.take_open())
        return self._outlet.collect()

    def _failed(self, row: Row, roots: RootsOfRow, reason: str) -> None:
        self._last_failed = row
        self._trees.fail(np.array(roots, np.int64), self._component.name, reason)
