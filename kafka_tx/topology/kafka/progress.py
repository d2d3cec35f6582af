"""How far a Kafka spout has planned, and whether there are more records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafka_tx.config import SourceConfig
from kafka_tx.errors import KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import (
    LogBounds,
    LogPosition,
    OffsetRange,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.discovery import Found, is_another, is_subscribed
from kafka_tx.offsets.position_checks import (
    Finding,
    PositionCheck,
    Settling,
    check_position,
)
from kafka_tx.planning import log_bounds
from kafka_tx.planning.batch_starts import Lasts
from kafka_tx.planning.cached_cluster import CachedCluster
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.planning.log_bounds import Bounds
from kafka_tx.planning.split import is_delayed
from kafka_tx.protocols import Clock

logger = event_log(__name__)

_BESIDE_MS = 500
"""Time in which no batch begins beside another, unless the other one is full."""

_REFRESH = 4
"""With many partitions, topics are polled this many times less often than log ends."""


class PlanProgress:
    """Where the last plan ends in each partition, since the spout was opened.

    Args:
        config: What is read, and the limits of a batch.
        cached: Topics and log bounds, polled when they are too old.
        deleted: Distinguishes deleted topics from topics that do not answer.
        clock: The driver's clock.
        poll_ms: Pause between polls of the brokers while there is nothing to read;
            shorter at first.
        refresh_ms: Pause between polls for new partitions while nothing is to be read.
    """

    def __init__(
        self,
        config: SourceConfig,
        cached: CachedCluster,
        deleted: DeletedTopics,
        clock: Clock,
        poll_ms: int,
        refresh_ms: int,
    ) -> None:
        self._subscription = config.subscription
        self._limits = config.limits
        self._poll_ms = poll_ms
        self._refresh_ms = refresh_ms
        self._cached = cached
        self._deleted = deleted
        self._clock = clock
        self._settling = Settling()
        self.to: dict[TopicPartition, LogPosition] = {}
        """Where the last plan ends."""
        self._logs: dict[TopicPartition, LogBounds] = {}
        """The log bounds of the last answers."""
        self._poll_at_ms = self._refresh_at_ms = 0
        self._fruitless = 0
        self._last_batch_ms: int | None = None
        self._in_flight: dict[int, int] = {}
        """Offsets of the batches that have begun and are not committed, by txid."""
        self._began_ms = 0
        self._read_to: dict[TopicPartition, LogPosition] = {}
        """Where the last batch that began to be read ends; perhaps an earlier run's."""
        self._is_behind = False
        """Whether the last plan left records for the next one."""
        self.began_without = False
        """Whether a poll found no partition before the first plan: what has come since
        then is read from its beginning."""

    # --- plans ---

    def believes(self, partition: TopicPartition, check: PositionCheck) -> bool:
        """Whether a poll that contradicts the last plan counts: it is no old answer."""
        now_ms = self._clock.monotonic_ms()
        return self._settling.believes(partition, check, now_ms)

    def gone(self, lasts: Lasts, *, and_unread: bool) -> list[TopicPartition]:
        """Partitions of topics that were deleted for good; batches leave them out.

        Args:
            lasts: Where the batch before ended.
            and_unread: Also partitions with records that were, or may be, unread.

        Raises: as ``ClusterView.topic_ids``.
        """
        found = self._cached.last_found()
        ids = found.topic_ids()
        missing: dict[TopicPartition, LogPosition] = {}
        for partition in lasts.keys() - set(found.partitions):
            at = lasts[partition]
            if at is not None and not _is_there(partition, at, found, ids):
                missing[partition] = at
        topics = {p.topic: at.topic_id for p, at in missing.items()}
        deleted = self._deleted.for_good(
            topics, self._witnesses(lasts, found, topics) if missing else {}
        )
        gone = [p for p in sorted(missing) if p.topic in deleted]
        unread = [p for p in gone if not _ends_at(self._logs.get(p), missing[p])]
        if unread and and_unread:
            logger.warning(
                "topics were deleted, perhaps with unread records: %s", unread
            )
        return gone if and_unread else [p for p in gone if p not in unread]

    def _witnesses(
        self,
        lasts: Lasts,
        found: Found,
        missing: Mapping[str, str | None],
    ) -> dict[str, str | None]:
        """The ids of other topics that have positions."""
        return {
            p.topic: last.topic_id
            for p, last in lasts.items()
            if last is not None and found.exists(p) and p.topic not in missing
        }

    def planned(
        self,
        lasts: Lasts,
        ends: Mapping[TopicPartition, LogPosition],
        known: Mapping[TopicPartition, LogBounds],
    ) -> None:
        """A batch is planned; a partition that it leaves out keeps its position.

        The end of an earlier plan of the same batch does not count: that plan is void,
        and its records are still unread.

        Args:
            lasts: Where the batch before ended.
            ends: Where the plan ends, in the partitions that could be judged.
            known: Logs that could be reached.
        """
        self._logs |= known
        self.to = {}
        for partition, last in lasts.items():
            if partition in ends:
                self.to[partition] = ends[partition]
                self._settling.forget(partition)
            elif last is not None:
                self.to[partition] = last
        self._last_batch_ms = self._clock.monotonic_ms()
        self._is_behind = any(known[p].end > at.offset for p, at in ends.items())

    def reads(self, txid: int, ranges: Iterable[OffsetRange]) -> None:
        """A batch begins to be processed, and all later ones are void."""
        ranges = tuple(ranges)
        self._read_to = {
            r.topic_partition: LogPosition(r.end, r.topic_id, r.leader_epoch)
            for r in ranges
        }
        offsets = sum(map(len, ranges))
        self._in_flight = {t: n for t, n in self._in_flight.items() if t < txid}
        self._in_flight[txid] = offsets
        self._began_ms = self._clock.monotonic_ms()

    def committed(self, txid: int) -> None:
        """A batch is committed: a small one may follow at once."""
        self._in_flight.pop(txid, None)
        self._poll_at_ms = self._fruitless = 0

    # --- metrics ---

    def bounds(self) -> Bounds:
        """The logs that are planned, or read since the start, for metrics.

        ``is_ready`` polls them while there is nothing to read. If its last poll is too
        old for that, because a batch is in flight, they are polled now.

        Raises: as ``ClusterView.bounds``.
        """
        positions = self.to or self._read_to
        if not positions:
            self._cached.found()  # nobody else may notice that no broker answers
            return {}
        grace_ms = 2 * max(self._poll_ms, log_bounds.longest_pause_ms(len(positions)))
        seen = self._cached.valid_bounds(grace_ms)
        if any(partition not in seen for partition in positions):
            seen = self._cached.bounds_beyond(positions)
        seen = {partition: seen[partition] for partition in positions}
        return self._cached.logs.completed(seen, positions)

    # --- is there more ---

    def is_ready(self) -> bool:
        """See ``TransactionalKafkaSpout``."""
        now_ms = self._clock.monotonic_ms()
        if self._has_a_full_batch(self._cached.valid_bounds()):
            return True
        if now_ms < self._poll_at_ms or self._waits_for_others(now_ms):
            return False
        ready = self._has_news(now_ms)
        self._fruitless = 0 if ready else self._fruitless + 1
        took_ms = self._clock.monotonic_ms() - now_ms
        self._poll_at_ms = 0 if ready else now_ms + took_ms + self._pause_ms(took_ms)
        return ready

    def is_drained(self) -> bool:
        """See ``TransactionalKafkaSpout``."""
        try:
            found = self._cached.fresh_found()
            now_ms = self._clock.monotonic_ms()
            is_more = bool(self.to) and self._has_enough(now_ms)
            is_all = is_more or self._is_planned_to_ends(found)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            return False
        if is_more or self._is_news(found):
            self._poll_at_ms = self._refresh_at_ms = 0
            return False
        return all(p in self.to for p in found.partitions) and is_all

    def _has_news(self, now_ms: int) -> bool:
        try:
            if not self.to:
                has_any = bool(self._cached.survey().partitions)
                self.began_without = self.began_without or not has_any
                return has_any
            return self._has_more(now_ms) or self._has_new_partitions(now_ms)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            # Before the first plan, planning reports the error.
            return not self.to

    def _pause_ms(self, took_ms: int) -> int:
        poll_ms = self._poll_ms
        longest = log_bounds.longest_pause_ms(len(self.to))
        return log_bounds.pause_ms(
            self._fruitless,
            min(poll_ms, max(log_bounds.SOON_MS, log_bounds.POLL_SHARE * took_ms)),
            max(poll_ms, longest if self.to else self._refresh_ms),
        )

    def _has_more(self, now_ms: int) -> bool:
        return self._has_enough(now_ms) and self._is_worth_it(
            self._cached.last_bounds()
        )

    def _is_worth_it(self, seen: Bounds) -> bool:
        """Whether the next batch may begin now.

        It may if no batch is in flight, or if the last plan left records for the next
        one. Otherwise the next batch is small. Small batches are mostly fixed costs,
        and make each other slower side by side: so does a batch that is processed
        beside the commit phase of another. So the next batch waits until no batch has
        begun for ``_BESIDE_MS`` and it has as many offsets as the largest batch in
        flight.
        """
        if self._waits_for_others(self._clock.monotonic_ms()):
            return False
        largest = 0 if self._is_behind else max(self._in_flight.values(), default=0)
        return not largest or self._left(seen) >= largest

    def _waits_for_others(self, now_ms: int) -> bool:
        """Whether a batch in flight keeps the next one back, whatever polls say.

        Such polls would take processor time from the batch, and the topology's thread
        would wait for them.
        """
        is_beside = bool(self._in_flight) and not self._is_behind
        return is_beside and now_ms - self._began_ms < _BESIDE_MS

    def _has_a_full_batch(self, seen: Bounds) -> bool:
        """Whether the next batch is full already, so that a poll cannot enlarge it."""
        limits = self._limits
        least = limits.max_records or limits.min_records or 1
        return self._left(seen) >= least and self._is_worth_it(seen)

    def _left(self, seen: Bounds) -> int:
        """Number of known offsets that no batch holds yet."""
        return sum(
            max(bounds.end - planned.offset, 0)
            for partition, bounds in seen.items()
            if isinstance(bounds, LogBounds)
            and (planned := self.to.get(partition)) is not None
            and planned.topic_id == bounds.topic_id
            and planned.leader_epoch == bounds.leader_epoch
        )

    def _has_enough(self, now_ms: int) -> bool:
        found = self._cached.bounds_beyond(self.to)
        self._logs |= {p: b for p, b in found.items() if isinstance(b, LogBounds)}
        moved = {
            partition: check
            for partition, planned in self.to.items()
            if not planned.is_end_of(found.get(partition))
            and (check := check_position(planned, found.get(partition))).bounds
            is not None
        }
        if self._is_settled_loss(moved, found):
            return True
        self._follow_leaders(moved)
        ends = {
            p: check.bounds.end
            for p, check in moved.items()
            if check.bounds is not None and check.finding is not Finding.ANEW
        }
        positions = {p: planned.offset for p, planned in self.to.items()}
        if not any(end > positions[p] for p, end in ends.items()):
            return False
        least = self._limits.min_records
        return least is None or not is_delayed(
            least,
            positions,
            positions | ends,
            now_ms=now_ms,
            last_batch_ms=self._last_batch_ms,
            max_delay_ms=self._limits.max_delay_ms,
        )

    def _is_planned_to_ends(self, found: Found) -> bool:
        """Whether each log ends at its planned position, or its topic was deleted.

        A partition that is not subscribed to any more keeps its position, and waits.
        """
        logs = self._cached.last_bounds()
        silent: dict[str, str | None] = {}
        for partition, planned in self.to.items():
            if not is_subscribed(self._subscription, partition):
                continue
            log = logs.get(partition)
            if not isinstance(log, LogBounds) and not found.exists(partition):
                silent[partition.topic] = planned.topic_id
            elif not isinstance(log, LogBounds) or log.end < planned.offset:
                return False
        return self._deleted.now(silent) == silent.keys()

    def _follow_leaders(self, moved: Mapping[TopicPartition, PositionCheck]) -> None:
        """Compare the next poll of a fully read partition with its new leader."""
        for partition, check in moved.items():
            if check.finding is Finding.WITHIN and check.bounds is not None:
                epoch = check.bounds.leader_epoch
                self.to[partition] = replace(self.to[partition], leader_epoch=epoch)

    def _has_new_partitions(self, now_ms: int) -> bool:
        if now_ms < self._refresh_at_ms:
            return False
        rare_ms = _REFRESH * log_bounds.longest_pause_ms(len(self.to))
        self._refresh_at_ms = now_ms + max(self._refresh_ms, rare_ms)
        return self._is_news(self._cached.found())

    def _is_news(self, found: Found) -> bool:
        """Whether the poll names a partition to be planned for the first time."""
        if any(p not in self.to and found.leader(p) for p in found.partitions):
            return True
        ids = found.topic_ids()
        topics = {
            (p.topic, planned.topic_id)
            for p, planned in self.to.items()
            if found.exists(p)
        }
        return any(is_another(known, ids.get(topic)) for topic, known in topics)

    def _is_settled_loss(
        self, moved: Mapping[TopicPartition, PositionCheck], found: Bounds
    ) -> bool:
        """Whether a log ends below its plan or was re-created, and is no old answer."""
        for partition in self._settling.doubted():
            planned = self.to.get(partition)
            if planned and planned.is_end_of(found.get(partition)):
                self._settling.forget(partition)
        doubts = {Finding.CUT, Finding.ANEW}
        believed = [p for p, check in moved.items() if self.believes(p, check)]
        return any(moved[partition].finding in doubts for partition in believed)


def _is_there(
    partition: TopicPartition, at: LogPosition, found: Found, ids: Mapping[str, str]
) -> bool:
    """Whether the partition exists or must exist, because topics never shrink."""
    id_ = ids.get(partition.topic)
    return found.exists(partition) or (id_ is not None and id_ == at.topic_id)


def _ends_at(bounds: LogBounds | Unavailable | None, planned: LogPosition) -> bool:
    """Whether a log was planned to its end at the last poll."""
    return (
        isinstance(bounds, LogBounds)
        and bounds.end == planned.offset
        and bounds.topic_id == planned.topic_id
    )
