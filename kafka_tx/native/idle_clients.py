"""Idle clients for reuse: making one takes longer than a small task."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from kafka_tx.native import _reader

_Key = TypeVar("_Key", bound=Hashable)
_Client = TypeVar("_Client")

_RANGES_AT_MOST = 100
"""A client knows, and reports on, all partitions of every topic it ever read."""


class Idle(Generic[_Key, _Client]):
    """Idle clients of this process, by their settings.

    Nobody gets a client after ``kept_s``; it is closed after twice that at most, and
    when the process ends. Threads may share it. A fork has none: threads of clients
    stay with the parent.

    Args:
        kept_s: How long a client waits. One that was idle for longer may hold
            connections that a firewall has dropped, which nobody notices before a
            time-out; and librdkafka's reports pile up in it.
        each: How many are kept for the same settings; the oldest is closed first.
        settings: How many settings have clients; the first one goes first.
    """

    def __init__(
        self, kept_s: float, *, each: int | None = None, settings: int | None = None
    ) -> None:
        self._kept_s = kept_s
        self._each = each
        self._settings = settings
        self._idle: dict[_Key, list[tuple[float, _Client]]] = {}
        self._inherited: list[object] = []
        self._lock = threading.Lock()
        self._is_swept = False
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close_all)

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    def take(self, settings: _Key) -> _Client | None:
        """Take out the client that was used last with these settings."""
        with self._lock:
            found = self._idle.get(settings)
            since, client = found.pop() if found else (0.0, None)
            if not found:
                self._idle.pop(settings, None)
        return None if self._is_expired(since) else client

    def keep(self, settings: _Key, client: _Client) -> None:
        """Keep a client for the next one to take; too many others are closed."""
        closing: list[object] = []
        with self._lock:
            same = self._idle.setdefault(settings, [])
            same.append((time.monotonic(), client))
            if self._each is not None and len(same) > self._each:
                closing.append(same.pop(0))
            if self._settings is not None and len(self._idle) > self._settings:
                closing.append(self._idle.pop(next(iter(self._idle))))
            self._sweep_later()
        del closing

    def close_all(self) -> None:
        """Close all idle clients, at the end of the process."""
        with self._lock:
            closing = list(self._idle.values())
            self._idle.clear()
        del closing

    def _forget(self) -> None:
        """In a fork, which must not close them, and whose lock someone may hold."""
        self._lock = threading.Lock()
        self._is_swept = False
        self._inherited.append(self._idle)
        self._idle = {}

    def _is_expired(self, since: float) -> bool:
        return time.monotonic() - since >= self._kept_s

    def _sweep_later(self) -> None:
        """Close expired clients later, on a thread. The caller holds the lock."""
        if self._is_swept:
            return
        sweeper = threading.Timer(self._kept_s, self._sweep)
        sweeper.daemon = True
        try:
            sweeper.start()
        except RuntimeError:  # no more threads: later calls close expired clients
            return
        self._is_swept = True

    def _sweep(self) -> None:
        closing: list[object] = []
        with self._lock:
            for settings, same in list(self._idle.items()):
                fresh = [one for one in same if not self._is_expired(one[0])]
                closing.append(self._idle.pop(settings))
                if fresh:
                    self._idle[settings] = fresh
            self._is_swept = False
            if self._idle:
                self._sweep_later()
        del closing


@dataclass(slots=True)
class SharedClient:
    """A client that reads, and how many ranges it read to their ends."""

    client: _reader.Client
    ranges: int = 0


class IdleClients(Idle[tuple[str, ...], SharedClient]):
    """One client that reads for each of few settings, for a short time."""

    def __init__(self, kept_s: float = 5.0) -> None:
        super().__init__(kept_s, each=1, settings=2)

    def keep(self, settings: tuple[str, ...], client: SharedClient) -> None:
        """Keep a client that read a range to its end, unless it has read many."""
        client.ranges += 1
        if client.ranges < _RANGES_AT_MOST:
            super().keep(settings, client)


idle = IdleClients()
"""The clients of this process."""
