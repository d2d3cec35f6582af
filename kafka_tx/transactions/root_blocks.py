"""The acker: a tuple tree is complete exactly when the xor of its edges is zero.

Every edge of a tree (a tuple sent to one task) has a random 64-bit id. It is xored in
once when it is made and once when it is acked, so it cancels; a tree with an edge still
open is zero with a chance of one in 2**64. Roots are numbered in blocks of consecutive
numbers, one block for each chunk of records that is sent together, so a root needs nine
bytes and no entry of its own, and messages are handled as arrays. Source: Storm, Acker.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_tx.errors import ConfigError
from kafka_tx.transactions.timeouts import RotatingMap

Roots = npt.NDArray[np.int64]
Edges = npt.NDArray[np.uint64]

_BEGUN = np.uint8(1)
_FAILED = np.uint8(2)
_REPORTED = np.uint8(4)

_NO_ROOTS: Roots = np.empty(0, np.int64)


def fold(roots: Roots, partials: Edges) -> tuple[Roots, Edges]:
    """Xor all partials of a root into one: what an executor sends to the driver.

    Returns:
        Each root once, ascending, and its xor.
    """
    if not len(roots):
        return roots, partials
    order = np.argsort(roots, kind="stable")
    ordered = roots[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return ordered[starts], np.bitwise_xor.reduceat(partials[order], starts)


@dataclass(frozen=True, slots=True)
class Ended:
    """Roots whose trees ended with these messages, ascending; each once for ever."""

    completed: Roots
    failed: Roots


class _Block:
    """The trees of the roots [first, first + count)."""

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.open = count
        self.edges: Edges = np.zeros(count, np.uint64)
        self.flags: npt.NDArray[np.uint8] = np.zeros(count, np.uint8)

    def settle(self, touched: npt.NDArray[np.int64]) -> tuple[Roots, Roots]:
        """Report the touched trees that have ended; zero is complete, failed or not."""
        touched = np.unique(touched)
        flags = self.flags[touched]
        live = (flags & (_BEGUN | _REPORTED)) == _BEGUN
        is_zero = self.edges[touched] == 0
        completed = touched[live & is_zero]
        failed = touched[live & ~is_zero & ((flags & _FAILED) != 0)]
        for ended in (completed, failed):
            self.flags[ended] |= _REPORTED
            self.open -= len(ended)
        return completed + self.first, failed + self.first

    def unreported(self) -> Roots:
        return np.flatnonzero((self.flags & _REPORTED) == 0) + self.first


class BlockLedger:
    """Ledger and time-out in one, for blocks of roots.

    A block is begun before any message of it. A tree ends once: completed, failed, or
    fallen out with the ``buckets``-th rotation after its block began; a block is
    forgotten when all its trees have ended. Messages for roots of no block are late:
    ignored and counted. Roots are 63-bit numbers, edges and partials unsigned 64-bit
    ones. Source: Storm, Acker.

    Raises:
        ConfigError: Fewer than 2 buckets.
    """

    def __init__(self, buckets: int = 2) -> None:
        self._blocks: RotatingMap[int, _Block] = RotatingMap(buckets)
        self._firsts: list[int] = []
        self.late = 0
        """Messages for roots that are in no block."""

    def __len__(self) -> int:
        """Trees that have not ended."""
        return sum(self._block(first).open for first in self._firsts)

    def begin(self, first: int, count: int) -> None:
        """Open the block of the roots [first, first + count).

        Raises:
            ConfigError: It is empty, or overlaps an open one.
        """
        at = bisect_right(self._firsts, first)
        before, after = self._firsts[at - 1 : at], self._firsts[at : at + 1]
        overlaps = any(f + len(self._block(f).edges) > first for f in before)
        overlaps |= any(f < first + count for f in after)
        if count < 1 or overlaps:
            raise ConfigError.illegal(
                "block",
                f"[{first}, {first + count})",
                "at least one root, none of them in an open block",
            )
        insort(self._firsts, first)
        self._blocks.put(first, _Block(first, count))

    def init(self, roots: Roots, edges: Edges) -> Ended:
        """Tuples were sent for these roots; the xors of their edge ids, 0 for none."""
        return self._each(roots, edges, _BEGUN)

    def ack(self, roots: Roots, partials: Edges) -> Ended:
        """Tuples are done: own edge xor anchored ones. A root may come repeatedly."""
        return self._each(roots, partials, np.uint8(0))

    def fail(self, roots: Roots) -> Ended:
        """Tuples of these trees failed."""
        return self._each(roots, np.zeros(len(roots), np.uint64), _FAILED)

    def unbegun(self, first: int) -> Roots:
        """The roots of a block, by its first one, that no ``init`` came for."""
        block = self._blocks.get(first)
        if block is None:
            return _NO_ROOTS
        return np.flatnonzero((block.flags & _BEGUN) == 0) + first

    def rotate(self) -> Roots:
        """Make every block older; return the roots that have timed out, ascending."""
        fallen = self._blocks.rotate()
        self._firsts = [first for first in self._firsts if first not in fallen]
        timed_out = [fallen[first].unreported() for first in sorted(fallen)]
        return np.concatenate(timed_out) if timed_out else _NO_ROOTS

    def _each(self, roots: Roots, edges: Edges, flag: np.uint8) -> Ended:
        completed, failed = [_NO_ROOTS], [_NO_ROOTS]
        owners = np.searchsorted(np.array(self._firsts, np.int64), roots, side="right")
        for owner in np.unique(owners):
            mine = owners == owner
            block = self._block(self._firsts[owner - 1]) if owner else None
            done = self._one(block, roots[mine], edges[mine], flag)
            completed.append(done[0])
            failed.append(done[1])
        self._forget_ended()
        return Ended(np.concatenate(completed), np.concatenate(failed))

    def _one(
        self, block: _Block | None, roots: Roots, edges: Edges, flag: np.uint8
    ) -> tuple[Roots, Roots]:
        """Messages for roots from one block on, some of them perhaps beyond its end."""
        if block is None:
            self.late += len(roots)
            return _NO_ROOTS, _NO_ROOTS
        at = roots - block.first
        inside = at < len(block.edges)
        at = at[inside]
        self.late += len(roots) - len(at)
        np.bitwise_xor.at(block.edges, at, edges[inside])
        block.flags[at] |= flag
        return block.settle(at)

    def _block(self, first: int) -> _Block:
        block = self._blocks.get(first)
        assert block is not None, "every first root has its block"
        return block

    def _forget_ended(self) -> None:
        for first in [f for f in self._firsts if not self._block(f).open]:
            self._firsts.remove(first)
            self._blocks.remove(first)
