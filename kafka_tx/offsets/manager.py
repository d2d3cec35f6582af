"""The progress of one partition whose records complete and fail one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from kafka_tx.offsets.loss import LossReason, OutOfRange, out_of_range
from kafka_tx.offsets.manager_answers import Counts, GiveUp, PartitionPlan
from kafka_tx.offsets.runs import OffsetRuns
from kafka_tx.offsets.unfinished import PartitionRules, Unfinished

_log = event_log(__name__)

_MOST_FAILURES = 100
"""Runs of failed records that are stored."""


class PartitionManager:
    """What is emitted, pending, completed and committed in one partition.

    1. ``plan`` says what to emit: due retries first, then fresh records.
    2. ``emitted`` is told before the records are handed over.
    3. Each record is one unit, however many tuples come of it. ``ack`` completes it,
       ``fail`` sends it to the retries or gives it up; ``passed`` completes what a
       range turned out not to hold; ``release`` takes back what was never tried.
       Singly or in ranges, in any order, late or twice.
    4. ``next_to_commit`` is written to the store, and ``committed`` told thereafter.

    Driver only, one thread; knows no clock and no network. Nothing is kept for single
    records, only runs. When only the leader moves, the same manager goes on, with
    another ``leader``. Answers may bring the ``generation`` they were planned with; an
    older one is ignored, since its offsets named other records.

    Attributes:
        topic_partition: Its identity; never the broker.
        leader: Stored with the offset, for tools that show it.
        committed_to: The offset known to be in the store; None before the first.
        topic_id: Of the topic; stored with the offset. Empty: not known.
        leader_epoch: Of the leader that told the log's end; stored with the offset.
        generation: Changes when the log was cut and offsets came to be used again.
        counts: What it has seen.

    Source: Storm, PartitionManager, and OffsetManager of storm-kafka-client.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        rules: PartitionRules,
        start: CommittedOffset,
        *,
        stored: CommittedOffset | None = None,
        lost: Mapping[LossReason, int] | None = None,
        leader: Broker | None = None,
    ) -> None:
        """Begin at ``start``; what it calls completed is not emitted again.

        ``stored`` is what the store holds now: when it differs, the start itself is
        committed first, so that a restart does not look for "latest" a second time.
        ``lost`` is what the start skipped (``StartDecision.lost``), counted with the
        rest.
        """
        self.topic_partition = topic_partition
        self.leader = leader
        self.committed_to = None if stored is None else stored.offset
        self.topic_id = start.topic_id
        self.leader_epoch = start.leader_epoch
        self.generation = 1
        self.counts = Counts()
        self.counts.lost.update(lost or {})
        self._rules = rules
        self._stored = stored
        self._is_recreated = False
        self._begin(start)

    def _begin(self, start: CommittedOffset) -> None:
        self._unfinished = Unfinished(start, self._rules, self.counts)

    # --- emitting -------------------------------------------------------------------

    def plan(
        self, bounds: LogBounds, *, max_offsets: int, now_ms: int, fresh: bool = True
    ) -> PartitionPlan:
        """What to emit next, at most ``max_offsets`` in all.

        First takes note of where the log begins and ends now, and of which topic it is.
        Nothing is emitted from bounds that may be of a topic that is gone. Where not
        all retries have room, those that are due longest go first. Planning twice
        without ``emitted`` gives the same again.

        Args:
            bounds: What the log holds now. Its end is where other records begin, if it
                was cut and continued.
            max_offsets: Retries and fresh records together.
            now_ms: Monotonic; decides which retries are due.
            fresh: False: retries only, as when a store asks for a pause.

        Raises:
            OffsetOutOfRangeError: The log ends below ``reached``, or is that of
                another topic, and the policy is to fail. Nothing was changed.
        """
        if is_another(self.topic_id or None, bounds.topic_id):
            self._begin_anew(bounds)
        elif not self._is_of_its_topic(bounds):
            return PartitionPlan((), None, self.generation)
        elif bounds.end < self.reached.offset:
            self._cut(bounds, now_ms)
        self.topic_id = bounds.topic_id or ""
        self.leader_epoch = bounds.leader_epoch
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
        start = self.emitted_to
        end = self._unfinished.window.next_end(min(log_end, start + room))
        return self._of_topic(start, end) if end > start else None

    def _of_topic(self, start: int, end: int) -> OffsetRange:
        log = self.topic_id or None, self.leader_epoch
        return OffsetRange(self.topic_partition, start, end, *log)

    def emitted(self, planned: OffsetRange, now_ms: int) -> None:
        """Note that a planned range is handed over; called just before it is.

        Raises:
            OutOfOrderError: The range begins beyond ``emitted_to``.
        """
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
        """Complete a record, or every record of a range.

        Also records that wait for a retry or were given up. Offsets that are not
        pending are ignored and counted.

        Returns:
            How many offsets this completed.
        """
        if self._is_old(generation):
            start, end = self._span(done)
            completed = 0
        elif isinstance(done, int) and self._unfinished.complete_one(done):
            return 1
        else:
            start, end = self._span(done)
            completed = self._unfinished.complete(start, end)
        self.counts.ignored_acks += end - start - completed
        return completed

    def passed(
        self,
        read: OffsetRange,
        present: Iterable[tuple[int, int]],
        generation: int | None = None,
    ) -> int:
        """Complete what a range turned out not to hold.

        The reader's position passed ``read.end`` and it found records only at
        ``present`` (runs, ascending); what lies between was compacted, aborted or holds
        markers, also when it was to be tried again.

        Returns:
            How many offsets this completed.
        """
        if self._is_old(generation):
            return 0
        gaps = OffsetRuns(*present).gaps(*self._span(read))
        return sum(self._unfinished.complete_holes(*gap) for gap in gaps)

    def fail(
        self, failed: int | OffsetRange, now_ms: int, generation: int | None = None
    ) -> list[GiveUp]:
        """Count a failure of a record, or of every unfinished record of a range.

        Ignored and counted: offsets that are not pending, or failed already and wait.

        Returns:
            What failed too often. It stays pending until it is acknowledged; when it
            fails once more (the dead letter could not be written) it is returned again.
        """
        start, end = self._span(failed)
        if self._is_old(generation):
            self.counts.ignored_fails += end - start
            return []
        given_up = []
        answered = self._unfinished.lose_abandoned(start, end)
        for low, high in self._unfinished.in_flight(start, end):
            answered += high - low
            for part in self._unfinished.fail(low, high, now_ms):
                run = self._of_topic(part.start, part.end)
                given_up.append(GiveUp(run, part.failures))
        self.counts.ignored_fails += end - start - answered
        return given_up

    def release(
        self, unread: int | OffsetRange, now_ms: int, generation: int | None = None
    ) -> None:
        """Take back what was emitted and never tried: the read or the job broke.

        It is due again at once, and counts as no failure of the records. Offsets that
        were answered, given up ones among them, are left as they are.
        """
        if self._is_old(generation):
            return
        start, end = self._span(unread)
        self._unfinished.lose_abandoned(start, end)
        for run in self._unfinished.in_flight(start, end):
            self._unfinished.release(*run, now_ms)

    def _is_old(self, generation: int | None) -> bool:
        return generation is not None and generation != self.generation

    def _span(self, reported: int | OffsetRange) -> tuple[int, int]:
        if isinstance(reported, int):
            return reported, reported + 1
        if reported.topic_partition != self.topic_partition:
            raise ConfigError(f"{reported} was given to the {self!r}", range=reported)
        return reported.start, reported.end

    # --- what the log lost ----------------------------------------------------------

    def trim(self, log_start: int) -> None:
        """Note that nothing below ``log_start`` can be read any more.

        Failed records below it are lost, and so are those not emitted yet. Records in
        flight do not hold the commit back any more; they are lost if they fail. A
        ``log_start`` lower than before changes nothing.
        """
        self._unfinished.abandon(log_start, LossReason.TRIMMED)
        self._unfinished.skip_to(log_start, LossReason.TRIMMED)

    def saw_topic(self, topic_id: str | None) -> None:
        """Note which topic has the name now; None: nobody told.

        From when that is another one nothing is committed. The first ``plan`` with its
        bounds begins anew at their start and counts all that is unfinished as lost, or
        raises if the policy is to fail.
        """
        self._is_recreated = is_another(self.topic_id or None, topic_id)

    @property
    def is_recreated(self) -> bool:
        """Whether its topic is gone, and a log of the new one was not seen yet."""
        return self._is_recreated

    @property
    def position(self) -> LogPosition:
        """``emitted_to``, and the log it is of."""
        return LogPosition(self.emitted_to, self.topic_id or None, self.leader_epoch)

    @property
    def reached(self) -> LogPosition:
        """Behind all that it knows as emitted; its log must go so far."""
        return replace(self.position, offset=self._unfinished.window.reached)

    def _is_of_its_topic(self, bounds: LogBounds) -> bool:
        """Whether records may be emitted: they are of its topic, as far as is known."""
        is_reported = bounds.topic_id is not None or not self.topic_id
        return is_reported and not self._is_recreated

    def _begin_anew(self, bounds: LogBounds) -> None:
        if self._rules.out_of_range is OutOfRange.FAIL:
            raise out_of_range(
                self.topic_partition, self.emitted_to, bounds, "of a deleted topic"
            )
        self._next_generation()
        self._unfinished.lose(0, self.emitted_to, LossReason.RECREATED)
        self._begin(CommittedOffset(bounds.log_start))
        self._is_recreated = False

    def _cut(self, bounds: LogBounds, now_ms: int) -> None:
        """The log ends below what was emitted: its offsets will name other records.

        What is left below the end was processed, or still is: it is not read again.
        """
        policy, reached = self._rules.out_of_range, self.reached.offset
        policy.next_offset(self.topic_partition, reached, bounds)
        _log.warning(
            "%s was read to %d, and its log ends at %d or goes on there with other"
            " records: its end was lost; %d offsets that were read already name other"
            " records, which are read too",
            self.topic_partition,
            reached,
            bounds.end,
            reached - bounds.end,
        )
        self.counts.skipped[LossReason.CUT] += reached - bounds.end
        self._next_generation()
        self._unfinished.cut(bounds.end, now_ms)

    def _next_generation(self) -> None:
        """No answer about what was emitted so far will count."""
        self.generation += 1
        self._unfinished.lose_abandoned(0, self.emitted_to)

    # --- committing -----------------------------------------------------------------

    def next_to_commit(self, max_runs: int = 1_000) -> CommittedOffset | None:
        """What to store; None when the store holds that, or the log is another one.

        Args:
            max_runs: The highest of the runs completed beyond the offset are left out
                beyond this number; after a crash they would be emitted again.
        """
        if self._is_recreated:
            return None
        wanted = CommittedOffset(
            self.last_completed_offset,
            tuple(islice(self._unfinished.window.completed(), max_runs)),
            self._rules.topology_id,
            self._rules.topology_name,
            self.leader,
            self.topic_id,
            tuple(islice(self._unfinished.failures(), _MOST_FAILURES)),
            self.leader_epoch,
        )
        return None if _is_stored(wanted, self._stored) else wanted

    def committed(self, offset: CommittedOffset) -> None:
        """Note that the store holds ``offset``; not called after a failed write."""
        self._stored = offset
        self.committed_to = offset.offset

    @property
    def stored(self) -> CommittedOffset | None:
        """What the store holds, to be written again where stores forget."""
        return None if self._is_recreated else self._stored

    # --- what is shown --------------------------------------------------------------

    @property
    def emitted_to(self) -> int:
        """The next offset never emitted."""
        return self._unfinished.window.emitted_to

    @property
    def last_completed_offset(self) -> int:
        """The first pending offset, or ``emitted_to``: all below it is finished."""
        return self._unfinished.window.first_unfinished

    @property
    def pending(self) -> int:
        """Offsets emitted and not completed, in flight or waiting for a retry."""
        return len(self._unfinished.window.pending)

    @property
    def waiting(self) -> int:
        """Failed or released offsets whose retry has not started."""
        return len(self._unfinished.retry.waiting)

    @property
    def in_doubt(self) -> int:
        """Offsets in flight that hold nothing back any more; lost if they fail."""
        return self._unfinished.abandoned

    @property
    def uncommitted(self) -> int:
        """Offsets emitted at or beyond ``last_completed_offset``, holes not counted."""
        return self._unfinished.window.size

    @property
    def next_due_ms(self) -> int | None:
        """When the next retry is due; None when none waits."""
        return self._unfinished.retry.next_due_ms()

    @property
    def oldest_pending_since_ms(self) -> int | None:
        """When the first pending record was first emitted; None when none is."""
        return self._unfinished.window.oldest_since_ms()

    @property
    def is_hopeless(self) -> bool:
        """More than ``max_offset_behind`` failures and not one record completed."""
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
    )
