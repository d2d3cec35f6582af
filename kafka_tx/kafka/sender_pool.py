"""Producers that are used again: a task lives for one batch only."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.kafka.sender import Sender
from kafka_tx.native.idle_clients import Idle

KEPT_S = 600.0
"""As long as Spark keeps its own."""

_Settings = frozenset[tuple[str, str]]
_awaited: Idle[_Settings, Sender] = Idle(KEPT_S, each=4)
_forgetting: Idle[_Settings, Sender] = Idle(KEPT_S)
"""Not limited: to close one would drop what it has not sent."""


def borrow(settings: Mapping[str, str], *, is_awaited: bool = True) -> Sender:
    """A sender that nobody else uses now.

    Args:
        settings: From ``client_settings(…, purpose="producer")``.
        is_awaited: Whether it is flushed before it is given back; one that is not may
            hold errors that nobody wants to know.
    """
    pool = _awaited if is_awaited else _forgetting
    sender = pool.take(frozenset(settings.items()))
    if sender is None:
        return Sender(settings)
    sender.renew()
    return sender


def give_back(sender: Sender, *, is_awaited: bool = True) -> None:
    """Keep it for the next one to borrow; only after success."""
    pool = _awaited if is_awaited else _forgetting
    pool.keep(frozenset(sender.settings.items()), sender)
