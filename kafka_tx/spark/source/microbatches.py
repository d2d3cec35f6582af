"""The streaming source's decisions, without Spark: where a micro-batch ends and begins.

Lives in Spark's long-lived planning process on the driver's machine. ``stream.py`` is
the thin edge that Spark calls.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_tx.config import FromCommitted, SourceConfig
from kafka_tx.errors import BrokerUnavailableError, ConfigError
from kafka_tx.model import (
    LogBounds,
    OffsetRange,
    TopicPartition,
)
from kafka_tx.offsets.discovery import Discovery, Found
from kafka_tx.offsets.split import is_delayed, rate_limit
from kafka_tx.protocols import Clock, ClusterView
from kafka_tx.spark.source.asking import Answer, Question
from kafka_tx.spark.source.losses import Losses, Skip
from kafka_tx.spark.source.offset_json import SourceOffset
from kafka_tx.spark.source.positions import assigned_partitions, committed_or, resolve

logger = logging.getLogger(__name__)

Positions = Mapping[TopicPartition, int]

_LOOK_AGAIN_MS = 1_000
"""How old the last look may be where the end of the run is known."""

GroupOffsets = Callable[[list[TopicPartition]], dict[TopicPartition, int]]
"""Committed offsets of a Kafka group; partitions without one are left out."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the cluster.

    ``bounds`` leaves out partitions that did not answer: they are neither new nor lost.
    """

    found: Found
    bounds: Mapping[TopicPartition, LogBounds]
    at_ms: int

    def reaches(self, target: Positions) -> bool:
        """Whether every partition answered, and holds all up to there."""
        bounds = self.bounds
        return all(p in bounds and bounds[p].end >= end for p, end in target.items())

    def contradicts(self, start: Positions) -> str:
        """What speaks against it, being known already; empty where nothing does."""
        missing = [str(p) for p in start if not self.found.exists(p)]
        short = [str(p) for p, b in self.bounds.items() if b.end < start.get(p, 0)]
        return f"missing {missing}, too short {short}" if missing or short else ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch that could run: its ranges, and the position of every partition after."""

    ranges: tuple[OffsetRange, ...]
    ends: Positions
    topic_ids: Mapping[str, str]

    def moves(self, start: Positions) -> bool:
        """Whether it reads or skips anything: otherwise there is no batch."""
        return dict(start) != dict(self.ends) or any(len(r) for r in self.ranges)


