"""What partition managers counted, under the names of the catalogue."""

from __future__ import annotations

import pytest

from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    CommittedOffset,
    LogBounds,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.running.at_least_once.counts import SpoutMetrics
from kafka_tx.running.at_least_once.in_flight_chunk import InFlightChunk
from tests.running.polling import since_s

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def registry():
    return MetricsRegistry()


@pytest.fixture
def metrics(registry):
    return SpoutMetrics("job", registry)


def emitting(partition, end, now_ms=0):
    manager = PartitionManager(partition, PartitionRules(), CommittedOffset(0))
    emit(manager, end, now_ms)
    return manager


def emit(manager, end, now_ms=0):
    plan = manager.plan(LogBounds(0, end), max_offsets=end, now_ms=now_ms)
    for wanted in plan.ranges:
        manager.emitted(wanted, now_ms)


def of(registry, name, partition=P0, *more):
    key = ("job", partition.topic, str(partition.partition), *more)
    return registry.samples()[f"kafka_tx_{name}"].get(key, (None,))[0]


def test_gauges_show_where_a_partition_stands(metrics, registry):
    manager = emitting(P0, 10, now_ms=1_000)
    manager.ack(0)
    manager.fail(1, now_ms=2_000)

    metrics.update([manager], now_ms=4_000)

    assert of(registry, "emitted_offset") == 10
    assert of(registry, "completed_offset") == 1
    assert of(registry, "pending_records") == 9
    assert of(registry, "retry_records") == 1
    assert of(registry, "oldest_pending_age_seconds") == 3


def test_counters_move_by_what_is_new(metrics, registry):
    manager = emitting(P0, 10)
    manager.ack(0)
    metrics.update([manager], now_ms=0)
    manager.ack(1)
    manager.fail(2, now_ms=0)
    emit(manager, 10)

    metrics.update([manager], now_ms=0)
    metrics.update([manager], now_ms=0)

    assert of(registry, "emitted_records_total") == 10
    assert of(registry, "completed_records_total") == 2
    assert of(registry, "failed_records_total", P0, "failed") == 1
    assert of(registry, "retried_records_total") == 1
    assert metrics.totals()["failed"] == 1


def test_time_outs_are_told_from_failures(metrics, registry):
    manager = emitting(P0, 10)
    manager.fail(1, now_ms=0)
    manager.fail(2, now_ms=0)
    metrics.timed_out[P0] = 1

    metrics.update([manager], now_ms=0)

    assert of(registry, "failed_records_total", P0, "failed") == 1
    assert of(registry, "failed_records_total", P0, "timed_out") == 1


def test_skipped_records_and_dead_letters_do_not_count_as_completed(metrics, registry):
    manager = emitting(P0, 10)
    for offset in range(5):
        manager.ack(offset)
    metrics.skipped[P0], metrics.written[P0] = 1, 2

    metrics.update([manager], now_ms=0)

    assert of(registry, "completed_records_total") == 2
    assert of(registry, "lost_records_total", P0, "retry_limit") == 1
    assert of(registry, "dead_letter_records_total") == 2
    assert metrics.totals() | {"skipped": 1, "dead_letters": 2} == metrics.totals()


def test_a_trimmed_record_is_lost(metrics, registry):
    manager = emitting(P0, 10)
    manager.fail(0, now_ms=0)
    manager.trim(1)

    metrics.update([manager], now_ms=0)

    assert of(registry, "lost_records_total", P0, "retention") == 1
    assert of(registry, "skipped_offsets_total", P0, "retention") is None


def test_offsets_that_are_jumped_over_unread_are_skipped(metrics, registry):
    manager = emitting(P0, 10)
    manager.trim(14)

    metrics.update([manager], now_ms=0)

    assert of(registry, "skipped_offsets_total", P0, "retention") == 4


def test_a_partition_that_is_gone_is_forgotten_and_may_come_back(metrics, registry):
    first, second = emitting(P0, 10), emitting(P1, 10)
    metrics.update([first, second], now_ms=0)

    metrics.update([second], now_ms=0)
    assert of(registry, "emitted_offset") is None
    assert of(registry, "emitted_offset", P1) == 10

    metrics.update([emitting(P0, 4), second], now_ms=0)
    assert of(registry, "emitted_offset") == 4
    assert of(registry, "emitted_records_total") == 4
    assert metrics.totals()["emitted"] == 24


def test_each_fetch_is_measured(metrics, registry):
    facts = {"a-b-0": {"records": 3, "fetch_ms": [10.0, 30.0]}}

    metrics.fetched(facts, ["a-b-0", "a-b-1"])

    found = registry.samples()["kafka_tx_fetch_duration_seconds"]
    assert [key for key in found if key[0] == "job"] == [("job", "a-b", "0")]


def chunk(number, clock):
    attempt = TransactionAttempt(number, 1)
    return InFlightChunk(attempt, "spout", 0, [], clock.monotonic_ms())


def test_a_chunk_is_in_flight_until_something_completes_however_often_it_is_retried(
    metrics, registry, clock
):
    manager = emitting(P0, 10)
    metrics.update([manager], now_ms=0)
    began_s = clock.now_ms() / 1000

    metrics.in_flight([chunk(1, clock)], clock)
    clock.sleep_ms(1_000)
    manager.fail(3, now_ms=clock.monotonic_ms())
    metrics.in_flight([], clock)  # it waits for its retry
    assert since_s(registry) == began_s
    metrics.in_flight([chunk(2, clock)], clock)
    assert since_s(registry) == began_s

    manager.ack(0)
    metrics.update([manager], now_ms=0)
    metrics.in_flight([chunk(2, clock)], clock)
    assert since_s(registry) == began_s + 1
    metrics.ended()
    assert since_s(registry) == 0
