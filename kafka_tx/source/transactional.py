"""Micro-batches as durable transactions: what ``tx.id`` adds to the source."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.config import SourceConfig, TransactionsConfig
from kafka_tx.errors import ReplayImpossibleError
from kafka_tx.model import BatchMetadata, JointBatch, OffsetRange, TopicPartition
from kafka_tx.planning.cluster_poller import Positions
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.planning.replays import readable_batch
from kafka_tx.protocols import Clock, ClusterView
from kafka_tx.source.disagreements import Disagreements
from kafka_tx.source.empty_batches import new_empty, stored_empty
from kafka_tx.source.joint_batches import JointBatches, LedgerOf
from kafka_tx.source.kept_batches import KeptBatches, Mirror
from kafka_tx.source.microbatches import GroupOffsets, MicroBatches
from kafka_tx.source.questions import Answer, Question, moves
from kafka_tx.source.settling import CheckpointSettling
from kafka_tx.transactions.ledger import Ledger


class TransactionalMicroBatches(MicroBatches):
    """Plans micro-batches whose txid, ranges and outcome are kept in a store.

    Life of transaction n, all in Spark's planning process unless said otherwise:

    1. ``latest`` is asked for the batch after n-1. That question tells that n-1 is in
       Spark's commit log, so n-1 is committed here if the listener (user's process) has
       not done it already.
    2. If n is stored, an earlier run planned it. Transactional: its ranges are n's
       ranges for ever. Opaque: they are planned anew from the committed offsets, unless
       other sources of the query have parts of that batch.
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
        ledger_of: LedgerOf | None = None,
        mirror: Mirror | None = None,
        committed: GroupOffsets | None = None,
    ) -> None:
        super().__init__(config, view, clock, committed)
        self._tx = transactions
        self._kept = KeptBatches(transactions, ledger, clock, mirror)
        self._joint = JointBatches(transactions, self._kept, ledger_of)
        self._settling = CheckpointSettling(
            transactions, self._kept, self._joint, config.subscription
        )
        self._disagreements = Disagreements(
            transactions, self._kept, self._begin_anew, self.ranges_from_log
        )

    # --- what Spark asks ---

    def initial(self) -> SourceOffset:
        """Where the store says, else where ``startingOffsets`` says (transaction 0)."""
        kept = self._opened()
        if kept.committed is None:
            kept.adopt(0, self.start_positions(), self._topic_ids)
        state = kept.committed
        assert state is not None
        positions = self._settling.subscribed(state.offsets)
        mark = kept.mark(state.carried, positions, state.topic_ids, start=True)
        return SourceOffset(positions, mark)

    def latest(self, start: SourceOffset, *, everything: bool) -> SourceOffset:
        """The end of the next transaction; ``start`` when there is nothing to do.

        Raises:
            FencedError: Another query has taken over this ``tx.id``.
            StateLostError: The store is not where this query left it.
            CheckpointDisagreesError: See the class.
        """
        kept = self._opened()
        positions = self._settling.settle(start)
        stored = kept.next()
        if stored is not None and stored.txid == kept.held:
            return start  # its other sources give their parts of it again
        if stored is not None and (
            self._tx.mode == "transactional" or stored.joint or stored.txid in kept.own
        ):
            return kept.offset(kept.named(stored), start)
        plan = self.plan(positions, everything=everything)
        if plan is None or not (plan.moves(positions) or not kept.agrees(start)):
            kept.rest()
            return start
        batch = BatchMetadata(kept.txid + 1, plan.ranges, plan.topic_ids)
        return kept.offset(kept.named(batch), start)

    def ranges(self, start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
        """The stored ranges of the transaction that ends at ``end``.

        Raises:
            ReplayImpossibleError: Transactional, and records of it are gone.
            CheckpointDisagreesError: The store does not know this transaction.
        """
        if not moves(start, end):
            return []
        batch = self._batch_between(start, end)
        if batch is None:
            return []
        ids = batch.topic_ids
        return [
            r.of_topic(ids.get(r.topic_partition.topic)) for r in batch.ranges if len(r)
        ]

    def number(self, question: Question) -> Answer:
        """The txid of a batch that the user's process is about to handle.

        One that holds no new records gets a txid of its own, with empty ranges, kept
        under Spark's name for the batch; a replay finds it again. Where the question
        tells what else the query keeps, that is held against what is stored, and
        stored.

        Raises:
            FencedError: Another query has taken over this ``tx.id``.
            StateLostError: The store is not where this query left it.
            CheckpointDisagreesError: See the class; or the txid went with other records
                of the query's other sources.
        """
        self._opened().check()
        batch = None
        if question.has_records:
            batch = self._batch_between(question.start or self.initial(), question.end)
        if batch is None:
            batch = self._empty_batch(question)
        if question.shape is not None:
            batch = self._joint.numbered(batch, question)
        return self._answer(batch, self._joint.known(batch, question))

    def finished(self, end: SourceOffset) -> None:
        """Spark's log has the batch that ends here: commit its transaction."""
        self._opened().commit_if_next(end)

    def close(self) -> None:
        """Release connections."""
        super().close()
        self._kept.close()

    # --- what is known of positions ---

    def _ids(self) -> Mapping[str, str]:
        return self._kept.ids()

    def _remembered(self, partition: TopicPartition) -> int | None:
        return self._kept.position(partition)

    def _begin_anew(self) -> Positions:
        self._initial = self.start_positions()
        return self._initial

    # --- which transaction ---

    def _opened(self) -> KeptBatches:
        """What the store holds, once this planner owns the id."""
        self._kept.open()
        self._joint.settle()
        return self._kept

    def _answer(self, batch: BatchMetadata, joint: JointBatch | None) -> Answer:
        is_fixed = self._tx.mode == "transactional"
        plan = batch.fingerprint() if is_fixed else ""
        kept = self._kept
        mode = self._tx.mode
        return Answer(batch.txid, kept.epoch, plan, kept.numbering, mode, joint)

    def _empty_batch(self, question: Question) -> BatchMetadata:
        """The transaction of a batch without new records: stored before, or now."""
        stored = stored_empty(self._kept, question)
        if stored is not None:
            return stored
        ended = question.start or question.end  # it ends where it began
        self._settling.settle(ended)
        self._joint.check_records()
        return new_empty(self._tx, self._kept, question)

    def _batch_between(
        self, start: SourceOffset, end: SourceOffset
    ) -> BatchMetadata | None:
        """What Spark logged between two ends; None: the store decides otherwise."""
        kept = self._opened()
        kept.own_newest(end)
        # also one that Spark logged before ``tx.id``
        fitting = (b for b in kept.planned.values() if kept.fits(b, end))
        batch = next(fitting, None) or self._disagreements.batch(start, end)
        if batch is None or batch.txid in kept.own:
            return batch
        look = self._looks.steady(lambda look: look.standings_of(batch))
        try:
            left = readable_batch(
                self._tx,
                batch,
                look,
                self.losses,
                is_committed=batch.txid <= kept.txid,
                query=kept.query,
            )
        except ReplayImpossibleError:
            kept.check()  # what the error advises is only right for this store
            raise
        self.skipped.update(self.losses.take())
        if left != batch and left.txid > kept.txid:
            if kept.fits(batch, end):
                kept.store(left)
            else:  # the checkpoint that has logged the whole of it may be done with it
                left = kept.named(left)
        kept.own.add(left.txid)
        if not kept.fits(left, end):  # Spark's log has it only after another question
            kept.own.discard(left.txid)
        kept.planned[left.txid] = left
        return left
