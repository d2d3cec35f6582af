"""Noting a stop: in the metrics at once, then in the store."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from kafka_tx.errors import StateGivenUpError, StateUnavailableError
from kafka_tx.metrics import MetricsRegistry, catalogue
from kafka_tx.model import LogBounds, TopicPartition, Topics
from kafka_tx.running.last_run import record_stop, show_committed
from kafka_tx.transactions.layout.batch_records import Committed
from kafka_tx.transactions.layout.stops import Stop, last_stop
from kafka_tx.transactions.layout.txid_layout import Door, Numbering
from kafka_tx.transactions.ledger.ledger import LedgerState
from kafka_tx.transactions.ownership.memory import MemoryStore


def stops(registry: MetricsRegistry) -> list[object]:
    found = registry.samples_of(catalogue.STOPS)
    return [key for key, (times, *_) in found.items() if times]


class HangingError(Exception):
    """In place of a call that never returns."""


def says(error: Exception) -> Any:
    """A store that raises this error, whatever it is asked."""
    store = MagicMock(spec=MemoryStore)
    for call in (store.get, store.epoch, store.read, store.write):
        call.side_effect = error
    return store


def test_a_stop_counts_although_the_store_hangs(clock):
    registry = MetricsRegistry()

    with pytest.raises(HangingError):
        record_stop(registry, says(HangingError()), "jobs", ValueError("bad"), clock)

    assert stops(registry) == [("jobs", "user")]


def test_a_stop_is_stored_and_shows_where_the_id_went(clock):
    registry, store = MetricsRegistry(), MemoryStore("moved", "jobs")
    numbering = Numbering("n", Door.TRANSACTIONAL, "postgresql://there")
    store.write(store.acquire(), numbering.record)

    record_stop(registry, store, "jobs", ValueError("bad"), clock)

    assert last_stop(store) == Stop("user", "bad", clock.now_ms())
    assert registry.activities()["jobs"].moved_to == "postgresql://there"


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_store_that_was_given_up_is_not_asked_again(clock, is_ours):
    """A whole time of its retries; another store, as of a sink, says nothing of it."""
    registry, store = MetricsRegistry(), MemoryStore("one", "jobs")
    store.acquire()
    where = store.url if is_ours else "sqlite:////of/a/sink.db"

    given_up = StateGivenUpError("no answer", store=where)
    record_stop(registry, store, "jobs", given_up, clock)

    assert (last_stop(store) is None) is is_ours
    assert stops(registry) == [("jobs", "state")]


def test_a_store_that_does_not_answer_hides_no_stop(clock):
    registry = MetricsRegistry()
    silent = says(StateUnavailableError("no answer"))

    record_stop(registry, silent, "jobs", ValueError("bad"), clock)

    assert stops(registry) == [("jobs", "user")]


OLD, NEW = TopicPartition("orders", 0), TopicPartition("orders-v2", 0)


def test_a_topic_that_the_job_leaves_out_is_no_lag_of_it():
    """The store keeps its position, and others go on writing to it."""
    registry = MetricsRegistry()
    state = LedgerState(7, Committed(4, {OLD: 1_000, NEW: 50}), {})

    shown = show_committed(registry, "counts", state, Topics(("orders-v2",)))

    registry.record_log("counts", {p: LogBounds(0, 50) for p in shown})
    assert list(shown) == [NEW]
    assert registry.lag_of("counts") == 0


def test_what_has_left_the_store_between_two_runs_of_a_process_is_not_shown():
    registry = MetricsRegistry()
    show_committed(
        registry, "counts", LedgerState(7, Committed(4, {OLD: 9, NEW: 50}), {})
    )

    show_committed(registry, "counts", LedgerState(8, Committed(4, {NEW: 50}), {}))

    assert list(registry.positions_of("counts")) == [NEW]
