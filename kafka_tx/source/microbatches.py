"""The streaming source's decisions, without Spark: starts and ends of micro-batches.

Runs in Spark's long-lived planning process on the driver's machine. Spark calls
``stream.py``, the thin edge.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kafka_tx.config import SourceConfig
from kafka_tx.errors import BrokerUnavailableError, ConfigError
from kafka_tx.model import (
    LogBounds,
    LogPosition,
    OffsetRange,
    Skipped,
    TopicPartition,
    epochs_of,
    few,
    known_epochs,
    located,
)
from kafka_tx.offsets.discovery import DELETED, Discovery
from kafka_tx.offsets.loss import Losses, OutOfRange
from kafka_tx.offsets.position_checks import Finding, PositionCheck
from kafka_tx.planning.byte_limit import ByteLimit
from kafka_tx.planning.cluster_poller import (
    ClusterPoller,
    ClusterState,
    LeaderEpochs,
    Positions,
)
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.planning.split import is_delayed, rate_limit
from kafka_tx.planning.start_positions import assigned_partitions, first_offsets
from kafka_tx.protocols import Clock, ClusterView
from kafka_tx.source.logged_batches import first_begins, readable_ranges
from kafka_tx.source.questions import Answer, Question, goes_on

_RECENT_MS = 1_000
"""Largest age of the last poll if the end of the run is known."""

_NOT_KNOWN_YET = sys.maxsize
"""The frozen end of a log that has not answered in this run."""

_SILENT_MS, _ASK_SILENT_MS = 30_000, 500
"""So long at least, and so often, brokers are asked for what a bounded run lacks."""

Logs = Mapping[TopicPartition, LogBounds | None]
"""Bounds of logs; None: not reported, or without a topic id."""

GroupOffsets = Callable[[list[TopicPartition]], dict[TopicPartition, LogPosition]]
"""Committed positions of a Kafka group; partitions without one are left out."""


@dataclass(frozen=True, slots=True)
class MicroBatchPlan:
    """A batch that could run: its ranges, and all positions after the batch."""

    ranges: tuple[OffsetRange, ...]
    ends: Positions
    topic_ids: Mapping[str, str]
    """Topic ids of the ends; a topic without a reported id keeps its former id.

    Topics that were deleted have the id ``DELETED``.
    """

    def moves(self, start: Positions) -> bool:
        """Whether the plan reads or skips anything: otherwise there is no batch."""
        return dict(start) != dict(self.ends) or any(len(r) for r in self.ranges)

    def begins(self, start: Positions) -> dict[TopicPartition, int]:
        """Starts of partitions that do not begin at their former position."""
        begins = {r.topic_partition: r.start for r in self.ranges}
        return {p: begin for p, begin in begins.items() if start.get(p) != begin}


@dataclass(frozen=True, slots=True)
class Rest:
    """The last trigger found nothing to do, and would again if all is as then.

    Attributes:
        cluster: The answer in which each position is the end of its log.
        known: What else the decision was made on; see ``MicroBatches._decided_on``.
    """

    start: SourceOffset
    cluster: ClusterState
    known: object


class MicroBatches:
    """Plans micro-batches for a query without ``tx.id``.

    Life of a batch: ``latest`` picks its end, Spark logs the end, ``ranges`` returns
    the offsets between two ends, also in a later process and repeatedly. If a batch
    does not begin at the end of the one before (first batch, new partitions, losses),
    the end that Spark logs includes the start.
    """

    def __init__(
        self,
        config: SourceConfig,
        view: ClusterView,
        clock: Clock,
        committed: GroupOffsets | None = None,
        byte_limit: ByteLimit | None = None,
    ) -> None:
        self._config = config
        self._byte_limit = byte_limit
        self._view = view
        self._discovery = Discovery(view.topics, config.subscription)
        self._clock = clock
        self._committed = committed
        self.losses = Losses(OutOfRange.of(config.fails_on_data_loss))
        self.skipped: Skipped = {}
        """Offsets that the last planned batch skips."""
        self.schemas: Mapping[str, str] = {}
        """By side the stored schema of the batch whose ranges were asked for last."""
        retries = config.num_retries, config.retry_interval_ms
        self._poller = ClusterPoller(view, self._discovery, clock, retries)
        self._initial: Positions | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._last_batch_ms: int | None = None
        self._topic_ids: dict[str, str] = {}
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._out_of_sight: dict[TopicPartition, int] = {}
        self._cut: tuple[SourceOffset, Positions] | None = None
        """An end that Spark logged, and where logs that lost their ends now end."""
        self._planned: dict[str, tuple[OffsetRange, ...]] = {}
        self._rest: Rest | None = None
        """Of the call before, if that was ``latest`` and found nothing to do."""
        self._unjudged: set[TopicPartition] = set()
        """Of the last plan: nobody told whether the position belongs to this log."""

    # --- called by Spark ---

    def initial(self) -> SourceOffset:
        """The start of a query without a checkpoint.

        Raises:
            UnknownTopicError: A named topic or partition does not exist.
            OffsetsError: ``startingOffsets`` does not match the topic.
            KafkaError: A request to the cluster failed.
        """
        self._rest = None
        self._initial = self.start_positions()
        ids = _ids_of(self._initial, self._topic_ids)
        epochs = dict(self._leader_epochs)
        begins = self._initial  # if this is also where the first batch ends
        return SourceOffset(self._initial, None, begins, ids, epochs)

    def latest(self, start: SourceOffset, *, everything: bool) -> SourceOffset:
        """The end of the next batch; ``start`` itself if there is nothing to do.

        Raises: as ``plan``.
        """
        if self._rests(start, everything=everything):
            return start
        self._topic_ids.update(start.topic_ids)
        others = {
            p: epoch
            for p, epoch in self._leader_epochs.items()
            if p not in start.positions
        }
        self._leader_epochs = {**others, **start.leader_epochs}
        positions = self._actual(start)
        plan = self.plan(positions, everything=everything)
        if plan is None or not plan.moves(start.positions):
            self._begin_rest(start, plan)
            return start
        is_first = positions == self._initial
        begins = plan.begins({} if is_first else start.positions)
        ids = _ids_of(plan.ends, plan.topic_ids)
        epochs = epochs_of(plan.ranges)
        end = SourceOffset(plan.ends, None, begins, ids, epochs)
        self._planned = {_key(start, end): plan.ranges}
        return end

    def ranges(self, start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
        """The ranges between two ends. Called several times, also after a restart."""
        self._rest = None
        if not goes_on(start, end) and start.begins == end.begins:
            return []
        self._discovery.know(start.positions)
        planned = self._planned.get(_key(start, end))
        if planned is None:
            planned = tuple(self.ranges_from_log(start.positions, end))
            self._planned = {_key(start, end): planned}
        ids = end.topic_ids
        return [r.of_topic(ids.get(r.topic_partition.topic)) for r in planned if len(r)]

    def number(self, question: Question) -> Answer:
        """The transaction of a Spark batch; there are none without ``tx.id``."""
        raise ConfigError(
            f"batch {question.query_batch} is no transaction: the source has no tx.id",
            option="tx.id",
        )

    def finished(self, end: SourceOffset) -> None:
        """Spark will ask for nothing below ``end`` again; nothing is stored here."""

    def prepare_available_now(self) -> None:
        """Freeze the end: later records are not part of this run."""
        self._rest = None
        cluster = self._poller.now()
        ends = {p: log.end for p, log in cluster.bounds.items()}
        self._target = dict.fromkeys(cluster.found.partitions, _NOT_KNOWN_YET) | ends

    def has_read_all(self) -> None:
        """Nothing is left of a bounded run; a batch without records may follow."""

    def report(self) -> ClusterState | None:
        """The last poll, for the progress report; None: no log has answered yet."""
        cluster = self._poller.last
        return cluster if cluster is not None and cluster.bounds else None

    def close(self) -> None:
        """Release connections."""
        self._view.close()

    # --- nothing to do ---

    def _begin_rest(self, start: SourceOffset, plan: MicroBatchPlan | None) -> None:
        """Remember that there was nothing to do, if this follows from the logs alone.

        So it does if every position is the end of its log in the last answer, and no
        position lacks one: other findings are judged each time.
        """
        cluster = self._poller.last
        if cluster is None or plan is None or self._target is not None:
            return
        ends = {p: log.end for p, log in cluster.bounds.items()}
        if ends == dict(start.positions) == dict(plan.ends):
            self._rest = Rest(start, cluster, self._decided_on())

    def _rests(self, start: SourceOffset, *, everything: bool) -> bool:
        """Whether there is nothing to do again, as brokers report no change.

        Whatever is due after a time is done here, too: ``minOffsetsPerTrigger`` counts
        the delay from the last plan.
        """
        rest, self._rest = self._rest, None
        if rest is None or not rest.start.is_same(start):
            return False
        known = self._decided_on()
        if rest.known != known or not self._poller.is_unchanged(rest.cluster):
            return False
        if not everything:
            self._waits({}, {})
        self._rest = replace(rest, known=known)
        return True

    def _decided_on(self) -> object:
        """What a plan depends on beside ``start``, options and the brokers' answer."""
        return None

    # --- known positions ---

    def _ids(self) -> Mapping[str, str]:
        """Topic ids of the positions; unknown ones are left out."""
        return self._topic_ids

    def _epochs_of_positions(self) -> LeaderEpochs:
        """Leader epochs of the positions; unknown ones are left out."""
        return self._leader_epochs

    def _remembered(self, partition: TopicPartition) -> int | None:
        """The position of a partition that Spark's offsets lack."""
        return self._out_of_sight.get(partition)

    def _deleted(
        self,
        ends: Positions,  # noqa: ARG002 - a store has more positions
        cluster: ClusterState,  # noqa: ARG002
        ids: Mapping[str, str],  # noqa: ARG002
    ) -> set[str]:
        """Hidden topics whose positions can be dropped."""
        return set()

    def _actual(self, start: SourceOffset) -> dict[TopicPartition, int]:
        """The actual positions for logged ones: lower if a log lost its end.

        Only for the very offset that was replayed: a later one may have its positions
        again, among other records.
        """
        cut = self._cut[1] if self._cut and self._cut[0].is_same(start) else {}
        return {**start.positions, **cut}

    def _known(
        self, start: Positions, cluster: ClusterState
    ) -> dict[TopicPartition, int]:
        """Positions of all partitions that were read before."""
        found = (p for p in cluster.found.partitions if p not in start)
        back = {p: at for p in found if (at := self._remembered(p)) is not None}
        return {**back, **start}

    # --- planning ---

    def start_positions(self) -> dict[TopicPartition, int]:
        """Apply ``startingOffsets`` to the partitions that exist now."""
        found = self._discovery.find()
        self._topic_ids.update(found.topic_ids())
        partitions = assigned_partitions(self._config, found)
        return first_offsets(self._config, self._view, partitions, self._of_group)

    def _of_group(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets; their leader epochs are known from now on."""
        found = {} if self._committed is None else self._committed(partitions)
        self._leader_epochs = known_epochs(found)
        return {p: at.offset for p, at in found.items()}

    def plan(self, start: Positions, *, everything: bool) -> MicroBatchPlan | None:
        """A new batch from ``start``, or None to wait for more records.

        A run with a frozen end waits for brokers that do not answer, once all else is
        read.

        Raises:
            BrokerUnavailableError: They did not answer for half a minute.
        """
        until_ms = self._clock.monotonic_ms() + _SILENT_MS
        plan = self._plan(start, everything=everything)
        while silent := self._silent(start, plan):
            if self._clock.monotonic_ms() >= until_ms:
                raise BrokerUnavailableError(
                    f"no broker says where {few(silent)} ends, or whether what was"
                    " read belongs to this log, so this run may lack records. It has"
                    " read all others. Are the leaders and the controller up? The next"
                    " run continues here"
                )
            self._clock.sleep_ms(_ASK_SILENT_MS)
            plan = self._plan(start, everything=everything)
        return plan

    def _silent(
        self, start: Positions, plan: MicroBatchPlan | None
    ) -> list[TopicPartition]:
        """Partitions that nobody answers for before they are read to the frozen end.

        Or whose answer does not tell whether the position belongs to this log. None of
        them as long as there are others to read.
        """
        cluster, target = self._poller.last, self._target
        if target is None or cluster is None or plan is None or plan.moves(start):
            return []
        return [
            p
            for p, end in target.items()
            if (p not in cluster.bounds or p in self._unjudged)
            and cluster.found.exists(p)
            and plan.ends.get(p, 0) < end
        ]

    def _plan(self, start: Positions, *, everything: bool) -> MicroBatchPlan | None:
        self._discovery.know(start)
        ids = dict(self._ids())

        last: tuple[ClusterState, dict[TopicPartition, PositionCheck]] | None = None

        def judged(cluster: ClusterState) -> dict[TopicPartition, PositionCheck]:
            nonlocal last
            if last is None or last[0] is not cluster:
                known = self._known(start, cluster)
                last = (
                    cluster,
                    cluster.position_checks(
                        located(known, ids, self._epochs_of_positions())
                    ),
                )
            return last[1]

        cluster = self._recent_answer(start) or self._poller.steady(judged)
        limits = self._config.limits
        self.losses.take()
        position_checks = judged(cluster)
        self._unjudged = {
            p
            for p, check in position_checks.items()
            if check.finding is Finding.UNANSWERED
        }
        starts = self._starts(position_checks, cluster)
        logs = {**cluster.bounds, **{p: s.bounds for p, s in position_checks.items()}}
        ends = self._ends(starts, logs)
        if not everything:
            if self._waits(starts, ends):
                self.losses.take()
                return None
            if limits.max_records is not None:
                ends = rate_limit(limits.max_records, starts, ends)
            if self._byte_limit is not None:
                ends = self._byte_limit.ends(starts, ends)
        self._learn(start, starts, cluster)
        epochs = self._epochs_after(position_checks, logs)
        ranges = tuple(
            OffsetRange(p, starts[p], ends[p], None, epochs.get(p))
            for p in sorted(ends)
        )
        topic_ids = {**_ids_of(ends, ids), **cluster.found.topic_ids()}
        self.skipped = self.losses.take()
        topic_ids |= dict.fromkeys(self._deleted(ends, cluster, ids), DELETED)
        return MicroBatchPlan(ranges, ends, topic_ids)

    def ranges_from_log(self, start: Positions, end: SourceOffset) -> list[OffsetRange]:
        """The readable ranges between two ends that Spark logged in an earlier run.

        Raises:
            BrokerUnavailableError: The start of a partition that was new in this batch,
                or of the first batch, is unknown, as no broker answers.
            OffsetsError: The start of the first batch is unknown.
        """
        begins: dict[TopicPartition, int] = dict(start)
        ids = end.noted_ids
        cluster = self._poller.steady(
            lambda cluster: cluster.position_checks(
                located(end.positions, ids, end.noted_epochs)
            )
        )
        if start == self._initial and end.mark is None and not end.begins:
            begins = first_begins(self._config, start, end.positions, cluster.bounds)
        begins |= end.begins
        unknown = [
            str(p)
            for p in end.positions
            if p not in begins and cluster.found.exists(p) and p not in cluster.bounds
        ]
        if unknown:
            raise BrokerUnavailableError(
                f"the first offset of {', '.join(unknown)} cannot be had now. Are its"
                " leaders up?"
            )
        ranges = readable_ranges(begins, end, cluster, self.losses)
        read = {r.topic_partition: r.end for r in ranges}
        cut = {p: at for p, at in read.items() if at < end.positions[p]}
        self._cut = (end, cut) if cut else None
        self.skipped = self.losses.take()
        return ranges

    def _waits(self, starts: Positions, ends: Positions) -> bool:
        """Whether ``minOffsetsPerTrigger`` delays the batch; never in AvailableNow."""
        limits = self._config.limits
        if limits.min_records is None or self._target is not None:
            return False
        now_ms = self._clock.monotonic_ms()
        if is_delayed(
            limits.min_records,
            starts,
            ends,
            now_ms=now_ms,
            last_batch_ms=self._last_batch_ms,
            max_delay_ms=limits.max_delay_ms,
        ):
            return True
        self._last_batch_ms = now_ms
        return False

    def _recent_answer(self, start: Positions) -> ClusterState | None:
        """The last answer, if the end is frozen so that a new poll brings no news.

        Not for durable transactions: records that retention has removed since would be
        stored in a batch, which then could not be replayed.
        """
        cluster, target = self._poller.last, self._target
        if target is None or cluster is None or self._config.transactions is not None:
            return None
        at = located(start, self._ids(), self._epochs_of_positions())
        position_checks = cluster.position_checks(at).values()
        is_enough = cluster.reaches(target) and not any(
            s.finding not in {Finding.WITHIN, Finding.TRIMMED} for s in position_checks
        )
        age_ms = self._clock.monotonic_ms() - cluster.at_ms
        if not is_enough or age_ms >= _RECENT_MS:
            return None
        return cluster if self._poller.is_of_these_topics(cluster) else None

    def _starts(
        self,
        position_checks: Mapping[TopicPartition, PositionCheck],
        cluster: ClusterState,
    ) -> dict[TopicPartition, int]:
        """The starts of reading; reports every loss."""
        gone = {p for p, s in position_checks.items() if s.finding is Finding.DELETED}
        self.losses.deleted(gone)
        starts = {}
        for partition, check in position_checks.items():
            if check.finding is Finding.WITHIN:  # the usual case, fast
                starts[partition] = check.position
            elif partition not in gone:
                starts[partition] = self.losses.judge(partition, check)
                self._freeze_anew(partition, check.finding, cluster)
        for partition, bounds in cluster.bounds.items():
            if partition not in position_checks:
                if bounds.log_start > 0:
                    self.losses.added_late(partition, bounds.log_start)
                starts[partition] = bounds.log_start
        return starts

    def _freeze_anew(
        self, partition: TopicPartition, finding: Finding, cluster: ClusterState
    ) -> None:
        """Drop the frozen end of a log that is gone: the new log differs."""
        bounds = cluster.bounds.get(partition)
        is_another = finding in {Finding.ANEW, Finding.CUT}
        if self._target is not None and is_another and bounds is not None:
            self._target[partition] = bounds.end

    def _epochs_after(
        self, position_checks: Mapping[TopicPartition, PositionCheck], logs: Logs
    ) -> dict[TopicPartition, int | None]:
        """Leader epochs of the ends; a position without a check keeps its own."""
        known = self._epochs_of_positions()
        silent = {
            p: known.get(p)
            for p, check in position_checks.items()
            if check.finding is Finding.UNANSWERED
        }
        return silent | {p: log.leader_epoch for p, log in logs.items() if log}

    def _ends(self, starts: Positions, logs: Logs) -> dict[TopicPartition, int]:
        """The end of every partition: the current end, at most the frozen one."""
        ends = {}
        for partition, start in starts.items():
            log = logs.get(partition)
            end = start if log is None else log.end
            if self._target is not None:
                frozen = self._target.get(partition, start)
                if frozen == _NOT_KNOWN_YET and log is not None:
                    self._target[partition] = end
                end = min(end, frozen)
            ends[partition] = max(end, start)
        return ends

    def _learn(
        self, start: Positions, starts: Positions, cluster: ClusterState
    ) -> None:
        """Save the positions to compare the next answer with."""
        anew = cluster.found.recreated(self._topic_ids)
        self._topic_ids.update(cluster.found.topic_ids())
        gone = {p: at for p, at in start.items() if p not in starts}
        hidden = {**self._out_of_sight, **gone}
        self._out_of_sight = {
            p: at for p, at in hidden.items() if p not in starts and p.topic not in anew
        }


def _ids_of(positions: Positions, ids: Mapping[str, str]) -> dict[str, str]:
    topics = {partition.topic for partition in positions}
    return {topic: known for topic, known in ids.items() if topic in topics}


def _key(start: SourceOffset, end: SourceOffset) -> str:
    return f"{start.to_json()}{end.to_json()}"
