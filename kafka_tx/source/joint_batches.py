"""Batches of queries with several sources: each source replays its part, or none does.

One source's txids number the rows of all sources. A txid that a sink may have seen must
be replayed with the same records of every source. So each source with a ``tx.id``
numbers every batch of the query, also one without its own records, and stores the other
sources' txids of the batch. From a new checkpoint each source replays only its part of
an unfinished batch. A source without ``tx.id`` cannot do this, so a new checkpoint is
refused while a transaction is unfinished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafka_tx.errors import CheckpointDisagreesError
from kafka_tx.model import BatchMetadata, JointBatch, JointPart, QueryShape
from kafka_tx.planning.new_checkpoints import (
    BEGIN_ANEW,
    HALF_WRITTEN,
    ONLY_WHOLE,
    lost_with_checkpoint,
)
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.planning.replays import Parts, as_given, set_to
from kafka_tx.source import agreement
from kafka_tx.source.agreement import IS_OLDER, Case
from kafka_tx.source.questions import Question
from kafka_tx.source.stored_batches import StoredBatches
from kafka_tx.transactions.ledger.ledger import Ledger, LedgerState

LedgerOf = Callable[[str], Ledger]
"""Opens the ledger of another id in the same store."""


class JointBatches:
    """Coordinates the source of one ``tx.id`` with its query's other sources.

    A source with another store is not found; then a correct new checkpoint may be
    refused. Without ``ledger_of`` there are no other sources.
    """

    def __init__(self, batches: StoredBatches, ledger_of: LedgerOf | None) -> None:
        self._tx = batches.tx
        self._batches = batches
        self._ledger_of = ledger_of
        self._is_settled = False
        self._has_waited = False

    def settle(self) -> None:
        """Find out whether other sources committed the first unfinished batch.

        The batch is finished if any source has just committed its part, since all wait
        for Spark's commit log. None commits the next batch before all have committed
        this one: a source further ahead has gone on without the others. Otherwise a
        part without records is held while another source has records to replay.

        Raises:
            StateUnavailableError, StateError: From the other sources' ledgers.
        """
        batches = self._batches
        batch = batches.state.next
        if (
            batch is None
            or batch.joint is None
            or (self._is_settled and not batches.waiting_txid)
        ):
            self._is_settled = True
            return
        found = [
            self._part(name, batch.joint)
            for name, part in batch.joint.parts.items()
            if part.txid and name != self._tx.id
        ]
        if any(is_finished for is_finished, _ in found):
            batches.commit(batch.txid)
        elif batch.spark_batch and any(has_records for _, has_records in found):
            batches.waiting_txid = batch.txid
        self._is_settled = True

    def wait_for_others(self, batch: BatchMetadata) -> None:
        """Wait once for the other sources to replay their parts of the batch.

        Sources of this query do so when Spark asks each for its next batch.

        Raises:
            CheckpointDisagreesError: The others are not in this query.
        """
        assert batch.joint is not None
        if self._has_waited:
            raise self._parted(batch, batch.joint)
        self._has_waited = True

    def check_done(self, start: SourceOffset) -> None:
        """Refuse a batch that Spark has finished and the store has only as planned.

        All sources number a batch before any sink sees it. So the store is an older
        copy, and this checkpoint lacks the other sources' later batches.

        Raises:
            CheckpointDisagreesError: The store is older than the checkpoint.
        """
        batches, batch = self._batches, self._batches.state.next
        is_several = batches.state.has_several_sources
        if is_several and batch and not batch.joint and batches.fits(batch, start):
            raise CheckpointDisagreesError(
                f"Spark has finished transaction {batch.txid} of '{self._tx.id}', but"
                " the store does not have the offsets of the other sources in that"
                " batch. Nothing was written. If the query's function no longer uses"
                " for_each_transaction, use it again, with a new checkpointLocation:"
                " then the transaction comes again. Otherwise check the store."
                f" {IS_OLDER}{BEGIN_ANEW}",
                id=self._tx.id,
                case=Case.AHEAD.value,
            )

    def check_start(self, start: SourceOffset) -> None:
        """Refuse to go on beside an unfinished batch of a source without ``tx.id``.

        Raises:
            CheckpointDisagreesError: The checkpoint is new, or not the batch's.
        """
        batch = self._batches.state.next
        if batch is None or batch.joint is None or not batch.joint.without_id:
            return
        if self._batches.is_initial(start) or batch.spark_batch:
            raise self._parted(batch, batch.joint)

    def known(self, batch: BatchMetadata, question: Question) -> JointBatch | None:
        """The parts of the batch that a sink may have seen together, if any.

        These are the parts of the stored joint batch. No joint batch is stored if this
        was the query's only source when the query was last described. If then another
        checkpoint logged the batch and did not finish it, a sink may have seen this
        source's records alone. That is only decided for transactional batches: opaque
        ones may be planned anew, or replaced in their sink.
        """
        query = self._batches.state.query
        is_alone = query is not None and not query.has_several_sources
        end = agreement.logged_as(question.end)
        is_here = batch.spark_batch or batch.logged_as == end
        is_fixed = self._tx.mode == "transactional"
        is_seen = batch.joint is None and is_alone and is_fixed and not is_here
        return self._single(batch) if is_seen else batch.joint

    def numbered(self, batch: BatchMetadata, question: Question) -> BatchMetadata:
        """The batch, after its joint batch is stored, before any sink sees it.

        Raises:
            CheckpointDisagreesError: The txid was used with other records of other
                sources; the checkpoint decided for this source alone; or a store of
                another source has begun anew.
        """
        batches, given = self._batches, question.joint
        assert question.shape is not None
        shape = question.shape.counting(given)
        if given is not None:
            self._check_numbers(given, shape)
        known = self.known(batch, question)
        if known is not None and not known.is_same(given or self._single(batch)):
            if batch.txid <= batches.state.txid:
                raise _committed(self._tx.id, known, shape)
            raise self._parted(batch, known)
        if batches.state.query != shape:
            batches.describe(shape)
        if (
            batch.joint is None
            and given is not None
            and batch.txid > batches.state.txid
        ):
            batch = batches.store_unread(replace(batch, joint=given))
        return batch

    def _single(self, batch: BatchMetadata) -> JointBatch:
        part = JointPart(batch.txid, "", self._batches.state.numbering)
        return JointBatch(self._tx.id, {self._tx.id: part})

    def _check_numbers(self, given: JointBatch, shape: QueryShape) -> None:
        """Refuse a batch whose parts may not belong together."""
        before = self._batches.state.committed
        if given.numbers == self._tx.id:
            for name in shape.begun_anew(self._batches.state.query):
                why = (
                    f"the store of '{name}' was reset or replaced since the last batch"
                    f" of {_sources(shape)}, and has another numbering now. The query"
                    " would repeat records that the sinks hold."
                )
                raise _one_alone(why, name, given, shape, Case.ANOTHER)
        is_by_checkpoint = before is not None and before.by_checkpoint
        if is_by_checkpoint and self._is_doubtful(given):
            why = (
                f"tx.onDisagreement=checkpoint decided for '{self._tx.id}' alone, but"
                f" each batch of this query has records of {_sources(shape)}. The"
                f" checkpoint of '{self._tx.id}' does not show which batches of the"
                " other sources the sinks hold. The query would repeat txids or"
                " records."
            )
            raise _one_alone(why, self._tx.id, given, shape, Case.UNDECIDED)

    def _is_doubtful(self, given: JointBatch) -> bool:
        """Whether sinks may hold batches that this source's checkpoint lacks.

        It may be older than the sinks, and it never has txids of batches without
        records of its source. Sinks may hold such batches if this source numbers them,
        or if the numbering source's store still has its last finished joint batch.
        `kafka-tx offsets set` removes that batch from the store: the person has then
        compared the offsets with the sink.
        """
        if given.numbers == self._tx.id:
            return True
        state = self._state_of(given.numbers)
        last = state.planned.get(state.txid) if state else None
        return last is not None and last.joint is not None

    def check_records(self) -> None:
        """Refuse to number an empty batch if its txid is of a joint batch."""
        batch = self._batches.state.next
        if batch is not None and batch.joint is not None:
            raise self._parted(batch, batch.joint)

    def _part(self, name: str, joint: JointBatch) -> tuple[bool, bool]:
        """Whether another source has committed its part, and has records of it.

        A position set by a person is no commit: the metadata is gone.
        """
        state = self._state_of(name)
        txid = joint.parts[name].txid
        batch = state.planned.get(txid) if state is not None else None
        if state is None or batch is None or not joint.is_same(batch.joint):
            return False, False
        is_finished = state.txid >= txid
        return is_finished, not is_finished and any(len(r) for r in batch.ranges)

    def others(self, batch: BatchMetadata) -> Parts:
        """The unfinished parts of a batch in other sources with a ``tx.id``.

        None: that source's part is not known.
        """
        found: dict[str, BatchMetadata | None] = {}
        joint = batch.joint
        assert joint is not None
        for name, (txid, _, numbering) in joint.parts.items():
            if not txid or name == self._tx.id:
                continue
            state = self._state_of(name)
            if state is None or state.numbering != numbering or state.txid < txid:
                part = state.planned.get(txid) if state else None
                is_it = part and (part.joint is None or joint.is_same(part.joint))
                found[name] = part if is_it else None
        return found

    def _parted(
        self, batch: BatchMetadata, joint: JointBatch
    ) -> CheckpointDisagreesError:
        parts = {self._tx.id: batch, **self.others(replace(batch, joint=joint))}
        return _parted(self._tx.id, parts, joint, self._batches.state.query)

    def _state_of(self, tx_id: str) -> LedgerState | None:
        if self._ledger_of is None:
            return None
        ledger = self._ledger_of(tx_id)
        try:
            return ledger.load()
        finally:
            ledger.close()


def _sources(query: QueryShape) -> str:
    return " and ".join(f"'{name}'" for name in (*query.numbered, *query.others))


def _one_alone(
    why: str, tx_id: str, joint: JointBatch, query: QueryShape, case: Case
) -> CheckpointDisagreesError:
    return CheckpointDisagreesError(
        f"{why} Nothing was written. Set tx.store to the store that had '{tx_id}'"
        " before. If that store is lost, find the last record of each partition that"
        " the sink holds. For each id, set the offsets after these records with"
        f" `kafka-tx offsets set`. For '{joint.numbers}', use `kafka-tx offsets set"
        " --numbering … --attempt …` with the numbering and the attempt in the sink."
        " Then start with a new checkpointLocation."
        f"{lost_with_checkpoint(query)}{ONLY_WHOLE}",
        id=tx_id,
        case=case.value,
    )


def _parted(
    tx_id: str, batches: Parts, joint: JointBatch, query: QueryShape | None
) -> CheckpointDisagreesError:
    """The error for a transaction that comes without the other parts of its batch.

    ``joint`` is the batch that sinks may have seen, with the ``query`` of that time.
    """
    return CheckpointDisagreesError(
        f"transaction {joint.parts[tx_id].txid} of '{tx_id}' is not finished and is"
        f" {_beside(tx_id, joint)}. With this checkpoint or these sources, the batch"
        " would have other records, and a sink that holds the txid would leave them"
        " out. Nothing was written. Start the query with the checkpointLocation and the"
        " sources that it had before: this finishes the transaction. Only after that,"
        " start with a new checkpointLocation."
        f"{_without_checkpoint(batches, joint, query)}",
        id=tx_id,
        case=Case.PARTED.value,
    )


def _committed(
    tx_id: str, joint: JointBatch, query: QueryShape
) -> CheckpointDisagreesError:
    """The error for a checkpoint whose batch was committed with other parts."""
    return CheckpointDisagreesError(
        f"transaction {joint.parts[tx_id].txid} of '{tx_id}' is committed and was"
        f" {_beside(tx_id, joint)}. This checkpoint has it with other sources: a sink"
        " that holds the txid would leave out their records. Nothing was written. The"
        " checkpoint is an old copy, or of a query that was refused. To continue where"
        " the store is, start with a new checkpointLocation."
        f"{lost_with_checkpoint(query)}",
        id=tx_id,
        case=Case.BEHIND.value,
    )


def _beside(tx_id: str, joint: JointBatch) -> str:
    others = [f"'{name}'" for name in joint.parts if name != tx_id]
    return f"one batch with {' and '.join(others)}" if others else "a batch of its own"


def _without_checkpoint(
    batches: Parts, joint: JointBatch, query: QueryShape | None
) -> str:
    known = {id_: part for id_, part in batches.items() if part is not None}
    if len(known) < len(batches):
        return BEGIN_ANEW
    logs = {id_: (b.topic_ids, b.leader_epochs()) for id_, b in known.items()}
    ends = {id_: as_given(b.ends(), *logs[id_]) for id_, b in known.items()}
    starts = {id_: as_given(b.starts(), *logs[id_]) for id_, b in known.items()}
    return (
        " If that checkpoint is lost or refused, look whether the sink has txid"
        f" {joint.number} of '{joint.numbers}'. If it has, the sink holds the records"
        f" of this batch: {set_to(ends)}. If it has not: {set_to(starts)}. Then"
        " start with a new checkpointLocation; the txid is not used again."
        f"{lost_with_checkpoint(query)}{HALF_WRITTEN}"
    )
