"""Polls once a second which batch of a query is in flight, and since when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_tx.metrics.events import InFlight
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.protocols import Clock

INTERVAL_S = 1.0


@dataclass(slots=True)
class _InFlight:
    """A batch of a query; times are Unix time in ms."""

    phase: str
    since_ms: int
    phase_since_ms: int
    has_shown_plan: bool = False


class InFlightWatch:
    """Shows batches of queries as soon as they are planned.

    Spark reports a batch only when it has ended, but its planning or ``foreachBatch``
    may hang. Runs a thread in the user's process. A query that polls for records and
    finds none has no batch in flight.

    Args:
        running: Returns the ids of each running query.
        phase_of: Returns the current phase of a query; empty: no phase.
        planned: Called with the ids whose very first batch is planned.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        running: Callable[[], Mapping[str, set[str]]],
        phase_of: Callable[[str], str],
        planned: Callable[[list[str]], None],
        clock: Clock,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._registry = registry
        self._running = running
        self._phase_of = phase_of
        self._planned = planned
        self._interval_s = interval_s
        self._clock = clock
        self._in_flight: dict[str, _InFlight] = {}
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="kafka_tx-flights", daemon=True
        )
        self._thread.start()

    def poll(self) -> None:
        """Poll every query once."""
        for query_id, ids in self._running().items():
            phase = self._phase_of(query_id)
            if phase == "planning" and not self._has_work(ids):
                phase = ""
            with self._lock:
                left = self._running().get(query_id)
                if left is not None:  # it has not ended meanwhile
                    self._saw(query_id, phase)
                    self._show(query_id, left)
                    self._show_first_plan(query_id, left)

    def batch_ended(self, query_id: str) -> None:
        """Drop a batch that is in Spark's commit log. Call from any thread."""
        with self._lock:
            self._in_flight.pop(query_id, None)

    def ended(self, query_id: str, ids: set[str]) -> None:
        """Drop the batch of a query that ``running`` no longer returns.

        Call from any thread.
        """
        with self._lock:
            self._in_flight.pop(query_id, None)
            for id_ in ids:
                self._registry.record_end(id_)

    def close(self) -> None:
        """End the thread."""
        self._is_closed.set()
        self._thread.join(timeout=5)

    def _has_work(self, ids: set[str]) -> bool:
        return any(self._registry.lag_of(id_) != 0 for id_ in ids)

    def _saw(self, query_id: str, phase: str) -> None:
        now_ms = self._clock.now_ms()
        started = self._in_flight.get(query_id)
        if not phase:
            self._in_flight.pop(query_id, None)
        elif started is None or (started.phase, phase) == ("processing", "planning"):
            self._in_flight[query_id] = _InFlight(phase, now_ms, now_ms)
        elif started.phase != phase:
            started.phase, started.phase_since_ms = phase, now_ms

    def _show_first_plan(self, query_id: str, ids: set[str]) -> None:
        """Have positions shown as soon as the very first batch has a plan."""
        started = self._in_flight.get(query_id)
        if started is None or started.phase != "processing" or started.has_shown_plan:
            return
        started.has_shown_plan = True
        new = sorted(i for i in ids if not self._registry.positions_of(i))
        if new:  # a store that does not answer must not hide the others' batches
            threading.Thread(target=self._planned, args=(new,), daemon=True).start()

    def _show(self, query_id: str, ids: set[str]) -> None:
        started = self._in_flight.get(query_id)
        for id_ in ids:
            batch = started and InFlight(
                number=self._registry.current_txid(id_),
                phase=started.phase,
                since_ms=started.since_ms,
                phase_since_ms=started.phase_since_ms,
            )
            self._registry.record_in_flight(id_, [batch] if batch else [])

    def _run(self) -> None:
        while not self._is_closed.wait(self._interval_s):
            try:
                self.poll()
            except Exception as error:  # noqa: BLE001 - the next poll may succeed
                self._registry.record_failure("in flight", error)
