"""Micro-batches as durable transactions: what ``tx.id`` adds to the source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from kafka_tx.config import SourceConfig, TransactionsConfig
from kafka_tx.kafka.topics import is_subscribed
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.offsets.discovery import is_another
from kafka_tx.protocols import Clock, ClusterView
from kafka_tx.spark.source import agreement
from kafka_tx.spark.source.agreement import Case
from kafka_tx.spark.source.asking import Answer, Question, moves
from kafka_tx.spark.source.looks import Positions
from kafka_tx.spark.source.microbatches import GroupOffsets, MicroBatches
from kafka_tx.spark.source.offset_json import SourceOffset, TransactionMark, nested
from kafka_tx.spark.source.replays import readable_batch
from kafka_tx.transactions.ledger import Committed, Ledger

logger = logging.getLogger(__name__)

Mirror = Callable[[Mapping[TopicPartition, int]], None]

_RENEW_MS = 3_600_000
"""How often offsets are written to a group again that did not change."""

_INSTEAD = "instead"
"""Name of a plan without records for a txid that was planned with records before."""


class TransactionalMicroBatches(MicroBatches):
    """Plans micro-batches whose txid, ranges and outcome are kept in a store.

    Life of transaction n, all in Spark's planning process unless said otherwise:

    1. ``latest`` is asked for the batch after n-1. That question tells that n-1 is in
       Spark's commit log, so n-1 is committed here if the listener (user's process) has
       not done it already.
    2. If n is stored, an earlier run planned it. Transactional: its ranges are n's
       ranges for ever. Opaque: they are planned anew from the committed offsets.
    3. Otherwise n is planned, and stored before Spark hears of it.
    4. ``ranges`` gives the stored ranges; tasks read exactly these.
    5. The batch is in Spark's commit log: the listener, or step 1 of n+1, commits n:
       one atomic write, then the group mirror.

    A checkpoint may be one step ahead of the store (crash before 5) or exactly with it;
    anything else contradicts and ``tx.onDisagreement`` decides. A txid that Spark
    logged is then left behind where a sink may have seen it with other records: the
    batch gets one above all that either side knows, which ``number`` tells.
    """

    def __init__(
        self,
        config: SourceConfig,
        transactions: TransactionsConfig,
        view: ClusterView,
        clock: Clock,
        ledger: Ledger,
        *,
        mirror: Mirror | None = None,
        committed: GroupOffsets | None = None,
    ) -> None:
        super().__init__(config, view, clock, committed)
        self._tx = transactions
        self._ledger = ledger
        self._mirror = mirror
        self._epoch = 0
        self._mirrored_ms = 0
        self._committed_state: Committed | None = None
        self._batches: dict[int, BatchMetadata] = {}
        self._own: set[int] = set()

    # --- what Spark asks ---

    def initial(self) -> SourceOffset:
        """Where the store says, else where ``startingOffsets`` says (transaction 0)."""
        self._open()
        if self._committed_state is None:
            self._adopt(0, self.start_positions(), self._topic_ids)
        state = self._committed_state
        assert state is not None
        positions = self._subscribed(state.offsets)
        mark = self._mark(state.carried, positions, state.topic_ids, start=True)
        return SourceOffset(positions, mark)

    def latest(self, start: SourceOffset, *, everything: bool) -> SourceOffset:
        """The end of the next transaction; ``start`` when there is nothing to do.

        Raises:
            FencedError: Another query has taken over this ``tx.id``.
            CheckpointDisagreesError: See the class.
        """
        self._open()
        positions = self._settle(start)
        txid = self._txid + 1
        stored = self._batches.get(txid)
        if stored is not None and (
            self._tx.mode == "transactional" or txid in self._own
        ):
            return self._offset(self._named(stored), start)
        plan = self.plan(positions, everything=everything)
        if plan is None or not (plan.moves(positions) or not self._agrees(start)):
            self._renew_in_group()
            return start
        batch = BatchMetadata(txid, plan.ranges, plan.topic_ids)
        return self._offset(self._named(batch), start)

    def ranges(self, start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
        """The stored ranges of the transaction that ends at ``end``.

        Raises:
            ReplayImpossibleError: Transactional, and records of it are gone.
            CheckpointDisagreesError: The store does not know this transaction.
        """
        if not moves(start, end):
            return []
        batch = self._batch_between(start, end)
        return [r for r in batch.ranges if len(r)] if batch else []

    def number(self, question: Question) -> Answer:
        """The txid of a batch that the user's process is about to handle.

        One that holds no new records gets a txid of its own, with empty ranges, kept
        under Spark's name for the batch; a replay finds it again.

        Raises:
            FencedError: Another query has taken over this ``tx.id``.
            CheckpointDisagreesError: See the class.
        """
        self._open()
        self._ledger.check_owner(self._epoch)
        if question.has_records:
            batch = self._batch_between(question.start or self.initial(), question.end)
            if batch is not None:
                return self._answer(batch)
        return self._answer(self._empty_batch(question))

    def _answer(self, batch: BatchMetadata) -> Answer:
        is_fixed = self._tx.mode == "transactional"
        return Answer(batch.txid, self._epoch, batch.fingerprint() if is_fixed else "")

    def finished(self, end: SourceOffset) -> None:
        """Spark's log has the batch that ends here: commit its transaction."""
        self._open()
        self._commit_if_next(end)

    def close(self) -> None:
        """Release connections."""
        super().close()
        self._ledger.close()

    # --- the store ---

    @property
    def _txid(self) -> int:
        return self._committed_state.txid if self._committed_state else 0

    def _open(self) -> None:
        """Take over the id, once: from here on an older owner is fenced."""
        if self._epoch:
            return
        epoch = self._ledger.acquire()
        state = self._ledger.load()
        self._committed_state = state.committed
        self._batches = dict(state.planned)
        self._epoch = epoch
        if state.committed is not None:
            self._send_to_group(state.committed.offsets)
        logger.info(
            "%s opened with epoch %d, committed txid %d, unfinished %s",
            self._tx.id,
            epoch,
            self._txid,
            sorted(txid for txid in self._batches if txid > self._txid),
        )

    def _named(self, batch: BatchMetadata) -> BatchMetadata:
        """The batch as Spark's log is about to name it, stored under that name.

        A transactional one may go by any of its names.
        """
        name = f"{batch.txid}@{self._epoch}"
        is_named = batch.logged_as and self._tx.mode == "transactional"
        if not is_named and batch.logged_as != name:
            batch = replace(batch, logged_as=name)
            self._store(batch)
        return batch

    def _store(self, batch: BatchMetadata) -> None:
        """Store what a txid holds, instead of what it held before."""
        is_known = batch.txid in self._batches
        self._ledger.plan(self._epoch, batch, replace=is_known)
        self._batches[batch.txid] = batch
        self._own.add(batch.txid)

    def _commit(self, txid: int) -> None:
        now_ms = self._clock.now_ms()
        is_first = self._ledger.commit(self._epoch, txid, completed_ms=now_ms)
        self._committed_state = self._ledger.last_committed()
        self._batches = {n: b for n, b in self._batches.items() if n >= txid}
        self._own = {n for n in self._own if n >= txid}
        if is_first and self._committed_state is not None:  # else the listener sends
            self._send_to_group(self._committed_state.offsets)

    def _send_to_group(self, offsets: Positions) -> None:
        if self._mirror is not None:
            self._mirrored_ms = self._clock.monotonic_ms()
            self._mirror(offsets)

    def _renew_in_group(self) -> None:
        """Brokers forget offsets that nobody writes, however idle the topics are."""
        state, now_ms = self._committed_state, self._clock.monotonic_ms()
        if state is not None and now_ms - self._mirrored_ms >= _RENEW_MS:
            self._send_to_group(state.offsets)

    # --- what is known of positions ---

    def _ids(self) -> Mapping[str, str]:
        return self._committed_state.topic_ids if self._committed_state else {}

    def _remembered(self, partition: TopicPartition) -> int | None:
        state = self._committed_state
        return state.offsets.get(partition) if state else None

    def _subscribed(self, offsets: Positions) -> dict[TopicPartition, int]:
        """Those that the query still wants to read; the others wait in the store."""
        wanted = self._config.subscription
        return {p: at for p, at in offsets.items() if is_subscribed(wanted, p)}

    # --- which transaction ---

    def _batch_between(
        self, start: SourceOffset, end: SourceOffset
    ) -> BatchMetadata | None:
        """What Spark logged between two ends; None: the store decides otherwise."""
        self._open()
        self._own_newest(end)
        batch = self._stored(end) or self._logged_otherwise(start, end)
        if batch is None or batch.txid in self._own:
            return batch
        look = self._looks.steady(lambda look: look.standings_of(batch))
        is_committed = batch.txid <= self._txid
        left = readable_batch(
            self._tx, batch, look, self.losses, is_committed=is_committed
        )
        self.skipped.update(self.losses.take())
        if left != batch and left.txid > self._txid:
            self._store(left)
        self._own.add(left.txid)
        if not self._fits(left, end):  # Spark's log has it only after another question
            self._own.discard(left.txid)
        self._batches[left.txid] = left
        return left

    def _stored(self, end: SourceOffset) -> BatchMetadata | None:
        """The batch that ends there, also where Spark logged it before ``tx.id``."""
        known = (b for b in self._batches.values() if self._fits(b, end))
        return next(known, None)

    def _fits(self, batch: BatchMetadata, end: SourceOffset) -> bool:
        return agreement.fits(self._tx, batch, end)

    def _logged_otherwise(
        self, start: SourceOffset, end: SourceOffset
    ) -> BatchMetadata | None:
        """Spark's log fixed a batch that the store does not know like this."""
        if end.mark is None and not self._txid and not self._batches:
            return self._first_of_checkpoint(start, end)
        if self._is_next(start, end):
            assert self._committed_state is not None
            known = {**self._committed_state.offsets, **self._settled(start)}
            return self._take(self._txid + 1, known, end)
        decides = self._tx.on_disagreement
        if decides == "store" and self._committed_state is not None:
            unread = self._batches.get(self._txid + 1)
            return unread if unread and not unread.spark_batch else None
        if decides == "checkpoint":
            logged = end.mark.txid if end.mark else 0
            txid = max(self._txid + 1, logged, *(n + 1 for n in self._batches))
            begins, ids = _begun(start, end)
            self._adopt(txid - 1, begins, ids)
            return self._take(txid, begins, end)
        raise agreement.contradiction(self._tx, end, self._committed_state)

    def _is_next(self, start: SourceOffset, end: SourceOffset) -> bool:
        """Whether it begins where the store is, and only its ranges are not there.

        They were planned after the copy was made that the store was put back from; or,
        opaque, another checkpoint planned the txid anew.
        """
        mark = end.mark
        if mark is not None and (mark.id, mark.txid) != (self._tx.id, self._txid + 1):
            return False
        is_free = self._tx.mode == "opaque" or self._txid + 1 not in self._batches
        return is_free and self._agrees(start)

    def _first_of_checkpoint(
        self, start: SourceOffset, end: SourceOffset
    ) -> BatchMetadata:
        """A batch that was logged before ``tx.id`` was set becomes transaction 1."""
        positions = dict(start.positions)
        if start.mark is not None:  # the checkpoint's first: Spark asked where it began
            positions = self._initial = self.start_positions()
        ranges = self.ranges_from_log(positions, end)
        begins = {r.topic_partition: r.start for r in ranges}
        self._adopt(0, {**positions, **begins})
        return self._kept(1, ranges, end)

    def _take(
        self, txid: int, positions: Positions, end: SourceOffset
    ) -> BatchMetadata:
        """Plan a transaction as Spark's log has it.

        It began at the start of topics that are others since, and nowhere where a log
        lost its end. What is out of sight keeps its range: that is not read, not lost.
        """
        former, ids = self._ids(), _ids_of(end)
        begins = {}
        for partition, position in positions.items():
            topic = partition.topic
            is_anew = is_another(former.get(topic), ids.get(topic))
            ended = end.positions.get(partition, position)
            begins[partition] = 0 if is_anew else min(position, ended)
        begins = {**end.begins, **begins}  # new ones, whose topic may be out of sight
        ranges = self.ranges_from_log(begins, end)
        found = {r.topic_partition for r in ranges}
        ranges += [
            OffsetRange(p, begins[p], at)
            for p, at in sorted(end.positions.items())
            if p in begins and p not in found
        ]
        return self._kept(txid, ranges, end)

    def _kept(
        self, txid: int, ranges: list[OffsetRange], end: SourceOffset
    ) -> BatchMetadata:
        ends = {r.topic_partition: r.end for r in ranges}
        logged = {p: at for p, at in end.positions.items() if ends.get(p) != at}
        name = agreement.logged_as(end)
        batch = BatchMetadata(txid, tuple(ranges), _ids_of(end), "", logged, name)
        self._store(batch)
        self._own.discard(txid)  # whether it can be read is still to be seen
        return batch

    def _empty_batch(self, question: Question) -> BatchMetadata:
        """The transaction of a batch without new records: stored before, or now."""
        name = question.spark_batch
        for batch in self._batches.values():
            if batch.spark_batch == name:
                return batch
        self._settle(question.start or question.end, question)  # it ends where it began
        before = self._committed_state
        assert before is not None
        txid = before.txid + 1
        if txid in self._batches and self._tx.mode == "transactional":
            raise agreement.contradiction(self._tx, question.end, before)
        ranges = tuple(OffsetRange(p, o, o) for p, o in sorted(before.offsets.items()))
        instead = _INSTEAD if txid in self._batches else ""
        batch = BatchMetadata(txid, ranges, before.topic_ids, name, logged_as=instead)
        self._store(batch)
        return batch

    def _finish_empty(self, start: SourceOffset, asked: Question | None) -> None:
        """Commit a batch without records that Spark is done with.

        Its checkpoint tells no end of it. Being asked for what follows means that it is
        finished; or its checkpoint is gone with all of its state, and what the batch
        brought is written or lost: its txid is spent either way. Not so where sinks may
        have its txid with records that were planned before: a new checkpoint, or one
        that is elsewhere, plans it anew, so that they take them back.
        """
        batch = self._batches.get(self._txid + 1)
        if batch is None or not batch.spark_batch:
            return
        is_new = start.mark is not None and start.mark.start
        is_its = not is_new and self._agrees(start)
        if asked is not None and is_its:
            is_its = asked.start is not None and asked.is_of_query(batch.spark_batch)
        if batch.logged_as == _INSTEAD and batch.txid not in self._own and not is_its:
            return
        self._commit(batch.txid)

    # --- checkpoint and store ---

    def _settle(self, start: SourceOffset, asked: Question | None = None) -> Positions:
        """Bring the store to where the checkpoint is, or find that they disagree."""
        if start.mark is None and self._committed_state is None:
            # A checkpoint from before tx.id was set: its offsets become transaction 0.
            self._adopt(0, start.positions)
        self._own_newest(start)
        self._commit_if_next(start)
        self._finish_empty(start, asked)
        return self._settled(start) if self._agrees(start) else self._disagree(start)

    def _own_newest(self, offset: SourceOffset) -> None:
        """Hold an epoch above all that the checkpoint has seen, as sinks have.

        It has seen later ones where the store was put back from a copy.
        """
        seen = offset.mark.epoch if offset.mark else 0
        if self._epoch < seen:
            self._ledger.check_owner(self._epoch)
        while self._epoch < seen:
            self._epoch = self._ledger.acquire()

    def _agrees(self, start: SourceOffset) -> bool:
        state = self._committed_state
        return state is not None and agreement.agrees(
            self._tx, start, state, self._batches.get(state.carried)
        )

    def _settled(self, start: SourceOffset) -> dict[TopicPartition, int]:
        """The positions that a checkpoint means which agrees with the store."""
        assert self._committed_state is not None
        stored = self._committed_state.offsets
        return {p: stored.get(p, at) for p, at in start.positions.items()}

    def _commit_if_next(self, end: SourceOffset) -> None:
        """Commit the transaction that ends here if it is next, and the stored one."""
        batch = self._batches.get(self._txid + 1)
        if batch is not None and self._fits(batch, end):
            self._commit(batch.txid)

    def _disagree(self, start: SourceOffset) -> Positions:
        decides, state = self._tx.on_disagreement, self._committed_state
        is_ahead = agreement.case_of(self._tx, start, state) is Case.AHEAD
        if decides == "store" and state is not None and not is_ahead:
            return self._subscribed(state.offsets)
        if decides == "checkpoint":
            logged = start.mark.txid if start.mark else 0
            txid = max(self._txid, logged, *self._batches)
            self._adopt(txid, _all_of(start), _ids_of(start))
            return start.positions
        raise agreement.contradiction(self._tx, start, state)

    def _adopt(
        self, txid: int, positions: Positions, ids: Mapping[str, str] | None = None
    ) -> None:
        """Make a position that the store did not have the committed one."""
        former = self._committed_state or Committed(0, {})
        topics = {p.topic for p in positions}
        kept = {t: known for t, known in former.topic_ids.items() if t not in topics}
        given = ids or {}
        same = {
            p: at
            for p, at in former.offsets.items()
            if not is_another(former.topic_ids.get(p.topic), given.get(p.topic))
        }
        taken = Committed(
            txid=txid,
            offsets={**same, **positions},
            topic_ids={**kept, **given},
            completed_ms=self._clock.now_ms(),
        )
        self._ledger.adopt(self._epoch, taken)
        self._committed_state = taken
        self._batches = {}
        self._own = set()
        logger.warning("%s starts at txid %d %s", self._tx.id, txid, nested(positions))

    def _offset(self, batch: BatchMetadata, start: SourceOffset) -> SourceOffset:
        """Its end; with its beginning where Spark's log has none, or another."""
        ends = batch.logged_ends()
        is_first = start.mark is not None and start.mark.start
        before = {} if is_first else start.positions
        begins = {p: at for p, at in batch.starts().items() if before.get(p) != at}
        return SourceOffset(ends, self._mark(batch.txid, ends, batch.topic_ids), begins)

    def _mark(
        self,
        txid: int,
        positions: Positions,
        ids: Mapping[str, str],
        *,
        start: bool = False,
    ) -> TransactionMark:
        state = self._committed_state or Committed(0, {})
        unseen = {
            p: at
            for p, at in state.offsets.items()
            if p not in positions
            and not is_another(state.topic_ids.get(p.topic), ids.get(p.topic))
        }
        topics = {partition.topic for partition in (*positions, *unseen)}
        every = {**state.topic_ids, **ids}
        known = {topic: known for topic, known in every.items() if topic in topics}
        return TransactionMark(self._tx.id, txid, self._epoch, start, known, unseen)


