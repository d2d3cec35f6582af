"""One commit, known in every detail, and how to look a sample up."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kafka_tx.metrics import BatchCommitted, MetricsRegistry
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, located
from kafka_tx.transactions.layout.commit_stats import TaskSums
from tests.metrics.families import prometheus

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
MINUTE = 60_000
REPORTED = {each.name for each in fields(TaskSums)} - {"skipped"}


class ManualTime:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def ends(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogPosition]:
    """The offsets, of topics without ids."""
    return located(offsets, {}, {})


def batch(**changes: Any) -> BatchCommitted:
    """Txid 7 of ``job``: orders-0 [100, 140), orders-1 [5, 5) of a log [50, 200)."""
    facts: dict[str, Any] = {
        "id": "job",
        "txid": 7,
        "starts": {ORDERS_0: 100, ORDERS_1: 5},
        "committed": {ORDERS_0: 140, ORDERS_1: 5},
        "bounds": {ORDERS_0: LogBounds(50, 200), ORDERS_1: LogBounds(0, 5)},
        "records": 38,
        "committed_at_ms": 1_700_000_000_500,
        "commit_ms": 4.0,
        "duration_ms": 300.0,
    }
    facts |= changes
    known = (facts.pop(name, {}) for name in ("topic_ids", "leader_epochs"))
    facts["committed"] = located(facts["committed"], *known)
    from_tasks = {name: facts.pop(name) for name in REPORTED & facts.keys()}
    return BatchCommitted(**facts, from_tasks=TaskSums(**from_tasks))


def value(registry: MetricsRegistry, sample: str, **labels: str) -> float | None:
    return prometheus(registry).get_sample_value(f"kafka_tx_{sample}", labels)


def orders(registry: MetricsRegistry, sample: str, partition: int = 0) -> float | None:
    labels = {"id": "job", "topic": "orders", "partition": str(partition)}
    return value(registry, sample, **labels)


def label_sets(registry: MetricsRegistry, name: str) -> set[tuple[str, ...]]:
    return set(registry.samples()[f"kafka_tx_{name}"])
