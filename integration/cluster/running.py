"""Servers for the time of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class Server(Protocol):
    """What is started and ended."""

    def start(self) -> None:
        """Start it, and wait until it serves."""

    def stop(self) -> None:
        """End it; harmless when it did not start."""


S = TypeVar("S", bound=Server)


@contextmanager
def running(server: S) -> Iterator[S]:
    """Start it now, stop it at the end, also when it did not start well."""
    try:
        server.start()
        yield server
    finally:
        server.stop()
