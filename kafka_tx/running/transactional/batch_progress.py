"""Progress of a topology: committed batches, times of their phases, metrics."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TextIO

from kafka_tx.logs import event_log
from kafka_tx.metrics import catalogue
from kafka_tx.metrics.activity import BatchEnded
from kafka_tx.metrics.events import BatchCommitted, InFlight, OffsetsStored
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    BatchMetadata,
    TopicPartition,
    TransactionAttempt,
    located,
)
from kafka_tx.offsets.loss import LossReason
from kafka_tx.protocols import Clock
from kafka_tx.topology.run.attempt_run import Processed
from kafka_tx.transactions.coordinator.actions import Cancel, Outcome
from kafka_tx.transactions.coordinator.in_flight_batches import BatchPhase
from kafka_tx.transactions.layout.commit_stats import (
    HISTORY,
    CommitStats,
    TaskSums,
    stats_record,
)

logger = event_log(__name__)

_REASONS: dict[str, str] = {
    LossReason.TRIMMED: "retention or a deletion removed them unread",
    LossReason.CUT: "they were read, and the log's end was lost below them;"
    " reading goes on at its new end",
}
_METRIC_PHASES = {
    BatchPhase.PROCESSING: "processing",
    BatchPhase.PROCESSED: "waiting",
    BatchPhase.COMMITTING: "committing",
    BatchPhase.RECORDING: "committing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """A committed batch.

    Attributes:
        attempt: The attempt that was committed.
        metadata: The spout's plan.
        records: Records read.
        bytes: Their size; None if the spout does not report it.
        emitted: Rows that components emitted.
        phases_ms: Milliseconds of the last attempt in each phase: planning (0 if a
            replay was not planned again), processing, waiting, committing.
        duration_ms: From the planning of its last attempt until the store recorded it.
        committed_at_ms: When the store recorded it (Unix time).
    """

    attempt: TransactionAttempt
    metadata: Any
    records: int
    bytes: int | None
    emitted: Mapping[str, int]
    phases_ms: Mapping[str, float]
    duration_ms: float
    committed_at_ms: int

    @property
    def txid(self) -> int:
        """The number of the batch."""
        return self.attempt.txid


@dataclass(slots=True)
class _Timeline:
    """When (monotonic ms) each phase of an attempt began."""

    planning: int | None = None
    processing: int = 0
    waiting: int = 0
    committing: int = 0
    processed: Processed | None = None

    def phases_ms(self, ended_ms: int) -> dict[str, float]:
        """The time of each phase until ``ended_ms``; 0 for a phase that never began."""
        began = self.processing if self.planning is None else self.planning
        begins = [began, self.processing, self.waiting, self.committing]
        names = ("planning", "processing", "waiting", "committing")
        ends = [begin or ended_ms for begin in [*begins[1:], ended_ms]]
        return {
            name: end - (begin or ended_ms)
            for name, begin, end in zip(names, begins, ends, strict=True)
        }


class _InFlight(NamedTuple):
    """A batch, its phase, and when (monotonic ms) that phase began."""

    txid: int
    phase: str
    since_ms: int


@dataclass
class Journal:
    """Follows attempts by the runner's calls, all of them on the runner's thread.

    Attributes:
        id: The topology's id.
        registry: Takes the metrics.
        clock: The machine's.
        shown: Partitions whose committed offsets are shown.
        recent: The last committed batches, oldest first; read by any thread.
        history: How many batches the store keeps.
    """

    id: str
    registry: MetricsRegistry
    clock: Clock
    shown: frozenset[TopicPartition] = frozenset()
    recent: deque[BatchProgress] = field(default_factory=lambda: deque(maxlen=100))
    replays: int = 0
    history: int = HISTORY
    _timelines: dict[TransactionAttempt, _Timeline] = field(default_factory=dict)
    _planning: dict[TransactionAttempt, int] = field(default_factory=dict)
    _planned: dict[int, tuple[int, int]] = field(default_factory=dict)
    _plans_again: bool = False
    _dropped: Counter[int] = field(default_factory=Counter)
    _first: dict[int, int] = field(default_factory=dict)
    _last_commit_ms: int = 0
    _shown_in_flight: list[_InFlight] | None = None

    def planning(self, attempt: TransactionAttempt) -> None:
        """A batch is being planned."""
        now = self.clock.monotonic_ms()
        self._planning = {attempt: now}
        self._plans_again = False
        self._first.setdefault(attempt.txid, now)

    def plan_failed(self) -> None:
        """It cannot be planned yet: it stays in flight, and is planned again."""
        self._plans_again = True

    def planned(self, attempt: TransactionAttempt) -> None:
        """The batch is planned."""
        began = self._planning.pop(attempt, None)
        if began is not None:
            self._planned[attempt.txid] = (began, self.clock.monotonic_ms())

    def started(self, attempt: TransactionAttempt, metadata: object = None) -> None:
        """Its processing phase begins."""
        now = self.clock.monotonic_ms()
        self._first.setdefault(attempt.txid, now)
        if not self.shown:
            self._show_start(attempt, metadata)
        began, _ = self._planned.pop(attempt.txid, (None, None))
        self._timelines[attempt] = _Timeline(began, now)

    def processed(self, processed: Processed) -> None:
        """Its processing phase is complete."""
        timeline = self._timelines.get(processed.attempt)
        if timeline is not None:
            timeline.waiting = self.clock.monotonic_ms()
            timeline.processed = processed

    def committing(self, attempt: TransactionAttempt) -> None:
        """Its commit phase begins."""
        self._timelines[attempt].committing = self.clock.monotonic_ms()

    def dropped(self, cancel: Cancel) -> None:
        """These attempts are given up; they will be replayed."""
        outcome = cancel.outcome
        for attempt in cancel.attempts:
            timeline = self._timelines.pop(attempt, None)
            self._dropped[attempt.txid] += 1
            self.replays += 1
            name = catalogue.BATCHES.name
            self.registry.add(name, id=self.id, outcome=outcome.value)
            self._show_attempt(attempt, timeline, outcome)
            outcome = Outcome.CANCELLED

    def stats_record(
        self, attempt: TransactionAttempt, metadata: object, stored: Mapping[str, str]
    ) -> dict[str, str]:
        """The record to store with its commit, in place of that in ``stored``."""
        timeline = self._timelines.get(attempt)
        from_tasks = TaskSums()
        if timeline is not None and timeline.processed is not None:
            records, size = _read(timeline.processed)
            took = timeline.phases_ms(self.clock.monotonic_ms())
            phases_ms = {name: round(each) for name, each in took.items()}
            from_tasks = TaskSums(records=records, bytes=size, phases_ms=phases_ms)
        stats = CommitStats(
            txid=attempt.txid,
            epoch=attempt.epoch,
            committed_ms=self.clock.now_ms(),
            attempts=self._dropped[attempt.txid] + 1,
            skipped=kafka_batch(metadata).skipped,
            from_tasks=from_tasks,
        )
        return stats_record(stored, stats, self.history)

    def committed(self, attempt: TransactionAttempt, metadata: object) -> BatchProgress:
        """The batch is recorded in the store."""
        timeline = self._timelines.pop(attempt)
        self._first.pop(attempt.txid, None)
        replays = self._dropped.pop(attempt.txid, 0)
        now = self.clock.monotonic_ms()
        self._last_commit_ms = now
        progress = _progress(attempt, metadata, timeline, now, self.clock.now_ms())
        self.recent.append(progress)
        for (partition, reason), offsets in kafka_batch(metadata).skipped.items():
            logger.warning(
                "%s offsets of %s are given up: %s",
                *(offsets, partition, _REASONS.get(reason)),
                attempt=attempt,
            )
        event = _event(self.id, progress, replays)
        self.registry.record_commit(event)
        gone = self.shown.difference(event.committed)
        if gone:
            self.registry.forget(self.id, gone)
        self.shown = frozenset(event.committed)
        return progress

    def in_flight(
        self, phases: Mapping[TransactionAttempt, BatchPhase], *, is_planning: bool
    ) -> None:
        """Show which batches are in which phase now, and since when."""
        planning = self._planning if is_planning or self._plans_again else {}
        in_flight = [
            *(
                _InFlight(attempt.txid, "planning", at)
                for attempt, at in planning.items()
            ),
            *(
                _InFlight(txid, "planning", at)
                for txid, (at, _) in self._planned.items()
            ),
            *(self._in_flight_of(attempt, phase) for attempt, phase in phases.items()),
        ]
        alive = {each.txid for each in in_flight} | self._dropped.keys()
        self._first = {t: at for t, at in self._first.items() if t in alive}
        if in_flight != self._shown_in_flight:
            self._shown_in_flight = in_flight
            self._show_in_flight(sorted(in_flight))

    def ended(self) -> None:
        """Show no batch as in-flight; a restart replays the in-flight batches."""
        self._first.clear()
        self._dropped.clear()
        self._planned.clear()
        self._plans_again = False
        self.in_flight({}, is_planning=False)
        self.registry.record_end(self.id)

    def _show_attempt(
        self, attempt: TransactionAttempt, timeline: _Timeline | None, outcome: Outcome
    ) -> None:
        if timeline is None:
            return
        ended_ms = self.clock.monotonic_ms()
        phases_ms = timeline.phases_ms(ended_ms)
        self.registry.record_attempt(
            self.id,
            BatchEnded(
                number=attempt.txid,
                ended_ms=self.clock.now_ms(),
                duration_ms=sum(phases_ms.values()),
                outcome=outcome.value,
                tries=self._dropped[attempt.txid],
                phases_ms=phases_ms,
            ),
        )

    def _in_flight_of(
        self, attempt: TransactionAttempt, phase: BatchPhase
    ) -> _InFlight:
        name = _METRIC_PHASES[phase]
        timeline = self._timelines.get(attempt)
        began = getattr(timeline, name) if timeline else self.clock.monotonic_ms()
        return _InFlight(attempt.txid, name, began)

    def _show_in_flight(self, in_flight: list[_InFlight]) -> None:
        ahead = self.clock.now_ms() - self.clock.monotonic_ms()  # to Unix time
        batches = [
            InFlight(
                number=each.txid,
                phase=each.phase,
                since_ms=ahead + self._first.get(each.txid, each.since_ms),
                phase_since_ms=ahead + each.since_ms,
                tries=self._dropped[each.txid] + 1,
            )
            for each in in_flight
        ]
        since_ms = None
        if self._first:  # a batch may be old and not hang: those before it committed
            first_ms = min(self._first.values())
            since_ms = ahead + max(first_ms, self._last_commit_ms)
        self.registry.record_in_flight(self.id, batches, since_ms)

    def _show_start(self, attempt: TransactionAttempt, metadata: object) -> None:
        """Show the start of the very first batch, so that its records count as lag."""
        batch = kafka_batch(metadata)
        if starts := batch.starts():
            at = located(starts, batch.topic_ids, batch.leader_epochs())
            stored = OffsetsStored(id=self.id, committed=at, txid=attempt.txid - 1)
            self.registry.record_stored(stored)
            self.shown = frozenset(starts)


def _progress(
    attempt: TransactionAttempt,
    metadata: object,
    timeline: _Timeline,
    now_ms: int,
    wall_ms: int,
) -> BatchProgress:
    processed = timeline.processed
    assert processed is not None
    began = timeline.processing if timeline.planning is None else timeline.planning
    records, size = _read(processed)
    return BatchProgress(
        attempt=attempt,
        metadata=metadata,
        records=records,
        bytes=size,
        emitted=dict(processed.emitted),
        phases_ms=timeline.phases_ms(now_ms),
        duration_ms=now_ms - began,
        committed_at_ms=wall_ms,
    )


def _read(processed: Processed) -> tuple[int, int | None]:
    """Records that the tasks of an attempt read, and their size if it is reported."""
    facts = [f for f in processed.facts.values() if isinstance(f, dict)]
    counted = [f["records"] for f in facts if "records" in f]
    sizes = [f["bytes"] for f in facts if "bytes" in f]
    spout = processed.plan.graph.components[0].name
    records = sum(counted) if counted else processed.emitted.get(spout, 0)
    return records, sum(sizes) if sizes else None


def _event(topology_id: str, progress: BatchProgress, replays: int) -> BatchCommitted:
    batch = kafka_batch(progress.metadata)
    return BatchCommitted(
        id=topology_id,
        txid=progress.txid,
        starts=batch.starts(),
        committed=batch.positions(),
        committed_at_ms=progress.committed_at_ms,
        commit_ms=progress.phases_ms["committing"],
        skipped=batch.skipped,
        duration_ms=progress.duration_ms,
        from_tasks=TaskSums(
            records=progress.records,
            bytes=progress.bytes,
            phases_ms=progress.phases_ms,
        ),
        replays=replays,
    )


def kafka_batch(metadata: object) -> BatchMetadata:
    """The plan of a Kafka spout; for other spouts a batch without partitions."""
    return metadata if isinstance(metadata, BatchMetadata) else _NO_BATCH


_NO_BATCH = BatchMetadata(0, ())


class TerminalProgress:
    """Draws one line that is overwritten with each committed batch.

    In a file or a pipe, each batch has a line of its own.

    Args:
        topology_id: Shown first.
        stream: The stream to draw on; by default stderr, as Spark's own bar.
    """

    def __init__(self, topology_id: str, stream: TextIO | None = None) -> None:
        self._id = topology_id
        self._stream = stream or sys.stderr
        self._records = 0
        self._overwrites = self._stream.isatty()
        self._width = 0

    def __call__(self, batch: BatchProgress) -> None:
        """Draw the batch."""
        self._records += batch.records
        line = (
            f"{self._id}: txid {batch.txid} committed, {batch.records} records in"
            f" {batch.duration_ms:.0f} ms, {self._records} records in all"
        )
        if not self._overwrites:
            self._stream.write(line + "\n")
            return
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def close(self) -> None:
        """End the line."""
        if self._width:
            self._stream.write("\n")


Listener = Callable[[BatchProgress], None]
"""Called after each committed batch, in txid order, on a thread of its own."""
