"""Batches of Spark without new records: transactions with a txid and empty ranges."""

from __future__ import annotations

from dataclasses import replace

from kafka_tx.config import TransactionsConfig
from kafka_tx.model import BatchMetadata, OffsetRange
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source import agreement
from kafka_tx.source.kept_batches import KeptBatches
from kafka_tx.source.questions import Question

_INSTEAD = "instead"
"""Name of a plan without records for a txid that was planned with records before."""


def stored_empty(kept: KeptBatches, question: Question) -> BatchMetadata | None:
    """The transaction of the batch, where an earlier try has stored it."""
    names = {question.spark_batch, question.query_batch}
    known = (b for b in kept.planned.values() if b.spark_batch in names)
    stored = next(known, None)
    held = kept.planned.get(kept.held)
    if stored is None and held is not None:  # it comes again, in another checkpoint
        stored = replace(held, spark_batch=question.spark_batch)
        kept.note(stored)
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
    if unread is not None and transactions.mode == "transactional":
        raise kept.contradiction(question.end)
    ranges = tuple(OffsetRange(p, o, o) for p, o in sorted(before.offsets.items()))
    batch = BatchMetadata(
        before.txid + 1,
        ranges,
        before.topic_ids,
        question.spark_batch,
        logged_as=_INSTEAD if unread is not None else "",
        joint=unread.joint if unread is not None else None,
    )
    kept.store(batch)
    return batch


def is_spent(kept: KeptBatches, batch: BatchMetadata, start: SourceOffset) -> bool:
    """Whether the next batch is one without records that Spark is done with.

    Its checkpoint tells no end of it. Being asked for what follows means that it is
    finished; or its checkpoint is gone with all of its state, and what the batch
    brought is written or lost: its txid is spent either way. Not so where sinks may
    have its txid with records that were planned before: each checkpoint but its own
    plans it anew, so that they take them back.
    """
    if not batch.spark_batch:
        return False
    is_waiting = is_open_elsewhere(kept, batch)
    is_done = batch.logged_as != _INSTEAD or batch.txid in kept.own
    return is_its(kept, batch, start) or (is_done and not is_waiting)


def is_open_elsewhere(kept: KeptBatches, batch: BatchMetadata) -> bool:
    """Whether other sources of the query have records of it that may come again."""
    joint = batch.joint
    return joint is not None and (batch.txid == kept.held or bool(joint.without_id))


def is_its(kept: KeptBatches, batch: BatchMetadata, start: SourceOffset) -> bool:
    """Whether the checkpoint that is at ``start`` may be the one that has the batch."""
    where = batch.spark_batch.rpartition("/")[0]
    return where == agreement.logged_as(start) and kept.agrees(start)
