"""Micro-batches as durable transactions: what ``tx.id`` adds to the source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kafka_tx.config import SourceConfig, TransactionsConfig
from kafka_tx.errors import (
    CheckpointDisagreesError,
    KafkaTxError,
)
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.protocols import Clock, ClusterView
from kafka_tx.spark.source.asking import Answer, Question, moves
from kafka_tx.spark.source.microbatches import GroupOffsets, MicroBatches, Positions
from kafka_tx.spark.source.offset_json import SourceOffset, TransactionMark, nested
from kafka_tx.spark.source.replays import readable_batch
from kafka_tx.transactions.ledger import Committed, Ledger

logger = logging.getLogger(__name__)

Mirror = Callable[[Mapping[TopicPartition, int]], None]

_RENEW_MS = 3_600_000
"""How often offsets are written to a group again that did not change."""


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
    anything else contradicts and ``tx.onDisagreement`` decides.
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
            first = Committed(
                txid=0,
                offsets=self.start_positions(),
                topic_ids={},
                completed_ms=self._clock.now_ms(),
            )
            self._ledger.adopt(self._epoch, first)
            self._committed_state = first
            logger.info("%s starts at %s", self._tx.id, nested(first.offsets))
        carried, offsets = self._committed_state.carried, self._committed_state.offsets
        mark = TransactionMark(self._tx.id, carried, self._epoch, start=True)
        return SourceOffset(dict(offsets), mark)

    def latest(self, start: SourceOffset, *, everything: bool) -> SourceOffset:
        """The end of the next transaction; ``start`` when there is nothing to do.

        Raises:
            FencedError: Another query has taken over this ``tx.id``.
            CheckpointDisagreesError: See the class.
        """
        self._open()
        start_positions = self._settle(start)
        txid = self._txid + 1
        stored = self._batches.get(txid)
        if stored is not None and (
            self._tx.mode == "transactional" or txid in self._own
        ):
            return self._offset(txid, stored.ends())
        plan = self.plan(start_positions, everything=everything)
        if plan is None or not plan.moves(start_positions):
            self._renew_in_group()
            return start
        batch = BatchMetadata(txid, plan.ranges, plan.topic_ids)
        self._ledger.plan(self._epoch, batch, replace=stored is not None)
        self._batches[txid] = batch
        self._own.add(txid)
        return self._offset(txid, plan.ends)

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
                return Answer(batch.txid, self._epoch)
        return Answer(self._empty_batch(question).txid, self._epoch)

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
            self._topic_ids.update(state.committed.topic_ids)
            self._send_to_group(state.committed.offsets)
        logger.info(
            "%s opened with epoch %d, committed txid %d, unfinished %s",
            self._tx.id,
            epoch,
            self._txid,
            sorted(txid for txid in self._batches if txid > self._txid),
        )

    def _commit(self, txid: int) -> None:
        self._ledger.commit(self._epoch, txid, completed_ms=self._clock.now_ms())
        state = self._ledger.load()
        self._committed_state = state.committed
        self._batches = {n: b for n, b in self._batches.items() if n >= txid}
        self._own = {n for n in self._own if n >= txid}
        if state.committed is not None:
            self._send_to_group(state.committed.offsets)

    def _send_to_group(self, offsets: Positions) -> None:
        if self._mirror is not None:
            self._mirrored_ms = self._clock.monotonic_ms()
            self._mirror(offsets)

    def _renew_in_group(self) -> None:
        """Brokers forget offsets that nobody writes, however idle the topics are."""
        state, now_ms = self._committed_state, self._clock.monotonic_ms()
        if state is not None and now_ms - self._mirrored_ms >= _RENEW_MS:
            self._send_to_group(state.offsets)

    # --- which transaction ---

    def _batch_between(
        self, start: SourceOffset, end: SourceOffset
    ) -> BatchMetadata | None:
        """What Spark logged between two ends; None: the store decides otherwise."""
        self._open()
        txid = self._txid_of(end)
        batch = self._batches.get(txid)
        if batch is None or (end.mark and batch.ends() != dict(end.positions)):
            batch = self._unknown(start, end, txid)
        if batch is not None and txid not in self._own:
            look = self._steady_look(batch.ends())
            batch = readable_batch(self._tx, batch, look, self.losses)
            self.skipped.update(self.losses.take())
            self._own.add(txid)
            self._batches[txid] = batch
        return batch

    def _txid_of(self, end: SourceOffset) -> int:
        """Which transaction ends there, also where Spark logged it before ``tx.id``."""
        if end.mark is not None:
            return end.mark.txid
        ends = dict(end.positions)
        same = (n for n, b in self._batches.items() if b.ends() == ends)
        return next(same, self._txid + 1)

    def _empty_batch(self, question: Question) -> BatchMetadata:
        """The transaction of a batch without new records: stored before, or now."""
        name = question.spark_batch
        for batch in self._batches.values():
            if batch.spark_batch == name:
                return batch
        if question.start is not None:
            self._settle(question.start)
        self._finish_empty()
        before = self._committed_state
        assert before is not None
        txid = before.txid + 1
        unread = self._batches.get(txid)
        if unread is not None and self._tx.mode == "transactional":
            raise self._contradiction(question.end)
        ranges = tuple(OffsetRange(p, o, o) for p, o in sorted(before.offsets.items()))
        batch = BatchMetadata(txid, ranges, before.topic_ids, name)
        self._ledger.plan(self._epoch, batch, replace=unread is not None)
        self._batches[txid] = batch
        self._own.add(txid)
        return batch

    def _finish_empty(self) -> None:
        """Commit a batch without records that Spark is done with.

        Its checkpoint tells no end of it. Being asked for what follows means that it is
        finished; or its checkpoint is gone with all of its state, and what the batch
        brought is written or lost: its txid is spent either way.
        """
        batch = self._batches.get(self._txid + 1)
        if batch is not None and batch.spark_batch:
            self._commit(batch.txid)

    # --- checkpoint and store ---

    def _settle(self, start: SourceOffset) -> Positions:
        """Bring the store to where the checkpoint is, or find that they disagree."""
        if start.mark is None and self._committed_state is None:
            # A checkpoint from before tx.id was set: its offsets become transaction 0.
            self._adopt(0, start.positions)
        self._commit_if_next(start)
        self._finish_empty()
        agreed = self._committed_state
        if agreed is None or any(
            agreed.offsets.get(p) != offset for p, offset in start.positions.items()
        ):
            return self._disagree(start)
        return start.positions

    def _commit_if_next(self, end: SourceOffset) -> None:
        """Commit the transaction that ends here if it is next, and the stored one."""
        txid = self._txid_of(end)
        batch = self._batches.get(txid) if txid == self._txid + 1 else None
        if batch is not None and batch.ends() == dict(end.positions):
            self._commit(txid)

    def _disagree(self, start: SourceOffset) -> Positions:
        decides = self._tx.on_disagreement
        if decides == "store" and self._committed_state is not None:
            return self._committed_state.offsets
        if decides == "checkpoint":
            txid = max(self._txid, start.mark.txid if start.mark else 0)
            self._adopt(txid, start.positions)
            return start.positions
        raise self._contradiction(start)

    def _unknown(
        self, start: SourceOffset, end: SourceOffset, txid: int
    ) -> BatchMetadata | None:
        """Spark's log fixed a batch that the store does not know like this."""
        decides = self._tx.on_disagreement
        if decides == "store" and self._committed_state is not None:
            return None
        fresh = self._committed_state is None and start.mark is None
        if decides != "checkpoint" and not fresh:
            raise self._contradiction(end)
        txid = max(txid, self._txid + 1)
        self._adopt(txid - 1, start.positions)
        ranges = tuple(self.ranges_from_log(start.positions, end.positions))
        batch = BatchMetadata(txid, ranges, {})
        self._ledger.plan(self._epoch, batch)
        return batch

    def _adopt(self, txid: int, positions: Positions) -> None:
        taken = Committed(
            txid=txid,
            offsets=dict(positions),
            topic_ids={},
            completed_ms=self._clock.now_ms(),
        )
        self._ledger.adopt(self._epoch, taken)
        self._committed_state = taken
        self._batches = {}
        self._own = set()
        logger.warning("%s took txid %d from the checkpoint", self._tx.id, txid)

    def _contradiction(self, offset: SourceOffset) -> CheckpointDisagreesError:
        state = self._committed_state
        stored = nested(state.offsets) if state else "nothing"
        logged = f"txid {offset.mark.txid}" if offset.mark else "no txid"
        return CheckpointDisagreesError(
            f"the checkpoint of '{self._tx.id}' is at {logged}"
            f" {nested(offset.positions)} and its store at txid {self._txid} {stored}."
            " To go on from the store, start with a new checkpointLocation or set"
            " tx.onDisagreement=store; to go on from the checkpoint, set"
            " tx.onDisagreement=checkpoint for one run. `kafka-tx status` shows the"
            " store.",
            id=self._tx.id,
        )

    def _offset(self, txid: int, ends: Positions) -> SourceOffset:
        return SourceOffset(dict(ends), TransactionMark(self._tx.id, txid, self._epoch))


def quiet(mirror: Mirror, on_failure: Callable[[], None]) -> Mirror:
    """A mirror whose failures are told and never raised."""

    def send(offsets: Mapping[TopicPartition, int]) -> None:
        try:
            mirror(offsets)
        except KafkaTxError as error:
            logger.warning("group mirror failed: %s", error)
            on_failure()

    return send
