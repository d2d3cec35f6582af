"""The acker written plainly, one record for each root: the model of ``RootBlocks``.

A tuple tree is complete exactly when the xor of its edges is zero.
Every edge of the tree (a tuple sent to one task) has a random 64-bit id. It is xored in
once when it is made and once when it is acked, so it cancels; a tree with an edge still
open is zero with a chance of one in 2**64.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_tx.transactions.timeouts import RotatingMap


@dataclass(frozen=True, slots=True)
class TreeCompleted:
    """Every tuple of the tree was acked."""

    root: int
    spout_task: int
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class TreeFailed:
    """A tuple of the tree failed; what is left of the tree no longer counts."""

    root: int
    spout_task: int
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class TreePostponed:
    """The tree needs longer; the spout must start its time-out anew as well."""

    root: int
    spout_task: int


Report = TreeCompleted | TreeFailed | TreePostponed


@dataclass(slots=True)
class _Tree:
    edges: int
    since_ms: int
    spout_task: int | None = None
    has_failed: bool = False


class Ledger:
    """One record for each root, in rotating buckets; messages come in any order.

    An ack or a failure may come before ``init``: nothing is reported before the spout
    task is known. A report ends the record, so a root is reported once; what comes
    later opens a record that is forgotten in time, as everything is that nobody
    completes. The *spout* owns the time-out and replays; forgetting here is silent.

    Roots, edge ids and partial xors are 64-bit numbers, given by the caller. Times are
    monotonic milliseconds. Source: Storm, Acker.

    Raises:
        ConfigError: Fewer than 2 buckets.
    """

    def __init__(self, buckets: int = 3) -> None:
        self._trees: RotatingMap[int, _Tree] = RotatingMap(buckets)

    def __len__(self) -> int:
        """Records kept, also those of roots that were forgotten or never begun."""
        return len(self._trees)

    def init(
        self, root: int, edges: int, spout_task: int, now_ms: int
    ) -> TreeCompleted | TreeFailed | None:
        """A spout sent a tuple; ``edges`` is the xor of its edge ids, 0 for none."""
        tree = self._tree(root, now_ms)
        tree.edges ^= edges
        tree.spout_task = spout_task
        return self._settle(root, tree, now_ms)

    def ack(
        self, root: int, partial: int, now_ms: int
    ) -> TreeCompleted | TreeFailed | None:
        """A tuple is done: its own edge xor all edges that were anchored on it.

        Several acks of a root may come as one, their partials xored. An edge must not
        be acked twice: it would be open again.
        """
        tree = self._tree(root, now_ms)
        tree.edges ^= partial
        return self._settle(root, tree, now_ms)

    def fail(self, root: int, now_ms: int) -> TreeCompleted | TreeFailed | None:
        """A tuple of the tree failed."""
        tree = self._tree(root, now_ms)
        tree.has_failed = True
        self._trees.put(root, tree)
        return self._settle(root, tree, now_ms)

    def reset_timeout(self, root: int, now_ms: int) -> Report | None:
        """A tuple of the tree needs longer: start the record's time anew."""
        tree = self._tree(root, now_ms)
        self._trees.put(root, tree)
        report = self._settle(root, tree, now_ms)
        if report is None and tree.spout_task is not None:
            return TreePostponed(root, tree.spout_task)
        return report

    def rotate(self) -> int:
        """Forget the oldest bucket; return how many records that were."""
        return len(self._trees.rotate())

    def _tree(self, root: int, now_ms: int) -> _Tree:
        tree = self._trees.get(root)
        if tree is None:
            tree = _Tree(edges=0, since_ms=now_ms)
            self._trees.put(root, tree)
        return tree

    def _settle(
        self, root: int, tree: _Tree, now_ms: int
    ) -> TreeCompleted | TreeFailed | None:
        """Report a tree that has ended: zero is complete, even if something failed."""
        if tree.spout_task is None or (tree.edges and not tree.has_failed):
            return None
        self._trees.remove(root)
        kind = TreeFailed if tree.edges else TreeCompleted
        return kind(root, tree.spout_task, now_ms - tree.since_ms)
