"""Polls log bounds every few seconds, so that lag also changes between commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

from kafka_tx.clock import SystemClock
from kafka_tx.errors import KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import LogPosition, TopicPartition, Unavailable
from kafka_tx.planning.log_bounds import Bounds, EpochEnds
from kafka_tx.planning.retention import RetentionEdges
from kafka_tx.protocols import Clock, ClusterView

logger = event_log(__name__)

INTERVAL_S = 15.0

POLL_EVERY_MS = 5_000
"""Time between two polls of the log bounds of a transactional topology."""

TELL_AGAIN_MS = 30_000
"""Time until unchanged bounds are reported again, because lag in time may grow."""


Edges = Callable[[Bounds, Callable[[], Mapping[TopicPartition, LogPosition]]], Bounds]


class LagWatch:
    """Polls brokers for the log bounds of all watched ids, also while no query runs.

    Runs a thread in the user's process. After a poll that fails, a dashboard shows the
    last known bounds until the next poll. Call ``forget`` for an id whose options
    changed: its topics may be in another cluster.

    Args:
        positions: Returns the partitions of every watched id.
        open_view: Connects to the cluster of one id.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        positions: Callable[[], Mapping[str, list[TopicPartition]]],
        open_view: Callable[[str], ClusterView],
        interval_s: float = INTERVAL_S,
        clock: Clock | None = None,
    ) -> None:
        self._registry = registry
        self._positions = positions
        self._open_view = open_view
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._views: dict[str, tuple[ClusterView, EpochEnds, RetentionEdges]] = {}
        self._former: set[str] = set()
        self._is_due = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name="kafka_tx-lag", daemon=True
        )
        self._thread.start()

    def poll(self) -> None:
        """Poll the log bounds of every id once."""
        watched = self._positions()
        for id_ in self._views.keys() - watched:
            self._views.pop(id_)[0].close()
        for id_, partitions in watched.items():
            ask = partial(self._bounds, id_, partitions)
            found = _found(id_, ask, self._registry)
            if found is None:
                self._registry.record_silence(id_)
            elif id_ not in self._former:
                self._registry.record_log(id_, found)
                gone = {*partitions}.difference(self._positions().get(id_, partitions))
                if gone:  # deleted while brokers were asked
                    self._registry.forget(id_, gone)

    def poll_soon(self) -> None:
        """Poll now instead of after the pause. Any thread; does not wait."""
        self._is_due.set()

    def forget(self, id_: str) -> None:
        """Connect again for an id at the next poll. Any thread; does not wait."""
        self._former.add(id_)

    def _bounds(self, id_: str, partitions: list[TopicPartition]) -> Bounds:
        if id_ in self._former:
            self._former.discard(id_)
            former = self._views.pop(id_, None)
            if former is not None:
                former[0].close()
        if id_ not in self._views:
            view = self._open_view(id_)
            edges = RetentionEdges(view, self._clock)
            self._views[id_] = view, EpochEnds(view), edges
        view, ends, edges = self._views[id_]
        positions = self._registry.positions_of(id_)
        bounds = ends.completed(view.bounds(partitions), positions)
        return edges.completed(bounds, lambda: positions)

    def close(self) -> None:
        """End the thread and release connections."""
        self._is_closed = True
        self._is_due.set()
        self._thread.join(timeout=5)
        for view, *_ in self._views.values():
            view.close()

    def _run(self) -> None:
        while True:
            self._is_due.wait(self._interval_s)
            self._is_due.clear()
            if self._is_closed:
                return
            self.poll()


class SpoutLagWatch:
    """Polls log bounds for a spout, on the spout's own thread.

    Args:
        bounds: Fetches the current log bounds; None if the spout has no logs.
        id: The topology's.
        edges: Adds what retention deletes soon, as ``RetentionEdges.completed``.
    """

    def __init__(
        self,
        bounds: Callable[[], Bounds] | None,
        registry: MetricsRegistry,
        id: str,  # noqa: A002 - the word users know
        clock: Clock,
        edges: Edges | None = None,
    ) -> None:
        self._edges = edges
        self._ask = bounds
        self._registry = registry
        self._id = id
        self._clock = clock
        self._not_before_ms = self._again_ms = 0
        self._seen: Bounds = {}

    def poll(self) -> None:
        """Poll, unless the last poll ended less long ago than it took.

        So the spout's thread is free for half of the time, whatever brokers do.
        """
        now_ms = self._clock.monotonic_ms()
        if self._ask is None or now_ms < self._not_before_ms:
            return
        self._poll(self._ask, now_ms)
        ended_ms = self._clock.monotonic_ms()
        self._not_before_ms = ended_ms + (ended_ms - now_ms)

    def _poll(self, ask: Callable[[], Bounds], now_ms: int) -> None:
        found = seen = _found(self._id, ask, self._registry)
        if seen is None or found is None:
            self._registry.record_silence(self._id)
            self._again_ms = now_ms  # the next answer ends the silence
            return
        if self._edges is not None:
            found = self._edges(seen, lambda: self._registry.positions_of(self._id))
        is_news = found is not seen or found != self._seen
        if is_news or now_ms >= self._again_ms:
            self._registry.record_log(self._id, found)
            unknown = {p for p, b in self._seen.items() if isinstance(b, Unavailable)}
            if unknown - found.keys():  # deleted before a batch has read them
                self._registry.forget(self._id, unknown - found.keys())
            self._seen, self._again_ms = found, now_ms + TELL_AGAIN_MS


def _found(
    id_: str, ask: Callable[[], Bounds], registry: MetricsRegistry
) -> Bounds | None:
    """The bounds, or None if they cannot be fetched now: no error ends the thread."""
    try:
        return ask()
    except KafkaTxError as error:
        logger.info("the bounds of the logs cannot be fetched now: %s", error, id=id_)
    except Exception as error:  # noqa: BLE001 - a metric never fails a batch
        registry.record_failure("lag", error)
    return None
