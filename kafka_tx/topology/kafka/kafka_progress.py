"""How far a Kafka spout has planned, and whether there is more."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.discovery import Found, is_another
from kafka_tx.planning import quiet
from kafka_tx.planning.cached_cluster import CachedCluster
from kafka_tx.planning.quiet import Bounds
from kafka_tx.planning.split import is_delayed
from kafka_tx.planning.standing import Finding, Settling, Standing, stand
from kafka_tx.protocols import Clock
from kafka_tx.topology.declare.spouts import Json
from kafka_tx.topology.kafka.kafka_batches import KafkaBatches

_REFRESH = 4
"""How much rarer than ends topics are looked at when there are many partitions."""


class PlanProgress:
    """Where the last plan ends in each partition, since the spout was opened.

    Args:
        batches: What is read.
        looks: At its topics and logs.
        clock: Of the driver.
    """

    def __init__(
        self, batches: KafkaBatches, looks: CachedCluster, clock: Clock
    ) -> None:
        self._batches = batches
        self._looks = looks
        self._clock = clock
        self._settling = Settling()
        self.to: dict[TopicPartition, LogPosition] = {}
        """Where the last plan ends."""
        self._look_at_ms = self._refresh_at_ms = 0
        self._fruitless = 0
        self._last_batch_ms: int | None = None

    # --- plans ---

    def believes(self, partition: TopicPartition, standing: Standing) -> bool:
        """Whether a look that contradicts the last plan counts: is it no old answer?"""
        now_ms = self._clock.monotonic_ms()
        return self._settling.believes(partition, standing, now_ms)

    def planned(
        self,
        lasts: Mapping[TopicPartition, Json | None],
        ends: Mapping[TopicPartition, LogPosition],
    ) -> None:
        """A batch is planned; a partition that it leaves out stays where it was.

        Not where a former plan of the batch ended: that one is void, and its records
        are still to be read.

        Args:
            lasts: Metadata of the batch before.
            ends: Where the plan ends, in the partitions that could be judged.
        """
        self.to = {}
        for partition, last in lasts.items():
            if partition in ends:
                self.to[partition] = ends[partition]
                self._settling.forget(partition)
            elif last is not None:
                self.to[partition] = LogPosition(last["end"], last.get("id"))
        self._last_batch_ms = self._clock.monotonic_ms()

    # --- is there more ---

    def is_ready(self) -> bool:
        """See ``TransactionalKafkaSpout``."""
        now_ms = self._clock.monotonic_ms()
        if self._has_a_full_batch(self._looks.kept_bounds()):
            return True
        if now_ms < self._look_at_ms:
            return False
        ready = self._looks_ready(now_ms)
        self._fruitless = 0 if ready else self._fruitless + 1
        self._look_at_ms = 0 if ready else now_ms + self._pause_ms()
        return ready

    def is_drained(self) -> bool:
        """See ``TransactionalKafkaSpout``."""
        try:
            found = self._looks.fresh_found()
            now_ms = self._clock.monotonic_ms()
            is_more = bool(self.to) and self._has_enough(now_ms)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            return False
        if is_more or self._is_news(found):
            self._look_at_ms = self._refresh_at_ms = 0
            return False
        logs = self._looks.last_bounds()
        return all(p in self.to for p in found.partitions) and all(
            isinstance(log := logs.get(p), LogBounds) and log.end >= planned.offset
            for p, planned in self.to.items()
        )

    def _looks_ready(self, now_ms: int) -> bool:
        try:
            if not self.to:
                return bool(self._looks.survey().partitions)
            return self._has_enough(now_ms) or self._has_new_partitions(now_ms)
        except KafkaTxError as error:
            if not error.retryable:
                raise
            # Before anything was planned planning says what is wrong.
            return not self.to

    def _pause_ms(self) -> int:
        longest = quiet.longest_pause_ms(len(self.to))
        return quiet.pause_ms(
            self._fruitless,
            self._batches.poll_ms,
            longest if self.to else self._batches.refresh_ms,
        )

    def _has_a_full_batch(self, seen: Bounds) -> bool:
        """Whether a look now would not make the next batch any larger."""
        left = sum(
            max(bounds.end - planned.offset, 0)
            for partition, bounds in seen.items()
            if isinstance(bounds, LogBounds)
            and (planned := self.to.get(partition)) is not None
            and planned.topic_id == bounds.topic_id
        )
        limits = self._batches.limits
        return left >= (limits.max_records or limits.min_records or 1)

    def _has_enough(self, now_ms: int) -> bool:
        found = self._looks.bounds_beyond(self.to)
        moved = {
            partition: standing
            for partition, planned in self.to.items()
            if not _ends_at(found.get(partition), planned)
            and (standing := stand(planned, found.get(partition))).bounds is not None
        }
        if self._is_settled_loss(moved, found):
            return True
        ends = {
            p: standing.bounds.end
            for p, standing in moved.items()
            if standing.bounds is not None and standing.finding is not Finding.ANEW
        }
        positions = {p: planned.offset for p, planned in self.to.items()}
        if not any(end > positions[p] for p, end in ends.items()):
            return False
        least = self._batches.limits.min_records
        return least is None or not is_delayed(
            least,
            positions,
            positions | ends,
            now_ms=now_ms,
            last_batch_ms=self._last_batch_ms,
            max_delay_ms=self._batches.limits.max_delay_ms,
        )

    def _has_new_partitions(self, now_ms: int) -> bool:
        if now_ms < self._refresh_at_ms:
            return False
        rare_ms = _REFRESH * quiet.longest_pause_ms(len(self.to))
        self._refresh_at_ms = now_ms + max(self._batches.refresh_ms, rare_ms)
        return self._is_news(self._looks.found())

    def _is_news(self, found: Found) -> bool:
        """Whether it names a partition to be planned for the first time."""
        if any(p not in self.to and found.leader(p) for p in found.partitions):
            return True
        ids = found.topic_ids()
        topics = {(p.topic, planned.topic_id) for p, planned in self.to.items()}
        return any(is_another(known, ids.get(topic)) for topic, known in topics)

    def _is_settled_loss(
        self, moved: Mapping[TopicPartition, Standing], found: Bounds
    ) -> bool:
        """Whether a log ends below what was planned, or is another; no old answer."""
        for partition in self._settling.doubted():
            planned = self.to.get(partition)
            if planned and _ends_at(found.get(partition), planned):
                self._settling.forget(partition)
        doubts = {Finding.CUT, Finding.ANEW}
        believed = [p for p, standing in moved.items() if self.believes(p, standing)]
        return any(moved[partition].finding in doubts for partition in believed)


def _ends_at(bounds: LogBounds | Unavailable | None, planned: LogPosition) -> bool:
    """Whether nothing happened to a log since it was planned to its end."""
    return (
        isinstance(bounds, LogBounds)
        and bounds.end == planned.offset
        and bounds.topic_id == planned.topic_id
    )
