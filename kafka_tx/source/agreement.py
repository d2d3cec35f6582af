"""Whether Spark's checkpoint and the store tell the same story, and the text if not.

The advice of each text is safe when it is followed: a txid that a sink has seen is
never given to other records.
"""

from __future__ import annotations

from enum import Enum

from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import CheckpointDisagreesError
from kafka_tx.model import BatchMetadata
from kafka_tx.planning.offset_json import SourceOffset, nested
from kafka_tx.transactions.ledger import Committed


class Case(Enum):
    """How a checkpoint contradicts its store."""

    FOREIGN = "foreign"
    """It belongs to another ``tx.id``."""

    EMPTY = "empty"
    """The store knows nothing, the checkpoint does."""

    AHEAD = "ahead"
    """The checkpoint has transactions that the store does not know."""

    BEHIND = "behind"
    """The store has committed transactions that the checkpoint does not know."""

    APART = "apart"
    """Both went on from the same transaction, or the store was set by a person."""


_ADVICE = {
    Case.FOREIGN: "Set tx.id back, or start with a new checkpointLocation: the query"
    " then goes on where the store of this tx.id says.",
    Case.EMPTY: "Set tx.store to the store that has this id. If that one is lost, set"
    " tx.onDisagreement=checkpoint for one run: offsets and numbers go on where the"
    " checkpoint is. Do not start with a new checkpointLocation: it would begin again"
    " with txid 1, which sinks have seen.",
    Case.AHEAD: "The store is older than the checkpoint: it was put back from a copy,"
    " or tx.store names another one. Set tx.store right, or set"
    " tx.onDisagreement=checkpoint for one run: offsets and numbers go on where the"
    " checkpoint is. Do not start with a new checkpointLocation: it would use txids"
    " again that sinks have seen with other records.",
    Case.BEHIND: "The checkpoint is older than the store: it was put back from a copy,"
    " or another checkpoint was used since. To go on where the store is, start with a"
    " new checkpointLocation or set tx.onDisagreement=store for one run.",
    Case.APART: "Another checkpoint was used since, or offsets were set by hand. To go"
    " on where the store is, start with a new checkpointLocation or set"
    " tx.onDisagreement=store for one run.",
}


def fits(
    transactions: TransactionsConfig, batch: BatchMetadata, end: SourceOffset
) -> bool:
    """Whether a stored batch is the one that ends at a logged offset.

    Transactional, the txid says so, whoever planned it. An opaque one may have been
    planned anew since, and sinks then hold what nobody has in that checkpoint.
    """
    if batch.spark_batch or batch.logged_ends() != dict(end.positions):
        return False
    mark = end.mark
    if mark is None:
        return True
    is_its_plan = not batch.logged_as or batch.logged_as == logged_as(end)
    is_its_number = mark.txid == batch.txid and transactions.mode == "transactional"
    return mark.id == transactions.id and (is_its_plan or is_its_number)


def logged_as(end: SourceOffset) -> str:
    """What the plan of a batch is known by in Spark's log: its first txid and owner."""
    return f"{end.mark.txid}@{end.mark.epoch}" if end.mark else ""


def agrees(
    transactions: TransactionsConfig,
    start: SourceOffset,
    state: Committed,
    last: BatchMetadata | None,
) -> bool:
    """Whether the next transaction of a checkpoint is the next one of the store.

    Args:
        transactions: Of the query.
        start: Where the checkpoint is.
        state: What the store has committed.
        last: The last committed batch that had records, as far as it is kept.
    """
    if last is not None and fits(transactions, last, start):
        return True
    mark = start.mark
    if mark is not None and (mark.id, mark.txid) != (transactions.id, state.carried):
        return False
    if mark is None and state.txid and start.positions.keys() != state.offsets.keys():
        return False
    return all(state.offsets.get(p) == at for p, at in start.positions.items())


def case_of(
    transactions: TransactionsConfig, offset: SourceOffset, state: Committed | None
) -> Case:
    """How they contradict each other, given that they do.

    Opaque, a checkpoint that is one transaction ahead is not: another one has planned
    that txid anew since, and sinks take back what they have of it.
    """
    is_opaque = transactions.mode == "opaque"
    mark = offset.mark
    if mark is not None and mark.id != transactions.id:
        return Case.FOREIGN
    if state is None:
        return Case.EMPTY
    if mark is not None and mark.txid > state.txid + is_opaque:
        return Case.AHEAD
    if mark is None or mark.txid < state.carried:
        return Case.BEHIND
    return Case.APART


def contradiction(
    transactions: TransactionsConfig, offset: SourceOffset, state: Committed | None
) -> CheckpointDisagreesError:
    """The error that stops the query."""
    tx_id = transactions.id
    stored = f"at txid {state.txid} {nested(state.offsets)}" if state else "empty"
    mark = offset.mark
    logged = f"txid {mark.txid} of '{mark.id}'" if mark else "no txid"
    case = case_of(transactions, offset, state)
    return CheckpointDisagreesError(
        f"the checkpoint of '{tx_id}' is at {logged} {nested(offset.positions)} and its"
        f" store is {stored}. {_ADVICE[case]} `kafka-tx status` shows the store.",
        id=tx_id,
        case=case.value,
    )
