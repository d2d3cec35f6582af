"""Lag between commits."""

import time

import pytest

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.metrics.events import OffsetsStored
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.running.lag_watch import LagWatch
from tests.fake_cluster import FakeCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Registry(MetricsRegistry):
    def __init__(self):
        super().__init__()
        self.logs = []

    def record_log(self, tx_id, bounds):
        self.logs.append((tx_id, dict(bounds)))


def watch(registry, open_view):
    return LagWatch(registry, lambda: {"job": [P0]}, open_view, interval_s=3600)


def test_the_logs_are_polled_without_a_commit(cluster):
    cluster.set(0, 2, 50)
    registry = Registry()
    watching = watch(registry, lambda _: cluster)

    watching.poll()
    watching.close()

    assert registry.logs == [("job", cluster.bounds([P0]))]


def test_a_new_leader_is_asked_where_the_log_that_was_read_ends(cluster):
    """Once."""
    cluster.set(0, 0, 50)
    cluster.ids["t"], cluster.epochs[P0], cluster.ended[P0, 0] = "a", 1, 20
    registry = MetricsRegistry()
    registry.record_stored(
        OffsetsStored(id="job", committed={P0: LogPosition(30, "a", 0)})
    )
    watching = watch(registry, lambda _: cluster)

    watching.poll()
    watching.poll()
    watching.close()

    assert registry.lag_of("job") == 30
    assert cluster.epochs_asked == [{P0: 0}]


@pytest.mark.parametrize("is_defect", [False, True])
def test_a_cluster_that_does_not_answer_changes_nothing(cluster, is_defect):
    cluster.set(0, 2, 50)
    clusters = {"fine": cluster}
    kind = KeyError if is_defect else BrokerUnavailableError

    def opened(id_):
        if id_ not in clusters:
            raise kind("away")
        return clusters[id_]

    registry, ids = Registry(), {"away": [P0], "fine": [P0]}
    watching = LagWatch(registry, lambda: ids, opened, interval_s=3600)

    watching.poll()
    watching.close()

    assert registry.logs == [("fine", cluster.bounds([P0]))]
    assert registry.lag_of("away") is None
    failures = registry.samples()["kafka_tx_metric_failures_total"]
    assert failures == {(): (int(is_defect),)}


def test_a_cluster_is_left_whose_id_is_no_longer_watched():
    closed = []
    watched = {"job": [P0], "ended": [P0]}

    class View(FakeCluster):
        def __init__(self, id_):
            super().__init__()
            self.id = id_

        def close(self):
            closed.append(self.id)

    watching = LagWatch(Registry(), lambda: watched, View, interval_s=3600)
    watching.poll()
    del watched["ended"]

    watching.poll()

    assert closed == ["ended"]
    watching.close()
    assert closed == ["ended", "job"]


def test_nothing_is_left_of_a_partition_that_is_dropped_while_it_is_polled():
    watched, registry = {"job": [P0, P1]}, MetricsRegistry()

    class View(FakeCluster):
        def bounds(self, partitions):
            watched["job"] = [P0]
            registry.forget("job", [P1])
            return {P0: LogBounds(0, 50), P1: Unavailable("deleted")}

    committed = {P0: LogPosition(30, None)}
    registry.record_stored(OffsetsStored(id="job", committed=committed))
    watching = LagWatch(registry, lambda: dict(watched), lambda _: View(), 3600)

    watching.poll()
    watching.close()

    assert registry.lag_of("job") == 20


def test_it_polls_by_itself(cluster):
    cluster.set(0, 2, 50)
    registry = Registry()
    watching = LagWatch(registry, lambda: {"job": [P0]}, lambda _: cluster, 0.01)

    while not registry.logs:
        time.sleep(0.01)
    watching.close()


def test_it_polls_at_once_when_asked(cluster):
    cluster.set(0, 2, 50)
    registry = Registry()
    watching = watch(registry, lambda _: cluster)

    watching.poll_soon()

    while not registry.logs:
        time.sleep(0.01)
    watching.close()


def test_an_id_that_was_forgotten_is_looked_up_in_its_new_cluster(cluster):
    other, clusters = FakeCluster(), [cluster]
    cluster.set(0, 0, 10)
    other.set(0, 0, 5_000)
    registry = Registry()
    watching = watch(registry, lambda _: clusters[-1])
    watching.poll()

    clusters.append(other)
    watching.forget("job")
    watching.poll()
    watching.close()

    assert [found[P0].end for _, found in registry.logs] == [10, 5_000]
    assert cluster.is_closed
