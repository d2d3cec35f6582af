"""Clients that wait for the next range: making one costs more than a small range."""

from __future__ import annotations

import atexit
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_tx.native import _reader

_SETTINGS_AT_MOST = 2
_RANGES_AT_MOST = 100
"""A client knows, and reports on, all partitions of every topic it ever read."""

_KEPT_S = 5.0

_Settings = tuple[str, ...]


@dataclass(slots=True)
class SharedClient:
    """A client, how many ranges it read to their ends, and when it became idle."""

    client: _reader.Client
    ranges: int = 0
    idle_since: float = 0.0


class IdleClients:
    """One client for each of few settings, for a short time.

    What was idle for longer may hold connections that a firewall has forgotten, which
    nobody notices before a time-out; and librdkafka's reports pile up in it. Nobody
    gets a client after ``kept_s``; it is closed after twice that at most. Threads may
    share it.
    """

    def __init__(self, kept_s: float = _KEPT_S) -> None:
        self._kept_s = kept_s
        self._kept: dict[_Settings, SharedClient] = {}
        self._lock = threading.Lock()
        self._is_swept = False

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, settings: _Settings) -> SharedClient | None:
        """The client that was kept for these settings; nobody else gets it."""
        with self._lock:
            found = self._kept.pop(settings, None)
        return found if found and not self._is_expired(found) else None

    def keep(self, settings: _Settings, shared: SharedClient) -> None:
        """Keep a client that read a range to its end; too many others are closed."""
        shared.ranges += 1
        shared.idle_since = time.monotonic()
        if shared.ranges >= _RANGES_AT_MOST:
            return
        closing = []
        with self._lock:
            closing.append(self._kept.pop(settings, None))
            while len(self._kept) >= _SETTINGS_AT_MOST:
                closing.append(self._kept.pop(next(iter(self._kept))))
            self._kept[settings] = shared
            self._sweep_later()

    def close_all(self) -> None:
        """Close those that are kept, as a process that ends should."""
        with self._lock:
            closing = list(self._kept.values())
            self._kept.clear()
        del closing

    def forget(self) -> None:
        """In a fork: its threads, and who held the lock, are those of the parent."""
        self._lock = threading.Lock()
        self._is_swept = False
        self._kept.clear()

    def _is_expired(self, shared: SharedClient) -> bool:
        return time.monotonic() - shared.idle_since >= self._kept_s

    def _sweep_later(self) -> None:
        """Close what expires, though nobody asks. The lock is held."""
        if self._is_swept:
            return
        sweeper = threading.Timer(self._kept_s, self._sweep)
        sweeper.daemon = True
        try:
            sweeper.start()
        except RuntimeError:  # no more threads: whoever takes or keeps looks, too
            return
        self._is_swept = True

    def _sweep(self) -> None:
        with self._lock:
            expired = [
                s for s, shared in self._kept.items() if self._is_expired(shared)
            ]
            closing = [self._kept.pop(settings) for settings in expired]
            self._is_swept = False
            if self._kept:
                self._sweep_later()
        del closing


idle = IdleClients()
"""Those of this process."""

os.register_at_fork(after_in_child=idle.forget)
atexit.register(idle.close_all)
