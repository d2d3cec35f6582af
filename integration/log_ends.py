"""Where logs end, as the planning side sees it."""

from __future__ import annotations

from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.model import LogBounds, TopicPartition


def log_ends(
    servers: str,
    topic: str,
    partitions: int = 1,
    isolation: str = "read_uncommitted",
) -> dict[int, int]:
    """The end of each partition, by its number; all of them have to answer."""
    options = {"bootstrap.servers": servers, "isolation.level": isolation}
    view = KafkaClusterView(client_settings(options, purpose="admin"))
    try:
        found = view.bounds([TopicPartition(topic, n) for n in range(partitions)])
    finally:
        view.close()
    ends = {}
    for partition, bounds in found.items():
        assert isinstance(bounds, LogBounds), bounds
        ends[partition.partition] = bounds.end
    return ends
