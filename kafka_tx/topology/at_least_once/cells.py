"""Bolts of at-least-once topologies at work: rows are acked or failed one by one.

Whatever a bolt raises in ``execute``, ``SystemExit`` included, fails the row it was
given, and that row's records are replayed; so does a value that does not fit, or that
Python cannot hold. A ``DeclarationError`` (a stream that is not declared, say) stops
the topology where the bolt is to blame: every row of a task raised one, and there were
many. In ``execute_arrow`` it always does: it says how the bolt treats batches.

Collectors come first: they know from which records each emitted row comes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

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
from kafka_tx.topology.rows.blocks import Block, size, to_batch, to_rows
from kafka_tx.topology.rows.fields import DEFAULT_STREAM, DeclarationError, Fields
from kafka_tx.topology.rows.row import Row, row_class
from kafka_tx.topology.run.cells import Outlet

_WHOLE = -1

RootsOfRow: TypeAlias = tuple[int, ...]
OpenRows: TypeAlias = dict[int, tuple[Row, RootsOfRow]]


class Piece(NamedTuple):
    """Rows that were emitted on a stream."""

    stream: str
    block: Block
    lineage: Lineage

    def of(self, rows: Positions) -> Piece:
        """These rows of it, in that order; as many as it has: all of them."""
        if len(rows) == len(self.lineage):
            return self
        return Piece(self.stream, select(self.block, rows), self.lineage.take(rows))


class TrackedOutlet:
    """What collectors of both kinds of bolts keep."""

    def __init__(self, component: Component, wanted: Collection[str]) -> None:
        self._name = component.name
        self._outlet = Outlet(component, wanted)
        self.resets = 0
        """How often the time-out was reset."""

    @property
    def emitted(self) -> int:
        """Rows taken so far."""
        return self._outlet.rows

    def reset_timeout(self, row: Row) -> None:  # noqa: ARG002 - the one at hand
        """See ``Collector``."""
        self.resets += 1


class RecordOutlet(TrackedOutlet):
    """The collector of a basic bolt: what it emits is anchored on what it was given.

    ``row`` is the index of the row the bolt is at work on; None: on the whole block,
    and then a single emitted row is anchored on all of its rows.
    """

    def __init__(self, component: Component, wanted: Collection[str]) -> None:
        super().__init__(component, wanted)
        self._origins: dict[str, list[Positions]] = {s: [] for s in component.outputs}
        self._rows: dict[str, list[int]] = {s: [] for s in component.outputs}
        self._given = 0
        self.row: int | None = None

    def begin(self, given: int) -> None:
        """The bolt is given a block of so many rows."""
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
        """Forget what was emitted for this block."""
        self._outlet.take()
        self._clear()

    def collect(self, given: Lineage, failed: Positions) -> list[Piece]:
        """What was emitted for this block, but nothing of the rows that failed."""
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
                pieces.append(Piece(stream, block, extended.take(origins)))
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


class RichOutlet(TrackedOutlet):
    """The collector of a rich bolt: the bolt anchors, acks and fails itself.

    Args:
        component: Whose.
        wanted: The streams that anybody reads.
        given: The rows that the bolt was given and did not end yet, by their ``id``,
            with their roots.
        failed: Called with a row that the bolt failed, its roots, and why.
    """

    def __init__(
        self,
        component: Component,
        wanted: Collection[str],
        given: OpenRows,
        failed: Callable[[Row, RootsOfRow, str], None],
    ) -> None:
        super().__init__(component, wanted)
        self._anchors: dict[str, list[RootsOfRow]] = {s: [] for s in component.outputs}
        self._given = given
        self._failed = failed

    def emit(
        self,
        values: Sequence[Any],
        anchors: Iterable[Row] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """See ``RichCollector``."""
        rows = (anchors,) if isinstance(anchors, Row) else tuple(anchors)
        given = self._given
        try:
            if len(rows) == 1:
                roots = given[id(rows[0])][1]
            else:
                roots = tuple(root for row in rows for root in given[id(row)][1])
        except KeyError:
            raise self._ended(rows) from None
        self._outlet.emit(values, stream)
        self._anchors[stream].append(roots)

    def ack(self, row: Row) -> None:
        """See ``RichCollector``."""
        self._given.pop(id(row), None)

    def fail(self, row: Row, reason: str = "failed by the bolt") -> None:
        """See ``RichCollector``."""
        known = self._given.pop(id(row), None)
        if known is not None:
            self._failed(row, known[1], reason)

    def _ended(self, rows: tuple[Row, ...]) -> DeclarationError:
        row = next(row for row in rows if id(row) not in self._given)
        return DeclarationError(
            f"component '{self._name}' anchored a row on {row!r}; legal: rows that"
            " 'execute' was given and that are neither acked nor failed yet",
            option=self._name,
        )

    def collect(self) -> list[Piece]:
        """What was emitted since the last call."""
        pieces = []
        for stream, block in self._outlet.take():
            anchors = self._anchors[stream][: size(block)]
            pieces.append(Piece(stream, block, Lineage.of_each(anchors)))
        for of_stream in self._anchors.values():
            of_stream.clear()
        return pieces


def select(block: Block, rows: Positions) -> Block:
    """These rows of a block, in that order."""
    if isinstance(block, pa.RecordBatch):
        return block.take(pa.array(rows))
    return [block[row] for row in rows]


_SURE = 20
"""So many rows that all contradict the declaration of their bolt: it is the bolt."""

STOPS = (DeclarationError, KeyboardInterrupt, GeneratorExit)
"""What is no failure of the record at hand."""

_ENDS = (KeyboardInterrupt, GeneratorExit)

_NOBODY = np.empty(0, np.int64)


class RecordCell(ABC):
    """A bolt at work in one task."""

    _bolt: BasicBolt | RichBolt
    _outlet: TrackedOutlet
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

    def _made(self, kind: type[Row], given: Tracked) -> Iterator[Row | None]:
        """The rows; None for one with a value that Python cannot hold: it failed."""
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
        """A row raised this; the error again where the bolt is to blame, not the row.

        Raises:
            DeclarationError: This one.
        """
        self._rows_misused += isinstance(error, DeclarationError)
        if self._rows_misused == self._rows_given >= _SURE:
            raise error

    def _fail(self, given: Tracked, row: int | None, error: BaseException) -> None:
        roots = given.lineage.roots
        mine = roots if row is None else roots[given.lineage.of(row)]
        self._trees.fail(mine, self._component.name, reason_of(error))


class BasicRecordCell(RecordCell):
    """A basic bolt: a row is acked when ``execute`` returns, and fails when it raises.

    A bolt that works on record batches is called again with halves of a batch that
    raised, until the rows that are to blame are found; their neighbours are acked. When
    the time of the task is over, what was not in a call of its own is left untried.

    Args:
        is_late: Whether the time of the task is over.
    """

    _bolt: BasicBolt
    _outlet: RecordOutlet

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
        self._outlet = RecordOutlet(component, wanted)
        self._trees = trees
        self._is_late = is_late
        self._is_judged = False

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
            self._is_judged = False
            return list(self._batches(source, fields, given))
        kind = row_class(source, stream, fields.names)
        return self._rows(self._made(kind, given), given)

    def finish(self) -> list[Piece]:
        """Clean the bolt up."""
        self._bolt.cleanup()
        return []

    def _rows(self, rows: Iterator[Row | None], given: Tracked) -> list[Piece]:
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

    def _batches(self, source: str, fields: Fields, given: Tracked) -> Iterator[Piece]:
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


class RichRecordCell(RecordCell):
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
        self._open: OpenRows = {}
        self._outlet = RichOutlet(component, wanted, self._open, self._failed)

    def prepare(self, context: TaskContext) -> None:
        """Prepare the bolt."""
        self._bolt.prepare(context, self._outlet)

    def feed(
        self, source: str, stream: str, fields: Fields, given: Tracked
    ) -> list[Piece]:
        """Execute all rows."""
        kind = row_class(source, stream, fields.names)
        execute, open_ = self._bolt.execute, self._open
        rows = zip(self._made(kind, given), given.lineage.each(), strict=True)
        given_before = self._rows_given
        for index, (row, roots) in enumerate(rows):
            if row is None:
                continue
            self.row = index
            open_[id(row)] = (row, roots)
            try:
                execute(row)
            except _ENDS:
                raise
            except BaseException as error:  # noqa: BLE001 - a record fails on its own
                self._rows_given = given_before + index + 1
                self._raised(error)
                if open_.pop(id(row), None) or self._last_failed is not row:
                    self._fail(given, index, error)
        self._rows_given = given_before + len(given.lineage)
        return self._outlet.collect()

    def finish(self) -> list[Piece]:
        """Clean the bolt up; it may still emit, ack and fail. Then it is too late."""
        self._bolt.cleanup()
        left = [roots for _, roots in self._open.values()]
        self._trees.leave_open(Lineage.of_each(left).roots)
        self._open.clear()
        return self._outlet.collect()

    def _failed(self, row: Row, roots: RootsOfRow, reason: str) -> None:
        self._last_failed = row
        self._trees.fail(np.array(roots, np.int64), self._component.name, reason)
