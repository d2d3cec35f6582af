"""Micro-batches as durable transactions: the source with ``tx.id``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from kafka_tx.config import SourceConfig, TransactionsConfig
from kafka_tx.errors import KafkaTxError, ReplayImpossibleError, StateConflictError
from kafka_tx.logs import event_log
from kafka_tx.model import (
    BatchMetadata,
    JointBatch,
    OffsetRange,
    Subscription,
    TopicPartition,
    few,
)
from kafka_tx.offsets.discovery import Discovery, subscribed
from kafka_tx.planning.byte_limit import ByteLimit
from kafka_tx.planning.cluster_poller import ClusterState, LeaderEpochs, Positions
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.planning.other_topics import check_read_again, check_shared
from kafka_tx.planning.replays import readable_batch
from kafka_tx.planning.start_positions import assigned_partitions
from kafka_tx.protocols import Clock, ClusterView
from kafka_tx.schemas.planned import other_schemas
from kafka_tx.source import agreement
from kafka_tx.source.joint_batches import JointBatches, LedgerOf
from kafka_tx.source.logged_batches import (
    Disagreements,
    all_of,
    is_spent,
    new_empty,
    stored_empty,
)
from kafka_tx.source.microbatches import (
    GroupOffsets,
    MicroBatches,
    MicroBatchPlan,
)
from kafka_tx.source.questions import Answer, Question, moves
from kafka_tx.source.stored_batches import Mirror, StoredBatches
from kafka_tx.transactions.ledger.batch_ids import UNKNOWN_SINK, SinkNote
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership.refusals import at_work
from kafka_tx.transactions.ownership.takeover import TAKEOVER_TRIES

logger = event_log(__name__)

_T = TypeVar("_T")


class TransactionalMicroBatches(MicroBatches):
    """Plans micro-batches whose txids, ranges and outcomes are stored.

    Life of transaction n, in Spark's planning process except the listener:

    1. Spark calls ``latest`` for the batch after n-1. This call means that n-1 is in
       Spark's commit log, so n-1 is committed now if the listener (user's process) has
       not committed it already.
    2. If n is stored, an earlier run planned it. Transactional: the stored ranges stay.
       Opaque: ranges are planned anew from the committed offsets, unless other sources
       of the query have parts of this batch.
    3. Otherwise n is planned, and stored before Spark gets its end, in one write with
       the commit of n-1. Nothing to plan, or an error: the commit is written alone.
    4. ``ranges`` returns the stored ranges; tasks read exactly these.
    5. The batch is in Spark's commit log: the listener, or step 1 of n+1, commits n:
       one atomic write, then the group mirror.

    The first of these steps takes over the id, once its checks have passed: until then
    the former owner is not fenced, and nothing is written.

    A checkpoint may be one step ahead of the store (crash before 5) or equal to it. In
    other cases they disagree, and ``tx.onDisagreement`` decides, if this is the query's
    only source. A txid that Spark logged is then not used if a sink may have seen it
    with other records: the batch gets a txid above all of both sides, which ``number``
    returns.

    A new checkpoint, and each decision, lets Spark's batch ids start again. Until
    somebody asks for the batch's txid, it may be dropped by its sink: see
    ``StoredBatches.ids_start_again``.
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
        byte_limit: ByteLimit | None = None,
        sink: SinkNote = UNKNOWN_SINK,
    ) -> None:
        super().__init__(config, view, clock, committed, byte_limit)
        self._sink = sink
        self._tx = transactions
        self._deleted_topics = DeletedTopics(view, clock)
        self._ledger = ledger
        self._ledger_of = ledger_of
        self._mirror = mirror
        self._begins: list[SourceOffset] = []
        self._is_bounded = False
        self._reset()

    def _reset(self) -> None:
        """Drop all cached state of the store."""
        self._begins_here = False
        tx = self._tx
        spares = tx.if_owned == "refuse" or (not tx.if_owned and self._is_bounded)
        batches = StoredBatches(
            *(tx, self._ledger, self._clock, self._topics_now, self._mirror),
            spares_owners=spares,
            sink=self._sink,
        )
        batches.is_bounded = self._is_bounded
        joint = JointBatches(batches, self._ledger_of)
        self._batches, self._joint = batches, joint
        self._settling = CheckpointSettling(batches, joint, self._discovery)
        self._disagreements = Disagreements(
            batches, self._begin_anew, self.ranges_from_log
        )

    # --- what Spark asks ---

    def initial(self) -> SourceOffset:
        """The store's position, or else ``startingOffsets`` (transaction 0).

        Raises:
            UnknownTopicError: Nothing is stored for the query's topics, and a named
                topic or partition does not exist.
        """
        self._rest = None
        if self._opened().state.committed is None:
            self._owning(self._adopt_start)
        begin = self._begin_of(self._opened())
        if not begin.positions:
            assigned_partitions(self._config, self._discovery.find())
        self._begins.append(begin)
        return begin

    def _begin_of(self, batches: StoredBatches) -> SourceOffset:
        state = batches.state.position
        positions = self._settling.subscribed(state.offsets)
        log = state.topic_ids, state.epochs_of(positions)
        mark = batches.mark(state.carried, positions, *log, start=True)
        return SourceOffset(positions, mark)

    def latest(self, start: SourceOffset, *, everything: bool) -> SourceOffset:
        """The end of the next transaction; ``start`` if there is nothing to do.

        Raises:
            FencedError: Another query has taken over this ``tx.id``.
            StateLostError: The store is not in the state that this query left.
            CheckpointDisagreesError: See the class.
            BatchIdsAgainError: The sink may remember Spark's batch ids, which start
                again here, or did so before the last batch.
            OwnerLivesError: Another owner of this ``tx.id`` is running: it changed the
                store at each try to take over; or it shows signs of life, and this
                query does not fence living owners.
            BrokerUnavailableError: As ``plan``.
        """
        if self._rests(start, everything=everything):
            self._batches.rest()
            return start
        return self._owning(lambda: self._latest(start, everything))

    def _latest(self, asked: SourceOffset, everything: bool) -> SourceOffset:
        with self._opened(asked).one_write():
            return self._next(asked, everything)

    def _next(self, asked: SourceOffset, everything: bool) -> SourceOffset:
        batches = self._batches
        # a former owner may have gone on after this run asked for its start
        start = self._begin_of(batches) if asked in self._begins else asked
        positions = self._settling.settle(start)
        stored = batches.state.next
        is_new = start.mark is not None and start.mark.start
        if is_new:
            batches.ids_start_again(begins_here=self._begins_here)
        if stored is not None and stored.txid == batches.waiting_txid:
            self._joint.wait_for_others(stored)
            return asked
        if stored is not None and (
            stored.mode == "transactional" or stored.joint or stored.txid in batches.own
        ):
            self._check_topics_of(stored)
            return batches.offset(batches.named(batches.guarded(stored)), start)
        plan = self.plan(positions, everything=everything)
        if plan is None or not (plan.moves(positions) or not batches.agrees(start)):
            batches.rest()
            if stored is None:
                self._begin_rest(asked, plan)
            return asked
        batch = BatchMetadata(
            batches.state.txid + 1,
            plan.ranges,
            plan.topic_ids,
            mode=self._tx.mode,
            skipped=self.skipped,
            attempts=stored.attempts + 1 if stored else 1,
            unproven=stored.unproven if stored else (),
            schemas=self._config.schemas,
        )
        if stored is not None and stored.ranges != batch.ranges and not is_new:
            batches.is_planned_anew()
        return batches.offset(batches.named(batches.guarded(batch)), start)

    def ranges(self, start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
        """The stored ranges of the transaction that ends at ``end``.

        Raises:
            ReplayImpossibleError: Transactional, and some of its records are gone.
            CheckpointDisagreesError: The store does not have this transaction.
        """
        self._rest = None
        if not moves(start, end):
            return []
        self._discovery.know(start.positions)
        batch = self._owning(lambda: self._batch_between(start, end))
        if batch is None:
            return []
        self.schemas = batch.schemas
        return [r for r in batch.ranges if len(r)]

    def number(self, question: Question) -> Answer:
        """The txid of a batch that the user's process is about to handle.

        A batch without new records gets its own txid, with empty ranges, stored under
        Spark's name for the batch; a replay finds it again. If the question has the
        query's shape, this is compared with the stored shape, and stored.

        Raises:
            FencedError: Another query has taken over this ``tx.id``.
            StateLostError: The store is not in the state that this query left.
            CheckpointDisagreesError: See the class; or the txid was used with other
                records of the query's other sources.
        """
        self._rest = None
        return self._owning(lambda: self._number(question))

    def _number(self, question: Question) -> Answer:
        batches = self._opened(question.end)
        batches.live_on()
        batches.check()
        batch = None
        if question.has_records:
            start = question.start or self.initial()
            batch = self._batch_between(start, question.end)
        if batch is None:
            batch = self._empty_batch(question)
        batch = self._batches.prove(batch, question.end)
        if question.shape is not None:
            batch = self._joint.numbered(batch, question)
        return self._answer(batch, self._joint.known(batch, question))

    def finished(self, end: SourceOffset) -> None:
        """Spark's log has the batch that ends here: commit its transaction."""
        self._rest = None
        self._opened(end).commit_if_next(end)

    def prepare_available_now(self) -> None:
        """Freeze the end; a living owner of this ``tx.id`` is not fenced."""
        self._is_bounded = self._batches.is_bounded = True
        if not self._batches.epoch:
            self._reset()
        super().prepare_available_now()

    def answer(self) -> None:
        """Answer whoever asks whether this query lives, as ``StoredBatches``."""
        self._batches.answer()

    def has_read_all(self) -> None:
        """Let go: only a batch without records may follow, which shows life again.

        The query's other sources may still read; then the sign of life stays.
        """
        if not self._batches.state.has_several_sources:
            with suppress(KafkaTxError):  # whoever starts next waits ten seconds
                self._batches.let_go()

    def let_go(self) -> None:
        """The run has ended: the next one need not wait; as ``StoredBatches``."""
        self._batches.let_go()

    def close(self) -> None:
        """Release connections."""
        super().close()
        self._batches.close()

    # --- what is known of positions ---

    def _begin_rest(self, start: SourceOffset, plan: MicroBatchPlan | None) -> None:
        """As for a query without ``tx.id``, if the store has nothing to wait for.

        A topic out of sight may be found to be deleted after a time. Other sources of
        the query may have parts of a batch.
        """
        state, found = self._batches.state, self._poller.last
        topics = {p.topic for p in state.position.offsets}
        is_known = found is not None and topics <= found.found.topics.keys()
        if is_known and not state.has_several_sources:
            super()._begin_rest(start, plan)

    def _decided_on(self) -> object:
        return self._batches.state, self._batches.epoch, self._batches.is_owner

    def _ids(self) -> Mapping[str, str]:
        return self._batches.state.position.topic_ids

    def _epochs_of_positions(self) -> LeaderEpochs:
        return self._batches.state.position.leader_epochs

    def _deleted(
        self, ends: Positions, cluster: ClusterState, ids: Mapping[str, str]
    ) -> set[str]:
        """Topics of the store's positions that were deleted.

        A query that fails on data loss drops only topics that it reads, after it has
        reported their loss.
        """
        stored = self._batches.state.position.offsets
        unseen = {
            p: at for p, at in stored.items() if p.topic not in cluster.found.topics
        }
        if self._config.fails_on_data_loss:
            unseen = self._settling.subscribed(unseen)
        missing = {p.topic for p in unseen if p not in ends}
        others = {p.topic for p in ends if missing and p not in unseen}
        return self._deleted_topics.for_good(
            {topic: ids.get(topic) for topic in missing},
            {topic: ids.get(topic) for topic in others},
        )

    def _remembered(self, partition: TopicPartition) -> int | None:
        return self._batches.state.position.offsets.get(partition)

    def _topics_now(self) -> Mapping[str, str]:
        return self._discovery.find().topic_ids()

    def _begin_anew(self) -> Positions:
        self._initial = self.start_positions()
        return self._initial

    # --- ownership ---

    def _owning(self, act: Callable[[], _T]) -> _T:
        """Act on the stored state, and take over the id if that raises nothing."""
        if self._batches.is_owner:
            return act()
        for _ in range(TAKEOVER_TRIES):
            try:
                answer = act()
                self._batches.take()
            except StateConflictError:
                continue
            else:
                return answer
            finally:
                if not self._batches.is_owner:
                    self._reset()
        raise at_work(self._ledger)

    def _adopt_start(self) -> None:
        batches = self._opened()
        if batches.state.committed is None:
            start = self.start_positions()
            epochs = self._leader_epochs
            batches.adopt(0, start, self._topic_ids, leader_epochs=epochs)
            self._begins_here = True

    # --- which transaction ---

    def _opened(self, logged: SourceOffset | None = None) -> StoredBatches:
        """The store's state, with this planner's changes.

        Before it is the owner, its topics are compared with those of the id: in the
        store, and in a checkpoint of transactions, at ``logged``.
        """
        batches = self._batches
        batches.open()
        if not batches.is_owner:
            known = batches.state.partitions
            if known and logged is not None and logged.mark is not None:
                known |= all_of(logged).keys()
            check_shared(self._tx.id, self._ledger.url, self._wanted(known), known)
        self._joint.settle()
        return batches

    def _wanted(self, known: Iterable[TopicPartition]) -> Subscription:
        """The subscription, for partitions that the id has read."""
        self._discovery.know(known)
        return self._discovery.wanted

    def _cluster_for(self, batch: BatchMetadata) -> ClusterState:
        self._check_topics_of(batch)
        return self._poller.steady(lambda cluster: cluster.position_checks_of(batch))

    def _check_topics_of(self, batch: BatchMetadata) -> None:
        """Refuse a batch that must be whole, and has records of other topics."""
        if self._tx.mode == "opaque" and batch.txid > self._batches.state.txid:
            return
        wanted, deleted = self._wanted(batch.ends()), self._deleted_topics.now
        check_read_again(self._tx.id, self._ledger.url, wanted, batch, deleted)

    def _answer(self, batch: BatchMetadata, joint: JointBatch | None) -> Answer:
        is_fixed = self._tx.mode == "transactional"
        plan = batch.fingerprint() if is_fixed else ""
        batches = self._batches
        return Answer(
            batch.txid,
            batches.epoch,
            plan,
            batches.state.numbering,
            self._tx.mode,
            joint,
            other_schemas(batch.schemas, self._config.schemas),
        )

    def _empty_batch(self, question: Question) -> BatchMetadata:
        """The transaction of a batch without new records, stored before or now."""
        stored = stored_empty(self._batches, question)
        if stored is not None:
            self._batches.check_mode()
            return self._batches.in_this_mode(stored)
        ended = question.start or question.end  # its end is its start
        self._settling.settle(ended)
        self._joint.check_records()
        return new_empty(self._batches, question)

    def _batch_between(
        self, start: SourceOffset, end: SourceOffset
    ) -> BatchMetadata | None:
        """The batch that Spark logged between two ends; None: the store decides."""
        batches = self._opened(end)
        batches.own_newest(end)
        batches.check_mode()
        self.losses.take()
        self.skipped = {}
        # also a batch that Spark logged before ``tx.id``
        known = batches.state.planned.values()
        stored = next((b for b in known if batches.fits(b, end)), None)
        batch = stored or self._disagreements.batch(start, end)
        if batch is None or batch.txid in batches.own:
            return batch
        cluster = self._cluster_for(batch)
        try:
            left = readable_batch(
                self._tx,
                batch,
                cluster,
                self.losses,
                is_committed=batch.txid <= batches.state.txid,
                query=batches.state.query,
                others=self._joint.others,
            )
        except ReplayImpossibleError:
            batches.check()  # the error's advice is only right for this store
            if stored is None:
                batches.take()  # and drops only stored batches: sinks may have the txid
            raise
        if left.txid > batches.state.txid:
            is_same = replace(left, mode=self._tx.mode) == batch
            counted = (batch.skipped, self.skipped, self.losses.take())
            self.skipped = sum(map(Counter, counted), Counter())
            left = replace(
                left,
                mode=self._tx.mode,
                skipped=self.skipped,
                attempts=batch.attempts + 1,
            )
            if batches.fits(batch, end):
                left = batches.store(left)
            elif not is_same:
                # The checkpoint that has logged all of it may have finished it.
                left = batches.named(left)
        batches.own.discard(left.txid)
        if batches.state.planned.get(left.txid) == left and batches.fits(left, end):
            batches.own.add(left.txid)
        return left


class CheckpointSettling:
    """Compares a checkpoint with the store, as ``TransactionalMicroBatches`` says."""

    def __init__(
        self, batches: StoredBatches, joint: JointBatches, discovery: Discovery
    ) -> None:
        self._batches = batches
        self._joint = joint
        self._discovery = discovery
        self._left_out: set[TopicPartition] = set()

    def settle(self, start: SourceOffset) -> Positions:
        """Commit the batch that Spark has finished; return the positions to go on from.

        Raises:
            CheckpointDisagreesError: And nothing says who decides.
        """
        batches = self._batches
        if start.mark is None and batches.state.committed is None:
            # A checkpoint from before tx.id was set: its offsets become transaction 0.
            batches.adopt(
                0, start.positions, start.topic_ids, leader_epochs=start.leader_epochs
            )
        batches.own_newest(start)
        self._joint.check_done(start)
        batches.commit_if_next(start)
        batch = batches.state.next
        if batch is not None and is_spent(batches, batch, start):
            batches.commit(batch.txid)
        batches.check_mode()
        self._joint.check_start(start)
        if not batches.agrees(start):
            return self._disagree(start)
        settled = batches.settled(start)
        positions = self.subscribed(settled)
        if left_out := settled.keys() - positions.keys() - self._left_out:
            self._left_out |= left_out
            logger.warning(
                "does not read %s any more; their positions stay in the store, and a"
                " run that reads them again goes on there",
                few(sorted(left_out)),
            )
        return positions

    def subscribed(self, offsets: Positions) -> dict[TopicPartition, int]:
        """Positions that the query still reads; the others stay in the store."""
        return subscribed(self._discovery.wanted, offsets)

    def _disagree(self, start: SourceOffset) -> Positions:
        batches = self._batches
        state = batches.state.committed
        decides = batches.decides(start)
        if decides != "error":
            batches.ids_start_again()
        if decides == "store" and state is not None:
            return self.subscribed(state.offsets)
        if decides == "checkpoint":
            logged = start.mark.txid if start.mark else 0
            numbering = agreement.numbering_of(start)
            batches.adopt(
                max(logged, batches.newest(numbering)),
                all_of(start),
                start.topic_ids,
                numbering,
                start.leader_epochs,
                by_checkpoint=True,
            )
            return start.positions
        raise batches.contradiction(start)
