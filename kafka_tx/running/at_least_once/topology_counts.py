"""What the handle of an at-least-once topology shows: what is in flight or counted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from kafka_tx.running.at_least_once.manager_metrics import SpoutMetrics
from kafka_tx.running.at_least_once.poller import SpoutPoller

Counted = tuple[Mapping[str, int], Mapping[str, int]]
"""What was in flight at a time, and what was counted until then."""


class TopologyCounts:
    """Measured on the topology's thread; any thread may read what is shown.

    Args:
        pollers: The spouts.
        metrics: Of each spout.
        every_ms: Between two measurements.
        now_ms: Monotonic.

    Attributes:
        view: What is in flight; replaced whole.
        totals: What was counted since the start; replaced whole.
        recent: The last of both that differed from those before.
    """

    def __init__(
        self,
        pollers: Mapping[str, SpoutPoller],
        metrics: Mapping[str, SpoutMetrics],
        every_ms: int,
        now_ms: int,
    ) -> None:
        self._pollers = pollers
        self._metrics = metrics
        self._every_ms = every_ms
        self._measured_ms = now_ms
        self.view: Mapping[str, int] = {"chunks": 0, "pending": 0, "waiting": 0}
        self.totals: Mapping[str, int] = {}
        self.recent: deque[Counted] = deque(maxlen=100)

    def measure_if_due(self, now_ms: int, chunks: int, *, at_once: bool) -> None:
        """Measure, and tell the metrics, if it is time."""
        if not at_once and now_ms - self._measured_ms < self._every_ms:
            return
        self._measured_ms = now_ms
        totals: Counter[str] = Counter()
        for name, poller in self._pollers.items():
            metrics = self._metrics[name]
            metrics.update(poller.managers, now_ms, poller.take_touched())
            totals.update(metrics.totals())
        managers = [m for poller in self._pollers.values() for m in poller.awake]
        is_news = totals != self.totals
        self.totals = totals
        self.view = {
            "chunks": chunks,
            "pending": sum(manager.pending for manager in managers),
            "waiting": sum(manager.waiting for manager in managers),
        }
        if is_news:
            self.recent.append((self.view, totals))
