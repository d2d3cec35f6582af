"""From Spark's progress reports to commits and metrics, in the user's process."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_tx.errors import FencedError, KafkaTxError
from kafka_tx.metrics import catalogue
from kafka_tx.metrics.events import BatchCommitted
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import BatchMetadata, LogBounds, TopicPartition
from kafka_tx.planning.offset_json import MARK, SourceOffset, flat, only_offsets
from kafka_tx.protocols import Clock
from kafka_tx.source.questions import moves
from kafka_tx.source.receipts import Receipts
from kafka_tx.transactions.ledger import Ledger

logger = logging.getLogger(__name__)

Mirror = Callable[[Mapping[TopicPartition, int]], None]

_WAITING = 100
"""Batches that wait for the planning process; beyond that the oldest are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One source's part of one batch that Spark's commit log holds.

    Attributes:
        start: Spark's start offset; None for the first batch of a query.
        end: Its end offset, with the transaction mark.
        latest: What ``reportLatestOffset`` said, with the log starts; from Spark 4.0
            and 4.1, which do not ask for that, the end once more.
        records: Records read.
        duration_ms: How long the trigger took.
        receipts: What the tasks reported; None where they could not.
        spark_batch: Spark's name of the batch, by which one without new records is
            known; empty where that is not to be had.
    """

    start: Mapping[str, Any] | None
    end: Mapping[str, Any]
    latest: Mapping[str, Any] | None
    records: int
    duration_ms: float
    receipts: Receipts | None = None
    spark_batch: str = ""

    @property
    def has_records(self) -> bool:
        """Whether the source moved: the transaction is the one that its end carries."""
        start = SourceOffset.from_json(self.start) if self.start is not None else None
        return moves(start, SourceOffset.from_json(self.end))


@dataclass(slots=True)
class _Query:
    ledger: Ledger
    mirror: Mirror | None
    waiting: deque[Finished] = field(default_factory=lambda: deque(maxlen=_WAITING))
    doubtful_txid: int = 0  # whether its commit landed is unknown
    seen_txid: int = 0
    partitions: list[TopicPartition] = field(default_factory=list)
    skipped: dict[tuple[TopicPartition, str], int] = field(default_factory=dict)
    mirror_failures: int = 0


class CommitFeed:
    """Commits each finished transaction once and tells the metrics after that.

    The planning process commits too, at the next trigger; whoever comes first does it,
    and the other finds it done. A batch whose commit this process may not make (it was
    planned under an older epoch and replayed) waits until the planning process made it.
    """

    def __init__(
        self,
        open_parts: Callable[[str], tuple[Ledger, Mirror | None]],
        registry: MetricsRegistry,
        clock: Clock,
    ) -> None:
        self._open_parts = open_parts
        self._registry = registry
        self._clock = clock
        self._queries: dict[str, _Query] = {}

    def finished(self, batch: Finished) -> None:
        """Take a batch from Spark's commit log. Never raises."""
        mark = batch.end.get(MARK)
        if mark is None:
            return
        query = self._query(mark["id"])
        if query is None:
            return
        query.waiting.append(batch)
        self._flush(mark["id"], query)

    def flush(self) -> None:
        """Look again for batches that the planning process committed meanwhile."""
        for id_, query in self._queries.items():
            self._flush(id_, query)

    def partitions(self) -> dict[str, list[TopicPartition]]:
        """The partitions of every id that committed something here."""
        return {id_: q.partitions for id_, q in self._queries.items() if q.partitions}

    def forget(self, id_: str) -> None:
        """Open the parts of an id anew with its next batch."""
        query = self._queries.pop(id_, None)
        if query is not None:
            query.ledger.close()

    def close(self) -> None:
        """Release connections."""
        for query in self._queries.values():
            query.ledger.close()
        self._queries.clear()

    def _query(self, id_: str) -> _Query | None:
        if id_ not in self._queries:
            try:
                ledger, mirror = self._open_parts(id_)
            except KafkaTxError as error:
                logger.warning("cannot commit for '%s' from here: %s", id_, error)
                return None
            self._queries[id_] = _Query(ledger, mirror)
        return self._queries[id_]

    def _flush(self, id_: str, query: _Query) -> None:
        while query.waiting:
            batch = query.waiting[0]
            try:
                if not self._commit(query, batch):
                    return
            except KafkaTxError as error:
                logger.warning("commit of '%s' is left to the planner: %s", id_, error)
                return
            query.waiting.popleft()

    def _commit(self, query: _Query, batch: Finished) -> bool:
        began_ms = self._clock.monotonic_ms()
        end = SourceOffset.from_json(batch.end)
        assert end.mark is not None
        state = query.ledger.load()
        if batch.has_records:
            txid, stored = end.mark.txid, state.planned.get(end.mark.txid)
        else:
            stored = state.batch_of(batch.spark_batch) if batch.spark_batch else None
            if stored is None:
                return True  # nobody asked for a txid
            txid = stored.txid
        done = state.txid >= txid
        mine = done and query.doubtful_txid == txid == state.txid
        if not done:
            if stored is None or not (stored.spark_batch or _ends_at(stored, end)):
                return False
            query.doubtful_txid = txid
            try:
                mine = query.ledger.commit(
                    end.mark.epoch, txid, completed_ms=self._clock.now_ms()
                )
            except FencedError as error:
                logger.info("txid %d was planned by an earlier owner: %s", txid, error)
                return False
        query.doubtful_txid = 0
        if mine and query.mirror is not None:
            query.mirror(end.positions)
        if txid > query.seen_txid:
            query.seen_txid = txid
            self._forget_gone(end, query)
            commit_ms = self._clock.monotonic_ms() - began_ms
            self._record(query, batch, txid, stored, commit_ms)
        return True

    def _forget_gone(self, end: SourceOffset, query: _Query) -> None:
        gone = [p for p in query.partitions if p not in end.positions]
        query.partitions = sorted(end.positions)
        if gone and end.mark is not None:
            self._registry.forget(end.mark.id, gone)

    def _record(
        self,
        query: _Query,
        batch: Finished,
        txid: int,
        stored: BatchMetadata | None,
        commit_ms: int,
    ) -> None:
        end = SourceOffset.from_json(batch.end)
        assert end.mark is not None
        measured = _measured(batch, stored)
        if measured is None:
            self._registry.add(catalogue.UNMEASURED.name, id=end.mark.id)
        self._registry.record_commit(
            BatchCommitted(
                id=end.mark.id,
                txid=txid,
                starts=stored.starts() if stored else {},
                committed=dict(end.positions),
                topic_ids=end.mark.topic_ids,
                committed_at_ms=self._clock.now_ms(),
                commit_ms=commit_ms,
                records=batch.records,
                bytes=None if measured is None else measured.total_bytes(),
                newest_timestamp_ms=None if measured is None else measured.newest_ms(),
                duration_ms=batch.duration_ms,
                bounds=_bounds(batch.latest),
                skipped=_newly_skipped(query, batch),
            )
        )
        failures = _extra(batch.latest).get("mirrorFailures", 0)
        if failures > query.mirror_failures:
            self._registry.add(
                "kafka_tx_mirror_failures_total",
                failures - query.mirror_failures,
                id=end.mark.id,
            )
        query.mirror_failures = failures


def _ends_at(stored: BatchMetadata, end: SourceOffset) -> bool:
    return stored.logged_ends() == dict(end.positions)


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


def _measured(batch: Finished, stored: BatchMetadata | None) -> Receipts | None:
    """The reports of its tasks; None where some are missing: half a sum is no sum."""
    receipts = batch.receipts or Receipts()
    if stored is not None:
        return receipts if receipts.cover(stored.ranges) else None
    return batch.receipts


def _newly_skipped(
    query: _Query, batch: Finished
) -> dict[tuple[TopicPartition, str], int]:
    """What this batch had to leave out, in planning and in its tasks.

    The planner counts since it started; only what came on top is new.
    """
    totals = {
        (partition, reason): count
        for reason, values in _extra(batch.latest).get("skipped", {}).items()
        for partition, count in flat(values).items()
    }
    news = {key: n - query.skipped.get(key, 0) for key, n in totals.items()}
    query.skipped = totals
    found = {key: n for key, n in news.items() if n > 0}
    for key, n in (batch.receipts.skipped_offsets() if batch.receipts else {}).items():
        found[key] = found.get(key, 0) + n
    return found
