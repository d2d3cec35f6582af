"""A record to write, as all writers of this room take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_tx.sinks.sink_parts import check_sum

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record to write; a partition or timestamp of None is left to Kafka."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None

    def counted(self) -> tuple[int, int]:
        """One, and its check sum."""
        headers = self.headers or ()
        return 1, check_sum(
            *(self.topic, self.key, self.value, headers),
            *(self.partition, self.timestamp_ms),
        )

    def sum_compared(self) -> int:
        """0: a replay is compared by the check sum."""
        return 0


NOTHING = OutRecord("", None, None)
