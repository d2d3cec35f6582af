"""Batches of queries are seen while Spark tells nothing of them."""

from __future__ import annotations

import threading

import pytest

from kafka_tx.metrics.events import OffsetsStored
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import LogBounds, LogPosition, TopicPartition
from kafka_tx.running.in_flight_watch import InFlightWatch

A = TopicPartition("t", 0)
NEVER_S = 3_600.0


class Query:
    """One query of the id ``job``, looked at by hand."""

    def __init__(self, registry, clock):
        self.registry = registry
        self.phase = ""
        self.running = {"query": {"job"}}
        self.meanwhile = lambda: None
        self.asked = threading.Event()
        self.watch = InFlightWatch(
            registry,
            self.running.copy,
            self.phase_of,
            lambda ids: self.asked.set(),
            clock,
            NEVER_S,
        )

    def phase_of(self, _):
        self.meanwhile()
        return self.phase

    def end(self):
        ids = self.running.pop("query")
        self.watch.ended("query", ids)

    def poll(self, phase):
        self.phase = phase
        self.watch.poll()
        samples = self.registry.samples()["kafka_tx_in_flight_batches"]
        return {key[1] for key, (count,) in samples.items() if count}

    @property
    def since_s(self):
        name = "kafka_tx_in_flight_since_timestamp_seconds"
        return self.registry.samples()[name]["job",][0]


@pytest.fixture
def query(clock):
    made = Query(MetricsRegistry(), clock)
    yield made
    made.watch.close()


def test_a_batch_is_in_flight_from_its_planning_until_it_ended(query, clock):
    assert query.poll("") == set()
    assert query.since_s == 0
    assert query.poll("planning") == {"planning"}
    planned_s = query.since_s
    assert query.poll("processing") == {"processing"}
    assert query.poll("processing") == {"processing"}
    assert query.since_s == planned_s > 0

    query.watch.batch_ended("query")
    clock.sleep_ms(1_000)

    assert query.poll("processing") == {"processing"}
    assert query.since_s == planned_s + 1
    assert query.poll("") == set()
    assert query.since_s == 0


def test_a_query_that_plans_and_finds_no_records_has_no_batch(query):
    query.registry.record_stored(
        OffsetsStored(id="job", committed={A: LogPosition(5, None)}, txid=3)
    )
    query.registry.record_log("job", {A: LogBounds(0, 5)})

    assert query.poll("planning") == set()

    query.registry.record_silence("job")  # it may hang for its brokers
    assert query.poll("planning") == {"planning"}
    query.registry.record_log("job", {A: LogBounds(0, 5)})
    assert query.poll("planning") == set()

    query.registry.record_log("job", {A: LogBounds(0, 6)})
    assert query.poll("planning") == {"planning"}


def test_nothing_is_left_of_a_query_that_ended(query):
    query.poll("processing")

    query.end()

    assert query.since_s == 0


def test_nothing_is_left_of_a_query_that_ends_while_it_is_looked_at(query):
    assert query.poll("processing") == {"processing"}
    query.meanwhile = query.end

    assert query.poll("processing") == set()

    assert query.since_s == 0


@pytest.mark.parametrize(
    ("phase", "times"), [("", 0), ("processing", 0), ("planning", 1)]
)
def test_the_lag_is_asked_for_only_while_a_batch_is_planned(
    query, monkeypatch, phase, times
):
    asked: list[str] = []
    monkeypatch.setattr(query.registry, "lag_of", asked.append)

    query.poll(phase)

    assert asked == ["job"] * times


def test_the_store_is_asked_once_where_the_very_first_batch_begins(query):
    query.poll("planning")
    assert not query.asked.is_set()
    query.poll("processing")
    assert query.asked.wait(60)
    query.asked.clear()

    query.poll("processing")

    assert not query.asked.wait(0.1)


def test_it_polls_by_itself(query, clock):
    polled = threading.Event()

    def running():
        polled.set()
        return {}

    watch = InFlightWatch(query.registry, running, str, lambda _: None, clock, 0.01)

    assert polled.wait(60)
    watch.close()


def test_a_poll_that_fails_is_followed_by_others(clock):
    polled, registry = threading.Event(), MetricsRegistry()

    def phase_of(_):
        if registry.samples()["kafka_tx_metric_failures_total"] == {(): (0,)}:
            raise KeyError("query")
        polled.set()
        return "processing"

    ids = {"query": {"job"}}
    given = registry, ids.copy, phase_of, lambda ids: None, clock
    watch = InFlightWatch(*given, interval_s=0.01)

    assert polled.wait(30)
    watch.close()
