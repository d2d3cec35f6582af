"""ZooKeeper in memory, behind the interface of our client, with faults to choose."""

import threading
from collections import Counter

from kafka_tx.errors import StateUnavailableError
from kafka_tx.zookeeper.client import (
    Create,
    Delete,
    MovedError,
    Node,
    OutcomeUnknownError,
    Set,
    size_of,
)

SERVER_LIMIT = 1_048_575


class Crash(BaseException):
    """The process that held the client is gone."""


class FakeServer:
    """The nodes. Clients of one server see the same."""

    def __init__(self):
        self.data = {"": b""}
        self.versions = {"": 0}
        self.changed = Counter[str]()
        self.changes = 0
        self.children: dict[str, set[str]] = {"": set()}
        self.lock = threading.RLock()

    def copy(self):
        children = {path: set(names) for path, names in self.children.items()}
        self.copied = dict(self.data), dict(self.versions), children

    def put_back(self):
        """As from a snapshot: versions, too."""
        with self.lock:
            self.data, self.versions, self.children = self.copied

    def node(self, path):
        with self.lock:
            if path not in self.data:
                return None
            children = len(self.children[path])
            version, changed = self.versions[path], self.changed[path]
            return Node(self.data[path], version, children, changed)

    def names(self, path):
        with self.lock:
            return sorted(self.children[path]) if path in self.data else None

    def apply(self, operations):
        assert sum(map(size_of, operations)) <= SERVER_LIMIT, "larger than a request"
        with self.lock:
            children = {path: set(names) for path, names in self.children.items()}
            before = dict(self.data), dict(self.versions), children
            try:
                for operation in operations:
                    self.check(operation)
                    self.carry_out(operation)
            except MovedError:
                self.data, self.versions, self.children = before
                raise

    def check(self, operation):
        path = operation.path
        parent = path.rpartition("/")[0]
        if isinstance(operation, Create):
            fits = path not in self.data and parent in self.data
        elif isinstance(operation, Delete):
            fits = path in self.data and not self.children[path]
        else:
            version = self.versions.get(path)
            fits = path in self.data and operation.version in (-1, version)
        if not fits:
            raise MovedError(path)

    def carry_out(self, operation):
        path = operation.path
        parent, _, name = path.rpartition("/")
        self.changes += 1
        self.changed[path] = self.changes
        if isinstance(operation, Create):
            self.data[path], self.versions[path] = operation.data, 0
            self.children[path] = set()
            self.children[parent].add(name)
        elif isinstance(operation, Delete):
            del self.data[path], self.versions[path], self.children[path]
            self.children[parent].discard(name)
        elif isinstance(operation, Set):  # a Check changes nothing
            self.data[path] = operation.data
            self.versions[path] += 1


class FakeZooKeeper:
    """A client. ``fail`` is asked with the number of each change, from 1.

    It may return ``"lost"`` (not carried out, outcome unknown), ``"landed"`` (carried
    out, outcome unknown), ``"crash"`` (the process ends before), ``"crash after"``.
    """

    def __init__(self, server, fail=lambda _number: None):
        self.server = server
        self.fail = fail
        self.changes = 0
        self.reads = 0

    def nodes(self, paths):
        found = {path: self.server.node(path) for path in paths}
        self.reads += bool(found)
        return {path: node for path, node in found.items() if node is not None}

    def node(self, path):
        return self.nodes([path]).get(path)

    def stats(self, paths):
        return {path: node.children for path, node in self.nodes(paths).items()}

    def children(self, paths):
        found = {path: self.server.names(path) for path in paths}
        self.reads += bool(found)
        return {path: names for path, names in found.items() if names is not None}

    def catch_up(self, path):
        self.reads += 1

    def change(self, operations):
        self.changes += 1
        fault = self.fail(self.changes)
        if fault == "crash":
            raise Crash
        if fault == "lost":
            raise OutcomeUnknownError("lost")
        self.server.apply(operations)
        if fault == "crash after":
            raise Crash
        if fault == "landed":
            raise OutcomeUnknownError("landed")

    def silent(self, error):
        return StateUnavailableError(f"silent: {error}")

    def close(self):
        pass