def _all_of(offset: SourceOffset) -> dict[TopicPartition, int]:
    """Its positions, also of what was out of sight."""
    return {**_unseen_at(offset), **offset.positions}


def _begun(
    start: SourceOffset, end: SourceOffset
) -> tuple[Positions, Mapping[str, str]]:
    """Where a logged batch began, and of which topics.

    One that began elsewhere than the end before it says so itself, as the first of a
    checkpoint does: no log has its start.
    """
    said = {partition.topic for partition in (*_unseen_at(end), *end.begins)}
    former, ids = _ids_of(start), dict(_ids_of(end))
    gone = {t for t in said if is_another(former.get(t), ids.get(t))}
    before = {p: at for p, at in _all_of(start).items() if p.topic not in gone}
    ids |= {t: known for t, known in former.items() if t not in gone}
    if start.mark is not None and start.mark.start:
        before = {p: at for p, at in before.items() if p in end.positions}
        ids = {**ids, **_ids_of(end)}
    return {**before, **_unseen_at(end), **end.begins}, ids


def _unseen_at(offset: SourceOffset) -> Positions:
    return offset.mark.unseen if offset.mark else {}


def _ids_of(offset: SourceOffset) -> Mapping[str, str]:
    return offset.mark.topic_ids if offset.mark else {}
