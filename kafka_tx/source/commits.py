"""From Spark's progress reports to commits and metrics, in the user's process."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_tx.errors import BatchIdsAgainError, FencedError, KafkaTxError
from kafka_tx.logs import about, event_log
from kafka_tx.metrics import catalogue
from kafka_tx.metrics.events import BatchCommitted
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import BatchMetadata, LogBounds, OffsetRange, TopicPartition
from kafka_tx.planning.offset_json import (
    MARK,
    SourceOffset,
    TransactionMark,
    flat,
    only_offsets,
)
from kafka_tx.protocols import Clock
from kafka_tx.source.questions import moves
from kafka_tx.source.read_reports import ReadReports
from kafka_tx.source.stored_batches import Mirror
from kafka_tx.transactions.layout.commit_stats import (
    LEAST_HISTORY,
    CommitStats,
    TableWrite,
    TaskSums,
)
from kafka_tx.transactions.ledger.ledger import Ledger, LedgerState

logger = event_log(__name__)

RELEASED_AFTER_MS = 15 * 60_000
"""How long the resources of an ended query stay open for its next run."""

_WAITING = 100
"""Most batches that wait for the planning process; the oldest are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One source's part of a batch that is in Spark's commit log.

    Attributes:
        start: Spark's start offset; None for the first batch of a query.
        end: Spark's end offset, with the transaction mark.
        latest: The result of ``reportLatestOffset``, with the log starts. Spark 4.0 and
            4.1 do not call it: there, the end offset.
        duration_ms: Of the trigger.
        phases_ms: Of each phase of ``catalogue.PHASE``, as far as known.
        read_reports: None: tasks could not report.
        spark_batch: Spark's name of the batch, which identifies a batch without new
            records; empty: not available.
        dead_letters: None: the query writes none.
        ignores_ids: The run's sink is of a kind that remembers no batch ids.
        is_bounded: The run ends by itself.
        is_former: Another run of the id has begun since.
    """

    start: SourceOffset | None
    end: SourceOffset
    latest: Mapping[str, Any] | None
    duration_ms: float
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    read_reports: ReadReports | None = None
    spark_batch: str = ""
    dead_letters: Mapping[TopicPartition, int] | None = None
    ignores_ids: bool = False
    is_bounded: bool = False
    is_former: bool = False

    @property
    def entry(self) -> int:
        """The entry in Spark's log that may have been dropped; 0: by no such sink."""
        assert self.end.mark is not None
        return 0 if self.ignores_ids else self.end.mark.epoch

    @property
    def ranges(self) -> list[OffsetRange]:
        """The ranges of the batch in Spark's log."""
        before = self.start.positions if self.start else {}
        begins = {**before, **self.end.begins}
        return [
            OffsetRange(partition, begins[partition], at)
            for partition, at in self.end.positions.items()
            if begins.get(partition, at) < at
        ]

    @property
    def has_records(self) -> bool:
        """Whether the source moved; then the mark of ``end`` names the transaction."""
        return moves(self.start, self.end)


@dataclass(slots=True)
class _Query:
    ledger: Ledger
    mirror: Mirror | None
    waiting: deque[Finished] = field(default_factory=lambda: deque(maxlen=_WAITING))
    doubtful_txid: int = 0  # the outcome of its commit is unknown
    seen_txid: int = 0
    partitions: list[TopicPartition] = field(default_factory=list)
    numbering: str = ""
    mirror_failures: dict[int, int] = field(default_factory=dict)
    from_tasks: dict[tuple[int, int], TaskSums] = field(default_factory=dict)
    ended_ms: int | None = None
    is_former: bool = False  # its ledger was opened for an earlier run
    may_go_back: bool = False  # its store may be one of before `seen_txid`