class MicroBatches:
    """Plans micro-batches for a query without ``tx.id``.

    Life of a batch: ``latest`` picks its end, Spark logs it, ``ranges`` tells what to
    read between two ends, possibly in a later process, and then again.
    """

    def __init__(
        self,
        config: SourceConfig,
        view: ClusterView,
        clock: Clock,
        committed: GroupOffsets | None = None,
    ) -> None:
        self._config = config
        self._view = view
        self._discovery = Discovery(view.topics, config.subscription)
        self._clock = clock
        self._committed = committed
        self.losses = Losses(fails=config.fails_on_data_loss)
        self.skipped: Counter[Skip] = Counter()
        self._look: Look | None = None
        self._target: Positions | None = None
        self._last_batch_ms: int | None = None
        self._topic_ids: dict[str, str] = {}
        self._planned: dict[str, tuple[OffsetRange, ...]] = {}

    # --- what Spark asks ---

    def initial(self) -> SourceOffset:
        """Where a query without checkpoint begins.

        Raises:
            UnknownTopicError: A named topic or partition does not exist.
            OffsetsError: ``startingOffsets`` does not fit the topic.
            KafkaError: The cluster cannot be asked.
        """
        return SourceOffset(self.start_positions())

    def latest(self, start: SourceOffset, *, everything: bool) -> SourceOffset:
        """The end of the next batch; ``start`` itself when there is nothing to do.

        Args:
            start: The end of the batch before.
            everything: The trigger asked to ignore all limits.
        """
        plan = self.plan(start.positions, everything=everything)
        if plan is None or not plan.moves(start.positions):
            return start
        end = SourceOffset(plan.ends)
        self._planned = {_key(start, end): plan.ranges}
        return end

    def ranges(self, start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
        """What to read between two ends. Asked several times, also after a restart."""
        if dict(start.positions) == dict(end.positions):
            return []
        planned = self._planned.get(_key(start, end))
        if planned is None:
            planned = tuple(self.ranges_from_log(start.positions, end.positions))
            self._planned = {_key(start, end): planned}
        return [r for r in planned if len(r)]

    def number(self, question: Question) -> Answer:
        """Which transaction a batch of Spark is; there are none without ``tx.id``."""
        raise ConfigError(
            f"batch {question.spark_batch} is no transaction: the source has no tx.id",
            option="tx.id",
        )

    def finished(self, end: SourceOffset) -> None:
        """Spark will not ask below ``end`` again; nothing is kept here."""

    def prepare_available_now(self) -> None:
        """Freeze the end: whatever comes later is not part of this run."""
        self._target = {p: b.end for p, b in self.look().bounds.items()}

    def report(self) -> SourceOffset | None:
        """The end of every partition as last seen, for the progress report."""
        if self._look is None or not self._look.bounds:
            return None
        return SourceOffset({p: b.end for p, b in self._look.bounds.items()})

    def log_starts(self) -> dict[TopicPartition, int]:
        """The log start of every partition as last seen."""
        look = self._look
        return {p: b.log_start for p, b in look.bounds.items()} if look else {}

    def close(self) -> None:
        """Release connections."""
        self._view.close()

    # --- planning ---

    def look(self) -> Look:
        """Ask the cluster anew, in a few requests."""
        found = self._discovery.look()
        answers = self._view.bounds(found.partitions)
        bounds = {p: b for p, b in answers.items() if isinstance(b, LogBounds)}
        self._look = Look(found, bounds, self._clock.monotonic_ms())
        return self._look

    def start_positions(self) -> dict[TopicPartition, int]:
        """Apply ``startingOffsets`` to the partitions that exist now."""
        config, rule = self._config, self._config.start
        partitions = assigned_partitions(config, self._discovery.look())
        if isinstance(rule, FromCommitted):
            known = self._group_offsets(partitions)
            return committed_or(config, self._view, partitions, rule, known)
        return resolve(config, self._view, partitions, rule, starting=True)

    def plan(self, start: Positions, *, everything: bool) -> Plan | None:
        """A new batch from ``start``, or None when it should wait for more records."""
        look = self._recent_look(start) or self._steady_look(start)
        limits = self._config.limits
        starts = self._starts(start, look)
        ends = self._ends(starts, look)
        if not everything:
            if self._waits(starts, ends):
                self.losses.take()
                return None
            if limits.max_offsets_per_trigger is not None:
                ends = rate_limit(limits.max_offsets_per_trigger, starts, ends)
        topic_ids = look.found.topic_ids()
        self._topic_ids.update(topic_ids)
        ranges = tuple(OffsetRange(p, starts[p], ends[p]) for p in sorted(ends))
        self.skipped.update(self.losses.take())
        return Plan(ranges, ends, topic_ids)

    def ranges_from_log(self, start: Positions, end: Positions) -> list[OffsetRange]:
        """What is left between two ends that Spark logged in an earlier run.

        Raises:
            BrokerUnavailableError: A partition that was new in this batch does not
                answer, so nobody knows where it began.
        """
        look = self._steady_look({p: end[p] for p in start if p in end})
        begin = self._starts(start, look, ends=end)
        unknown = [p for p in end if p not in begin and look.found.exists(p)]
        if unknown:
            names = ", ".join(map(str, unknown))
            raise BrokerUnavailableError(
                f"the first offset of {names} cannot be had now. Are its leaders up?"
            )
        self.skipped.update(self.losses.take())
        return [
            OffsetRange(p, min(first, end[p]), end[p])
            for p, first in sorted(begin.items())
            if p in end
        ]

    def _group_offsets(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return {} if self._committed is None else self._committed(partitions)

    def _waits(self, starts: Positions, ends: Positions) -> bool:
        """Whether ``minOffsetsPerTrigger`` holds the batch back; never AvailableNow."""
        limits = self._config.limits
        if limits.min_offsets_per_trigger is None or self._target is not None:
            return False
        now_ms = self._clock.monotonic_ms()
        if is_delayed(
            limits.min_offsets_per_trigger,
            starts,
            ends,
            now_ms=now_ms,
            last_batch_ms=self._last_batch_ms,
            max_delay_ms=limits.max_trigger_delay_ms,
        ):
            return True
        self._last_batch_ms = now_ms
        return False

    def _recent_look(self, start: Positions) -> Look | None:
        """The last look, where the end is frozen and a newer one would tell nothing.

        Not for durable transactions: what retention has taken since would be stored as
        part of a batch, which then could not be replayed.
        """
        look, target = self._look, self._target
        if target is None or look is None or self._config.transactions is not None:
            return None
        age_ms = self._clock.monotonic_ms() - look.at_ms
        is_enough = look.reaches(target) and not look.contradicts(start)
        return look if is_enough and age_ms < _LOOK_AGAIN_MS else None

    def _steady_look(self, start: Positions) -> Look:
        """Look again while the answer would mean loss: it may be an older answer."""
        look = self.look()
        for _ in range(self._config.num_retries - 1):
            contradiction = look.contradicts(start)
            if not contradiction:
                break
            logger.warning("asking again: %s", contradiction)
            self._clock.sleep_ms(self._config.retry_interval_ms)
            look = self.look()
        return look

    def _starts(
        self, start: Positions, look: Look, ends: Positions | None = None
    ) -> dict[TopicPartition, int]:
        """Where reading begins, every loss reported.

        ``ends`` is given when the end is already fixed: then only what lies below it
        can be lost, and a partition beyond it is not part of the batch.
        """
        self.losses.deleted(p for p in start if not look.found.exists(p))
        starts = {p: offset for p, offset in start.items() if look.found.exists(p)}
        anew = look.found.recreated(self._topic_ids)
        for partition, bounds in look.bounds.items():
            wanted = starts.get(partition)
            if ends is not None and ends.get(partition) in (None, wanted):
                continue
            log_start = bounds.log_start
            lost_to = log_start if ends is None else min(log_start, ends[partition])
            if wanted is None:
                if lost_to > 0:
                    self.losses.added_late(partition, lost_to)
            elif partition.topic in anew or bounds.end < wanted:
                self.losses.recreated(partition, wanted, bounds.end)
            elif log_start > wanted:
                self.losses.trimmed(partition, wanted, lost_to)
            else:
                continue
            starts[partition] = log_start
        return starts

    def _ends(self, starts: Positions, look: Look) -> dict[TopicPartition, int]:
        """The end of every partition: what it holds now, or no further than frozen."""
        ends = {}
        for partition, start in starts.items():
            bounds = look.bounds.get(partition)
            end = start if bounds is None else bounds.end
            if self._target is not None:
                end = min(end, self._target.get(partition, start))
            ends[partition] = max(end, start)
        return ends


def _key(start: SourceOffset, end: SourceOffset) -> str:
    return f"{start.to_json()}{end.to_json()}"
