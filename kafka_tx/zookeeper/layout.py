"""Which nodes exist below one base, as far as somebody looked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kafka_tx.zookeeper.operations import Create, Delete, Op


class Layout:
    """Names of the children of nodes, so that a write need not ask for each node.

    True for one version of ``~owner``: who changes anything below it changes that too.
    If somebody else did, a write based on it fails as a whole and it is thrown away.
    """

    def __init__(
        self, version: int, children: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self.version = version
        self._children = {n: set(names) for n, names in (children or {}).items()}

    def unknown(self, nodes: Iterable[str]) -> list[str]:
        """Those of ``nodes`` that exist and whose children are not known."""
        return [n for n in nodes if n not in self._children and self.has(n)]

    def learn(self, children: Mapping[str, Collection[str]]) -> None:
        """Take what somebody saw at this version."""
        for node, names in children.items():
            self._children[node] = set(names)

    def has(self, node: str) -> bool:
        """Whether a node exists; its parent's children are known, or it has none."""
        parent, _, name = node.rpartition("/")
        return name in self._children.get(parent, ())

    def children(self, node: str) -> list[str]:
        """Names of the known children, ascending."""
        return sorted(self._children.get(node, ()))

    def follow(self, operations: Iterable[Op], version: int) -> None:
        """Do to the layout what was done to the nodes."""
        for operation in operations:
            parent, _, name = operation.path.rpartition("/")
            if isinstance(operation, Create):
                if parent in self._children:
                    self._children[parent].add(name)
                self._children[operation.path] = set()
            elif isinstance(operation, Delete):
                self._children.get(parent, set()).discard(name)
                self._children.pop(operation.path, None)
        self.version = version