class CommitFeed:
    """Commits each finished transaction once, then updates the metrics.

    The planning process commits, too, at the next trigger; the first of the two
    commits, and the other finds the commit. A batch that this process may not commit
    (it was planned under an older epoch and replayed) waits until the planning process
    has committed it. A batch that its sink may have dropped is not committed:
    ``withheld`` gets its id and the error. One thread at a time may call this; any
    thread ``partitions``.
    """

    def __init__(
        self,
        open_parts: Callable[[str], tuple[Ledger, Mirror | None]],
        registry: MetricsRegistry,
        clock: Clock,
        tables: Callable[[str, str, int], tuple[TableWrite, ...]] = lambda *_: (),
        withheld: Callable[[str, KafkaTxError], None] = lambda *_: None,
    ) -> None:
        self._tables = tables
        self._withheld = withheld
        self._open_parts = open_parts
        self._registry = registry
        self._clock = clock
        self._queries: dict[str, _Query] = {}
        self._refused: set[str] = set()

    def finished(self, batch: Finished) -> None:
        """Take a batch from Spark's commit log. Never raises."""
        mark = batch.end.mark
        if mark is None:
            return
        query = self._query(mark.id)
        if query is None:
            return
        query.ended_ms = None
        if batch.has_records:
            _drop_former(query.waiting, mark.txid)
        query.waiting.append(batch)
        self._flush(mark.id, query)

    def flush(self) -> None:
        """Process waiting batches that the planning process has committed meanwhile."""
        for id_, query in self._queries.items():
            self._flush(id_, query)

    def partitions(self) -> dict[str, list[TopicPartition]]:
        """By id, the partitions whose committed offsets are shown."""
        known = list(self._queries.items())
        return {id_: query.partitions for id_, query in known if query.partitions}

    def began(self, id_: str) -> None:
        """A query of this id has started.

        What is shown stays, and its next batch opens the store anew: somebody may have
        put a copy back between two runs. Batches of the former run that still wait are
        left to the planner, which knows whether they are in the store.
        """
        self._ended_at(id_, None)
        query = self._queries.get(id_)
        if query is not None:
            query.is_former = True
            former = (replace(each, is_former=True) for each in query.waiting)
            query.waiting = deque(former, _WAITING)

    def has_positions(self, id_: str, partitions: Iterable[TopicPartition]) -> None:
        """The committed offsets of exactly these partitions of a query are shown."""
        query = self._query(id_)
        if query is not None:
            query.partitions = sorted(partitions)

    def ended(self, id_: str) -> None:
        """The last query of this id has ended without an error."""
        self._ended_at(id_, self._clock.monotonic_ms())

    def release_ended(self, release: Callable[[str], None]) -> None:
        """Drop ids that ended ``RELEASED_AFTER_MS`` ago; call ``release`` with each."""
        until_ms = self._clock.monotonic_ms() - RELEASED_AFTER_MS
        gone = [
            id_
            for id_, query in self._queries.items()
            if query.ended_ms is not None and query.ended_ms <= until_ms
        ]
        for id_ in gone:
            self.forget(id_)
            release(id_)

    def forget(self, id_: str) -> None:
        """Drop an id's open resources; its next batch opens them again."""
        query = self._queries.pop(id_, None)
        if query is not None:
            query.ledger.close()

    def close(self) -> None:
        """Release connections."""
        for id_ in list(self._queries):
            self.forget(id_)

    def _ended_at(self, id_: str, now_ms: int | None) -> None:
        query = self._queries.get(id_)
        if query is not None:
            query.ended_ms = now_ms

    def _query(self, id_: str) -> _Query | None:
        if id_ not in self._queries:
            try:
                ledger, mirror = self._open_parts(id_)
            except KafkaTxError as error:
                level = logging.DEBUG if id_ in self._refused else logging.WARNING
                self._refused.add(id_)  # every batch would fail
                logger.log(level, "cannot commit from here: %s", error, id=id_)
                return None
            self._refused.discard(id_)
            self._queries[id_] = _Query(ledger, mirror)
        return self._queries[id_]

    def _flush(self, id_: str, query: _Query) -> None:
        while query.waiting:
            batch = query.waiting[0]
            try:
                with about(id=id_):
                    if query.is_former:
                        self._open_anew(id_, query)
                    if not self._commit(query, batch):
                        return
            except BatchIdsAgainError as error:
                self._withheld(id_, error)
            except KafkaTxError as error:
                logger.warning("the commit is left to the planner: %s", error, id=id_)
                return
            query.waiting.popleft()

    def _open_anew(self, id_: str, query: _Query) -> None:
        former = query.ledger
        query.ledger, query.mirror = self._open_parts(id_)
        if query.ledger is not former:
            former.close()
        query.is_former, query.may_go_back = False, True

    def _commit(self, query: _Query, batch: Finished) -> bool:
        began_ms = self._clock.monotonic_ms()
        end = batch.end
        assert end.mark is not None
        state = query.ledger.load()
        txid, stored = _which(batch, end.mark, state)
        if not txid:
            return True  # no txid was requested, or the store is another one
        tables = self._tables(end.mark.id, end.mark.numbering, txid)
        from_tasks = _task_sums(batch, stored, tables)
        if not self._is_committed(query, batch, state.txid, txid, stored, from_tasks):
            return False
        if query.may_go_back:
            query.seen_txid = min(query.seen_txid, txid - 1)
            query.may_go_back = False
        if query.numbering != end.mark.numbering:
            query.numbering, query.seen_txid = end.mark.numbering, 0
        if txid > query.seen_txid:
            self._store_sums(query, end.mark.epoch, txid, from_tasks)
            stats = {each.txid: each for each in query.ledger.state.commit_stats}
            self._count_unreported(query, end.mark, txid, stats)
            query.seen_txid = txid
            self._forget_gone(end, query)
            commit_ms = self._clock.monotonic_ms() - began_ms
            ranges = stored.ranges if stored else batch.ranges
            starts = {each.topic_partition: each.start for each in ranges}
            self._record(
                query, batch, starts, from_tasks, stats.get(txid), commit_ms, txid
            )
        return True

    def _is_committed(
        self,
        query: _Query,
        batch: Finished,
        committed_txid: int,
        txid: int,
        stored: BatchMetadata | None,
        from_tasks: TaskSums,
    ) -> bool:
        """Commit a transaction if not committed yet; False: the planner must."""
        end = batch.end
        assert end.mark is not None
        done = committed_txid >= txid
        mine = done and query.doubtful_txid == txid == committed_txid
        if not done:
            ends = dict(end.positions)
            if batch.is_former or stored is None:
                return False
            if not stored.spark_batch and stored.logged_ends() != ends:
                return False
            query.doubtful_txid = txid
            now_ms = self._clock.now_ms()
            try:
                epoch = end.mark.epoch
                mine = query.ledger.commit(
                    *(epoch, txid, now_ms),
                    from_tasks=from_tasks,
                    logged=batch.entry,
                    is_bounded=batch.is_bounded,
                )
            except FencedError as error:
                query.doubtful_txid = 0
                logger.info("planned by an earlier owner: %s", error, txid=txid)
                return False
        query.doubtful_txid = 0
        if mine and query.mirror is not None:
            epoch = end.mark.epoch
            query.mirror(lambda: query.ledger.owned(epoch))
        return True

    def _store_sums(
        self, query: _Query, epoch: int, txid: int, from_tasks: TaskSums
    ) -> None:
        """Store task reports, also for batches that the planner committed.

        The planner's next commit writes its cached records, without these reports.
        """
        recent = {
            key: each
            for key, each in query.from_tasks.items()
            if key[1] > txid - LEAST_HISTORY
        }
        query.from_tasks = {**recent, (epoch, txid): from_tasks}
        with suppress(FencedError):  # the newer owner's run reports its own reads
            query.ledger.store_task_sums(epoch, query.from_tasks)

    def _count_unreported(
        self,
        query: _Query,
        mark: TransactionMark,
        before_txid: int,
        stats: Mapping[int, CommitStats],
    ) -> None:
        """Count batches that the planner committed and Spark did not report.

        This is mostly a batch that an earlier process finished and did not commit.
        Batches committed before this run were counted in earlier runs.
        """
        for txid, each in stats.items():
            is_own = query.seen_txid > 0 or each.epoch == mark.epoch
            if query.seen_txid < txid < before_txid and is_own:
                self._registry.record_commit(
                    BatchCommitted(
                        id=mark.id,
                        txid=txid,
                        starts={},
                        committed={},
                        committed_at_ms=each.committed_ms,
                        commit_ms=None,
                        duration_ms=None,
                        from_tasks=replace(each.from_tasks, phases_ms={}),
                        skipped=each.all_skipped(each.from_tasks),
                        replays=each.attempts - 1,
                    )
                )

    def _forget_gone(self, end: SourceOffset, query: _Query) -> None:
        gone = [p for p in query.partitions if p not in end.positions]
        query.partitions = sorted(end.positions)
        if gone and end.mark is not None:
            self._registry.forget(end.mark.id, gone)

    def _record(
        self,
        query: _Query,
        batch: Finished,
        starts: Mapping[TopicPartition, int],
        from_tasks: TaskSums,
        stats: CommitStats | None,
        commit_ms: int,
        txid: int,
    ) -> None:
        end = batch.end
        assert end.mark is not None
        phases_ms = {**batch.phases_ms, "waiting": 0, "committing": commit_ms}
        self._registry.record_commit(
            BatchCommitted(
                id=end.mark.id,
                txid=txid,
                starts=starts,
                committed=end.located(),
                committed_at_ms=stats.committed_ms if stats else self._clock.now_ms(),
                commit_ms=commit_ms,
                duration_ms=batch.duration_ms,
                from_tasks=replace(from_tasks, phases_ms=phases_ms),
                bounds=_bounds(batch.latest),
                skipped=stats.all_skipped(from_tasks) if stats else from_tasks.skipped,
                replays=stats.attempts - 1 if stats else 0,
            )
        )
        failures = _extra(batch.latest).get("mirrorFailures", 0)
        seen = query.mirror_failures.get(end.mark.epoch, 0)  # one count a planner
        if failures > seen:
            name = catalogue.MIRROR_FAILURES.name
            self._registry.add(name, failures - seen, id=end.mark.id)
        query.mirror_failures = {end.mark.epoch: failures}


