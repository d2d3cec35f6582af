"""Lineage: from which records each row of a block comes, in arrays.

At-least-once topologies only. A *root* is the number of a record within the chunks in
flight; an *edge* is a row on its way to one task. Every row has an entry for each root
it is anchored on, and every entry gets a random 64-bit edge id when the row is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_tx.topology.rows.blocks import Block, size
from kafka_tx.transactions.root_blocks import Edges, Roots

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Lineage:
    """The roots of some rows.

    Attributes:
        roots: Of all rows, one after the other; a root may be there twice.
        starts: Where each row's roots begin, and where the last ones end; None when
            every row has exactly one.
    """

    roots: Roots
    starts: Positions | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.roots) if self.starts is None else len(self.starts) - 1

    def of(self, row: int) -> slice:
        """Where the entries of a row are."""
        if self.starts is None:
            return slice(row, row + 1)
        return slice(int(self.starts[row]), int(self.starts[row + 1]))

    def entries(self, rows: Positions) -> Positions:
        """The positions of all entries of these rows, in their order."""
        if self.starts is None:
            return rows
        counts = (self.starts[1:] - self.starts[:-1])[rows]
        ends = np.cumsum(counts)
        begins = np.repeat(self.starts[rows] - (ends - counts), counts)
        return begins + np.arange(len(begins))

    def take(self, rows: Positions) -> Lineage:
        """The lineage of these rows, in their order; a row may be there repeatedly."""
        if self.starts is None:
            return Lineage(self.roots[rows])
        counts = (self.starts[1:] - self.starts[:-1])[rows]
        starts = np.concatenate(([0], np.cumsum(counts)))
        return Lineage(self.roots[self.entries(rows)], starts)

    def whole(self) -> Lineage:
        """The lineage of one row that comes from all of these."""
        return Lineage(self.roots, np.array([0, len(self.roots)], np.int64))


def joined(parts: Sequence[Lineage]) -> Lineage:
    """The lineage of blocks that are put one behind the other."""
    roots = np.concatenate([part.roots for part in parts])
    if all(part.starts is None for part in parts):
        return Lineage(roots)
    counts = [
        np.ones(len(part), np.int64) if part.starts is None else np.diff(part.starts)
        for part in parts
    ]
    return Lineage(roots, np.concatenate(([0], np.cumsum(np.concatenate(counts)))))


@dataclass(frozen=True, slots=True, eq=False)
class Tracked:
    """Rows on their way to a task.

    Attributes:
        block: The rows.
        lineage: Their roots.
        edges: The edge id of every entry of the lineage.
    """

    block: Block
    lineage: Lineage
    edges: Edges

    def __post_init__(self) -> None:
        assert size(self.block) == len(self.lineage)
        assert len(self.edges) == len(self.lineage.roots)

    def rows(self, start: int, end: int) -> Tracked:
        """The rows ``[start, end)``."""
        rows = np.arange(start, end)
        block = self.block[start:end]  # lists and record batches slice alike
        edges = self.edges[self.lineage.entries(rows)]
        return Tracked(block, self.lineage.take(rows), edges)
