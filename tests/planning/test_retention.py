"""What retention deletes soon, of logs with unread records."""

from __future__ import annotations

import pytest

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.model import LogPosition, Retention, TopicPartition
from kafka_tx.planning.retention import SOON_MS, RetentionEdges
from kafka_tx.testing import ManualClock
from tests.fake_cluster import FakeCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def clock():
    return ManualClock(10 * DAY_MS)


@pytest.fixture
def edges(cluster, clock):
    return RetentionEdges(cluster, clock)


def edge_of(edges, cluster, position, partition=P0):
    at = {partition: LogPosition(position, None)}
    return edges.completed(cluster.bounds([partition]), lambda: at)[partition].edge


def test_by_time_it_is_the_first_record_that_stays_for_four_hours(
    edges, cluster, clock
):
    """Record n was written at n milliseconds."""
    cluster.set(0, 2 * DAY_MS, 10 * DAY_MS)
    cluster.kept["t"] = Retention(7 * DAY_MS, is_by_size=False)

    edge = edge_of(edges, cluster, 3 * DAY_MS)

    assert edge == 3 * DAY_MS + SOON_MS


def test_of_a_short_retention_it_is_a_quarter(edges, cluster, clock):
    cluster.set(0, 0, 10 * DAY_MS)
    cluster.kept["t"] = Retention(HOUR_MS, is_by_size=False)

    edge = edge_of(edges, cluster, 5)

    assert edge == 10 * DAY_MS - HOUR_MS + HOUR_MS // 4


def test_if_all_records_are_old_it_is_the_end(edges, cluster, clock):
    cluster.set(0, 0, 100)
    cluster.kept["t"] = Retention(HOUR_MS, is_by_size=False)

    assert edge_of(edges, cluster, 5) == 100


@pytest.mark.parametrize("kept", [None, Retention(None, is_by_size=True)])
def test_by_size_it_is_what_four_hours_push_out_and_a_quarter_of_the_log_at_most(
    edges, cluster, clock, kept
):
    """Also where brokers do not show the settings of the topic."""
    if kept:
        cluster.kept["t"] = kept
    cluster.set(0, 1_000_000, 2_000_000)
    assert edge_of(edges, cluster, 1_000_001) == 1_000_000

    clock.advance(10 * MINUTE_MS)
    cluster.set(0, 1_000_000, 2_001_000)
    assert edge_of(edges, cluster, 1_000_001) == 1_024_000

    clock.advance(10 * MINUTE_MS)
    cluster.set(0, 1_000_000, 3_000_000)
    assert edge_of(edges, cluster, 1_000_001) == 1_500_000


def test_a_log_that_has_not_reached_its_size_or_has_no_limit_has_none(
    edges, cluster, clock
):
    cluster.kept["t"] = Retention(None, is_by_size=True)
    cluster.set(0, 0, 2_000_000)
    assert edge_of(edges, cluster, 1) == 0

    clock.advance(10 * MINUTE_MS)
    cluster.kept["t"] = Retention(None, is_by_size=False)
    cluster.set(0, 50, 3_000_000)
    assert edge_of(edges, cluster, 60) == 50


def test_only_logs_with_unread_records_are_asked_for_and_not_at_each_poll(
    edges, cluster, clock
):
    cluster.kept["t"] = Retention(HOUR_MS, is_by_size=False)
    cluster.set(0, 0, 100)
    cluster.set(1, 0, 100)
    at = {P0: LogPosition(100, None), P1: LogPosition(99, None)}

    found = edges.completed(cluster.bounds(at), lambda: at)
    again = edges.completed(cluster.bounds(at), lambda: at)

    assert [found[p].edge for p in at] == [None, 100]
    assert [again[p].edge for p in at] == [None, None]
    assert found == again  # an edge is no news


def test_without_an_answer_the_bounds_are_as_before(edges, cluster, clock, monkeypatch):
    def refuse(names):
        raise BrokerUnavailableError("away")

    monkeypatch.setattr(cluster, "retentions", refuse)
    cluster.set(0, 7, 100)

    assert edge_of(edges, cluster, 50) is None
