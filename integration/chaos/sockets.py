"""Whose connections they are, as Linux tells it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from kafka_tx.testing.process_tree import session_members

_ESTABLISHED = "01"


def client_ports(session: int, servers: Iterable[int]) -> set[int]:
    """The own ports of what the processes of a session hold open to these ports."""
    ports = _by_inode(set(servers))
    found = set()
    for pid in session_members(session):
        for link in _links(Path(f"/proc/{pid}/fd")):
            inode = link.removeprefix("socket:[").removesuffix("]")
            if inode in ports:
                found.add(ports[inode])
    return found


def _by_inode(servers: set[int]) -> dict[str, int]:
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, own, other, state, *_, inode = line.split()[:10]
        if state == _ESTABLISHED and _port(other) in servers:
            found[inode] = _port(own)
    return found


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _links(folder: Path) -> list[str]:
    links = []
    with contextlib.suppress(OSError):  # it ended meanwhile
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                links.append(str(entry.readlink()))
    return links
