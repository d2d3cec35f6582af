"""A map from paths to texts as nodes below one base node.

A path's text is the data of the node with that path, as UTF-8. A node that only leads
to others has no data. Names that begin with ``~``, as no path does, are ours::

    <path>              the text; NUL for an empty text; NUL and {"parts": …}
    <path>/~<name>.<n>  the parts of a text that is too large for one node
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kafka_tx.errors import StateCorruptedError
from kafka_tx.zookeeper.client import MovedError, ZooKeeperClient
from kafka_tx.zookeeper.layout import Layout
from kafka_tx.zookeeper.operations import Create, Delete, Op, Set

MAX_NODE_BYTES = 800_000
"""The data of one node; servers take 1 MB with everything around it."""

_MARK = b"\x00"
_OURS = "~"


@dataclass(frozen=True, slots=True)
class Tree:
    """Reads the map, and says which operations would change it. Changes nothing."""

    _client: ZooKeeperClient
    _base: str
    _corrupted: Callable[[str, str], StateCorruptedError]

    def walk(self, prefix: str) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Every path that begins with ``prefix`` with its text; children of nodes seen.

        Raises:
            MovedError: A part of a text went away while it was read.
            StateCorruptedError: A node's data is no text.
            StateUnavailableError, StateError: As the client.
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
        """The texts of these paths; those without one are left out.

        Raises: as ``walk``.
        """
        wanted = {self._node(path): path for path in paths}
        nodes = self._client.nodes(wanted)
        return self._texts({wanted[at]: node.data for at, node in nodes.items()})

    def operations(
        self, put: Mapping[str, str], delete: Iterable[str], name: str, layout: Layout
    ) -> list[Op]:
        """What changes the nodes, as they are now, into what is wanted; parents first.

        ``layout`` learns what it does not know. ``name`` is for the parts of large
        texts: new for new texts, the same when a change that was begun is completed.
        Once everything is as wanted, the operations only say it again.

        Raises:
            StateUnavailableError, StateError: As the client.
        """
        gone = set(delete) - set(put)
        self._look_at([*put, *gone], layout)
        leads_on = {at for path in put for at in _ancestors(path)}
        done: list[Op] = []
        for path in sorted({*leads_on, *put}):
            node = self._node(path)
            if path in put:
                done.extend(self._place(node, put[path].encode(), name, layout))
            elif not layout.has(node):
                done.append(Create(node))
        for path in sorted(gone, reverse=True):
            node = self._node(path)
            if layout.has(node):
                done.extend(self._remove(node, path in leads_on, layout))
        return done

    def _look_at(self, paths: Iterable[str], layout: Layout) -> None:
        """Let the layout know these paths' nodes and all above them."""
        ways = [[*_ancestors(path), path] for path in paths]
        if not layout.children(self._base):
            layout.learn(self._client.children([self._base]))
        for depth in range(max(map(len, ways), default=0)):
            nodes = {self._node(way[depth]) for way in ways if depth < len(way)}
            layout.learn(self._client.children(layout.unknown(nodes)))

    def _place(self, node: str, data: bytes, name: str, layout: Layout) -> Iterator[Op]:
        """Put a text into its node, and away with parts of the former one."""
        new, children = not layout.has(node), layout.children(node)
        kept: list[str] = []
        if len(data) > MAX_NODE_BYTES:
            pieces = range(0, len(data), MAX_NODE_BYTES)
            kept = [f"{_OURS}{name}.{number}" for number in range(len(pieces))]
            if new:
                yield Create(node)
            for part, first in zip(kept, pieces, strict=True):
                piece = data[first : first + MAX_NODE_BYTES]
                kind = Set if part in children else Create
                yield kind(f"{node}/{part}", piece)
            yield Set(node, _MARK + json.dumps({"parts": kept}).encode())
        else:
            yield (Create if new else Set)(node, data or _MARK)
        for child in children:
            if child.startswith(_OURS) and child not in kept:
                yield Delete(f"{node}/{child}")

    def _remove(self, node: str, leads_on: bool, layout: Layout) -> Iterator[Op]:
        children = layout.children(node)
        for child in children:
            if child.startswith(_OURS):
                yield Delete(f"{node}/{child}")
        if leads_on or any(not child.startswith(_OURS) for child in children):
            yield Set(node, b"")
        else:
            yield Delete(node)

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
        parts = {
            path: [f"{self._node(path)}/{part}" for part in self._parts(path, data)]
            for path, data in found.items()
            if data.startswith(_MARK) and data != _MARK
        }
        nodes = self._client.nodes([part for some in parts.values() for part in some])
        texts = {}
        for path, data in found.items():
            if not data:
                continue
            whole = data.removeprefix(_MARK)
            if path in parts:
                if not set(parts[path]) <= set(nodes):
                    raise MovedError(path)
                whole = b"".join(nodes[part].data for part in parts[path])
            texts[path] = self._text(path, whole)
        return texts

    def _parts(self, path: str, data: bytes) -> list[str]:
        try:
            return [str(part) for part in json.loads(data[1:])["parts"]]
        except (ValueError, KeyError, TypeError):
            raise self._corrupted(path, "its list of parts is unreadable") from None

    def _text(self, path: str, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self._corrupted(path, f"it is not UTF-8 ({error})") from None

    def _node(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base


def _ancestors(path: str) -> list[str]:
    """``a/b/c`` gives ``a``, ``a/b``."""
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]
