"""What a checkpoint says of batches, those without new records among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from kafka_tx.config import FromCommitted, PerPartition, TransactionsConfig
from kafka_tx.errors import OffsetsError
from kafka_tx.model import (
    AtOffset,
    AtTime,
    BatchMetadata,
    Earliest,
    Latest,
    OffsetRange,
    Skip,
    Skipped,
    TopicPartition,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.loss import LossReason
from kafka_tx.planning.cluster_poller import ClusterState, LeaderEpochs, Positions
from kafka_tx.planning.losses import Losses
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.planning.offset_json import SourceOffset, nested
from kafka_tx.planning.standing import Finding
from kafka_tx.source import agreement
from kafka_tx.source.kept_batches import KeptBatches
from kafka_tx.source.questions import Question

Topics = Mapping[str, str]
"""Topic ids by name."""


def first_begins(
    rule: Earliest | Latest | AtTime | PerPartition | FromCommitted, ends: Positions
) -> dict[TopicPartition, int]:
    """Where a query's first batch began that was logged without saying so.

    Such a batch was planned by Spark's own source or an older version. Offsets that the
    rule names are what they were (and are left out), ``earliest`` was 0 as far as
    anybody can tell.

    Raises:
        OffsetsError: The rule means something else now than it did then.
    """
    if isinstance(rule, Earliest):
        return dict.fromkeys(ends, 0)
    rules = rule.positions.values() if isinstance(rule, PerPartition) else [rule]
    if all(isinstance(each, AtOffset | AtTime) for each in rules):
        return {}
    raise OffsetsError(
        "KAFKA_TX_START_NOT_KNOWN",
        "the first batch of this checkpoint was not finished, and the checkpoint does"
        " not say where it began; it ends at"
        f" {nested(ends)}. Set startingOffsets to the offsets where the query began,"
        " as JSON (Spark's own source keeps them in sources/0/0 of the checkpoint). If"
        " nobody knows them, start with a new checkpointLocation and"
        " startingOffsets=earliest: nothing of this one is finished, and with latest"
        f" the records that came since would be left out.{lost_with_checkpoint(None)}",
    )


def readable_ranges(
    begins: Mapping[TopicPartition, int],
    end: SourceOffset,
    look: ClusterState,
    losses: Losses,
) -> list[OffsetRange]:
    """What is left of a logged batch, every loss reported.

    Args:
        begins: Where it began; partitions that are not named were new in it.
        end: As logged. Of one with a mark, the store's batch says whether topics are
            others by now.
        look: Settled.
        losses: Told of what is gone.
    """
    losses.deleted(
        p
        for p, at in end.positions.items()
        if not look.found.exists(p) and begins.get(p) != at
    )
    return [
        _readable(
            begins.get(partition),
            OffsetRange(partition, 0, at, None, end.leader_epochs.get(partition)),
            look,
            end.noted_ids,
            losses,
        )
        for partition, at in sorted(end.positions.items())
        if look.found.exists(partition)
    ]


def _readable(
    begin: int | None,
    below: OffsetRange,
    look: ClusterState,
    ids: Topics,
    losses: Losses,
) -> OffsetRange:
    """What is left of one partition's part, which ends where ``below`` does."""
    partition, end = below.topic_partition, below.end
    bounds = look.bounds.get(partition)
    epoch = below.leader_epoch
    epochs = {} if epoch is None else {partition: epoch}
    standing = look.stand(partition, end, ids, epochs)
    if standing.finding is Finding.ANEW:
        losses.recreated(partition, end, bounds.end if bounds else 0)
        return below.between(end, end)
    if begin == end or (bounds is None and begin is not None):
        return below.between(min(begin, end), end)
    assert bounds is not None  # new in this batch: the caller made sure
    first = min(bounds.log_start, end)
    if begin is None and first > 0:
        losses.added_late(partition, first)
    elif begin is not None and begin > end:  # logged by an older version: made anew
        losses.recreated(partition, begin, bounds.end)
    elif begin is not None and first > begin:
        losses.trimmed(partition, begin, first)
    elif begin is not None:
        first = begin
    log_end = standing.end if standing.is_certain else bounds.end
    last = max(min(end, log_end), first)
    if log_end < end:
        losses.cut(partition, end, last)
    return below.between(first, last)


