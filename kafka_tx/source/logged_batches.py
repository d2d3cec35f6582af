"""Batches as a checkpoint has logged them, also those without new records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kafka_tx.config import PerPartition, SourceConfig, StartRule
from kafka_tx.errors import OffsetsError
from kafka_tx.model import (
    AtOffset,
    AtTime,
    BatchMetadata,
    Earliest,
    LogBounds,
    LogPosition,
    OffsetRange,
    Position,
    Skip,
    Skipped,
    TopicPartition,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.loss import Losses, LossReason
from kafka_tx.offsets.position_checks import Finding, PositionCheck
from kafka_tx.planning.cluster_poller import ClusterState, LeaderEpochs, Positions
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.planning.offset_json import SourceOffset, nested
from kafka_tx.source import agreement
from kafka_tx.source.questions import Question
from kafka_tx.source.stored_batches import StoredBatches, entry_of

Topics = Mapping[str, str]
"""Topic ids by name."""


def first_begins(
    config: SourceConfig,
    now: Positions,
    ends: Positions,
    bounds: Mapping[TopicPartition, LogBounds],
) -> dict[TopicPartition, int]:
    """The start of a query's first batch that was logged without its start.

    Spark's own source or an older version planned such a batch. Its start is what the
    rule resolves to ``now``, if it has not changed since. Partitions that do not answer
    are left out, unless the rule names their offset.

    Raises:
        OffsetsError: The rule may have resolved to other offsets at that time.
    """
    begins = {**dict.fromkeys(ends, 0), **now}
    for partition in now.keys() & ends.keys():
        rule: StartRule | Position = config.start
        if isinstance(rule, PerPartition):
            rule = rule.positions.get(partition, rule)
        begin: int | None = now[partition]
        if not isinstance(rule, AtOffset):
            if (log := bounds.get(partition)) is None:
                del begins[partition]
                continue
            begin = _first_begin(config, rule, now[partition], log.log_start)
        if begin is None or begin > ends[partition]:
            raise _start_not_known(ends)
        begins[partition] = begin
    return begins


def _first_begin(
    config: SourceConfig, rule: StartRule | Position, now: int, log_start: int
) -> int | None:
    """What the rule resolved to when the batch was logged; None: unknown.

    The log start, also as the answer to a time, was 0: the records between were removed
    before the batch or after it. If losses are allowed, they count as lost.
    """
    if isinstance(rule, AtTime) and rule.timestamp_ms >= 0:
        if config.start_without_match != "error":
            return None
        if now > log_start:
            return now
    elif rule not in (Earliest(), AtTime(-2)):
        return None
    return None if log_start and config.fails_on_data_loss else 0


def _start_not_known(ends: Positions) -> OffsetsError:
    return OffsetsError(
        "KAFKA_TX_START_NOT_KNOWN",
        "the first batch of this checkpoint was not finished, and the checkpoint does"
        " not say where it began; it ends at"
        f" {nested(ends)}. Set startingOffsets to the offsets where the query began,"
        " as JSON (Spark's own source keeps them in sources/0/0 of the checkpoint,"
        " after v1), and leave out start times. If nobody knows the offsets, start with"
        " a new checkpointLocation and startingOffsets=earliest: nothing of this one is"
        " finished, and with latest the records that came since would be left out."
        f"{lost_with_checkpoint(None)}",
    )


def readable_ranges(
    begins: Mapping[TopicPartition, int],
    end: SourceOffset,
    cluster: ClusterState,
    losses: Losses,
) -> list[OffsetRange]:
    """The readable rest of a logged batch; every loss goes to ``losses``.

    Partitions without a start in ``begins`` were new in the batch. If the end has a
    mark, the store's batch tells whether topics were created anew.
    """
    losses.deleted(
        p
        for p, at in end.positions.items()
        if not cluster.found.exists(p) and begins.get(p) != at
    )
    return [
        _readable(
            begins.get(partition),
            OffsetRange(partition, 0, at, None, end.leader_epochs.get(partition)),
            cluster,
            end.noted_ids,
            losses,
        )
        for partition, at in sorted(end.positions.items())
        if cluster.found.exists(partition)
    ]


def _readable(
    begin: int | None,
    below: OffsetRange,
    cluster: ClusterState,
    ids: Topics,
    losses: Losses,
) -> OffsetRange:
    """The readable rest of one partition's part, which ends at the end of ``below``."""
    partition, end = below.topic_partition, below.end
    bounds = cluster.bounds.get(partition)
    at = LogPosition(end, ids.get(partition.topic), below.leader_epoch)
    check = cluster.check_position(partition, at)
    if check.finding is Finding.ANEW:
        losses.judge(partition, check)
        return below.between(end, end)
    if begin == end or (bounds is None and begin is not None):
        return below.between(min(begin, end), end)
    assert bounds is not None  # new in this batch: the caller has checked
    first = min(bounds.log_start, end)
    if begin is None and first > 0:
        losses.added_late(partition, first)
    elif begin is not None and begin > end:  # logged by an older version: created anew
        losses.judge(partition, PositionCheck(Finding.ANEW, begin, bounds))
    elif begin is not None and first > begin:
        log = replace(bounds, log_start=first)
        losses.judge(partition, PositionCheck(Finding.TRIMMED, begin, log))
    elif begin is not None:
        first = begin
    log_end = check.end if check.is_certain else bounds.end
    last = max(min(end, log_end), first)
    if log_end < end:
        log = replace(bounds, log_start=first, end=last)
        losses.judge(partition, PositionCheck(Finding.CUT, end, log))
    return below.between(first, last)


