"""Collectors of at-least-once topologies: they know where each row comes from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kafka_tx.topology.declare.graph import Component
from kafka_tx.topology.rows.blocks import Block, size
from kafka_tx.topology.rows.fields import DEFAULT_STREAM, DeclarationError
from kafka_tx.topology.rows.row import Row
from kafka_tx.topology.run.cells import Outlet
from kafka_tx.topology.tracked.lineage import Lineage, Positions, joined
from kafka_tx.topology.tracked.trees import NO_ROOTS
from kafka_tx.transactions.root_blocks import Roots

_WHOLE = -1


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
        self._origins: dict[str, list[int]] = {s: [] for s in component.outputs}
        self._given = 0
        self.row: int | None = None

    def begin(self, given: int) -> None:
        """The bolt is given a block of so many rows."""
        self._given = given
        self.row = None

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """See ``Collector``."""
        self._outlet.emit(values, stream)
        self._origins[stream].append(_WHOLE if self.row is None else self.row)

    def emit_arrow(
        self,
        batch: pa.RecordBatch,
        stream: str = DEFAULT_STREAM,
        rows: Sequence[int] | None = None,
    ) -> None:
        """See ``Collector``."""
        self._outlet.emit_arrow(batch, stream)
        if self.row is not None:
            self._origins[stream] += [self.row] * batch.num_rows
        elif rows is not None:
            self._origins[stream] += self._checked(rows, batch.num_rows)
        elif batch.num_rows == self._given:
            self._origins[stream] += range(self._given)
        else:
            raise DeclarationError(
                f"component '{self._name}' emitted {batch.num_rows} rows of a batch of"
                f" {self._given}; say which row each of them comes from:"
                " collector.emit_arrow(batch, rows=indexes)",
                option=self._name,
            )

    def _checked(self, rows: Sequence[int], count: int) -> list[int]:
        indexes = np.asarray(rows, np.int64)
        inside = (indexes >= 0) & (indexes < self._given)
        if len(indexes) != count or not inside.all():
            raise DeclarationError(
                f"component '{self._name}' named the origins {rows!r} of {count} rows;"
                f" legal: for each of them an index from 0 to {self._given - 1}",
                option=self._name,
            )
        found: list[int] = indexes.tolist()
        return found

    def discard(self) -> None:
        """Forget what was emitted for this block."""
        self._outlet.take()
        for origins in self._origins.values():
            origins.clear()

    def collect(self, given: Lineage, failed: Positions) -> list[Piece]:
        """What was emitted for this block, but nothing of the rows that failed."""
        pieces = []
        used = dict.fromkeys(self._origins, 0)
        extended = _with_whole_row(given) if self._has_whole() else given
        for stream, block in self._outlet.take():
            start = used[stream]
            used[stream] = start + size(block)
            origins = np.array(self._origins[stream][start : used[stream]], np.int64)
            kept = np.flatnonzero(~np.isin(origins, failed))
            if len(kept) < len(origins):
                block, origins = select(block, kept), origins[kept]
            if len(origins):
                origins[origins == _WHOLE] = len(given)
                pieces.append(Piece(stream, block, extended.take(origins)))
        for of_stream in self._origins.values():
            of_stream.clear()
        return pieces

    def _has_whole(self) -> bool:
        return any(_WHOLE in origins for origins in self._origins.values())


class RichOutlet(TrackedOutlet):
    """The collector of a rich bolt: the bolt anchors, acks and fails itself.

    Args:
        component: Whose.
        wanted: The streams that anybody reads.
        roots_of: The roots of a row the bolt was given and did not end yet, else None.
        end: Called with a row that the bolt acked (True) or failed (False), and why.
    """

    def __init__(
        self,
        component: Component,
        wanted: Collection[str],
        roots_of: Callable[[Row], Roots | None],
        end: Callable[[Row, bool, str], None],
    ) -> None:
        super().__init__(component, wanted)
        self._anchors: dict[str, list[Roots]] = {s: [] for s in component.outputs}
        self._roots_of = roots_of
        self._end = end

    def emit(
        self,
        values: Sequence[Any],
        anchors: Iterable[Row] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """See ``RichCollector``."""
        rows = (anchors,) if isinstance(anchors, Row) else tuple(anchors)
        roots = [self._anchor(row) for row in rows]
        self._outlet.emit(values, stream)
        self._anchors[stream].append(np.concatenate(roots) if roots else NO_ROOTS)

    def ack(self, row: Row) -> None:
        """See ``RichCollector``."""
        self._end(row, True, "")

    def fail(self, row: Row, reason: str = "failed by the bolt") -> None:
        """See ``RichCollector``."""
        self._end(row, False, reason)

    def _anchor(self, row: Row) -> Roots:
        roots = self._roots_of(row)
        if roots is None:
            raise DeclarationError(
                f"component '{self._name}' anchored a row on {row!r}; legal: rows that"
                " 'execute' was given and that are neither acked nor failed yet",
                option=self._name,
            )
        return roots

    def collect(self) -> list[Piece]:
        """What was emitted since the last call."""
        pieces = []
        for stream, block in self._outlet.take():
            anchors = self._anchors[stream][: size(block)]
            counts = [len(roots) for roots in anchors]
            starts = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
            lineage = Lineage(np.concatenate(anchors), starts)
            pieces.append(Piece(stream, block, lineage))
        for of_stream in self._anchors.values():
            of_stream.clear()
        return pieces


def select(block: Block, rows: Positions) -> Block:
    """These rows of a block, in that order."""
    if isinstance(block, pa.RecordBatch):
        return block.take(pa.array(rows))
    return [block[row] for row in rows]


def _with_whole_row(given: Lineage) -> Lineage:
    return joined([given, given.whole()])
