"""The progress of one partition whose records complete and fail one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from kafka_tx.errors import ConfigError, OutOfOrderError
from kafka_tx.logs import event_log
from kafka_tx.model import (
    Broker,
    CommittedOffset,
    LogBounds,
    LogPosition,
    OffsetRange,
    TopicPartition,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.loss import AT_LEAST_ONCE, Losses, LossReason, OutOfRange, judge
from kafka_tx.offsets.manager_answers import Counts, GiveUp, PartitionPlan
from kafka_tx.offsets.position_checks import Finding, PositionCheck, check_position
from kafka_tx.offsets.runs import OffsetRuns
from kafka_tx.offsets.unfinished import PartitionRules, Unfinished

_log = event_log(__name__)

_MOST_FAILURES = 100
"""Most runs of failed records that are stored."""


class PartitionManager:
    """Tracks emitted, pending, completed and committed offsets of one partition.

    1. ``plan`` returns what to emit: due retries first, then new records.
    2. Call ``emitted`` before the records are handed over.
    3. Each record is one unit, for any number of tuples. ``ack`` completes a record,
       ``fail`` queues a retry or gives the record up; ``passed`` completes offsets
       without a record; ``release`` returns offsets that were never tried. All take
       single offsets or ranges, in any order, late or twice.
    4. Write ``next_to_commit`` to the store, then call ``committed``.

    Driver only, one thread; uses no clock and no network. Memory holds runs, not single
    records. Acks and fails may pass the ``generation`` of their plan; those of an older
    one are ignored, since its offsets meant other records.

    Attributes:
        topic_partition: The manager's identity; never the broker.
        leader: Stored with the offset, for tools that show it; may change.
        committed_to: The offset known to be stored; None before the first commit.
        topic_id: Stored with the offset. Empty: not known.
        leader_epoch: Epoch of the leader that reported the log's end; also stored.
        generation: Changes if the log lost its end, so that offsets are used again.
        counts: Counters of this manager.

    Source: Storm, PartitionManager, and OffsetManager of storm-kafka-client.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        rules: PartitionRules,
        start: CommittedOffset,
        *,
        stored: CommittedOffset | None = None,
        leader: Broker | None = None,
    ) -> None:
        """Begin at ``start``; its completed offsets are not emitted again.

        ``stored`` is the stored offset: if it differs, the start itself is committed
        first, so that a restart does not resolve "latest" a second time.
        """
        self.topic_partition = topic_partition
        self.leader = leader
        self.committed_to = None if stored is None else stored.offset
        self.topic_id = start.topic_id
        self.leader_epoch = start.leader_epoch
        self.generation = 1
        self.counts = Counts()
        self._rules = rules
        self._stored = stored
        self.is_recreated = False
        """Whether the topic is gone, and no bounds of the new one have arrived yet."""
        self._begin(start)

    def _begin(self, start: CommittedOffset) -> None:
        self._unfinished = Unfinished(start, self._rules, self.counts)

    # --- emitting -------------------------------------------------------------------

    def plan(
        self, bounds: LogBounds, *, max_offsets: int, now_ms: int, fresh: bool = True
    ) -> PartitionPlan:
        """Plan the next offsets to emit, at most ``max_offsets`` in all.

        First applies the log's current start, end and topic. Nothing is emitted from
        bounds that may belong to a deleted topic. If not all retries fit, those that
        are due longest go first. Planning twice without ``emitted`` gives the same
        plan.

        Args:
            bounds: Of the log. If it lost its end and grew again, the end is where the
                other records begin.
            max_offsets: Retries and fresh records together.
            now_ms: Monotonic time; decides which retries are due.
            fresh: False: retries only, for example if a store asks for a pause.

        Raises:
            DataLossError: The log ends below ``reached``, belongs to another topic, or
                starts above a record to read, and the policy is to fail. Nothing was
                changed.
        """
        partition, policy = self.topic_partition, self._rules.out_of_range
        # `bounds.end` is already cut to this leader epoch.
        reached = replace(self.reached, leader_epoch=None)
        check = check_position(reached, bounds)
        if check.finding in {Finding.ANEW, Finding.CUT}:
            judge(partition, check, policy, AT_LEAST_ONCE)
        if check.finding is Finding.ANEW:
            self._begin_anew(bounds)
        elif check.finding is Finding.UNANSWERED or self.is_recreated:
            return PartitionPlan((), None, self.generation)
        elif check.finding is Finding.CUT:
            self._cut(check, now_ms)
        if self._first_to_read < bounds.log_start:
            trimmed = PositionCheck(Finding.TRIMMED, self._first_to_read, bounds)
            judge(partition, trimmed, policy, AT_LEAST_ONCE)
        self.topic_id = bounds.topic_id or ""
        self.leader_epoch = bounds.leader_epoch
        if policy is not OutOfRange.FAIL:  # FAIL waits for the records in flight
            self.trim(bounds.log_start)
        due = OffsetRuns(*self._unfinished.retry.due(now_ms, max_offsets))
        return PartitionPlan(
            tuple(self._of_topic(*run) for run in due),
            self._fresh(bounds.end, max_offsets - len(due)) if fresh else None,
            self.generation,
        )

    def _fresh(self, log_end: int, room: int) -> OffsetRange | None:
        limit = self._rules.max_uncommitted_offsets
        if limit is not None:
            room = min(room, limit - self.uncommitted)
        start, behind = self.emitted_to, self._rules.max_offset_behind
        if behind is not None and self.last_completed_offset + behind < start + room:
            room = min(room, self._unfinished.first_to_try + behind - start)
        end = self._unfinished.window.next_end(min(log_end, start + room))
        return self._of_topic(start, end) if end > start else None

    def _of_topic(self, start: int, end: int) -> OffsetRange:
        log = self.topic_id or None, self.leader_epoch
        return OffsetRange(self.topic_partition, start, end, *log)

    def emitted(self, planned: OffsetRange, now_ms: int) -> None:
        """Mark a range emitted, before it is handed over; raises OutOfOrderError."""
        start, end = self._span(planned)
        known = self.emitted_to
        if start > known:
            raise OutOfOrderError(
                f"{planned} cannot be emitted: {known} is the next offset of"
                f" {self.topic_partition}. Emit what plan() answered, in its order.",
                range=planned,
                emitted_to=known,
            )
        self.counts.retried += self._unfinished.retry.started(start, min(end, known))
        if end > known:
            self.counts.emitted += self._unfinished.window.emit(end, now_ms)

    # --- answers --------------------------------------------------------------------

    def ack(self, done: int | OffsetRange, generation: int | None = None) -> int:
        """Complete a record, or every record of a range; return how many it did.

        This includes records that wait for a retry or were given up. Offsets that are
        not pending are ignored.
        """
        if self._is_old(generation):
            return 0
        if isinstance(done, int) and self._unfinished.complete_one(done):
            return 1
        return self._unfinished.complete(*self._span(done))

    def passed(
        self,
        read: OffsetRange,
        present: Iterable[tuple[int, int]],
        generation: int | None = None,
    ) -> int:
        """Complete the offsets of a range that have no record; return their number.

        The reader's position passed ``read.end`` and it found records only at
        ``present`` (runs, ascending). The other offsets were compacted, aborted or hold
        markers, even if they waited for a retry.
        """
        if self._is_old(generation):
            return 0
        gaps = OffsetRuns(*present).gaps(*self._span(read))
        return sum(self._unfinished.complete_holes(*gap) for gap in gaps)

    def fail(
        self, failed: int | OffsetRange, now_ms: int, generation: int | None = None
    ) -> list[GiveUp]:
        """Count a failure of a record, or of every unfinished record of a range.

        Ignored: offsets that are not pending, or failed already and wait.
        Returns records that failed too often: they stay pending until acknowledged;
        after another failure (of writing the dead letter) they are returned again.
        """
        if self._is_old(generation):
            return []
        start, end = self._span(failed)
        given_up = []
        self._unfinished.lose_abandoned(start, end)
        for low, high in self._unfinished.in_flight(start, end):
            for part in self._unfinished.fail(low, high, now_ms):
                run = self._of_topic(part.start, part.end)
                given_up.append(GiveUp(run, part.failures))
        return given_up

    def release(
        self, unread: int | OffsetRange, now_ms: int, generation: int | None = None
    ) -> None:
        """Return records that were emitted and never tried: the read or the job failed.

        They are due again at once, without a failure of the records. Offsets that were
        acknowledged, failed or given up stay unchanged.
        """
        if self._is_old(generation):
            return
        start, end = self._span(unread)
        self._unfinished.lose_abandoned(start, end)
        for run in self._unfinished.in_flight(start, end):
            self._unfinished.release(*run, now_ms)

    def unburied(
        self, given_up: OffsetRange, generation: int, bounds: LogBounds | None
    ) -> list[OffsetRange]:
        """The given-up records that still need a dead letter, as far as known.

        Call it when they could not be read. The answer is of their log only: records of
        an older ``generation`` need no dead letter, and were counted or emitted again.
        Records below the log start of ``bounds`` are lost, and are counted.

        Raises:
            DataLossError: Some are below the log start, and the policy is to fail.
                Nothing was changed.
        """
        if self._is_old(generation):
            return []
        start, end = self._span(given_up)
        left = self._unfinished.unburied(start, end)
        check = check_position(replace(self.position, offset=start), bounds)
        if check.finding is Finding.TRIMMED:
            gone = min(check.next_offset, end)
            if left.overlap(start, gone):
                judge(
                    self.topic_partition, check, self._rules.out_of_range, AT_LEAST_ONCE
                )
            self._unfinished.lose(start, gone, LossReason.TRIMMED)
            self._unfinished.lose_abandoned(start, gone)
            left.remove(start, gone)
        return [self._of_topic(*run) for run in left]

    def _is_old(self, generation: int | None) -> bool:
        return generation is not None and generation != self.generation

    def _span(self, offsets: int | OffsetRange) -> tuple[int, int]:
        if isinstance(offsets, int):
            return offsets, offsets + 1
        if offsets.topic_partition != self.topic_partition:
            raise ConfigError(f"{offsets} was given to the {self!r}", range=offsets)
        return offsets.start, offsets.end

    # --- losses in the log ----------------------------------------------------------

    def trim(self, log_start: int) -> None:
        """Apply a new log start: nothing below ``log_start`` can be read any more.

        Failed records below the start are lost, and also those not emitted yet.
        In-flight records no longer hold the commit back; they are lost if they fail. A
        ``log_start`` lower than before changes nothing.
        """
        before = self.counts.lost[LossReason.TRIMMED]
        first = self._first_to_read
        self._unfinished.abandon(log_start, LossReason.TRIMMED)
        self._unfinished.skip_to(log_start, LossReason.TRIMMED)
        lost = self.counts.lost[LossReason.TRIMMED] - before
        if lost:
            partition = self.topic_partition
            text = "%s: the log starts at %d now: %d offsets from %d on are lost"
            _log.warning(text, partition, log_start, lost, first)

    def deleted(self) -> None:
        """The topic was deleted: all unfinished offsets are lost. Call it at the end.

        Raises:
            DataLossError: There are some, and the policy is to fail.
        """
        losses = Losses(self._rules.out_of_range, AT_LEAST_ONCE)
        if self.pending:
            losses.deleted([self.topic_partition])
        self._lose_former_topic()

    def saw_topic(self, topic_id: str | None) -> None:
        """Apply the current id of the topic; None: not reported.

        Once the id is another one nothing is committed. The first ``plan`` with the new
        topic's bounds begins at their start and counts all unfinished offsets as lost,
        or raises if the policy is to fail.
        """
        self.is_recreated = is_another(self.topic_id or None, topic_id)

    @property
    def position(self) -> LogPosition:
        """``emitted_to``, and its log."""
        return LogPosition(self.emitted_to, self.topic_id or None, self.leader_epoch)

    @property
    def reached(self) -> LogPosition:
        """The end of all offsets known as emitted; the log must reach this offset."""
        return replace(self.position, offset=self._unfinished.window.reached)

    @property
    def _first_to_read(self) -> int:
        """The first offset that waits for a retry, or was never emitted."""
        waiting = self._unfinished.retry.waiting.first
        return self.emitted_to if waiting is None else min(waiting, self.emitted_to)

    def _begin_anew(self, bounds: LogBounds) -> None:
        self._lose_former_topic()
        self._begin(CommittedOffset(bounds.log_start))
        self.is_recreated = False

    def _lose_former_topic(self) -> None:
        self._next_generation()
        start, end = self.last_completed_offset, self.emitted_to
        lost = self._unfinished.lose(0, end, LossReason.RECREATED)
        if lost:
            text = "%s: its topic was deleted: %d offsets of [%d, %d) are lost"
            _log.warning(text, self.topic_partition, lost, start, end)

    def _cut(self, check: PositionCheck, now_ms: int) -> None:
        """The log ends below emitted offsets: these will mean other records.

        Completed records below the end are not read again; in-flight ones are.
        """
        _log.warning(
            "%s was read to %d, and its log ends at %d or goes on there with other"
            " records: its end was lost; %d offsets that were read already name other"
            " records, which are read too",
            self.topic_partition,
            check.position,
            check.end,
            check.cut,
        )
        self.counts.skipped[LossReason.CUT] += check.cut
        self._next_generation()
        self._unfinished.cut(check.end, now_ms)

    def _next_generation(self) -> None:
        """Ignore acks and fails of all offsets emitted so far.

        The next commit is written in any case: a write whose answer was lost may have
        stored offsets of the lost log.
        """
        self.generation += 1
        self._stored = None
        self._unfinished.lose_abandoned(0, self.emitted_to)

    # --- committing -----------------------------------------------------------------

    def next_to_commit(self, max_runs: int = 1_000) -> CommittedOffset | None:
        """The offset to store; None if it is stored already, or the topic is another.

        Runs completed beyond it, above the first ``max_runs``, are left out; after a
        crash they would be emitted again.
        """
        if self.is_recreated:
            return None
        wanted = CommittedOffset(
            self.last_completed_offset,
            tuple(islice(self._unfinished.window.completed(), max_runs)),
            self._rules.topology_id,
            self._rules.topology_name,
            self.leader,
            self.topic_id,
            tuple(islice(self._unfinished.retry.failed_runs(), _MOST_FAILURES)),
            self.leader_epoch,
        )
        return None if _is_stored(wanted, self._stored) else wanted

    def committed(self, offset: CommittedOffset) -> None:
        """The store holds ``offset`` now; do not call this after a failed write."""
        self._stored = offset
        self.committed_to = offset.offset

    @property
    def stored(self) -> CommittedOffset | None:
        """The stored offset, to write again to stores that expire offsets.

        None: not known, or the topic or the log's end is gone.
        """
        return None if self.is_recreated else self._stored

    # --- for metrics --------------------------------------------------------------

    @property
    def emitted_to(self) -> int:
        """The next offset to emit for the first time."""
        return self._unfinished.window.emitted_to

    @property
    def last_completed_offset(self) -> int:
        """The first pending offset, or ``emitted_to``: all below it is finished."""
        return self._unfinished.window.first_unfinished

    @property
    def pending(self) -> int:
        """Offsets emitted and not completed: in-flight or waiting for a retry."""
        return len(self._unfinished.window.pending)

    @property
    def waiting(self) -> int:
        """Failed or released offsets whose retry has not started."""
        return len(self._unfinished.retry.waiting)

    @property
    def uncommitted(self) -> int:
        """Offsets emitted at or beyond ``last_completed_offset``, holes not counted."""
        return self._unfinished.window.size

    @property
    def next_due_ms(self) -> int | None:
        """When the next retry is due; None: no retry waits."""
        return self._unfinished.retry.next_due_ms()

    @property
    def oldest_pending_since_ms(self) -> int | None:
        """When the first pending record was first emitted; None: none is pending."""
        return self._unfinished.window.oldest_since_ms()

    @property
    def is_hopeless(self) -> bool:
        """More than ``max_offset_behind`` failures, and no record completed."""
        behind = self._rules.max_offset_behind
        return bool(
            behind is not None
            and self.counts.completed == 0
            and self.counts.failed > behind
        )

    def __repr__(self) -> str:
        return (
            f"PartitionManager({self.topic_partition}, emitted_to={self.emitted_to},"
            f" last_completed_offset={self.last_completed_offset},"
            f" committed_to={self.committed_to}, pending={self.pending})"
        )


def _is_stored(wanted: CommittedOffset, stored: CommittedOffset | None) -> bool:
    return stored is not None and (
        (wanted.offset, wanted.completed, wanted.topology_id, wanted.failures)
        == (stored.offset, stored.completed, stored.topology_id, stored.failures)
        and wanted.topic_id == stored.topic_id
        and wanted.leader_epoch in {stored.leader_epoch, None}
    )
