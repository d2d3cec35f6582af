"""Where every partition stands: committed, log bounds, lag, headroom."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_tx.metrics import catalogue
from kafka_tx.metrics.lag import LagClock
from kafka_tx.metrics.metric import Metric
from kafka_tx.metrics.series import Key, Series
from kafka_tx.model import LogBounds, TopicPartition, Unavailable


def partition_key(tx_id: str, partition: TopicPartition) -> Key:
    """The first three label values of every per-partition metric."""
    return (tx_id, partition.topic, str(partition.partition))


class LagStanding:
    """Derives lag and headroom whenever a position or a log bound moves.

    A partition shows lag once both its committed offset and its log bounds are known.
    Not thread-safe: the registry calls it inside its lock.
    """

    def __init__(self, series_of: Callable[[Metric], Series]) -> None:
        self._committed = series_of(catalogue.COMMITTED_OFFSET)
        self._end = series_of(catalogue.END_OFFSET)
        self._log_start = series_of(catalogue.LOG_START_OFFSET)
        self._lag_records = series_of(catalogue.LAG_RECORDS)
        self._lag_seconds = series_of(catalogue.LAG_SECONDS)
        self._headroom = series_of(catalogue.RETENTION_HEADROOM)
        self._behind = series_of(catalogue.BEHIND_LATEST)
        self._clocks: dict[Key, LagClock] = {}

    def committed(
        self,
        tx_id: str,
        committed: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, LogBounds | Unavailable],
        now_ms: float,
    ) -> None:
        """These positions are stored; the logs were last seen with these bounds."""
        for partition, offset in committed.items():
            self._committed.set(partition_key(tx_id, partition), offset)
        self.looked(tx_id, bounds, now_ms)
        for partition in committed.keys() - bounds.keys():
            self._derive(partition_key(tx_id, partition), now_ms)

    def looked(
        self,
        tx_id: str,
        bounds: Mapping[TopicPartition, LogBounds | Unavailable],
        now_ms: float,
    ) -> None:
        """The logs have these bounds; where one is unavailable the last ones hold."""
        for partition, seen in bounds.items():
            key = partition_key(tx_id, partition)
            if isinstance(seen, LogBounds):
                self._end.set(key, seen.end)
                self._log_start.set(key, seen.log_start)
                self._clock(key).saw_end(seen.end, now_ms)
            self._derive(key, now_ms)

    def summarise(self) -> None:
        """Bring the figures over all partitions of each id up to date, for a scrape."""
        lags: dict[str, list[float]] = {}
        for (id_, *_), (lag,) in self._lag_records.samples().items():
            lags.setdefault(id_, []).append(lag)
        self._behind.drop(lambda _: True)
        for id_, found in lags.items():
            self._behind.set((id_, "min"), min(found))
            self._behind.set((id_, "max"), max(found))
            self._behind.set((id_, "avg"), sum(found) / len(found))

    def forget(self, is_gone: Callable[[Key], bool]) -> None:
        """Drop the clocks of these partitions (the registry drops their series)."""
        for key in [key for key in self._clocks if is_gone(key)]:
            del self._clocks[key]

    def _derive(self, key: Key, now_ms: float) -> None:
        committed = self._committed.get(key)
        end = self._end.get(key)
        log_start = self._log_start.get(key)
        if committed is None or end is None or log_start is None:
            return
        behind_ms = self._clock(key).behind_ms(int(committed), now_ms)
        self._lag_records.set(key, max(0, end - committed))
        self._lag_seconds.set(key, behind_ms / 1000)
        self._headroom.set(key, committed - log_start)

    def _clock(self, key: Key) -> LagClock:
        clock = self._clocks.get(key)
        if clock is None:
            clock = self._clocks[key] = LagClock()
        return clock
