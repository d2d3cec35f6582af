"""Batches that Spark's log has and the store does not know like this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_tx.config import TransactionsConfig
from kafka_tx.model import BatchMetadata, OffsetRange, Skip, Skipped, TopicPartition
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.loss import LossReason
from kafka_tx.planning.cluster_poller import Positions
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source import agreement
from kafka_tx.source.kept_batches import KeptBatches
from kafka_tx.source.logged_batches import begun


class RangesFromLog(Protocol):
    """What is left between a position and an end that Spark logged."""

    def __call__(self, start: Positions, end: SourceOffset) -> list[OffsetRange]:
        """Ask the brokers."""


class Disagreements:
    """Decides what such a batch holds: as logged, as stored, or nobody can tell.

    Args:
        begin: Asks where a query without transactions would begin.
        ranges_from_log: Of the planner.
    """

    def __init__(
        self,
        transactions: TransactionsConfig,
        kept: KeptBatches,
        begin: Callable[[], Positions],
        ranges_from_log: RangesFromLog,
    ) -> None:
        self._tx = transactions
        self._kept = kept
        self._begin = begin
        self._ranges_from_log = ranges_from_log

    def batch(self, start: SourceOffset, end: SourceOffset) -> BatchMetadata | None:
        """Its transaction, stored now; None: the store decides otherwise.

        Raises:
            CheckpointDisagreesError: And nothing says who decides.
        """
        kept = self._kept
        if end.mark is None and not kept.txid and not kept.planned:
            return self._first_of_checkpoint(start, end)
        if self._is_next(start, end):
            assert kept.committed is not None
            known = {**kept.committed.offsets, **kept.settled(start)}
            return self._take(kept.txid + 1, known, end)
        case = kept.case_of(end, is_finished=False)
        decides = agreement.who_decides(self._tx, case, kept.query)
        if decides == "store" and kept.committed is not None:
            unread = kept.next()
            return unread if unread and not unread.spark_batch else None
        if decides == "checkpoint":
            logged = end.mark.txid if end.mark else 0
            numbering = agreement.numbering_of(end)
            txid = max(logged, kept.newest(numbering) + 1)
            begins, ids, epochs = begun(start, end)
            log = ids, numbering, epochs
            kept.adopt(txid - 1, begins, *log, by_checkpoint=True)
            return self._take(txid, begins, end)
        raise kept.contradiction(end, is_finished=False)

    def _is_next(self, start: SourceOffset, end: SourceOffset) -> bool:
        """Whether it begins where the store is, and only its ranges are not there.

        They were planned after the copy was made that the store was put back from; or,
        opaque, another checkpoint planned the txid anew. Not where that one was handed
        out with other sources' records: sinks may have it.
        """
        mark, kept = end.mark, self._kept
        expected = (kept.numbering, kept.txid + 1)
        if mark is not None and (
            (mark.numbering, mark.txid) != expected
            or agreement.follows_another(mark, kept.last())
        ):
            return False
        unread = kept.next()
        is_free = unread is None or (unread.mode == "opaque" and not unread.joint)
        return is_free and kept.agrees(start)

    def _first_of_checkpoint(
        self, start: SourceOffset, end: SourceOffset
    ) -> BatchMetadata:
        """A batch that was logged before ``tx.id`` was set becomes transaction 1."""
        positions = dict(start.positions)
        if start.mark is not None:  # the checkpoint's first: Spark asked where it began
            positions = dict(self._begin())
        ranges = self._ranges_from_log(positions, end)
        begins = {r.topic_partition: r.start for r in ranges}
        ids = {**start.topic_ids, **end.topic_ids}
        self._kept.adopt(
            0, {**positions, **begins}, ids, leader_epochs=start.leader_epochs
        )
        return self._stored(1, ranges, end, {})

    def _take(
        self, txid: int, positions: Positions, end: SourceOffset
    ) -> BatchMetadata:
        """Plan a transaction as Spark's log has it.

        It began where the log says, else at the start of topics that are others since.
        What is out of sight keeps its range: that is not read, not lost.
        """
        former, ids = self._kept.ids(), end.topic_ids
        begins: dict[TopicPartition, int] = {}
        skipped: dict[Skip, int] = {}
        for partition, position in positions.items():
            topic = partition.topic
            is_anew = is_another(former.get(topic), ids.get(topic))
            ended = end.positions.get(partition, position)
            began = end.begins.get(partition, 0 if is_anew else position)
            begins[partition] = began = min(began, ended)
            if began != position and not is_anew:
                reason = LossReason.TRIMMED if began > position else LossReason.CUT
                skipped[partition, reason] = abs(began - position)
        begins = {**end.begins, **begins}  # new ones, whose topic may be out of sight
        ranges = self._ranges_from_log(begins, end)
        found = {r.topic_partition for r in ranges}
        ranges += [
            OffsetRange(p, begins[p], at, None, end.leader_epochs.get(p))
            for p, at in sorted(end.positions.items())
            if p in begins and p not in found
        ]
        return self._stored(txid, ranges, end, skipped)

    def _stored(
        self,
        txid: int,
        ranges: list[OffsetRange],
        end: SourceOffset,
        skipped: Skipped,
    ) -> BatchMetadata:
        ends = {r.topic_partition: r.end for r in ranges}
        logged = {p: at for p, at in end.positions.items() if ends.get(p) != at}
        name = agreement.logged_as(end)
        former = self._kept.planned.get(txid)
        joint = former.joint if former else None
        batch = BatchMetadata(
            *(txid, tuple(ranges), end.topic_ids, "", logged, name, joint),
            mode=self._tx.mode,
            skipped=skipped,
            attempts=former.attempts if former else 1,
        )
        self._kept.store(batch)
        self._kept.own.discard(txid)  # whether it can be read is still to be seen
        return self._kept.planned[txid]