def _drop_former(waiting: deque[Finished], txid: int) -> None:
    """Drop what a former run had at a txid that a later run has finished, or above.

    The store was put back between the two runs, or the batch was processed again.
    """
    for each in [*waiting]:
        mark = each.end.mark
        if each.is_former and mark is not None and mark.txid >= txid:
            waiting.remove(each)


def _which(
    batch: Finished, mark: TransactionMark, state: LedgerState
) -> tuple[int, BatchMetadata | None]:
    """The txid of a batch (0: none of this store), and its stored metadata."""
    numberings = {mark.numbering, state.numbering} - {""}
    if len(numberings) > 1:
        logger.info("is of the former numbering %s", mark.numbering, txid=mark.txid)
        return 0, None
    if batch.has_records:
        return mark.txid, state.planned.get(mark.txid)
    stored = state.batch_of(batch.spark_batch) if batch.spark_batch else None
    return (stored.txid, stored) if stored is not None else (0, None)


def _extra(latest: Mapping[str, Any] | None) -> Mapping[str, Any]:
    extra = (latest or {}).get(MARK, {})
    return extra if isinstance(extra, Mapping) else {}


def _bounds(latest: Mapping[str, Any] | None) -> dict[TopicPartition, LogBounds]:
    if latest is None:
        return {}
    starts = flat(_extra(latest).get("logStart", {}))
    ends = flat(only_offsets(latest))
    ids = _extra(latest).get("topicIds", {})
    return {
        p: LogBounds(starts[p], end, ids.get(p.topic))
        for p, end in ends.items()
        if p in starts
    }


def _task_sums(
    batch: Finished, stored: BatchMetadata | None, tables: tuple[TableWrite, ...]
) -> TaskSums:
    """The task reports of this batch; some may be of an earlier try."""
    ranges = batch.ranges if stored is None else stored.ranges
    from_tasks = (batch.read_reports or ReadReports()).sums_of(ranges)
    phases_ms = {name: round(each) for name, each in batch.phases_ms.items()}
    return replace(
        from_tasks, dead_letters=batch.dead_letters, tables=tables, phases_ms=phases_ms
    )
