"""Tracks the records that each row comes from, for the report of a task.

At-least-once topologies only. A *root* is the number of a record within the in-flight
chunks. Every row has an entry for each root that it is anchored on. All rows that come
from a root are its *tree*. Rows are sent only while their job runs: when the job ends,
a tree is complete unless a task reports its root as failed, untried or left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.reasons import LONGEST, cut
from kafka_tx.topology.rows.blocks import Block, select, size
from kafka_tx.topology.rows.fields import DEFAULT_STREAM
from kafka_tx.topology.run.messages import (
    NO_ROOTS,
    Emitted,
    Roots,
    RootsFailed,
    TreeReport,
)

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Lineage:
    """The roots of some rows.

    Attributes:
        roots: Of all rows, row after row; a root may occur twice.
        starts: Where each row's roots begin, and where the last ones end; None: every
            row has exactly one root.
    """

    roots: Roots
    starts: Positions | None = None

    def __len__(self) -> int:
        return len(self.roots) if self.starts is None else len(self.starts) - 1

    def of(self, row: int) -> slice:
        """The place of a row's entries."""
        if self.starts is None:
            return slice(row, row + 1)
        return slice(int(self.starts[row]), int(self.starts[row + 1]))

    @classmethod
    def of_each(cls, rows: Sequence[tuple[int, ...]]) -> Lineage:
        """The lineage of rows with these roots."""
        roots = np.fromiter(chain.from_iterable(rows), np.int64)
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        if (counts == 1).all():
            return cls(roots)
        return cls(roots, np.concatenate(([0], np.cumsum(counts))))

    def between(self, start: int, end: int) -> Lineage:
        """The lineage of the rows ``[start, end)``."""
        if self.starts is None:
            return Lineage(self.roots[start:end])
        starts = self.starts[start : end + 1]
        return Lineage(self.roots[starts[0] : starts[-1]], starts - starts[0])

    def take(self, rows: Positions) -> Lineage:
        """The lineage of these rows, in their order; a row may occur repeatedly."""
        if self.starts is None:
            return Lineage(self.roots[rows])
        counts = np.diff(self.starts)[rows]
        starts = np.concatenate(([0], np.cumsum(counts)))
        begins = np.repeat(self.starts[rows] - starts[:-1], counts)
        return Lineage(self.roots[begins + np.arange(len(begins))], starts)

    def without_roots(self) -> Positions:
        """The rows that come from no record: nothing emits them again."""
        if self.starts is None:
            return np.empty(0, np.int64)
        return np.flatnonzero(np.diff(self.starts) == 0)

    def whole(self) -> Lineage:
        """The lineage of one row that comes from all of these."""
        return Lineage(self.roots, np.array([0, len(self.roots)], np.int64))


def joined(parts: Sequence[Lineage]) -> Lineage:
    """The lineage of concatenated blocks."""
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
    """Rows of one stream on their way to their readers, with their roots."""

    block: Block
    lineage: Lineage
    stream: str = DEFAULT_STREAM

    def __post_init__(self) -> None:
        assert size(self.block) == len(self.lineage)

    def rows(self, start: int, end: int) -> Tracked:
        """The rows ``[start, end)``; lists and record batches slice alike."""
        between = self.lineage.between(start, end)
        return Tracked(self.block[start:end], between, self.stream)

    def of(self, rows: Positions) -> Tracked:
        """These rows, in that order; as many rows as there are mean all rows."""
        if len(rows) == len(self.lineage):
            return self
        chosen = select(self.block, rows)
        return Tracked(chosen, self.lineage.take(rows), self.stream)


_MOST_OF_REASONS = 1 << 20
"""Bytes of reasons of a task before further reasons are shortened."""
_SHORT = 200
"""Bytes of a shortened reason: the driver holds the reasons of all tasks."""


class TaskTrees:
    """The trees of one task. Not thread-safe."""

    def __init__(self) -> None:
        self._begun: list[tuple[int, int]] = []
        self._failed: dict[tuple[str, str], list[Roots]] = {}
        self._untried: list[Roots] = []
        self._open: list[Roots] = []
        self._reason_bytes = 0

    def begin(self, roots: Roots) -> None:
        """These records (ascending) were read; some of them may give no row."""
        for first, end in runs_of(roots):
            if self._begun and self._begun[-1][1] == first:
                first = self._begun.pop()[0]
            self._begun.append((first, end))

    def fail(self, roots: Roots, component: str, reason: str) -> None:
        """Rows with these roots failed."""
        if (component, reason) not in self._failed:
            is_much = self._reason_bytes >= _MOST_OF_REASONS
            reason = cut(reason, _SHORT if is_much else LONGEST)
            self._reason_bytes += len(reason)
        self._failed.setdefault((component, reason), []).append(roots)

    def leave(self, roots: Roots) -> None:
        """Rows with these roots are given to no bolt."""
        self._untried.append(roots)

    def leave_open(self, roots: Roots) -> None:
        """A rich bolt neither acked nor failed rows with these roots."""
        self._open.append(roots)

    def report(
        self,
        task: TaskId,
        emitted: tuple[Emitted, ...],
        facts: Mapping[str, Any],
        packets: int = 0,
        took_s: float = 0.0,
    ) -> TreeReport:
        """The results so far, with the other parts of the task's report."""
        return TreeReport(
            task,
            emitted,
            facts,
            packets,
            tuple(self._begun),
            tuple(
                RootsFailed(component, reason, _ascending(parts))
                for (component, reason), parts in self._failed.items()
            ),
            _ascending(self._untried),
            _ascending(self._open),
            took_s,
        )


def runs_of(roots: Roots) -> tuple[tuple[int, int], ...]:
    """Ascending roots as runs ``[first, end)``."""
    if not len(roots):
        return ()
    first, last = int(roots[0]), int(roots[-1])
    if last - first + 1 == len(roots):
        return ((first, last + 1),)
    breaks = np.flatnonzero(np.diff(roots) != 1) + 1
    firsts = roots[np.concatenate(([0], breaks))]
    lasts = roots[np.concatenate((breaks - 1, [len(roots) - 1]))]
    return tuple(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


def _ascending(parts: list[Roots]) -> Roots:
    return np.unique(np.concatenate(parts)) if parts else NO_ROOTS
