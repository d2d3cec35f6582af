"""What a task of an at-least-once topology knows about trees of rows.

Each root's tree is complete when the xor of its edges is zero over all tasks. A task
adds up its own part; the driver's ledger gets one number for each root, and only ranges
for the many trees that began and ended in one task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.reasons import LONGEST, cut
from kafka_tx.topology.run.messages import Emitted, RootsFailed, TreeReport
from kafka_tx.transactions.root_blocks import Edges, Roots, fold

_FOLD_AT = 1 << 20
_MOST_TOLD = 1 << 20
_SHORT = 200
"""Bytes of a reason once a task has reported so much: all of it ends on the driver."""

NO_ROOTS: Roots = np.empty(0, np.int64)
NO_EDGES: Edges = np.empty(0, np.uint64)


class TaskTrees:
    """The trees of one task. Not thread-safe."""

    def __init__(self) -> None:
        self._roots: list[Roots] = []
        self._edges: list[Edges] = []
        self._entries = 0
        self._begun: list[Roots] = []
        self._failed: dict[tuple[str, str], list[Roots]] = {}
        self._untried: list[Roots] = []
        self._told = 0

    def begin(self, roots: Roots) -> None:
        """Records were read; some of them may give no row."""
        self._begun.append(roots)

    def add(self, roots: Roots, edges: Edges) -> None:
        """Rows were sent, or acked: an edge counts once at either end."""
        self._roots.append(roots)
        self._edges.append(edges)
        self._entries += len(roots)
        if self._entries > _FOLD_AT:
            folded = self._folded()
            self._roots, self._edges = [folded[0]], [folded[1]]
            # Counting from zero again: many roots must not be folded at every step.
            self._entries = 0

    def fail(self, roots: Roots, component: str, reason: str) -> None:
        """Rows with these roots failed."""
        if (component, reason) not in self._failed:
            reason = cut(reason, LONGEST if self._told < _MOST_TOLD else _SHORT)
            self._told += len(reason)
        self._failed.setdefault((component, reason), []).append(roots)

    def leave(self, roots: Roots) -> None:
        """Rows with these roots are given to no bolt."""
        self._untried.append(roots)

    def report(
        self, task: TaskId, emitted: tuple[Emitted, ...], facts: Mapping[str, Any]
    ) -> TreeReport:
        """Everything so far."""
        roots, edges = self._folded()
        begun = _ascending(self._begun)
        mine = np.isin(roots, begun, assume_unique=True)
        begun_edges = np.zeros(len(begun), np.uint64)
        begun_edges[np.searchsorted(begun, roots[mine])] = edges[mine]
        is_open = begun_edges != 0
        return TreeReport(
            task,
            runs_of(begun[~is_open]),
            begun[is_open],
            begun_edges[is_open],
            roots[~mine],
            edges[~mine],
            tuple(
                RootsFailed(component, reason, _ascending(parts))
                for (component, reason), parts in self._failed.items()
            ),
            emitted,
            facts,
            _ascending(self._untried),
        )

    def _folded(self) -> tuple[Roots, Edges]:
        if not self._roots:
            return NO_ROOTS, NO_EDGES
        return fold(np.concatenate(self._roots), np.concatenate(self._edges))


def runs_of(roots: Roots) -> tuple[tuple[int, int], ...]:
    """Ascending roots as runs ``[first, end)``."""
    if not len(roots):
        return ()
    breaks = np.flatnonzero(np.diff(roots) != 1) + 1
    firsts = roots[np.concatenate(([0], breaks))]
    lasts = roots[np.concatenate((breaks - 1, [len(roots) - 1]))]
    return tuple(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


def _ascending(parts: list[Roots]) -> npt.NDArray[np.int64]:
    return np.unique(np.concatenate(parts)) if parts else NO_ROOTS
