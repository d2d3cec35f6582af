"""Metrics of an at-least-once spout, and the counts of the topology's handle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafka_tx.metrics import catalogue
from kafka_tx.metrics.activity import BatchEnded
from kafka_tx.metrics.events import InFlight
from kafka_tx.metrics.metric import Metric
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TopicPartition
from kafka_tx.offsets.loss import LossReason
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.protocols import Clock
from kafka_tx.running.at_least_once.in_flight_chunk import InFlightChunk


class SpoutMetrics:
    """Reports one spout's partitions to the registry, on the topology's thread.

    Partitions that no longer exist are removed.

    Attributes:
        timed_out: Failures by time-out; this counter and the next ones by partition.
        skipped: Records given up without a dead letter.
        written: Dead letters.
        cut: Dead letters without a value.
    """

    def __init__(self, id: str, registry: MetricsRegistry) -> None:  # noqa: A002
        self._id = id
        self._registry = registry
        self._added: dict[tuple[TopicPartition, str, str], float] = {}
        self._former: dict[PartitionManager, dict[str, int]] = {}
        self._totals: Counter[tuple[TopicPartition, str]] = Counter()
        self._sums: Counter[str] = Counter()
        self._open: Sequence[PartitionManager] = ()
        self._since_ms: int | None = None
        self._completed = 0
        self.timed_out: Counter[TopicPartition] = Counter()
        self.skipped: Counter[TopicPartition] = Counter()
        self.written: Counter[TopicPartition] = Counter()
        self.cut: Counter[TopicPartition] = Counter()

    def update(
        self,
        managers: Sequence[PartitionManager],
        now_ms: int,
        touched: Collection[PartitionManager] | None = None,
    ) -> None:
        """Update all metrics.

        ``managers`` are all open ones: the same object until one comes or goes. Those
        in ``touched`` may have changed since the last call; None: all of them.
        """
        if managers is not self._open:
            self._open = managers
            self._forget_all_but(set(managers))
        for manager in managers if touched is None else touched:
            if manager in self._former:
                self._gauges(manager, now_ms)
                self._counters(manager)

    def _forget_all_but(self, open_now: set[PartitionManager]) -> None:
        for manager in open_now - self._former.keys():
            self._former[manager] = {}
        closed = self._former.keys() - open_now
        for manager in closed:
            self._counters(manager)
            del self._former[manager]
        still_open = {manager.topic_partition for manager in open_now}
        gone = {manager.topic_partition for manager in closed} - still_open
        if gone:
            self._registry.forget(self._id, gone)
            self._show_losses(gone)

    def _show_losses(self, gone: Collection[TopicPartition]) -> None:
        """Show the losses of closed partitions again, for alerts."""
        for at in gone:
            for reason in LossReason:
                self._added.pop((at, catalogue.LOST_RECORDS.name, reason), None)
                lost = self._totals[at, f"lost {reason}"]
                self._raise_to(at, catalogue.LOST_RECORDS, lost, reason)

    def in_flight(self, chunks: Sequence[InFlightChunk], clock: Clock) -> None:
        """Show the chunks of this spout that are in flight now.

        Records that are retried for ever are in flight since their first try: the time
        stays until a record is completed, or until nothing is left to do.
        """
        now_ms = clock.monotonic_ms()
        waits = bool(chunks) or any(manager.waiting for manager in self._open)
        if not waits or self._sums["completed"] > self._completed:
            self._since_ms = None
        self._completed = self._sums["completed"]
        if waits and self._since_ms is None:
            self._since_ms = min((each.since_ms for each in chunks), default=now_ms)
        ahead = clock.now_ms() - now_ms  # to Unix time
        in_flight = [
            InFlight(
                number=each.attempt.txid,
                phase="processing",
                since_ms=ahead + each.since_ms,
                phase_since_ms=ahead + each.since_ms,
            )
            for each in chunks
        ]
        since_ms = 0 if self._since_ms is None else ahead + self._since_ms
        self._registry.record_in_flight(self._id, in_flight, since_ms)

    def fetched(self, facts: Mapping[str, object], names: Iterable[str]) -> None:
        """Record the times of fetches; ``names`` are the partitions' text forms."""
        for name in names:
            read = facts.get(name)
            took_ms = read.get("fetch_ms", ()) if isinstance(read, dict) else ()
            topic, _, number = name.rpartition("-")
            for each_ms in took_ms:
                self._registry.observe(
                    catalogue.FETCH_DURATION.name,
                    each_ms / 1000,
                    id=self._id,
                    topic=topic,
                    partition=number,
                )

    def ended(self) -> None:
        """The topology has ended."""
        self._registry.record_end(self._id)

    def chunk_ended(self, chunk: InFlightChunk, clock: Clock, outcome: str) -> None:
        """The job of a chunk has ended."""
        took_ms = clock.monotonic_ms() - chunk.since_ms
        ended = BatchEnded(
            number=chunk.attempt.txid,
            ended_ms=clock.now_ms(),
            duration_ms=took_ms,
            outcome=outcome,
            records=len(chunk),
            phases_ms={"processing": took_ms},
        )
        self._registry.record_attempt(self._id, ended)

    def totals(self) -> Mapping[str, int]:
        """The counts of all partitions since the start, by name."""
        found = Counter(self._sums)
        found["skipped"] = self.skipped.total()
        found["dead_letters"] = self.written.total()
        return found

    def _gauges(self, manager: PartitionManager, now_ms: int) -> None:
        since_ms = manager.oldest_pending_since_ms
        age_s = 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000
        values = {
            catalogue.EMITTED_OFFSET: manager.emitted_to,
            catalogue.COMPLETED_OFFSET: manager.last_completed_offset,
            catalogue.PENDING_RECORDS: manager.pending,
            catalogue.RETRY_RECORDS: manager.waiting,
            catalogue.OLDEST_PENDING_AGE: age_s,
        }
        at = manager.topic_partition
        for metric, value in values.items():
            labels = {"topic": at.topic, "partition": str(at.partition)}
            self._registry.set(metric.name, value, id=self._id, **labels)

    def _counters(self, manager: PartitionManager) -> None:
        at, counts = manager.topic_partition, manager.counts
        now = {
            "emitted": counts.emitted,
            "completed": counts.completed,
            "failed": counts.failed,
            "retried": counts.retried,
            "given_up": counts.given_up,
            **{f"lost {reason}": n for reason, n in counts.lost.items()},
            **{f"skip {reason}": n for reason, n in counts.skipped.items()},
        }
        before = self._former[manager]
        for name, count in now.items():
            more = count - before.get(name, 0)
            self._totals[at, name] += more
            self._sums[name.partition(" ")[0]] += more
        self._former[manager] = now
        total = {name: self._totals[at, name] for name in now}
        buried = self.skipped[at] + self.written[at]
        self._raise_to(at, catalogue.EMITTED_RECORDS, total["emitted"])
        self._raise_to(at, catalogue.COMPLETED_RECORDS, total["completed"] - buried)
        failed = total["failed"] - self.timed_out[at]
        self._raise_to(at, catalogue.FAILED_RECORDS, failed, "failed")
        self._raise_to(at, catalogue.FAILED_RECORDS, self.timed_out[at], "timed_out")
        self._raise_to(at, catalogue.RETRIED_RECORDS, total["retried"])
        self._raise_to(at, catalogue.INELIGIBLE_RECORDS, total["given_up"])
        self._raise_to(at, catalogue.DEAD_LETTERS, self.written[at])
        self._raise_to(at, catalogue.CUT_DEAD_LETTERS, self.cut[at])
        for reason in LossReason:
            skipped, lost = total[f"skip {reason}"], total[f"lost {reason}"]
            self._raise_to(at, catalogue.SKIPPED_OFFSETS, skipped, reason)
            self._raise_to(at, catalogue.LOST_RECORDS, lost, reason)
        self._raise_to(at, catalogue.LOST_RECORDS, self.skipped[at], "retry_limit")

    def _raise_to(
        self, at: TopicPartition, metric: Metric, total: int, reason: str = ""
    ) -> None:
        key = (at, metric.name, reason)
        more = total - self._added.get(key, 0)
        if more <= 0:
            return
        self._added[key] = total
        labels = {"topic": at.topic, "partition": str(at.partition)}
        if reason:
            labels["reason"] = reason
        self._registry.add(metric.name, more, id=self._id, **labels)
