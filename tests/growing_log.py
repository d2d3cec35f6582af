"""A log in memory that grows as soon as it has answered a question for a time."""

from __future__ import annotations

from kafka_tx.model import TopicPartition
from kafka_tx.testing import MemoryLog


class Growing:
    """Takes the place of ``_at`` of a log: appends a record after each answer."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._answer = log._at

    def __call__(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The answer of the log as it was."""
        found = self._answer(partition, timestamp_ms)
        self._log.append(partition, b"later", timestamp_ms=timestamp_ms)
        return found
