"""Fields of a stored offset that storm-kafka does not have, in stores' JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_tx.model import CommittedOffset


def optional_fields(committed: CommittedOffset) -> dict[str, Any]:
    """Topic id, leader epoch, failed attempts and time, as far as they are known."""
    found: dict[str, Any] = {}
    if committed.topic_id:
        found["topic_id"] = committed.topic_id
    if committed.leader_epoch is not None:
        found["leader_epoch"] = committed.leader_epoch
    if committed.failures:
        found["failures"] = [list(run) for run in committed.failures]
    if committed.committed_ms is not None:
        found["committed_ms"] = committed.committed_ms
    return found


def with_optional_fields(
    committed: CommittedOffset, found: Mapping[str, Any]
) -> CommittedOffset:
    """Add ``optional_fields`` to an offset; raises ValueError, TypeError."""
    failures = tuple((int(s), int(e), int(n)) for s, e, n in found.get("failures", ()))
    topic_id = str(found.get("topic_id", ""))
    epoch, at_ms = found.get("leader_epoch"), found.get("committed_ms")
    return replace(
        committed,
        topic_id=topic_id,
        failures=failures,
        leader_epoch=None if epoch is None else int(epoch),
        committed_ms=None if at_ms is None else int(at_ms),
    )
