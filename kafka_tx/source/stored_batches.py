"""The stored state of a ``tx.id``, as its current owner reads and writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import CheckpointDisagreesError, FencedError
from kafka_tx.logs import event_log
from kafka_tx.model import (
    BatchMetadata,
    LogPosition,
    QueryShape,
    TopicPartition,
    few,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.planning.cluster_poller import Positions
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark
from kafka_tx.protocols import Clock
from kafka_tx.source import agreement
from kafka_tx.source.agreement import Case, TopicIds
from kafka_tx.transactions.ledger.batch_ids import (
    IGNORED,
    UNKNOWN_SINK,
    SinkNote,
    forgotten,
    used_ids,
)
from kafka_tx.transactions.ledger.ledger import Ledger, LedgerState
from kafka_tx.transactions.ownership.refusals import at_work

logger = event_log(__name__)

Committed = Callable[[], Mapping[TopicPartition, LogPosition] | None]
"""Reads an owner's committed position anew; None: the owner has been fenced."""

Mirror = Callable[[Committed], None]
"""Copies the position to a group, on a thread of its own."""

SILENT_MS = 10_000
"""Longest time in which a living owner answers a call."""

READ_EVERY_MS = SILENT_MS // 3
"""How often an idle owner reads the store: has it changed, does somebody call?"""

_LISTEN_MS = 500


