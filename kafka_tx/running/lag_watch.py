"""Lag that moves between commits too: a look at the logs every few seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from kafka_tx.errors import KafkaTxError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TopicPartition
from kafka_tx.protocols import ClusterView

logger = logging.getLogger(__name__)

INTERVAL_S = 15.0


class LagWatch:
    """Asks the brokers for log bounds of all watched ids, also while no query runs.

    A thread of the user's process. What cannot be asked now is asked again next time; a
    dashboard then shows what was last known.

    Args:
        registry: Where the bounds go.
        positions: Committed positions of every id that committed something.
        open_view: Makes the look at the cluster of one id.
        interval_s: Pause between two looks.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        positions: Callable[[], Mapping[str, list[TopicPartition]]],
        open_view: Callable[[str], ClusterView],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._registry = registry
        self._positions = positions
        self._open_view = open_view
        self._interval_s = interval_s
        self._views: dict[str, ClusterView] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="kafka_tx-lag", daemon=True
        )
        self._thread.start()

    def look(self) -> None:
        """One look at the logs of every id."""
        for id_, partitions in self._positions().items():
            try:
                if id_ not in self._views:
                    self._views[id_] = self._open_view(id_)
                bounds = self._views[id_].bounds(partitions)
            except KafkaTxError as error:
                logger.info("lag of '%s' cannot be looked up now: %s", id_, error)
            else:
                self._registry.record_log(id_, bounds)

    def close(self) -> None:
        """End the thread and release connections."""
        self._closed.set()
        self._thread.join(timeout=5)
        for view in self._views.values():
            view.close()

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            self.look()
