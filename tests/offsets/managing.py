"""A partition manager, ready for a test."""

from kafka_tx.model import CommittedOffset, LogBounds, OffsetRange, TopicPartition
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.unfinished import PartitionRules

ORDERS = TopicPartition("orders", 0)
LOG = LogBounds(log_start=0, end=1_000)


def span(start, end):
    return OffsetRange(ORDERS, start, end)


def manager(start=0, *, completed=(), stored=None, **rules):
    return PartitionManager(
        ORDERS,
        PartitionRules(**rules),
        CommittedOffset(start, completed),
        stored=stored,
    )


def emitting(end, bounds=LOG, **rules):
    """A manager that emitted [0, end)."""
    made = manager(**rules)
    emit(made, bounds=bounds, max_offsets=end)
    return made


def emit(manager, *, bounds=LOG, max_offsets=1_000, now_ms=0):
    plan = manager.plan(bounds, max_offsets=max_offsets, now_ms=now_ms)
    for wanted in plan.ranges:
        manager.emitted(wanted, now_ms)
    return plan