class StoredBatches:
    """The committed and planned transactions of an id, in memory and in the store.

    Attributes:
        epoch: Of this owner; 0 before ``open``.
        is_owner: Whether ``take`` has stored this owner.
        own: Txids that this owner has planned, or has checked to be readable.
        sinks: Last txids of sinks in the store's database, as of the last poll.
        waiting_txid: A txid without records of this source, while other sources of the
            query have records of this batch to replay; 0: none.
        is_again: Whether Spark's batch ids start again with the next planned batch, and
            only a question for its txid shows that the sink has not dropped it.
        is_bounded: Whether the run ends by itself.
    """

    def __init__(
        self,
        transactions: TransactionsConfig,
        ledger: Ledger,
        clock: Clock,
        topics: TopicIds,
        mirror: Mirror | None = None,
        *,
        spares_owners: bool = False,
        sink: SinkNote = UNKNOWN_SINK,
    ) -> None:
        self.tx = transactions
        self.sink = sink
        self._spares_owners = spares_owners
        self._topics = topics
        self._ledger = ledger
        self._clock = clock
        self._mirror = mirror
        self._must_send = False
        self._checked_ms = 0
        self._is_logged = False
        self.epoch = 0
        self._former_epoch = 0
        self.is_owner = False
        self._has_let_go = False
        self.own: set[int] = set()
        self.sinks: Mapping[str, int] = {}
        self.waiting_txid = 0
        self.is_again = False
        self.is_bounded = False
        self._delays = False

    @property
    def state(self) -> LedgerState:
        """The store's transactions, with this owner's changes."""
        return self._ledger.state

    def newest(self, numbering: str) -> int:
        """The greatest txid that the store has of a numbering (empty: its own).

        It has none of another numbering: a batch that sinks have seen keeps its txid.
        """
        return self.state.newest if numbering in ("", self.state.numbering) else 0

    # --- ownership ---

    def open(self) -> None:
        """Read the store, once. Changes before ``take`` stay in a draft.

        Raises:
            OwnerLivesError: This query does not fence living owners.
            BatchIdsAgainError: The sink would drop the batches of this run.
        """
        if self.epoch:
            return
        if self.sink.is_used:
            raise used_ids(self._ledger, self.sink)
        if self._spares_owners:
            self._listen()
        epoch = self._ledger.draft()
        self._ledger.load()
        self.epoch, self._former_epoch = epoch, epoch - 1
        self._must_send = self.state.committed is not None

    def take(self) -> None:
        """Take over the id, once: from now on an older owner is fenced.

        Raises:
            StateConflictError: The store has changed since ``open``; nobody was fenced,
                nothing was written.
        """
        if self.is_owner or not self.epoch:
            return
        self._ledger.beat(self.epoch)
        self._ledger.publish()
        self.is_owner = True
        if self._must_send:
            self._send_to_group()
        logger.info(
            "opened in %s with epoch %d, committed txid %d, unfinished %s",
            self._ledger.url,
            self.epoch,
            self.state.txid,
            [*self.state.unfinished],
        )

    def _listen(self) -> None:
        try:
            signs = self._ledger.call()
        except FencedError:  # the owner that took over meanwhile lives
            raise at_work(self._ledger) from None
        until_ms = self._clock.monotonic_ms() + SILENT_MS
        while signs is not None and self._clock.monotonic_ms() < until_ms:
            self._clock.sleep_ms(_LISTEN_MS)
            now = self._ledger.signs()
            if now is None:  # the owner has removed its sign of life
                return
            if now != signs:
                raise at_work(self._ledger)

    def answer(self) -> None:
        """Answer whoever asks whether this owner lives. In any thread.

        Reads the store only if ``check`` has not done so for ``READ_EVERY_MS``; without
        a call nothing is written.

        Raises:
            FencedError: Another query has taken over, or this query is raising its own
                epoch now.
            StateUnavailableError, StateError: From the store.
        """
        silent_ms = self._clock.monotonic_ms() - self._checked_ms
        if self.is_owner and silent_ms >= READ_EVERY_MS:
            self._ledger.answer(self.epoch)

    def let_go(self) -> None:
        """Remove the sign of life, as the last step: nobody needs to wait.

        Raises: as ``answer``.
        """
        if self.is_owner and not self._has_let_go:
            self._ledger.let_go(self.epoch)
            self._has_let_go = True

    def live_on(self) -> None:
        """Show life again if the last step was not the last one; as ``answer``."""
        if self._has_let_go:
            self._ledger.beat(self.epoch)
            self._has_let_go = False

    def check(self) -> None:
        """Check that nobody has taken over, and that the store was not restored.

        Raises:
            FencedError: Another query has taken over.
            StateLostError: The store is not in the state that this owner left.
        """
        self._ledger.check(self.epoch)
        self._checked_ms = self._clock.monotonic_ms()

    def check_mode(self) -> None:
        """Refuse to plan a transactional batch anew before it is finished.

        Opaque batches may be planned anew: only sinks that undo writes have them.

        Raises:
            CheckpointDisagreesError: Opaque, and the batch was always transactional.
        """
        batch = self.state.next
        if batch is None or batch.was_opaque:
            return
        if batch.mode != self.tx.mode == "opaque":
            raise agreement.in_another_mode(self.tx, batch)

    def rest(self) -> None:
        """There is nothing to plan: still check the store at intervals.

        Raises: as ``check``.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms < READ_EVERY_MS:
            return
        if self._ledger.is_as_left():
            self._checked_ms = now_ms
        else:
            self.check()

    def own_newest(self, offset: SourceOffset) -> None:
        """Raise the epoch above those in the checkpoint: sinks may have them, too.

        If the store was restored from a copy, the checkpoint may have later epochs, or
        the same epoch of another owner.
        """
        seen = offset.mark.epoch if offset.mark else 0
        is_own = self._is_logged or self.is_initial(offset)
        if self.epoch < seen:
            self.check()
        if self.epoch < seen or (self.epoch == seen and not is_own):
            self.epoch = self._ledger.acquire(above=seen)
        query = offset.mark.query if offset.mark else None
        if self.state.query is None and query and self.tx.id in query.numbered:
            self.describe(query)

    def close(self) -> None:
        """Release connections."""
        self._ledger.close()

    # --- writing ---

    def named(self, batch: BatchMetadata) -> BatchMetadata:
        """The batch with its name in Spark's next log entry, stored under this name.

        A transactional batch may use any of its names.
        """
        name = f"{batch.txid}@{self.epoch}"
        is_named = batch.logged_as and batch.mode == "transactional"
        if not is_named and batch.logged_as != name:
            batch = self.store(replace(batch, logged_as=name))
        return self.in_this_mode(batch)

    def in_this_mode(self, batch: BatchMetadata) -> BatchMetadata:
        """The batch in this owner's mode, before it is handed to a sink."""
        if batch.mode != self.tx.mode and batch.txid > self.state.txid:
            batch = self.store_unread(replace(batch, mode=self.tx.mode))
        return batch

    def store(self, batch: BatchMetadata) -> BatchMetadata:
        """Store the metadata of a txid, and replace earlier metadata; returns it."""
        stored = self.store_unread(batch)
        self.own.add(batch.txid)
        return stored

    def store_unread(self, batch: BatchMetadata) -> BatchMetadata:
        """As ``store``, for a batch that may be unreadable."""
        former = self.state.planned.get(batch.txid)
        if former is not None and (former.was_opaque or former.mode == "opaque"):
            batch = replace(batch, was_opaque=True)
        self._ledger.plan(self.epoch, batch, replace=former is not None)
        return self.state.planned[batch.txid]

    def describe(self, query: QueryShape) -> None:
        """Store the query's shape."""
        self._ledger.describe(self.epoch, query)

    # --- Spark's batch ids ---

    def ids_start_again(self, *, begins_here: bool = False) -> None:
        """Spark's batch ids start again here.

        ``begins_here``: this run has stored where the id begins. Otherwise a sink may
        have a batch 0 without records, although no txid is committed.

        Raises:
            BatchIdsAgainError: The sink may have batches under these ids, and nothing
                shows that it goes by txids.
        """
        state = self.state
        is_used = state.txid > 0 or not begins_here
        self.is_again = is_used and not self._is_vouched_for
        if self.is_again and state.txid and not state.is_asked:
            raise self._ledger.ids_again()

    def is_planned_anew(self) -> None:
        """An opaque batch gets other records, and Spark's log does not have the former.

        Either Spark never had them, or this is an older copy of the checkpoint.
        """
        self.is_again = not self._ignores_ids

    @property
    def _ignores_ids(self) -> bool:
        return self.tx.sink_batch_ids == IGNORED or self.sink.is_free

    @property
    def _is_vouched_for(self) -> bool:
        """Whether no sink holds an id of this run, as far as the user can know."""
        choice = self.tx.sink_batch_ids
        return self._ignores_ids or choice == forgotten(self._former_epoch)

    def guarded(self, batch: BatchMetadata, entry: int = 0) -> BatchMetadata:
        """The batch, ``unproven`` if Spark's batch ids start again with it.

        ``entry``: its epoch in Spark's log; 0: Spark logs it now.
        """
        before = self.state.position
        is_decided = before.by_checkpoint and self.state.is_asked
        if not self.is_again and (not is_decided or self._is_vouched_for):
            return batch
        marked = replace(batch, unproven=(*batch.unproven, entry or self.epoch))
        is_stored = self.state.planned.get(batch.txid) == batch
        return self.store_unread(marked) if is_stored and marked != batch else marked

    def prove(self, batch: BatchMetadata, end: SourceOffset) -> BatchMetadata:
        """The batch after somebody has asked for its txid: the sink goes by txids."""
        if not self.state.is_asked:
            self._ledger.note_question(self.epoch)
        self.is_again = False
        left = tuple(entry for entry in batch.unproven if entry != entry_of(end))
        if batch.txid <= self.state.txid or left == batch.unproven:
            return batch
        return self.store_unread(replace(batch, unproven=left))

    def commit(self, txid: int, logged: int = 0) -> None:
        """Commit the next batch; arguments and errors as of ``Ledger.commit``."""
        self._ledger.commit_with_next(
            *(self.epoch, txid, self._clock.now_ms()),
            self._told,
            logged=logged,
            is_bounded=self.is_bounded,
        )
        if not self._delays:
            self._ledger.settle()
        self.own = {n for n in self.own if n >= txid}
        self.waiting_txid = 0

    def _told(self, is_first: bool) -> None:
        if is_first:  # otherwise the listener sends
            self._send_to_group()

    @contextmanager
    def one_write(self) -> Iterator[None]:
        """Store the commit of a batch in one write with the plan of the next one.

        Without a plan, or after an error, the commit is stored at the end. Other
        sources of the query read it: then it does not wait.
        """
        self._delays = not self.state.has_several_sources
        try:
            yield
        finally:
            self._delays = False
            self._ledger.settle()

    def commit_if_next(self, end: SourceOffset) -> None:
        """Commit the transaction that ends here if it is the next stored one."""
        batch = self.state.next
        if batch is not None and self.fits(batch, end):
            self.commit(batch.txid, entry_of(end))

    def adopt(
        self,
        txid: int,
        positions: Positions,
        ids: Mapping[str, str] | None = None,
        numbering: str = "",
        leader_epochs: Mapping[TopicPartition, int] | None = None,
        *,
        by_checkpoint: bool = False,
    ) -> None:
        """Commit a position that the store did not have.

        Its numbering: the given one, else the stored one, else a new one.
        ``by_checkpoint``: a checkpoint decides the position, against the store.
        """
        moved = self.state.position.moved(positions, ids or {}, leader_epochs or {})
        now_ms = self._clock.now_ms()
        taken = replace(
            moved, txid=txid, completed_ms=now_ms, by_checkpoint=by_checkpoint
        )
        self._ledger.adopt(self.epoch, taken, numbering)
        self.own = set()
        self.waiting_txid = 0
        logger.warning(
            "goes on after txid %d of numbering %s at %s",
            *(txid, self.state.numbering),
            few(f"{partition}: {at}" for partition, at in sorted(positions.items())),
        )

    # --- the group ---

    def _send_to_group(self) -> None:
        self._must_send = not self.is_owner
        if self._mirror is not None and self.is_owner:
            self._mirror(lambda: self._ledger.owned(self.epoch))

    # --- Spark's offsets ---

    def fits(self, batch: BatchMetadata, end: SourceOffset) -> bool:
        """Whether a stored batch is the batch that ends at a logged offset."""
        return agreement.fits(self.state.numbering, batch, end)

    def agrees(self, start: SourceOffset) -> bool:
        """Whether the next transaction of a checkpoint is the next one of the store."""
        return agreement.agrees(self.state, start)

    def case_of(self, offset: SourceOffset, *, is_finished: bool = True) -> Case:
        """How a checkpoint disagrees with the store and the sinks beside it.

        ``is_finished``: Spark has finished the batch that ends at the offset.
        """
        case = agreement.case_of(self.tx, self.state, offset, self._topics)
        if case is not Case.AHEAD:
            return case
        self.sinks = self._ledger.sinks(self.state.numbering)
        done = _done(offset, is_finished=is_finished)
        return agreement.ahead(self.sinks, self.state.txid, done)

    def decides(
        self, offset: SourceOffset, *, is_finished: bool = True
    ) -> Literal["error", "checkpoint", "store"]:
        """Which side of a disagreement counts; arguments as of ``case_of``."""
        case = self.case_of(offset, is_finished=is_finished)
        return agreement.who_decides(self.tx, case, self.state.query)

    def contradiction(
        self, offset: SourceOffset, *, is_finished: bool = True
    ) -> CheckpointDisagreesError:
        """The error for a checkpoint that disagrees with the store."""
        case = self.case_of(offset, is_finished=is_finished)
        done = _done(offset, is_finished=is_finished)
        return agreement.contradiction(
            self.tx, self.state, offset, case, self.sinks, done
        )

    def is_initial(self, start: SourceOffset) -> bool:
        """Whether a new checkpoint begins here, in this run."""
        mark = start.mark
        return mark is not None and mark.start and mark.epoch == self.epoch

    def settled(self, start: SourceOffset) -> dict[TopicPartition, int]:
        """The positions of a checkpoint that agrees with the store."""
        stored = self.state.position.offsets
        return {p: stored.get(p, at) for p, at in start.positions.items()}

    def offset(self, batch: BatchMetadata, start: SourceOffset) -> SourceOffset:
        """The batch's end; with its start if Spark's log lacks this start."""
        ends = batch.logged_ends()
        self._is_logged = True
        is_first = start.mark is not None and start.mark.start
        before = {} if is_first else start.positions
        ids, epochs = batch.topic_ids, batch.leader_epochs()
        begins = {
            p: at
            for p, at in batch.starts().items()
            if before.get(p) != at
            or is_another(start.topic_ids.get(p.topic), ids.get(p.topic))
        }
        mark = replace(self.mark(batch.txid, ends, ids, epochs), schemas=batch.schemas)
        return SourceOffset(ends, mark, begins)

    def mark(
        self,
        txid: int,
        positions: Positions,
        ids: Mapping[str, str],
        leader_epochs: Mapping[TopicPartition, int],
        *,
        start: bool = False,
    ) -> TransactionMark:
        """The mark for Spark's log, with the positions of hidden topics."""
        state = self.state.position
        unseen = {
            p: at
            for p, at in state.offsets.items()
            if p not in positions
            and not is_another(state.topic_ids.get(p.topic), ids.get(p.topic))
        }
        topics = {partition.topic for partition in (*positions, *unseen)}
        every = {**state.topic_ids, **ids}
        known = {topic: known for topic, known in every.items() if topic in topics}
        return TransactionMark(
            self.tx.id,
            txid,
            self.epoch,
            start,
            known,
            unseen,
            self.state.numbering,
            {**state.epochs_of(unseen), **leader_epochs},
            self.state.query if self.state.has_several_sources else None,
        )


def entry_of(end: SourceOffset) -> int:
    """The epoch of an entry in Spark's log; -1: it has none."""
    return end.mark.epoch if end.mark else -1


def _done(offset: SourceOffset, *, is_finished: bool) -> int:
    logged = offset.mark.txid if offset.mark else 0
    return logged if is_finished else logged - 1
