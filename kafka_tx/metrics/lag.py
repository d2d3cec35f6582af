"""Committed offset, log bounds, lag and headroom of every partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kafka_tx.metrics import catalogue
from kafka_tx.metrics.metric import Metric
from kafka_tx.metrics.series import Key, Series
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.position_checks import Finding, check_position

_GAPS, _GAP_EVERY_MS, _GAINS_WITHIN_MS = 40, 15_000, 60_000
"""40 distances from the retention edge, one in 15 s: 10 minutes."""


class _Sight(NamedTuple):
    """A log end and the time of the first poll that found it."""

    end: int
    at_ms: float


class LagClock:
    """Since when one partition's log reaches past the committed offset.

    Every poll that finds a higher log end is recorded with its time. The record at the
    committed offset lies below the first recorded end that is higher, so it existed at
    that time, and has waited since then *at least*:

    >>> clock = LagClock()
    >>> clock.saw_end(100, at_ms=0)
    >>> clock.saw_end(250, at_ms=60_000)
    >>> clock.behind_ms(99, at_ms=90_000)  # below 100: waits since 0
    90000
    >>> clock.behind_ms(100, at_ms=90_000)  # 100 was first seen at 60,000
    30000
    >>> clock.behind_ms(250, at_ms=90_000)
    0

    The answer is a lower bound. It is short by at most the time between two polls;
    after a restart by the time before the first poll; and by more only when the
    partition is so far behind that polls were dropped: memory stays at ``max_sights``
    polls. The times must come from one monotonic clock. Not thread-safe.
    """

    def __init__(self, max_sights: int = 64) -> None:
        self._max_sights = max_sights
        self._sights: deque[_Sight] = deque()

    def __len__(self) -> int:
        """The number of recorded polls."""
        return len(self._sights)

    def saw_end(self, end: int, at_ms: float) -> None:
        """The log ends at ``end`` now (next offset to be written).

        An end below the last one means another log (the topic was recreated, or records
        were lost with a leader): all polls of the old one are dropped.
        """
        if self._sights and end < self._sights[-1].end:
            self._sights.clear()
        if not self._sights or end > self._sights[-1].end:
            self._sights.append(_Sight(end, at_ms))
        if len(self._sights) > self._max_sights:
            self._thin_out()

    def behind_ms(self, committed: int, at_ms: float) -> float:
        """How long the offset ``committed`` has been known to wait; 0 if it does not.

        Drops the ends at or below ``committed``. After a step back of the committed
        offset the answer still is a lower bound.
        """
        while self._sights and self._sights[0].end <= committed:
            self._sights.popleft()
        return max(0, at_ms - self._sights[0].at_ms) if self._sights else 0

    def _thin_out(self) -> None:
        """Drop every second poll in between: the bound stays a lower bound."""
        first, *between, last = self._sights
        self._sights = deque([first, *between[1::2], last])


def partition_key(tx_id: str, partition: TopicPartition) -> Key:
    """The first three label values of every per-partition metric."""
    return (tx_id, partition.topic, str(partition.partition))


class PartitionLags:
    """Derives lag and headroom whenever a position or a log bound moves.

    A partition shows lag once both its committed offset and its log bounds are known.
    While brokers do not report the log's topic id, figures stay unchanged. All records
    of a recreated topic are lag, since none was read. So are the records that a new
    leader has in place of those that were read. Not thread-safe: the registry calls it
    inside its lock.
    """

    def __init__(self, series_of: Callable[[Metric], Series]) -> None:
        self._committed = series_of(catalogue.COMMITTED_OFFSET)
        self._end = series_of(catalogue.END_OFFSET)
        self._log_start = series_of(catalogue.LOG_START_OFFSET)
        self._lag_records = series_of(catalogue.LAG_RECORDS)
        self._lag_seconds = series_of(catalogue.LAG_SECONDS)
        self._headroom = series_of(catalogue.RETENTION_HEADROOM)
        self._edge = series_of(catalogue.RETENTION_EDGE)
        self._behind = series_of(catalogue.BEHIND_LATEST)
        self._clocks: dict[Key, LagClock] = {}
        self._positions: dict[str, dict[Key, LogPosition]] = {}
        """By id: most questions are about one of many."""
        self._logs: dict[Key, LogBounds] = {}
        self._edges: dict[Key, int] = {}
        self._unanswered: set[Key] = set()
        self._gaps: dict[Key, deque[tuple[float, int]]] = {}
        """Offsets from the retention edge to the position, over some minutes."""

    def committed(
        self,
        tx_id: str,
        committed: Mapping[TopicPartition, LogPosition],
        bounds: Mapping[TopicPartition, LogBounds | Unavailable],
        now_ms: float,
    ) -> None:
        """These positions are stored; the logs were last seen with these bounds."""
        mine = self._positions.setdefault(tx_id, {})
        for partition, position in committed.items():
            key = partition_key(tx_id, partition)
            self._committed.set(key, position.offset)
            mine[key] = position
        self.polled(tx_id, bounds, now_ms)
        for partition in committed.keys() - bounds.keys():
            self._derive(partition_key(tx_id, partition), now_ms)

    def polled(
        self,
        tx_id: str,
        bounds: Mapping[TopicPartition, LogBounds | Unavailable],
        now_ms: float,
    ) -> None:
        """The logs have these bounds; where one is unavailable the last ones hold."""
        for partition, seen in bounds.items():
            key = partition_key(tx_id, partition)
            if not isinstance(seen, LogBounds):
                self._unanswered.add(key)
            else:
                self._unanswered.discard(key)
                self._end.set(key, seen.end)
                self._log_start.set(key, seen.log_start)
                former = self._logs.get(key, seen)
                if is_another(former.topic_id, seen.topic_id):
                    self._clocks.pop(key, None)
                self._logs[key] = seen
                if seen.edge is not None:
                    self._edges[key] = seen.edge
                self._clock(key).saw_end(seen.end, now_ms)
            self._derive(key, now_ms)

    def positions_of(self, tx_id: str) -> dict[TopicPartition, LogPosition]:
        """The stored positions of an id."""
        return {
            TopicPartition(topic, int(number)): position
            for (_, topic, number), position in self._positions.get(tx_id, {}).items()
        }

    def lag(self, tx_id: str) -> int | None:
        """Lag of all partitions of an id together.

        None: there was no poll, or the last one had no answer for a partition.
        """
        lags, mine = self._lag_records.values(), self._positions.get(tx_id, {}).keys()
        if not mine or not mine <= lags.keys() or self._silent(tx_id):
            return None
        return int(sum(lags[key][0] for key in mine))

    def lag_now(self, tx_id: str) -> tuple[int | None, float]:
        """Lag of the partitions where it is known, in records and seconds."""
        lags, behind = self._lag_records.values(), self._lag_seconds.values()
        mine = [key for key in lags if key[0] == tx_id]
        if not mine:
            return None, 0.0
        records = sum(lags[key][0] for key in mine)
        return int(records), max(behind[key][0] for key in mine)

    def waits_for_brokers(self, tx_id: str) -> bool:
        """Whether the last poll had an answer for no partition."""
        silent = self._silent(tx_id)
        if not silent or not self._positions.get(tx_id, {}).keys() <= silent:
            return False
        return all(key in silent for key in self._logs if key[0] == tx_id)

    def near_loss(self) -> dict[str, int]:
        """The ids whose next records retention deletes soon, with the least headroom.

        As the alert KafkaTxHeadroomSmall: without those that gain on retention, which a
        minute must show.
        """
        headroom = self._headroom.values()
        found: dict[str, int] = {}
        for key, gaps in self._gaps.items():
            (first_ms, first), (last_ms, last) = gaps[0], gaps[-1]
            if last < 0 and last <= first and last_ms - first_ms >= _GAINS_WITHIN_MS:
                left = int(headroom[key][0])
                found[key[0]] = min(left, found.get(key[0], left))
        return found

    def summarise(self) -> None:
        """Bring the figures over all partitions of each id up to date, for a scrape."""
        if not self._lag_records.has_changed:
            return
        lags: dict[str, list[float]] = {}
        for (id_, *_), (lag,) in self._lag_records.values().items():
            lags.setdefault(id_, []).append(lag)
        self._behind.drop(lambda key: key[0] not in lags)
        for id_, found in lags.items():
            self._behind.set((id_, "min"), min(found))
            self._behind.set((id_, "max"), max(found))
            self._behind.set((id_, "avg"), sum(found) / len(found))

    def forget(self, is_gone: Callable[[Key], bool]) -> None:
        """Drop the figures of these partitions (the registry drops their series)."""
        mine: list[dict[Key, Any]] = [*self._positions.values()]
        for known in (*mine, self._clocks, self._logs, self._edges, self._gaps):
            for key in [key for key in known if is_gone(key)]:
                del known[key]
        self._positions = {id_: each for id_, each in self._positions.items() if each}
        self._unanswered = {key for key in self._unanswered if not is_gone(key)}

    def _silent(self, tx_id: str) -> set[Key]:
        """The partitions of an id for which the last poll had no answer."""
        return {key for key in self._unanswered if key[0] == tx_id}

    def _derive(self, key: Key, now_ms: float) -> None:
        position, log = self._positions.get(key[0], {}).get(key), self._logs.get(key)
        if position is None or log is None:
            return
        check = check_position(position, log)
        if check.finding is Finding.UNANSWERED:  # show lag by offsets: ask no leader
            check = check_position(replace(position, leader_epoch=None), log)
        if check.finding is Finding.UNANSWERED:
            return
        reached = check.reached
        behind_ms = self._clock(key).behind_ms(reached, now_ms)
        self._lag_records.set(key, max(0, log.end - reached))
        self._lag_seconds.set(key, behind_ms / 1000)
        self._headroom.set(key, reached - log.log_start)
        if reached >= log.end:
            self._edges.pop(key, None)
            self._gaps.pop(key, None)
            self._edge.drop_one(key)
        elif key in self._edges:
            edge = max(log.log_start, self._edges[key])
            self._edge.set(key, edge)
            gaps = self._gaps.setdefault(key, deque(maxlen=_GAPS))
            if not gaps or now_ms - gaps[-1][0] >= _GAP_EVERY_MS:
                gaps.append((now_ms, reached - edge))

    def _clock(self, key: Key) -> LagClock:
        clock = self._clocks.get(key)
        if clock is None:
            clock = self._clocks[key] = LagClock()
        return clock
