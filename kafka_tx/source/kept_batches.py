"""What the store of a ``tx.id`` holds, as its present owner sees and writes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import CheckpointDisagreesError
from kafka_tx.model import BatchMetadata, QueryShape, TopicPartition
from kafka_tx.offsets.discovery import is_another
from kafka_tx.planning.cluster_poller import Positions
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark, nested
from kafka_tx.protocols import Clock
from kafka_tx.source import agreement
from kafka_tx.source.agreement import Case
from kafka_tx.transactions.ledger import Committed, Ledger
from kafka_tx.transactions.txid_layout import new_name

logger = logging.getLogger(__name__)

Mirror = Callable[[Mapping[TopicPartition, int]], None]

_CHECK_MS = 5_000
"""How often an idle query looks whether the store is where it was left."""

_RENEW_MS = 3_600_000
"""How often offsets are written to a group again that did not change."""


class KeptBatches:
    """The committed transaction of an id and its planned ones, in memory and in store.

    Attributes:
        epoch: Of this owner; 0 before ``open``.
        committed: What the store has committed; None: nothing yet.
        planned: What each txid holds, from the committed one on.
        own: Txids that this owner has planned, or has seen to be readable.
        numbering: Which sequence the txids are of; empty: nothing is stored yet.
        sinks: Last txids of sinks in the store's database, when last asked for.
        query: What else the query keeps that was handed the last batch; None: none was.
        held: A txid without records, while other sources of the query have records of
            that batch to give again; 0: none.
    """

    def __init__(
        self,
        transactions: TransactionsConfig,
        ledger: Ledger,
        clock: Clock,
        mirror: Mirror | None = None,
    ) -> None:
        self._tx = transactions
        self._ledger = ledger
        self._clock = clock
        self._mirror = mirror
        self._mirrored_ms = 0
        self._checked_ms = 0
        self.epoch = 0
        self.committed: Committed | None = None
        self.planned: dict[int, BatchMetadata] = {}
        self.own: set[int] = set()
        self.numbering = ""
        self.sinks: Mapping[str, int] = {}
        self.query: QueryShape | None = None
        self.held = 0

    @property
    def txid(self) -> int:
        """The committed one; 0 without any."""
        return self.committed.txid if self.committed else 0

    def newest(self, numbering: str) -> int:
        """The greatest txid that the store knows of a numbering, its own one if empty.

        Of another one it knows none: a batch that sinks have seen keeps its txid.
        """
        if numbering not in ("", self.numbering):
            return 0
        return max([self.txid, *self.planned])

    def next(self) -> BatchMetadata | None:
        """The batch that is first in line, if it is planned."""
        return self.planned.get(self.txid + 1)

    def ids(self) -> Mapping[str, str]:
        """Ids of the topics that the committed positions are of."""
        return self.committed.topic_ids if self.committed else {}

    def position(self, partition: TopicPartition) -> int | None:
        """The committed position of a partition."""
        return self.committed.offsets.get(partition) if self.committed else None

    # --- ownership ---

    def open(self) -> None:
        """Take over the id, once: from here on an older owner is fenced."""
        if self.epoch:
            return
        epoch = self._ledger.acquire()
        state = self._ledger.load()
        self.committed = state.committed
        self.planned = dict(state.planned)
        self.numbering = state.numbering
        self.query = state.query
        self.epoch = epoch
        self._send_to_group()
        logger.info(
            "%s opened in %s with epoch %d, committed txid %d, unfinished %s",
            self._tx.id,
            self._ledger.url,
            epoch,
            self.txid,
            sorted(txid for txid in self.planned if txid > self.txid),
        )

    def check(self) -> None:
        """Make sure that nobody has taken over, and that the store did not go back.

        Raises:
            FencedError: Another query has taken over.
            StateLostError: The store is not where this owner left it.
        """
        self._ledger.check(self.epoch)
        self._checked_ms = self._clock.monotonic_ms()

    def rest(self) -> None:
        """There is nothing to plan: look at the store now and then all the same.

        Raises: as ``check``.
        """
        if self._clock.monotonic_ms() - self._checked_ms >= _CHECK_MS:
            self.check()
        self._renew_in_group()

    def own_newest(self, offset: SourceOffset) -> None:
        """Hold an epoch above all that the checkpoint has seen, as sinks have.

        It has seen later ones where the store was put back from a copy.
        """
        seen = offset.mark.epoch if offset.mark else 0
        if self.epoch < seen:
            self.check()
        while self.epoch < seen:
            self.epoch = self._ledger.acquire()

    def close(self) -> None:
        """Release connections."""
        self._ledger.close()

    # --- writing ---

    def named(self, batch: BatchMetadata) -> BatchMetadata:
        """The batch as Spark's log is about to name it, stored under that name.

        A transactional one may go by any of its names.
        """
        name = f"{batch.txid}@{self.epoch}"
        is_named = batch.logged_as and self._tx.mode == "transactional"
        if not is_named and batch.logged_as != name:
            batch = replace(batch, logged_as=name)
            self.store(batch)
        return batch

    def store(self, batch: BatchMetadata) -> None:
        """Store what a txid holds, instead of what it held before."""
        self.note(batch)
        self.own.add(batch.txid)

    def note(self, batch: BatchMetadata) -> None:
        """The same, where what it holds need not be readable."""
        is_known = batch.txid in self.planned
        self._ledger.plan(self.epoch, batch, replace=is_known)
        self.planned[batch.txid] = batch

    def describe(self, query: QueryShape) -> None:
        """Store what else the query keeps."""
        self._ledger.describe(self.epoch, query)
        self.query = query

    def commit(self, txid: int) -> None:
        """Commit what is first in line."""
        now_ms = self._clock.now_ms()
        is_first = self._ledger.commit(self.epoch, txid, completed_ms=now_ms)
        self.committed = self._ledger.last_committed()
        self.planned = {n: b for n, b in self.planned.items() if n >= txid}
        self.own = {n for n in self.own if n >= txid}
        self.held = 0
        if is_first:  # else the listener sends
            self._send_to_group()

    def commit_if_next(self, end: SourceOffset) -> None:
        """Commit the transaction that ends here if it is next, and the stored one."""
        batch = self.next()
        if batch is not None and self.fits(batch, end):
            self.commit(batch.txid)

    def adopt(
        self,
        txid: int,
        positions: Positions,
        ids: Mapping[str, str] | None = None,
        numbering: str = "",
    ) -> None:
        """Make a position that the store did not have the committed one.

        Of the numbering given, else of the one that is stored, else of a new one.
        """
        former = self.committed or Committed(0, {})
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
        self.numbering = numbering or self.numbering or new_name()
        self._ledger.adopt(self.epoch, taken, self.numbering)
        self.committed = taken
        self.planned = {}
        self.own = set()
        self.held = 0
        logger.warning(
            "%s starts at txid %d %s of numbering %s",
            *(self._tx.id, txid, nested(positions), self.numbering),
        )

    # --- the group ---

    def _renew_in_group(self) -> None:
        """Brokers forget offsets that nobody writes, however idle the topics are."""
        if self._clock.monotonic_ms() - self._mirrored_ms >= _RENEW_MS:
            self._send_to_group()

    def _send_to_group(self) -> None:
        if self._mirror is not None and self.committed is not None:
            self._mirrored_ms = self._clock.monotonic_ms()
            self._mirror(self.committed.offsets)

    # --- Spark's offsets ---

    def fits(self, batch: BatchMetadata, end: SourceOffset) -> bool:
        """Whether a stored batch is the one that ends at a logged offset."""
        return agreement.fits(self._tx, self.numbering, batch, end)

    def agrees(self, start: SourceOffset) -> bool:
        """Whether the next transaction of a checkpoint is the next one of the store."""
        state = self.committed
        return state is not None and agreement.agrees(
            self._tx,
            self.numbering,
            start,
            state,
            self.planned.get(state.carried),
        )

    def case_of(self, offset: SourceOffset, *, is_finished: bool = True) -> Case:
        """How a checkpoint contradicts the store, and what sinks beside it say.

        Args:
            offset: Where the checkpoint is.
            is_finished: Whether Spark is done with the batch that ends there.
        """
        case = agreement.case_of(self._tx, self.numbering, offset, self.committed)
        if case is not Case.AHEAD:
            return case
        self.sinks = self._ledger.sinks(self.numbering)
        return agreement.ahead(
            self.sinks, self.txid, _done(offset, is_finished=is_finished)
        )

    def contradiction(
        self, offset: SourceOffset, *, is_finished: bool = True
    ) -> CheckpointDisagreesError:
        """The error for a checkpoint that does not go with the store."""
        case = self.case_of(offset, is_finished=is_finished)
        return agreement.contradiction(
            self._tx,
            self.numbering,
            offset,
            self.committed,
            case,
            self.query,
            self.sinks,
            _done(offset, is_finished=is_finished),
        )

    def is_initial(self, start: SourceOffset) -> bool:
        """Whether a new checkpoint begins here, in this run."""
        mark = start.mark
        return mark is not None and mark.start and mark.epoch == self.epoch

    def settled(self, start: SourceOffset) -> dict[TopicPartition, int]:
        """The positions that a checkpoint means which agrees with the store."""
        assert self.committed is not None
        stored = self.committed.offsets
        return {p: stored.get(p, at) for p, at in start.positions.items()}

    def offset(self, batch: BatchMetadata, start: SourceOffset) -> SourceOffset:
        """Its end; with its beginning where Spark's log has none, or another."""
        ends = batch.logged_ends()
        is_first = start.mark is not None and start.mark.start
        before = {} if is_first else start.positions
        begins = {p: at for p, at in batch.starts().items() if before.get(p) != at}
        return SourceOffset(ends, self.mark(batch.txid, ends, batch.topic_ids), begins)

    def mark(
        self,
        txid: int,
        positions: Positions,
        ids: Mapping[str, str],
        *,
        start: bool = False,
    ) -> TransactionMark:
        """What goes into Spark's log beside positions, with what is out of sight."""
        state = self.committed or Committed(0, {})
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
            self._tx.id, txid, self.epoch, start, known, unseen, self.numbering
        )


def _done(offset: SourceOffset, *, is_finished: bool) -> int:
    """The last txid that sinks had of what a checkpoint has logged."""
    logged = offset.mark.txid if offset.mark else 0
    return logged if is_finished else logged - 1
