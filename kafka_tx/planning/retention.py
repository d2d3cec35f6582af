"""Finds the offsets that retention deletes soon, for metrics and alerts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from kafka_tx.errors import KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import AtTime, LogBounds, LogPosition, Retention, TopicPartition
from kafka_tx.offsets.position_checks import check_position
from kafka_tx.planning.log_bounds import Bounds
from kafka_tx.protocols import Clock, ClusterView

logger = event_log(__name__)

SOON_MS = 4 * 3_600_000
"""How long before their deletion offsets are reported, at most."""

SHARE = 4
"""The part of what a log holds, or of ``retention.ms``, that is reported at most."""

_EVERY_MS = 15_000
_SETTINGS_EVERY_MS = 300_000
_ENDS = 30
"""Polls over which the rate of a log is measured."""

_Lagging = Mapping[TopicPartition, LogBounds]


class RetentionEdges:
    """Adds to bounds of lagging logs the first offset that stays for some hours.

    By time: the first record that is younger than ``retention.ms`` less a quarter, or
    less four hours. By size, or if brokers do not tell the settings: as many offsets
    above the start as are produced in four hours, a quarter of the log at most, since
    what is produced pushes the oldest records out.

    Asks every 15 s at most, and only for logs with unread records. Not thread-safe.

    ``is_once``: for one poll, which shows no rate: the quarter is reported then.
    """

    def __init__(
        self, cluster: ClusterView, clock: Clock, *, is_once: bool = False
    ) -> None:
        self._is_once = is_once
        self._cluster = cluster
        self._clock = clock
        self._settings: Mapping[str, Retention] = {}
        self._settings_of: set[str] = set()
        self._settings_at_ms = self._asked_at_ms = -_SETTINGS_EVERY_MS
        self._ends: dict[TopicPartition, deque[tuple[int, int]]] = {}

    def completed(
        self,
        bounds: Bounds,
        positions: Callable[[], Mapping[TopicPartition, LogPosition]],
    ) -> Bounds:
        """The bounds, with the edges of logs that reach past the stored positions.

        Without edges while no poll is due: metrics keep the last ones.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._asked_at_ms + _EVERY_MS:
            return bounds
        self._asked_at_ms = now_ms
        lagging = {
            p: found
            for p, at in positions().items()
            if isinstance(found := bounds.get(p), LogBounds) and at.offset < found.end
        }
        try:
            edges = self._found(lagging, now_ms) if lagging else {}
        except KafkaTxError as error:
            logger.info("what retention deletes soon is not known: %s", error)
            return bounds
        return {**bounds, **{p: replace(lagging[p], edge=e) for p, e in edges.items()}}

    def _found(self, lagging: _Lagging, now_ms: int) -> dict[TopicPartition, int]:
        names = {p.topic for p in lagging}
        is_old = now_ms >= self._settings_at_ms + _SETTINGS_EVERY_MS
        if is_old or names - self._settings_of:
            self._settings_at_ms, self._settings_of = now_ms, names
            self._settings = self._cluster.retentions(names)
        by_time = self._by_time(lagging)
        return {
            p: max(bounds.log_start, by_time.get(p, 0), self._by_size(p, bounds))
            for p, bounds in lagging.items()
        }

    def _by_time(self, lagging: _Lagging) -> dict[TopicPartition, int]:
        now_ms = self._clock.now_ms()
        wanted = {
            p: AtTime(max(0, now_ms - kept_ms + min(SOON_MS, kept_ms // SHARE)))
            for p in lagging
            if p.topic in self._settings
            and (kept_ms := self._settings[p.topic].ms) is not None
        }
        answers = self._cluster.offsets(wanted) if wanted else {}
        return {
            p: lagging[p].end if at is None else at
            for p, at in answers.items()
            if at is None or isinstance(at, int)
        }

    def _by_size(self, partition: TopicPartition, bounds: LogBounds) -> int:
        """0 where no size limits the log, or it has not reached its size yet."""
        retention = self._settings.get(partition.topic)
        ends = self._ends.setdefault(partition, deque(maxlen=_ENDS))
        if ends and bounds.end < ends[-1][1]:  # another log
            ends.clear()
        ends.append((self._clock.monotonic_ms(), bounds.end))
        is_limited = retention is None or retention.is_by_size
        if not is_limited or not bounds.log_start:
            return 0
        quarter = (bounds.end - bounds.log_start) // SHARE
        if self._is_once:
            return bounds.log_start + quarter
        (first_ms, first), (last_ms, last) = ends[0], ends[-1]
        produced = (last - first) * SOON_MS // max(last_ms - first_ms, 1)
        return bounds.log_start + min(produced, quarter)


def is_near(position: LogPosition, log: LogBounds) -> bool:
    """Whether retention deletes the next record soon.

    As the alert KafkaTxHeadroomSmall, which also waits to see if the job gains on it.
    """
    return log.edge is not None and check_position(position, log).reached < log.edge
