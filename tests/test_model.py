"""What every room shares."""

from __future__ import annotations

from kafka_tx.model import TopicPartition, few


def test_logs_name_a_few_of_many_partitions():
    partitions = [TopicPartition("orders", n) for n in range(1_000)]

    assert few(partitions[:2]) == "orders-0, orders-1"
    assert few(partitions).endswith("orders-19 and 980 more")
    assert few([]) == "none"
