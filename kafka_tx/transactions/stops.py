"""The last error that ended a query or topology, kept beside its other records.

A process that failed is often gone before anybody asked it why. A stop is a note for
people: nothing is ever decided by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_tx.errors import FencedError
from kafka_tx.protocols import Store
from kafka_tx.transactions import records

STOP = "stop"
_LONGEST = 500


def notes_id(id: str) -> str:  # noqa: A002 - the word users know
    """The id under which an at-least-once topology notes why it ended.

    Its offsets know no such note. The id is one of its own, so that nobody else's is
    fenced.
    """
    return f"{id}.at-least-once"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why and when it ended.

    Attributes:
        reason: Kind of error, one word.
        error: The beginning of its text.
        at_ms: Wall clock, Unix epoch.
    """

    reason: str
    error: str
    at_ms: int


def keep_stop(store: Store, stop: Stop) -> bool:
    """Write it down in place of an earlier one; False where the id has no owner yet.

    Raises:
        StateUnavailableError: The store does not answer.
        StateError: The store refuses.
    """
    epoch = store.epoch()
    if not epoch:  # to become the owner could fence the one who is starting now
        return False
    text = " ".join(stop.error.split())
    payload = {"reason": stop.reason, "error": text[:_LONGEST], "at_ms": stop.at_ms}
    try:
        store.write(epoch, {STOP: records.encode(STOP, payload)})
    except FencedError:  # a newer owner is at work: the id has not stopped
        return False
    return True


def last_stop(store: Store) -> Stop | None:
    """What was written down last; None where nothing was.

    Raises:
        StateCorruptedError: The note cannot be read.
        StateUnavailableError: The store does not answer.
    """
    text = store.get(STOP)
    if text is None:
        return None
    where = {"path": STOP, "store": store.url, "id": store.id}
    return records.decode_as(STOP, text, _stop, **where)


def _stop(payload: Any) -> Stop:  # noqa: ANN401 - any JSON
    return Stop(str(payload["reason"]), str(payload["error"]), int(payload["at_ms"]))
