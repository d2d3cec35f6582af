"""Producers that are used again: a task of a topology lives for one batch only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kafka_tx.kafka.sender import Sender

_IDLE_AT_MOST = 4

_Key = tuple[bool, frozenset[tuple[str, str]]]
_idle: defaultdict[_Key, list[Sender]] = defaultdict(list)
"""Lists are taken from and added to in one step each, so that threads may share."""


def borrow(settings: Mapping[str, str], *, is_awaited: bool = True) -> Sender:
    """A sender that nobody else uses now.

    Args:
        settings: From ``client_settings(…, purpose="producer")``.
        is_awaited: Whether it is flushed before it is given back; one that is not may
            hold errors that nobody wants to know.
    """
    idle = _idle[is_awaited, frozenset(settings.items())]
    try:
        sender = idle.pop()
    except IndexError:
        return Sender(settings)
    sender.renew()
    return sender


def give_back(sender: Sender, *, is_awaited: bool = True) -> None:
    """Keep it for the next one to borrow; only after success."""
    idle = _idle[is_awaited, frozenset(sender.settings.items())]
    if len(idle) < _IDLE_AT_MOST or not is_awaited:
        idle.append(sender)