def begun(
    start: SourceOffset, end: SourceOffset
) -> tuple[Positions, Topics, LeaderEpochs]:
    """Where a logged batch began, of which topics, and which leaders held that.

    One that began elsewhere than the end before it says so itself, as the first of a
    checkpoint does: no log has its start.
    """
    said = {partition.topic for partition in (*_unseen_at(end), *end.begins)}
    former, ids = start.topic_ids, dict(end.topic_ids)
    gone = {t for t in said if is_another(former.get(t), ids.get(t))}
    before = {p: at for p, at in all_of(start).items() if p.topic not in gone}
    ids |= {t: known for t, known in former.items() if t not in gone}
    if start.mark is not None and start.mark.start:
        before = {p: at for p, at in before.items() if p in end.positions}
        ids = {**ids, **end.topic_ids}
    said_by_end = {**_unseen_at(end), **end.begins}
    epochs = {
        p: epoch
        for offset, positions in ((start, before), (end, said_by_end))
        for p, epoch in offset.leader_epochs.items()
        if p in positions and (offset is end or p not in said_by_end)
    }
    return {**before, **said_by_end}, ids, epochs


def all_of(offset: SourceOffset) -> dict[TopicPartition, int]:
    """Its positions, also of what was out of sight."""
    return {**_unseen_at(offset), **offset.positions}


def _unseen_at(offset: SourceOffset) -> Positions:
    return offset.mark.unseen if offset.mark else {}


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


_INSTEAD = "instead"
"""Name of a plan without records for a txid that was planned with records before."""


def stored_empty(kept: KeptBatches, question: Question) -> BatchMetadata | None:
    """The transaction of the batch, where an earlier try has stored it."""
    if agreement.numbering_of(question.end) not in ("", kept.numbering):
        return None  # equal names of another numbering
    names = {question.spark_batch, question.query_batch}
    known = (b for b in kept.planned.values() if b.spark_batch in names)
    held = kept.planned.get(kept.held)
    stored = next(known, held)
    if stored is not None and stored is held:  # it comes again: this run has it now
        if stored.spark_batch not in names:
            stored = replace(held, spark_batch=question.spark_batch)
            kept.note(stored)
        kept.held = 0
    return stored


def new_empty(
    transactions: TransactionsConfig, kept: KeptBatches, question: Question
) -> BatchMetadata:
    """The same, stored now, once checkpoint and store are settled.

    Raises:
        CheckpointDisagreesError: Transactional, and its txid has records already.
    """
    before = kept.committed
    assert before is not None
    unread = kept.next()
    if unread is not None and unread.mode == "transactional":
        raise kept.contradiction(question.end)
    epochs = before.leader_epochs
    ranges = tuple(
        OffsetRange(p, o, o, None, epochs.get(p))
        for p, o in sorted(before.offsets.items())
    )
    batch = BatchMetadata(
        before.txid + 1,
        ranges,
        before.topic_ids,
        question.spark_batch,
        logged_as=_INSTEAD if unread is not None else "",
        mode=transactions.mode,
    )
    kept.store(batch)
    return batch


def is_spent(kept: KeptBatches, batch: BatchMetadata, start: SourceOffset) -> bool:
    """Whether the next batch is one without records that Spark is done with.

    Its checkpoint tells no end of it. Being asked for what follows means that it is
    finished; or its checkpoint is gone with all of its state, and what the batch
    brought is written or lost: its txid is spent either way. Not so where sinks may
    have its txid with records that were planned before: each checkpoint but its own
    plans it anew, so that they take them back. Nor where other sources of the query
    have records of it: they may come again.
    """
    if not batch.spark_batch or batch.txid == kept.held:
        return False
    where = batch.spark_batch.rpartition("/")[0]
    is_its = where == agreement.logged_as(start) and kept.agrees(start)
    if batch.joint is not None and batch.joint.without_id:
        return is_its
    return batch.logged_as != _INSTEAD or batch.txid in kept.own or is_its
