"""Fakes for tests, ours and yours: time, a Kafka log, and a store that crashes.

``ManualClock`` stands still until a test moves it. ``MemoryLog`` is a cluster in
memory: a ``ClusterView`` and a ``RangeReader`` at once, whose partitions are appended
to, compacted, trimmed, cut and deleted, and lose their leaders. ``CrashingStore`` lets
a driver die before or after any write to its store. ``quick_spark`` gives a Spark that
starts in half the time. ``feed`` fills a topic and counts what brokers confirm, and
``process_tree`` kills a program with everything that it started.
``TransactionalSinkSuite`` tests a sink of yours; it needs pytest.
"""

import sys
from typing import TYPE_CHECKING, Any

from kafka_tx.testing.process_tree import QUICK_JAVA, quick_spark, spark_directory
from kafka_tx.testing.stand_ins import (
    MEMORY_BROKER,
    Crash,
    CrashingStore,
    ManualClock,
    MemoryLog,
    MemoryRecord,
)

if TYPE_CHECKING:
    from kafka_tx.testing.sink_suite import TransactionalSinkSuite

__all__ = [
    "MEMORY_BROKER",
    "QUICK_JAVA",
    "Crash",
    "CrashingStore",
    "ManualClock",
    "MemoryLog",
    "MemoryRecord",
    "TransactionalSinkSuite",
    "quick_spark",
    "spark_directory",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the suite, which needs pytest
    if name != "TransactionalSinkSuite":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    if f"{__name__}.sink_suite" not in sys.modules:
        pytest.register_assert_rewrite(f"{__name__}.sink_suite")
    from kafka_tx.testing.sink_suite import TransactionalSinkSuite

    return TransactionalSinkSuite
