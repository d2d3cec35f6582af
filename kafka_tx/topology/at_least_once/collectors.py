"""Collectors of at-least-once topologies: they track the records of emitted rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kafka_tx.topology.at_least_once.lineage import (
    Lineage,
    Positions,
    Tracked,
    joined,
)
from kafka_tx.topology.declare.graph import Component
from kafka_tx.topology.rows.blocks import select, size
from kafka_tx.topology.rows.fields import DEFAULT_STREAM, DeclarationError
from kafka_tx.topology.rows.row import Row
from kafka_tx.topology.run.cells import Outlet
from kafka_tx.topology.run.messages import NO_ROOTS, Roots

_WHOLE = -1

RootsOfRow: TypeAlias = tuple[int, ...]
OpenRows: TypeAlias = dict[int, tuple[Row, RootsOfRow]]


class AtLeastOnceOutlet:
    """The common part of the collectors of both kinds of bolts."""

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


class BasicOutlet(AtLeastOnceOutlet):
    """The collector of a basic bolt: emitted rows are anchored on the given rows.

    ``row`` is the index of the row that the bolt works on. None: it works on the whole
    block, and a single emitted row is anchored on all rows of the block.
    """

    def __init__(self, component: Component, wanted: Collection[str]) -> None:
        super().__init__(component, wanted)
        self._origins: dict[str, list[Positions]] = {s: [] for s in component.outputs}
        self._rows: dict[str, list[int]] = {s: [] for s in component.outputs}
        self._given = 0
        self.row: int | None = None

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

    # --- calls of the cell ---

    def begin(self, given: Lineage) -> None:
        """The bolt is given a block of rows with these roots."""
        self._given = given

    def give(self, row: Row, place: int) -> None:
        """The bolt begins to work on this row of the block."""
        self._row, self._place = row, place

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
