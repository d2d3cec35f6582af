"""Clients that wait for the next range: making one costs more than a small range."""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_tx.native import _reader

_SETTINGS_AT_MOST = 2
_KEPT_S = 20.0

_Settings = tuple[str, ...]


class IdleClients:
    """One client for each of few settings, for a short time.

    What was idle for longer may hold connections that a firewall has forgotten, which
    nobody notices before a time-out. Threads share it: its dict is changed in single
    steps only.
    """

    def __init__(self, kept_s: float = _KEPT_S) -> None:
        self._kept_s = kept_s
        self._kept: dict[_Settings, tuple[float, _reader.Client]] = {}
        self._sweeper: threading.Timer | None = None
        self._of_the_parent: list[object] = []

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, settings: _Settings) -> _reader.Client | None:
        """The client that was kept for these settings; nobody else gets it."""
        kept_at, client = self._kept.pop(settings, (0.0, None))
        return client if time.monotonic() - kept_at < self._kept_s else None

    def keep(self, settings: _Settings, client: _reader.Client) -> None:
        """Keep a client that read a range to its end; too many others are closed."""
        while len(self._kept) >= _SETTINGS_AT_MOST:
            self._kept.pop(next(iter(self._kept)), None)
        self._kept[settings] = (time.monotonic(), client)
        if self._sweeper is None:
            self._sweep_later()

    def close_all(self) -> None:
        """Close those that are kept, as a process that ends should."""
        self._kept.clear()

    def forget(self) -> None:
        """In a fork: it has none of their threads, so it can neither use nor close."""
        self._of_the_parent.append(dict(self._kept))
        self._kept.clear()
        self._sweeper = None

    def _sweep_later(self) -> None:
        self._sweeper = threading.Timer(self._kept_s, self._sweep)
        self._sweeper.daemon = True
        self._sweeper.start()

    def _sweep(self) -> None:
        expired_at = time.monotonic() - self._kept_s
        for settings, (kept_at, _) in tuple(self._kept.items()):
            if kept_at <= expired_at:
                self._kept.pop(settings, None)
        self._sweeper = None
        if self._kept:
            self._sweep_later()


idle = IdleClients()
"""Those of this process."""

os.register_at_fork(after_in_child=idle.forget)
atexit.register(idle.close_all)