def begun(
    start: SourceOffset, end: SourceOffset
) -> tuple[Positions, Topics, LeaderEpochs]:
    """The start of a logged batch, with its topic ids and leader epochs.

    If a batch did not begin at the end before it, its own offset has the start. So does
    the first batch of a checkpoint, whose start is in no log.
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
    """All positions of an offset, also of hidden topics."""
    return {**_unseen_at(offset), **offset.positions}


def _unseen_at(offset: SourceOffset) -> Positions:
    return offset.mark.unseen if offset.mark else {}


class Disagreements:
    """Decides the ranges of a logged batch: as logged, as stored, or an error.

    ``begin`` returns the start of a query without transactions.
    """

    def __init__(
        self,
        batches: StoredBatches,
        begin: Callable[[], Positions],
        ranges_from_log: Callable[[Positions, SourceOffset], list[OffsetRange]],
    ) -> None:
        self._batches = batches
        self._begin = begin
        self._ranges_from_log = ranges_from_log

    def batch(self, start: SourceOffset, end: SourceOffset) -> BatchMetadata | None:
        """The transaction of a logged batch, stored now; None: the store decides.

        Raises:
            CheckpointDisagreesError: They disagree, and no option decides.
        """
        batches = self._batches
        if end.mark is None and not batches.state.txid and not batches.state.planned:
            return self._first_of_checkpoint(start, end)
        if self._is_next(start, end):
            known = {**batches.state.position.offsets, **batches.settled(start)}
            return self._take(batches.state.txid + 1, known, end)
        decides = batches.decides(end, is_finished=False)
        if decides != "error":
            batches.ids_start_again()
        if decides == "store" and batches.state.committed is not None:
            unread = batches.state.next
            is_replay = unread is not None and not unread.spark_batch
            return batches.guarded(unread) if unread and is_replay else None
        if decides == "checkpoint":
            logged = end.mark.txid if end.mark else 0
            numbering = agreement.numbering_of(end)
            txid = max(logged, batches.newest(numbering) + 1)
            begins, ids, epochs = begun(start, end)
            log = ids, numbering, epochs
            batches.adopt(txid - 1, begins, *log, by_checkpoint=True)
            return self._take(txid, begins, end)
        raise batches.contradiction(end, is_finished=False)

    def _is_next(self, start: SourceOffset, end: SourceOffset) -> bool:
        """Whether it begins at the store's position, and only its ranges are missing.

        The store was restored from a copy older than the ranges; or (opaque) another
        checkpoint has planned the txid anew. False if that plan was handed out with
        other sources' records: sinks may have it.
        """
        mark, batches = end.mark, self._batches
        expected = (batches.state.numbering, batches.state.txid + 1)
        if mark is not None and (
            (mark.numbering, mark.txid) != expected
            or agreement.follows_another(mark, batches.state.last)
        ):
            return False
        unread = batches.state.next
        is_free = unread is None or (unread.mode == "opaque" and not unread.joint)
        return is_free and batches.agrees(start)

    def _first_of_checkpoint(
        self, start: SourceOffset, end: SourceOffset
    ) -> BatchMetadata:
        """A batch that was logged before ``tx.id`` was set becomes transaction 1."""
        positions = dict(start.positions)
        if start.mark is not None:  # the checkpoint's first: Spark asked for its start
            positions = dict(self._begin())
        ranges = self._ranges_from_log(positions, end)
        begins = {r.topic_partition: r.start for r in ranges}
        ids = {**start.topic_ids, **end.topic_ids}
        self._batches.adopt(
            0, {**positions, **begins}, ids, leader_epochs=start.leader_epochs
        )
        return self._stored(1, ranges, end, {})

    def _take(
        self, txid: int, positions: Positions, end: SourceOffset
    ) -> BatchMetadata:
        """Plan a transaction as Spark's log has it.

        The batch begins at its logged start, or at the start of topics created anew.
        Hidden topics keep their ranges: these are neither read nor lost.
        """
        former, ids = self._batches.state.position.topic_ids, end.topic_ids
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
        begins = {**end.begins, **begins}  # new partitions, whose topic may be hidden
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
        former = self._batches.state.planned.get(txid)
        joint = former.joint if former else None
        batch = BatchMetadata(
            *(txid, tuple(ranges), end.topic_ids, "", logged, name, joint),
            mode=self._batches.tx.mode,
            skipped=skipped,
            attempts=former.attempts if former else 1,
            unproven=former.unproven if former else (),
            schemas=end.mark.schemas if end.mark else {},
        )
        stored = self._batches.store(self._batches.guarded(batch, entry_of(end)))
        self._batches.own.discard(txid)  # not yet checked to be readable
        return stored


_INSTEAD = "instead"
"""Name of an empty plan for a txid that was planned with records before."""


def stored_empty(batches: StoredBatches, question: Question) -> BatchMetadata | None:
    """The transaction of the batch, if an earlier try has stored it."""
    if agreement.numbering_of(question.end) not in ("", batches.state.numbering):
        return None  # equal names of another numbering
    names = {question.spark_batch, question.query_batch}
    known = (b for b in batches.state.planned.values() if b.spark_batch in names)
    waiting = batches.state.planned.get(batches.waiting_txid)
    stored = next(known, waiting)
    if stored is not None and stored is waiting:  # a replay: this run has the batch now
        if stored.spark_batch not in names:
            stored = batches.store_unread(
                replace(waiting, spark_batch=question.spark_batch)
            )
        batches.waiting_txid = 0
    return stored


def new_empty(batches: StoredBatches, question: Question) -> BatchMetadata:
    """The transaction of the batch, stored now, once checkpoint and store agree.

    Raises:
        CheckpointDisagreesError: Transactional, and the txid has records already.
    """
    before = batches.state.position
    unread = batches.state.next
    if unread is not None and unread.mode == "transactional":
        raise batches.contradiction(question.end)
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
        mode=batches.tx.mode,
    )
    return batches.store(batch)


def is_spent(batches: StoredBatches, batch: BatchMetadata, start: SourceOffset) -> bool:
    """Whether the txid of the next batch, a batch without records, is used up.

    No checkpoint logs the end of such a batch. If Spark asks for the batch after it,
    Spark has finished it, or its checkpoint is lost, and nothing replays it. Both use
    up the txid, with two exceptions. They hold unless ``start`` is an offset of the
    batch's own checkpoint:

    * The txid was planned with records before, and another run gave it to this batch.
      Sinks may hold these records: the txid is planned anew, so that sinks undo them.
    * The query has a source without ``tx.id``, which may replay records of the batch.
    """
    if not batch.spark_batch or batch.txid == batches.waiting_txid:
        return False
    where = batch.spark_batch.rpartition("/")[0]
    is_its = where == agreement.logged_as(start) and batches.agrees(start)
    if batch.joint is not None and batch.joint.without_id:
        return is_its
    return batch.logged_as != _INSTEAD or batch.txid in batches.own or is_its
