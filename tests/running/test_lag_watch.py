"""Lag between commits."""

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TopicPartition
from kafka_tx.running.lag_watch import LagWatch

P0 = TopicPartition("t", 0)


class Registry(MetricsRegistry):
    def __init__(self):
        super().__init__()
        self.logs = []

    def record_log(self, tx_id, bounds):
        self.logs.append((tx_id, dict(bounds)))


def watch(registry, open_view):
    return LagWatch(registry, lambda: {"job": [P0]}, open_view, interval_s=3600)


def test_the_logs_are_looked_at_without_a_commit(cluster):
    cluster.set(0, 2, 50)
    registry = Registry()
    watching = watch(registry, lambda _: cluster)

    watching.look()
    watching.close()

    assert registry.logs == [("job", cluster.bounds([P0]))]


def test_a_cluster_that_does_not_answer_changes_nothing():
    def away(_):
        raise BrokerUnavailableError("away")

    registry = Registry()
    watching = watch(registry, away)

    watching.look()
    watching.close()

    assert registry.logs == []


def test_it_looks_by_itself(cluster):
    cluster.set(0, 2, 50)
    registry = Registry()
    watching = LagWatch(registry, lambda: {"job": [P0]}, lambda _: cluster, 0.01)

    while not registry.logs:
        watching._closed.wait(0.01)
    watching.close()
