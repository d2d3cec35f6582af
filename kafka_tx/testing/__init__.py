"""Fakes for tests, ours and yours: time, a Kafka log, and a store that crashes.

``ManualClock`` stands still until a test moves it. ``MemoryLog`` is a cluster in
memory: a ``ClusterView`` and a ``RangeReader`` at once, whose partitions are appended
to, compacted, trimmed, cut and deleted, and lose their leaders. ``CrashingStore`` lets
a driver die before or after any write to its store. ``quick_spark`` gives a Spark that
starts in half the time. ``feed`` fills a topic and counts what brokers confirm, and
``process_tree`` kills a program with everything that it started.
"""

from kafka_tx.testing.process_tree import (
    QUICK_JAVA,
    quick_spark,
    spark_directory,
)
from kafka_tx.testing.stand_ins import (
    MEMORY_BROKER,
    Crash,
    CrashingStore,
    ManualClock,
    MemoryLog,
    MemoryRecord,
)

__all__ = [
    "MEMORY_BROKER",
    "QUICK_JAVA",
    "Crash",
    "CrashingStore",
    "ManualClock",
    "MemoryLog",
    "MemoryRecord",
    "quick_spark",
    "spark_directory",
]
