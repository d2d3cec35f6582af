"""Where every partition stands: committed, log bounds, lag, headroom."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_tx.metrics import catalogue
from kafka_tx.metrics.lag import LagClock
from kafka_tx.metrics.metric import Metric
from kafka_tx.metrics.series import Key, Series
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.discovery import is_another
from kafka_tx.planning.standing import Finding, stand


def partition_key(tx_id: str, partition: TopicPartition) -> Key:
    """The first three label values of every per-partition metric."""
    return (tx_id, partition.topic, str(partition.partition))


class LagStanding:
    """Derives lag and headroom whenever a position or a log bound moves.

    A partition shows lag once both its committed offset and its log bounds are known.
    While the brokers do not tell which topic the log is of, figures stay as they were;
    of a topic that was made anew all is lag, since nothing of it was read.
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
        self._positions: dict[Key, LogPosition] = {}
        self._logs: dict[Key, LogBounds] = {}

    def committed(
        self,
        tx_id: str,
        committed: Mapping[TopicPartition, LogPosition],
        bounds: Mapping[TopicPartition, LogBounds | Unavailable],
        now_ms: float,
    ) -> None:
        """These positions are stored; the logs were last seen with these bounds."""
        for partition, position in committed.items():
            key = partition_key(tx_id, partition)
            self._committed.set(key, position.offset)
            self._positions[key] = position
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
                former = self._logs.get(key, seen)
                if is_another(former.topic_id, seen.topic_id):
                    self._clocks.pop(key, None)
                self._logs[key] = seen
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
        """Drop what is known of these partitions (the registry drops their series)."""
        for known in (self._clocks, self._positions, self._logs):
            for key in [key for key in known if is_gone(key)]:
                del known[key]

    def _derive(self, key: Key, now_ms: float) -> None:
        position, log = self._positions.get(key), self._logs.get(key)
        if position is None or log is None:
            return
        standing = stand(position, log)
        if standing.finding is Finding.UNANSWERED:
            return
        is_anew = standing.finding is Finding.ANEW
        reached = log.log_start if is_anew else position.offset
        behind_ms = self._clock(key).behind_ms(reached, now_ms)
        self._lag_records.set(key, max(0, log.end - reached))
        self._lag_seconds.set(key, behind_ms / 1000)
        self._headroom.set(key, reached - log.log_start)

    def _clock(self, key: Key) -> LagClock:
        clock = self._clocks.get(key)
        if clock is None:
            clock = self._clocks[key] = LagClock()
        return clock
