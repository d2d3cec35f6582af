"""The errors of queries with several sources."""

from __future__ import annotations

from kafka_tx.errors import CheckpointDisagreesError
from kafka_tx.model import JointBatch, QueryShape
from kafka_tx.planning.new_checkpoints import (
    BEGIN_ANEW,
    HALF_WRITTEN,
    lost_with_checkpoint,
)
from kafka_tx.planning.replays import Parts, as_given, set_to
from kafka_tx.source.agreement import IS_OLDER, Case


def undecided(
    tx_id: str, joint: JointBatch, query: QueryShape
) -> CheckpointDisagreesError:
    """The error for a checkpoint that decided for one of several sources."""
    why = (
        f"tx.onDisagreement=checkpoint decided for '{tx_id}' alone, but each batch of"
        f" this query has records of {_sources(query)}. The checkpoint of '{tx_id}'"
        " does not show which batches of the other sources the sinks hold. The query"
        " would repeat txids or records."
    )
    return _one_alone(why, tx_id, joint, query, Case.UNDECIDED)


def begun_anew(
    tx_id: str, joint: JointBatch, query: QueryShape
) -> CheckpointDisagreesError:
    """The error for one of several sources that counts in another numbering."""
    why = (
        f"the store of '{tx_id}' was reset or replaced since the last batch of"
        f" {_sources(query)}, and has another numbering now. The query would repeat"
        " records that the sinks hold."
    )
    return _one_alone(why, tx_id, joint, query, Case.ANOTHER)


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
        f"{lost_with_checkpoint(query)}{BEGIN_ANEW}",
        id=tx_id,
        case=case.value,
    )


def store_is_older(tx_id: str, txid: int) -> CheckpointDisagreesError:
    """The error for a finished batch that the store knows as planned only."""
    return CheckpointDisagreesError(
        f"Spark has finished transaction {txid} of '{tx_id}', but the store does not"
        " have the offsets of the other sources in that batch. Nothing was written."
        f" {IS_OLDER}{BEGIN_ANEW}",
        id=tx_id,
        case=Case.AHEAD.value,
    )


def parted(
    tx_id: str,
    batches: Parts,
    joint: JointBatch,
    query: QueryShape | None,
) -> CheckpointDisagreesError:
    """The error for a transaction that comes without what it was one batch with.

    Args:
        tx_id: Of the source that finds it.
        batches: Its parts.
        joint: The batch as it was handed out.
        query: What else the query kept then.
    """
    others = [f"'{name}'" for name in joint.parts if name != tx_id]
    beside = (
        f"one batch with {' and '.join(others)}" if others else "a batch of its own"
    )
    return CheckpointDisagreesError(
        f"transaction {joint.parts[tx_id].txid} of '{tx_id}' is not finished and is"
        f" {beside}. With this checkpoint or these sources, the batch would have other"
        " records, and a sink that holds the txid would leave them out. Nothing was"
        " written. Start the query with the checkpointLocation and the sources that it"
        " had before: this finishes the transaction. Only after that, start with a new"
        " checkpointLocation."
        f"{_without_checkpoint(batches, joint, query)}",
        id=tx_id,
        case=Case.PARTED.value,
    )


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
