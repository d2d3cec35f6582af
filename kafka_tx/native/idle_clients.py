"""Clients that wait for the next range: making one costs more than a small range.

A client is kept for a short time only: the connections of one that was idle for longer
may be forgotten by a firewall, which nobody notices before a time-out.
"""

from __future__ import annotations

import atexit
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_tx.native import _reader

_SETTINGS_AT_MOST = 2
_KEPT_S = 20

_Settings = tuple[str, ...]
_idle: dict[_Settings, tuple[float, _reader.Client]] = {}
"""When it was given back, and the client. Threads share it: one step each."""

_of_the_parent: list[object] = []


def take(settings: _Settings) -> _reader.Client | None:
    """The client that was kept for these settings; nobody else gets it."""
    kept_at, client = _idle.pop(settings, (0.0, None))
    return client if time.monotonic() - kept_at < _KEPT_S else None


def keep(settings: _Settings, client: _reader.Client) -> None:
    """Keep a client that read a range to its end; closes one that is kept already."""
    while len(_idle) >= _SETTINGS_AT_MOST:
        _idle.pop(next(iter(_idle)), None)
    _idle[settings] = (time.monotonic(), client)


def close_all() -> None:
    """Close those that are kept, as a process that ends should."""
    _idle.clear()


def _forget() -> None:
    """A fork has none of the clients' threads: it can neither use nor close them."""
    _of_the_parent.append(dict(_idle))
    _idle.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(close_all)
