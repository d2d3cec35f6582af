"""Noting a stop: in the metrics at once, then in the store."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from kafka_tx.errors import StateUnavailableError
from kafka_tx.metrics import MetricsRegistry, catalogue
from kafka_tx.running.last_run import record_stop
from kafka_tx.transactions.layout.stops import Stop, last_stop
from kafka_tx.transactions.layout.txid_layout import Door, Numbering
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


def test_a_store_that_does_not_answer_hides_no_stop(clock):
    registry = MetricsRegistry()
    silent = says(StateUnavailableError("no answer"))

    record_stop(registry, silent, "jobs", ValueError("bad"), clock)

    assert stops(registry) == [("jobs", "user")]
