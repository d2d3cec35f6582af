"""Fakes for tests, ours and yours: time, a Kafka log, and a store that crashes.

``ManualClock`` stands still until it is told to move. ``MemoryLog`` is a cluster in
memory: a ``ClusterView`` and a ``RangeReader`` at once, whose partitions are appended
to, compacted, trimmed, cut and deleted, and lose their leaders. ``CrashingStore`` lets
a driver die before or after any write to its store.
"""

from kafka_tx.testing.clock import ManualClock
from kafka_tx.testing.crashing_store import Crash, CrashingStore
from kafka_tx.testing.memory_log import MEMORY_BROKER, MemoryLog, MemoryRecord

__all__ = [
    "MEMORY_BROKER",
    "Crash",
    "CrashingStore",
    "ManualClock",
    "MemoryLog",
    "MemoryRecord",
]
