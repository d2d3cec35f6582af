"""Batches of queries with several sources: each source replays its part, or none does.

One source numbers the rows of all. A txid that a sink may have seen must come again
with the same records of every source, so each source with a ``tx.id`` numbers every
batch of the query, also one without records of its own, and keeps which txids of the
others go with it. From a new checkpoint each gives its part of an unfinished batch
again, and nothing beside it; a source without ``tx.id`` cannot, so such a checkpoint is
refused while a transaction is unfinished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import CheckpointDisagreesError
from kafka_tx.model import BatchMetadata, JointBatch
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source import agreement
from kafka_tx.source.kept_batches import KeptBatches
from kafka_tx.source.questions import Question
from kafka_tx.transactions.ledger import Ledger, LedgerState

LedgerOf = Callable[[str], Ledger]
"""Opens the ledger of another id in the same store."""


class JointBatches:
    """What the source of one ``tx.id`` has to do with its query's other sources.

    Args:
        ledger_of: Of the ids of the other sources; None: there are none. One that keeps
            another store is not found there; then a new checkpoint may be refused that
            could be right.
    """

    def __init__(
        self,
        transactions: TransactionsConfig,
        kept: KeptBatches,
        ledger_of: LedgerOf | None,
    ) -> None:
        self._tx = transactions
        self._kept = kept
        self._ledger_of = ledger_of
        self._is_settled = False

    def settle(self) -> None:
        """Learn what became elsewhere of the batch that was unfinished when it began.

        The batch is finished if any of its sources has just committed its part, since
        all of them wait for Spark's commit log. None commits the next one before all
        have committed this one: whoever is further has done so without them. Otherwise
        a part without records is held while another source has some to give again.

        Raises:
            StateUnavailableError, StateError: Of the ledgers of the others.
        """
        kept = self._kept
        batch = kept.next()
        if batch is None or batch.joint is None or (self._is_settled and not kept.held):
            self._is_settled = True
            return
        found = [
            self._part(name, batch.joint)
            for name, (txid, _) in batch.joint.parts.items()
            if txid and name != self._tx.id
        ]
        if any(is_finished for is_finished, _ in found):
            kept.commit(batch.txid)
        elif batch.spark_batch and any(has_records for _, has_records in found):
            kept.held = batch.txid
        self._is_settled = True

    def check_start(self, start: SourceOffset) -> None:
        """Refuse to go on beside an unfinished batch of a source without ``tx.id``.

        Raises:
            CheckpointDisagreesError: A new checkpoint, or another one than the batch's.
        """
        batch = self._kept.next()
        if batch is None or batch.joint is None or not batch.joint.without_id:
            return
        if self._kept.is_initial(start) or batch.spark_batch:
            raise self._parted(batch, batch.joint)

    def known(self, batch: BatchMetadata, question: Question) -> JointBatch | None:
        """The batch as all sources had it when a sink may have seen it, if one may.

        So may a batch that another checkpoint has, under the name that it was planned
        with, from when this was the query's only source.
        """
        kept, query = self._kept, self._kept.query
        is_alone = query is not None and len(query.numbered) == 1 and not query.others
        end = agreement.logged_as(question.end)
        is_here = batch.spark_batch or batch.logged_as == end
        is_open = batch.txid > kept.txid and self._tx.mode == "transactional"
        is_seen = batch.joint is None and is_alone and is_open and not is_here
        return self._single(batch) if is_seen else batch.joint

    def numbered(self, batch: BatchMetadata, question: Question) -> BatchMetadata:
        """The batch, with what goes with it stored before any sink sees it.

        Raises:
            CheckpointDisagreesError: The txid went with other records of other sources.
        """
        kept, given = self._kept, question.joint
        assert question.shape is not None
        known = self.known(batch, question)
        if known is not None and not known.is_same(given or self._single(batch)):
            raise self._parted(batch, known)
        if kept.query != question.shape:
            kept.describe(question.shape)
        if batch.joint is None and given is not None and batch.txid > kept.txid:
            batch = replace(batch, joint=given)
            kept.note(batch)
        return batch

    def _single(self, batch: BatchMetadata) -> JointBatch:
        return JointBatch(self._tx.id, {self._tx.id: (batch.txid, "")})

    def check_records(self) -> None:
        """Refuse to number a batch without records where the txid is one with others.

        Raises:
            CheckpointDisagreesError: It is.
        """
        batch = self._kept.next()
        if batch is not None and batch.joint is not None:
            raise self._parted(batch, batch.joint)

    def _part(self, name: str, joint: JointBatch) -> tuple[bool, bool]:
        """Whether another source has committed its part, and has records of it.

        What a person has set is no commit: its metadata is gone.
        """
        state = self._state_of(name)
        txid, _ = joint.parts[name]
        batch = state.planned.get(txid) if state is not None else None
        if state is None or batch is None or not joint.is_same(batch.joint):
            return False, False
        is_finished = state.txid >= txid
        return is_finished, not is_finished and any(len(r) for r in batch.ranges)

    def _parted(
        self, batch: BatchMetadata, joint: JointBatch
    ) -> CheckpointDisagreesError:
        parts = {self._tx.id: batch}
        for name, (txid, _) in joint.parts.items():
            state = self._state_of(name) if txid and name != self._tx.id else None
            if state is not None and txid in state.unfinished:
                parts[name] = state.unfinished[txid]
        return agreement.parted(self._tx.id, parts, joint, self._kept.query)

    def _state_of(self, tx_id: str) -> LedgerState | None:
        if self._ledger_of is None:
            return None
        ledger = self._ledger_of(tx_id)
        try:
            return ledger.load()
        finally:
            ledger.close()
