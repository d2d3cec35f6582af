"""Running bolts of at-least-once topologies, and the collectors of their rows.

Rows are tracked back to their records, and are acked or failed one by one.

Whatever a bolt raises in ``execute``, ``SystemExit`` included, fails the row it was
given, and that row's records are replayed. So does a value that does not fit its
declared type, or that Python cannot hold. ``KeyboardInterrupt`` and ``GeneratorExit``
end the task. A ``DeclarationError`` (such as an undeclared
stream) stops the topology if the bolt is to blame: if all rows of a task so far raised
one, and at least 20 did. In ``execute_arrow`` it always stops the topology.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kafka_tx.topology.at_least_once.lineage import (
    Lineage,
    Positions,
    TaskTrees,
    Tracked,
    joined,
)
from kafka_tx.topology.declare.bolts import BasicBolt, RichBolt, TaskContext
from kafka_tx.topology.declare.graph import Component
from kafka_tx.topology.reasons import reason_of
from kafka_tx.topology.rows.blocks import select, size, to_batch, to_rows
from kafka_tx.topology.rows.fields import DEFAULT_STREAM, DeclarationError, Fields
from kafka_tx.topology.rows.row import Row, row_class
from kafka_tx.topology.run.messages import NO_ROOTS, Roots
from kafka_tx.topology.run.running_bolts import Outlet

_SURE = 20
"""If so many rows, and all, contradict the declaration, the bolt is to blame."""

STOPS = (DeclarationError, KeyboardInterrupt, GeneratorExit)
"""Errors that are no failure of the current record."""

_ENDS = (KeyboardInterrupt, GeneratorExit)

_NOBODY, _WHOLE = np.empty(0, np.int64), -1

RootsOfRow: TypeAlias = tuple[int, ...]
OpenRows: TypeAlias = dict[int, tuple[Row, RootsOfRow]]


class AtLeastOnceOutlet:
    """The common part of the collectors of both kinds of bolts."""

    def __init__(self, component: Component, wanted: Collection[str]) -> None:
        self._name = component.name
        self._outlet = Outlet(component, wanted)
        self.row: int | None = None
        """The row of a block that the bolt is at work on; None: all of them."""
        self.resets = 0
        """How often the time-out was reset."""

    @property
    def emitted(self) -> int:
        """Rows taken so far."""
        return self._outlet.rows

    def reset_timeout(self, row: Row) -> None:  # noqa: ARG002 - always the current row
        """See ``Collector``."""
        self.resets += 1


class BasicOutlet(AtLeastOnceOutlet):
    """The collector of a basic bolt: emitted rows are anchored on the given rows.

    While the bolt works on the whole block, a single emitted row is anchored on all
    rows of the block.
    """

    def __init__(self, component: Component, wanted: Collection[str]) -> None:
        super().__init__(component, wanted)
        self._origins: dict[str, list[Positions]] = {s: [] for s in component.outputs}
        self._rows: dict[str, list[int]] = {s: [] for s in component.outputs}
        self._given = 0

    def begin(self, given: int) -> None:
        """Begin a block of ``given`` rows."""
        self._given = given
        self.row = None

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """See ``Collector``."""
        self._outlet.emit(values, stream)
        self._rows[stream].append(_WHOLE if self.row is None else self.row)

    def emit_arrow(
        self,
        batch: pa.RecordBatch,
        stream: str = DEFAULT_STREAM,
        rows: Sequence[int] | None = None,
    ) -> None:
        """See ``Collector``."""
        self._outlet.emit_arrow(batch, stream)
        if self.row is not None:
            origins = np.full(batch.num_rows, self.row)
        elif rows is not None:
            origins = self._checked(rows, batch.num_rows)
        elif batch.num_rows == self._given:
            origins = np.arange(self._given)
        else:
            raise DeclarationError(
                f"component '{self._name}' emitted {batch.num_rows} rows of a batch of"
                f" {self._given}; say which row each of them comes from:"
                " collector.emit_arrow(batch, rows=indexes)",
                option=self._name,
            )
        self._close_rows(stream)
        self._origins[stream].append(origins)

    def _close_rows(self, stream: str) -> None:
        rows = self._rows[stream]
        if rows:
            self._origins[stream].append(np.array(rows, np.int64))
            rows.clear()

    def _checked(self, rows: Sequence[int], count: int) -> Positions:
        indexes = np.asarray(rows, np.int64)
        inside = (indexes >= 0) & (indexes < self._given)
        if len(indexes) != count or not inside.all():
            raise DeclarationError(
                f"component '{self._name}' named the origins {rows!r} of {count} rows;"
                f" legal: for each of them an index from 0 to {self._given - 1}",
                option=self._name,
            )
        return indexes

    def discard(self) -> None:
        """Drop the rows that were emitted for this block."""
        self._outlet.take()
        self._clear()

    def collect(self, given: Lineage, failed: Positions) -> list[Tracked]:
        """The rows emitted for this block, except for rows that failed."""
        pieces = []
        taken = self._outlet.take()
        origins_of = {stream: self._taken(stream) for stream, _ in taken}
        used = dict.fromkeys(origins_of, 0)
        extended = given
        if any((origins == _WHOLE).any() for origins in origins_of.values()):
            extended = joined([given, given.whole()])
        for stream, block in taken:
            start = used[stream]
            used[stream] = start + size(block)
            origins = origins_of[stream][start : used[stream]]
            if len(failed):
                kept = np.flatnonzero(~np.isin(origins, failed))
                block, origins = select(block, kept), origins[kept]
            if len(origins):
                origins = np.where(origins == _WHOLE, len(given), origins)
                pieces.append(Tracked(block, extended.take(origins), stream))
        self._clear()
        return pieces

    def _clear(self) -> None:
        for stream, origins in self._origins.items():
            origins.clear()
            self._rows[stream].clear()

    def _taken(self, stream: str) -> Positions:
        self._close_rows(stream)
        origins = self._origins[stream]
        return origins[0] if len(origins) == 1 else np.concatenate(origins)


class RichOutlet(AtLeastOnceOutlet):
    """The collector of a rich bolt: the bolt anchors, acks and fails itself.

    A bolt mostly ends a row while it works on this row, and emits rows only from it:
    then the row's place in the block is enough. Only rows that are left open are kept
    with their roots.

    Args:
        wanted: The streams with readers.
        failed: Called with a row that the bolt failed, its roots, and the reason.
    """

    def __init__(
        self,
        component: Component,
        wanted: Collection[str],
        failed: Callable[[Row, RootsOfRow, str], None],
    ) -> None:
        super().__init__(component, wanted)
        self._anchors: dict[str, list[int | RootsOfRow]]
        self._anchors = {stream: [] for stream in component.outputs}
        self._failed = failed
        self._given = Lineage(NO_ROOTS)
        self._row: Row | None = None
        self._place = 0
        self._open: OpenRows = {}

    # --- calls of the running bolt ---

    def begin(self, given: Lineage) -> None:
        """The bolt is given a block of rows with these roots."""
        self._given = given

    def give(self, row: Row, place: int) -> None:
        """The bolt begins to work on this row of the block."""
        self._row, self.row, self._place = row, place, place

    def leave(self) -> None:
        """The bolt has returned; the row stays open if the bolt did not end it."""
        row = self._row
        if row is not None:
            self._open[id(row)] = (row, self._roots(self._place))
            self._row = None

    def end(self) -> bool:
        """End the current row; False if the bolt has ended it."""
        is_open = self._row is not None
        self._row = None
        return is_open

    def take_open(self) -> Roots:
        """Remove and return the roots of all open rows."""
        left = [roots for _, roots in self._open.values()]
        self._open.clear()
        return Lineage.of_each(left).roots

    # --- calls of the bolt ---

    def emit(
        self,
        values: Sequence[Any],
        anchors: Iterable[Row] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """See ``RichCollector``."""
        at: int | RootsOfRow
        if type(anchors) is list and len(anchors) == 1 and anchors[0] is self._row:
            at = self._place
        else:
            rows = (anchors,) if isinstance(anchors, Row) else tuple(anchors)
            at = tuple(root for row in rows for root in self._roots_of(row))
        self._outlet.emit(values, stream)
        self._anchors[stream].append(at)

    def ack(self, row: Row) -> None:
        """See ``RichCollector``."""
        if row is self._row:
            self._row = None
        else:
            self._open.pop(id(row), None)

    def fail(self, row: Row, reason: str = "failed by the bolt") -> None:
        """See ``RichCollector``."""
        if row is self._row:
            self._row = None
            self._failed(row, self._roots(self._place), reason)
        elif (known := self._open.pop(id(row), None)) is not None:
            self._failed(row, known[1], reason)

    def _roots(self, place: int) -> RootsOfRow:
        return tuple(self._given.roots[self._given.of(place)].tolist())

    def _roots_of(self, row: Row) -> RootsOfRow:
        if row is self._row:
            return self._roots(self._place)
        known = self._open.get(id(row))
        if known is None:
            raise DeclarationError(
                f"component '{self._name}' anchored a row on {row!r}; legal: rows that"
                " 'execute' was given and that are neither acked nor failed yet",
                option=self._name,
            )
        return known[1]

    # --- results ---

    def collect(self) -> list[Tracked]:
        """The rows emitted since the last call."""
        pieces = []
        for stream, block in self._outlet.take():
            anchors = self._anchors[stream][: size(block)]
            pieces.append(Tracked(block, self._lineage(anchors), stream))
        for of_stream in self._anchors.values():
            of_stream.clear()
        return pieces

    def _lineage(self, anchors: Sequence[int | RootsOfRow]) -> Lineage:
        if set(map(type, anchors)) == {int}:
            return self._given.take(np.array(anchors, np.int64))
        roots = (at if isinstance(at, tuple) else self._roots(at) for at in anchors)
        return Lineage.of_each(list(roots))


class AtLeastOnceRunningBolt(ABC):
    """A running bolt of one task."""

    _bolt: BasicBolt | RichBolt
    outlet: AtLeastOnceOutlet
    _rows_given = _rows_misused = 0

    def __init__(self, component: Component, trees: TaskTrees) -> None:
        self._component = component
        self._trees = trees

    @abstractmethod
    def prepare(self, context: TaskContext) -> None:
        """Called once, first."""

    @abstractmethod
    def feed(self, source: str, fields: Fields, given: Tracked) -> list[Tracked]:
        """Give the bolt rows; return what it emitted."""

    @abstractmethod
    def finish(self) -> list[Tracked]:
        """Clean up after the last row; return the rows that the clean-up emitted."""

    def close(self) -> None:
        """Clean up after a failure."""
        self._bolt.cleanup()

    def _made(self, kind: type[Row], given: Tracked) -> Iterator[Row | None]:
        # Yields None for a row with a value that Python cannot hold: that row fails.
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

    def _raised(self, error: BaseException, row: int) -> None:
        """Raise the error of a row again where the bolt is to blame, not the row."""
        self._rows_misused += isinstance(error, DeclarationError)
        if self._rows_misused == self._rows_given + row + 1 >= _SURE:
            raise error

    def _fail(self, given: Tracked, row: int | None, error: BaseException) -> None:
        roots = given.lineage.roots
        mine = roots if row is None else roots[given.lineage.of(row)]
        self._trees.fail(mine, self._component.name, reason_of(error))


class RunningBasicBolt(AtLeastOnceRunningBolt):
    """A basic bolt: a row is acked when ``execute`` returns, and fails when it raises.

    A bolt that works on record batches is called again with halves of a batch that
    raised, until the rows that are to blame are found; their neighbours are acked. When
    the time of the task is over (``is_late``), rows that had no call of their own are
    left untried.
    """

    _bolt: BasicBolt
    outlet: BasicOutlet

    def __init__(
        self,
        bolt: BasicBolt,
        component: Component,
        wanted: Collection[str],
        trees: TaskTrees,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(component, trees)
        self._bolt = bolt
        self.outlet = BasicOutlet(component, wanted)
        self._is_late = is_late
        self._is_judged = False

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
        outlet, execute = self.outlet, self._bolt.execute
        outlet.begin(len(given.lineage))
        failed: list[int] = []
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
                self._raised(error, index)
                failed.append(index)
                self._fail(given, index, error)
        self._rows_given += len(given.lineage)
        return outlet.collect(given.lineage, np.array(failed, np.int64))

    def _batches(
        self, source: str, fields: Fields, given: Tracked
    ) -> Iterator[Tracked]:
        if self._is_judged and self._is_late():
            self._trees.leave(given.lineage.roots)
            given = given.of(given.lineage.without_roots())
        rows = len(given.lineage)
        if not rows:
            return
        self.outlet.begin(rows)
        try:
            batch = to_batch(given.block, fields, source)
            self._bolt.execute_arrow(batch, self.outlet)
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - a record fails on its own
            self.outlet.discard()
            if rows == 1:
                self._is_judged = True
                self._fail(given, None, error)
                return
            for part in (given.rows(0, rows // 2), given.rows(rows // 2, rows)):
                yield from self._batches(source, fields, part)
            return
        self._is_judged = True
        yield from self.outlet.collect(given.lineage, _NOBODY)


class RunningRichBolt(AtLeastOnceRunningBolt):
    """A rich bolt: acks and fails itself; what it raises fails the row it was given."""

    _bolt: RichBolt
    outlet: RichOutlet
    _last_failed: Row | None = None

    def __init__(
        self,
        bolt: RichBolt,
        component: Component,
        wanted: Collection[str],
        trees: TaskTrees,
    ) -> None:
        super().__init__(component, trees)
        self._bolt = bolt
        self.outlet = RichOutlet(component, wanted, self._failed)

    def prepare(self, context: TaskContext) -> None:
        """Prepare the bolt."""
        self._bolt.prepare(context, self.outlet)

    def feed(self, source: str, fields: Fields, given: Tracked) -> list[Tracked]:
        """Execute all rows."""
        kind = row_class(source, given.stream, fields.names)
        outlet, execute = self.outlet, self._bolt.execute
        outlet.begin(given.lineage)
        for index, row in enumerate(self._made(kind, given)):
            if row is None:
                continue
            outlet.give(row, index)
            try:
                execute(row)
            except _ENDS:
                raise
            except BaseException as error:  # noqa: BLE001 - a record fails on its own
                self._raised(error, index)
                if outlet.end() or self._last_failed is not row:
                    self._fail(given, index, error)
            outlet.leave()
        self._rows_given += len(given.lineage)
        return outlet.collect()

    def finish(self) -> list[Tracked]:
        """Clean the bolt up; until it returns, it may emit, ack and fail."""
        self._bolt.cleanup()
        self._trees.leave_open(self.outlet.take_open())
        return self.outlet.collect()

    def _failed(self, row: Row, roots: RootsOfRow, reason: str) -> None:
        self._last_failed = row
        self._trees.fail(np.array(roots, np.int64), self._component.name, reason)
