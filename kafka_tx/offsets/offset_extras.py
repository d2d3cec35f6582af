"""What is stored beside an offset that storm-kafka does not know, in stores' JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_tx.model import CommittedOffset


def extras_of(committed: CommittedOffset) -> dict[str, Any]:
    """The topic's id and failed attempts, as far as there are any."""
    found: dict[str, Any] = {}
    if committed.topic_id:
        found["topic_id"] = committed.topic_id
    if committed.failures:
        found["failures"] = [list(run) for run in committed.failures]
    return found


def with_extras(
    committed: CommittedOffset, found: Mapping[str, Any]
) -> CommittedOffset:
    """The same, with what ``extras_of`` gave.

    Raises:
        ValueError: It makes no sense.
        TypeError: It makes no sense.
    """
    failures = tuple((int(s), int(e), int(n)) for s, e, n in found.get("failures", ()))
    topic_id = str(found.get("topic_id", ""))
    return replace(committed, topic_id=topic_id, failures=failures)
