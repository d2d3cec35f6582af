"""A map from paths to texts as nodes below one base node.

A path's text is the data of the node with that path, as UTF-8. A node that only leads
to others has no data, and that of an empty text is NUL. Names that begin with ``~``, as
no path does, are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from kafka_tx.errors import StateCorruptedError
from kafka_tx.zookeeper.client import (
    Create,
    Delete,
    Op,
    Set,
    ZooKeeperClient,
    nodes_above,
)

_EMPTY = b"\x00"
_OURS = "~"


class Layout:
    """Names of the children of nodes, so that a write need not ask for each node.

    Valid for one version of ``~owner``. Every write changes that version, so a write
    that is based on an older layout fails as a whole.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self._children: dict[str, set[str]] = {}

    def unknown(self, nodes: Iterable[str]) -> list[str]:
        """Those of ``nodes`` that exist and whose children are not known."""
        return [n for n in nodes if n not in self._children and self.has(n)]

    def learn(self, children: Mapping[str, Collection[str]]) -> None:
        """Add the children that were read at this version."""
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
        """Apply the operations to the layout, too."""
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


@dataclass(frozen=True, slots=True)
class Tree:
    """Reads the map and plans operations that change it. Only reads.

    Raises the errors of the client, and StateCorruptedError: a node's data is no text.
    """

    _client: ZooKeeperClient
    _base: str
    _corrupted: Callable[[str, str], StateCorruptedError]

    def walk(self, prefix: str) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Every path that begins with ``prefix``, with its text.

        Also the names of the children of all nodes that were read.
        """
        found: dict[str, bytes] = {}
        seen: dict[str, list[str]] = {}
        folders = [prefix.rpartition("/")[0]]
        while folders:
            children = self._client.children(map(self._node, folders))
            seen.update(children)
            level = self._below(folders, children, prefix)
            nodes = self._client.nodes(map(self._node, level))
            seen.update((at, []) for at, node in nodes.items() if not node.children)
            folders = []
            for path in level:
                node = nodes.get(self._node(path))
                if node is not None and path.startswith(prefix):
                    found[path] = node.data
                if node is not None and node.children:
                    folders.append(path)
        return self._texts(found), seen

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """The texts of these paths; those without one are left out."""
        wanted = {self._node(path): path for path in paths}
        nodes = self._client.nodes(wanted)
        return self._texts({wanted[at]: node.data for at, node in nodes.items()})

    def operations(
        self, put: Mapping[str, str], delete: Iterable[str], layout: Layout
    ) -> list[Op]:
        """Operations that turn the present nodes into the wanted ones; parents first.

        ``layout`` learns missing nodes.
        """
        gone = set(delete) - set(put)
        self._learn_nodes([*put, *gone], layout)
        leads_on = {at for path in put for at in nodes_above(path)}
        done: list[Op] = []
        for path in sorted({*leads_on, *put}):
            node = self._node(path)
            if path in put:
                kind = Set if layout.has(node) else Create
                done.append(kind(node, put[path].encode() or _EMPTY))
            elif not layout.has(node):
                done.append(Create(node))
        for path in sorted(gone, reverse=True):
            node = self._node(path)
            if layout.has(node):
                leads = path in leads_on or layout.children(node)
                done.append(Set(node, b"") if leads else Delete(node))
        return done

    def _learn_nodes(self, paths: Iterable[str], layout: Layout) -> None:
        """Let the layout know these paths' nodes and all above them."""
        ways = [[*nodes_above(path), path] for path in paths]
        if not layout.children(self._base):
            layout.learn(self._client.children([self._base]))
        for depth in range(max(map(len, ways), default=0)):
            nodes = {self._node(way[depth]) for way in ways if depth < len(way)}
            layout.learn(self._client.children(layout.unknown(nodes)))

    def _below(
        self, folders: list[str], children: Mapping[str, list[str]], prefix: str
    ) -> list[str]:
        """Paths right below that begin with ``prefix`` or lead to some that do."""
        paths = [
            f"{folder}/{name}" if folder else name
            for folder in folders
            for name in children.get(self._node(folder), [])
            if not name.startswith(_OURS)
        ]
        return [
            path
            for path in paths
            if path.startswith(prefix) or prefix.startswith(f"{path}/")
        ]

    def _texts(self, found: Mapping[str, bytes]) -> dict[str, str]:
        return {path: self._text(path, data) for path, data in found.items() if data}

    def _text(self, path: str, data: bytes) -> str:
        try:
            return data.removeprefix(_EMPTY).decode()
        except UnicodeDecodeError as error:
            raise self._corrupted(path, f"it is not UTF-8 ({error})") from None

    def _node(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base
