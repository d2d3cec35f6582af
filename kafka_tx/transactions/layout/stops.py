"""The last error that ended a query or topology, stored beside its other records.

A failed process is often gone before anybody asks for the reason. A stop is a note for
people: no code decides by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_tx.config import derived_id
from kafka_tx.errors import FencedError, FormatError
from kafka_tx.protocols import Store
from kafka_tx.transactions.layout import records

STOP = "stop"
_LONGEST = 500


def stop_id(id: str) -> str:  # noqa: A002 - the word users know
    """The id under which an at-least-once topology stores its last stop.

    Its offset store has no place for a stop. The id is separate, so that no other owner
    is fenced.
    """
    return derived_id(id, ".at-least-once")


@dataclass(frozen=True, slots=True)
class Stop:
    """Kind of the error that ended it (one word), its text's beginning, Unix time."""

    reason: str
    error: str
    at_ms: int


def store_stop(store: Store, stop: Stop) -> bool:
    """Store a stop in place of an earlier one.

    False: the id has no owner yet, or records of another version.
    """
    try:
        epoch = store.epoch()
        records.check_formats(store.read(), store.url, store.id)
    except FormatError:
        return False
    if not epoch:  # becoming the owner could fence one that is starting now
        return False
    text = " ".join(stop.error.split())
    payload = {"reason": stop.reason, "error": text[:_LONGEST], "at_ms": stop.at_ms}
    try:
        store.write(epoch, {STOP: records.encode(STOP, payload)})
    except FencedError:  # a newer owner is at work: the id has not stopped
        return False
    return True


def last_stop(store: Store) -> Stop | None:
    """The stored stop; None if there is none; raises StateCorruptedError."""
    text = store.get(STOP)
    if text is None:
        return None
    at = records.Place(STOP, store.url, store.id)
    return records.decode_as(STOP, text, _stop, at)


def _stop(payload: Any) -> Stop:  # noqa: ANN401 - any JSON
    return Stop(str(payload["reason"]), str(payload["error"]), int(payload["at_ms"]))
