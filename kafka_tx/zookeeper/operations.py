"""What a request to ZooKeeper can change, and how much fits into one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAX_REQUEST_BYTES = 900_000
"""What we put into one request; servers take 1,048,575 bytes unless set otherwise."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node. Its parent exists."""

    path: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Set:
    """Set a node's data, if it has this version (-1: whatever version)."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children."""

    path: str


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but fail if the node has another version."""

    path: str
    version: int


Op = Create | Set | Delete | Check


def add(transaction: Any, operation: Op) -> None:  # noqa: ANN401 - kazoo's request
    """Put an operation into kazoo's transaction."""
    match operation:
        case Create(path, data):
            transaction.create(path, data)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path):
            transaction.delete(path)
        case Check(path, version):
            transaction.check(path, version)


def size_of(operation: Op) -> int:
    """Bytes that an operation takes in a request, rather too many than too few."""
    data = getattr(operation, "data", b"")
    return len(operation.path.encode()) + len(data) + 150


def in_requests(operations: Iterable[Op]) -> list[list[Op]]:
    """Cut operations into lists that fit one request each, in order."""
    requests: list[list[Op]] = [[]]
    size = 0
    for operation in operations:
        size += size_of(operation)
        if size > MAX_REQUEST_BYTES and requests[-1]:
            requests.append([])
            size = size_of(operation)
        requests[-1].append(operation)
    return requests
