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
    if agreement.numbering_of(question.end) not in ("", kept.numbering):
        return None  # equal names of another numbering
    names = {question.spark_batch, question.query_batch}
    known = (b for b in kept.planned.values() if b.spark_batch in names)
    held = kept.planned.get(kept.held)
    stored = next(known, held)
    if stored is not None and stored is held:  # it comes again: this run has it now
        if stored.spark_batch not in names:
            stored = replace(held, spark_batch=question.spark_batch)
            kept.note(stored)
        kept.held = 0
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
    if unread is not None and unread.mode == "transactional":
        raise kept.contradiction(question.end)
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
        mode=transactions.mode,
    )
    kept.store(batch)
    return batch


def is_spent(kept: KeptBatches, batch: BatchMetadata, start: SourceOffset) -> bool:
    """Whether the next batch is one without records that Spark is done with.

    Its checkpoint tells no end of it. Being asked for what follows means that it is
    finished; or its checkpoint is gone with all of its state, and what the batch
    brought is written or lost: its txid is spent either way. Not so where sinks may
    have its txid with records that were planned before: each checkpoint but its own
    plans it anew, so that they take them back. Nor where other sources of the query
    have records of it: they may come again.
    """
    if not batch.spark_batch or batch.txid == kept.held:
        return False
    where = batch.spark_batch.rpartition("/")[0]
    is_its = where == agreement.logged_as(start) and kept.agrees(start)
    if batch.joint is not None and batch.joint.without_id:
        return is_its
    return batch.logged_as != _INSTEAD or batch.txid in kept.own or is_its
