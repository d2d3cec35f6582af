"""Whether Spark's checkpoint and the store tell the same story, and the text if not.

The advice of each text is safe when it is followed: a txid that a sink has seen is
never given to other records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Literal

from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import CheckpointDisagreesError
from kafka_tx.model import BatchMetadata, JointBatch, QueryShape, TopicPartition
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.planning.offset_json import MARK, SourceOffset, nested
from kafka_tx.transactions.ledger import Committed


class Case(Enum):
    """How a checkpoint contradicts its store."""

    RENAMED = "renamed"
    """It belongs to another ``tx.id``, and this one has no state."""

    FOREIGN = "foreign"
    """It belongs to another ``tx.id``, and this one has a state of its own."""

    EMPTY = "empty"
    """The store knows nothing, the checkpoint does."""

    ANOTHER = "another"
    """The store has begun anew since, or is another one."""

    UNNUMBERED = "unnumbered"
    """The checkpoint was read on for some runs without ``tx.id``."""

    AHEAD = "ahead"
    """The checkpoint has transactions that the store does not know."""

    TOGETHER = "together"
    """AHEAD, and the sinks in the store's database do not know them either."""

    ALONE = "alone"
    """AHEAD, and the sinks in the store's database have them."""

    SCATTERED = "scattered"
    """AHEAD, and the sinks in the store's database are at neither."""

    BEHIND = "behind"
    """The store has committed transactions that the checkpoint does not know."""

    APART = "apart"
    """Both went on from the same transaction, or the store was set by a person."""

    PARTED = "parted"
    """It has an unfinished transaction with other records of the other sources."""


_ONLY_CHECKPOINT = frozenset({Case.RENAMED, Case.EMPTY, Case.UNNUMBERED})
"""Where to go on from the store would lose or repeat what the checkpoint has done."""
_RIGHT = {
    Case.FOREIGN: "error",
    Case.SCATTERED: "error",
    Case.TOGETHER: "store",
    Case.ALONE: "checkpoint",
    **dict.fromkeys(_ONLY_CHECKPOINT, "checkpoint"),
}
"""The one way that loses nothing; the other one is not gone, whoever asks for it."""

_ADVICE = {
    Case.RENAMED: "Set tx.id back to the one that the checkpoint counts. To rename it,"
    " set tx.onDisagreement=checkpoint for one run: offsets, numbers and numbering go"
    " on under the new name, and sinks with them. Do not start with a new"
    " checkpointLocation: nothing is stored under this tx.id, so it would begin at"
    " startingOffsets and with txid 1.",
    Case.FOREIGN: "Set tx.id back to the one that the checkpoint counts: the store of"
    " this one is somebody else's. If this tx.id is right, the checkpoint is wrong: set"
    " checkpointLocation to the one that this tx.id had.",
    Case.EMPTY: "Set tx.store to the store that has this id. If that one is lost, set"
    " tx.onDisagreement=checkpoint for one run: offsets and numbers go on where the"
    " checkpoint is; what sinks lost with it is not read again. Do not start with a new"
    " checkpointLocation: it would begin again with txid 1, which sinks have seen.",
    Case.ANOTHER: "The store has begun anew since, or tx.store names another one: its"
    " txids are of another numbering, and sinks refuse those of the one that they do"
    " not know. Set tx.store to the one that this checkpoint was used with. If that is"
    " lost, set tx.onDisagreement=checkpoint for one run: offsets, numbers and their"
    " numbering go on where the checkpoint is. Do not start with a new"
    " checkpointLocation.",
    Case.UNNUMBERED: "The checkpoint is newer than the store: it was used without tx.id"
    " since. Set tx.onDisagreement=checkpoint for one run: offsets go on where the"
    " checkpoint is, numbers where the store is. Do not start with a new"
    " checkpointLocation: it would read again what was read without tx.id.",
    Case.AHEAD: "The store is older than the checkpoint: it was put back from a copy,"
    " its database lost its last writes, or tx.store names another one. Set tx.store"
    " right. If that cannot be, look which txid the sinks hold. Txid {done} or later:"
    " set tx.onDisagreement=checkpoint for one run: offsets and numbers go on where the"
    " checkpoint is. Txid {stored} or {following}, since they went back with it: set"
    " tx.onDisagreement=store for one run: the query goes on where the store is. Any"
    " other: put store and sinks back from copies that were made together. Do not start"
    " with a new checkpointLocation: it would use txids again that sinks may have seen"
    " with other records.",
    Case.TOGETHER: "The store is older than the checkpoint, and so are the sinks in its"
    " database: it lost its last writes, or was put back from a copy as a whole. Set"
    " tx.onDisagreement=store for one run: the query goes on where they are, and reads"
    " again what they lost. Sinks elsewhere have later txids: put them back to the same"
    " time first, or the database to where it was. Do not start with a new"
    " checkpointLocation: this one would be taken for a newer one later on.",
    Case.ALONE: "The store is older than the checkpoint, but the sinks in its database"
    " are not: its records alone were put back. Set tx.onDisagreement=checkpoint for"
    " one run: offsets and numbers go on where the checkpoint and the sinks are. Do not"
    " start with a new checkpointLocation: it would use txids again that sinks have"
    " seen with other records.",
    Case.SCATTERED: "The store is older than the checkpoint, and the sinks in its"
    " database are at neither of them: they were put back from copies of several times."
    " Put the database back from one copy, as a whole, and then start again. Do not"
    " start with a new checkpointLocation: it would use txids again that sinks have"
    " seen with other records.",
    Case.BEHIND: "The checkpoint is older than the store: it was put back from a copy,"
    " or another checkpoint was used since. To go on where the store is, start with a"
    " new checkpointLocation or set tx.onDisagreement=store for one run.",
    Case.APART: "Another checkpoint was used since, or offsets were set by hand. To go"
    " on where the store is, start with a new checkpointLocation or set"
    " tx.onDisagreement=store for one run.",
}


_COUNTED_IN_STORE = (
    " Let the checkpoint decide only if no sink holds a txid above {logged}: batches"
    " without records of this source are not in its checkpoint, and their txids would"
    " come again. If one does, put store and sinks back from copies that were made"
    " together."
)
_BY_CHECKPOINT = frozenset({Case.RENAMED, Case.EMPTY, Case.ANOTHER, Case.AHEAD})
"""Where numbers may go on that the checkpoint alone tells."""

_ALONE = (
    " Make sure first that no other run of this tx.id lives: what it does meanwhile"
    " would be decided, too."
)


def numbering_of(offset: SourceOffset) -> str:
    """Which sequence of txids a checkpoint counts in; empty: in none."""
    return offset.mark.numbering if offset.mark else ""


def fits(
    transactions: TransactionsConfig,
    numbering: str,
    batch: BatchMetadata,
    end: SourceOffset,
) -> bool:
    """Whether a stored batch, of this numbering, is the one that ends at an offset.

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
    return mark.numbering == numbering and (is_its_plan or is_its_number)


def logged_as(end: SourceOffset) -> str:
    """What the plan of a batch is known by in Spark's log: its first txid and owner."""
    return f"{end.mark.txid}@{end.mark.epoch}" if end.mark else ""


def agrees(
    transactions: TransactionsConfig,
    numbering: str,
    start: SourceOffset,
    state: Committed,
    last: BatchMetadata | None,
) -> bool:
    """Whether the next transaction of a checkpoint is the next one of the store.

    Args:
        transactions: Of the query.
        numbering: Of the store.
        start: Where the checkpoint is.
        state: What the store has committed.
        last: The last committed batch that had records, as far as it is kept.
    """
    if last is not None and fits(transactions, numbering, last, start):
        return True
    mark = start.mark
    if mark is not None and (mark.numbering, mark.txid) != (numbering, state.carried):
        return False
    if mark is None and state.txid and start.positions.keys() != state.offsets.keys():
        return False
    return all(state.offsets.get(p) == at for p, at in start.positions.items())


def case_of(
    transactions: TransactionsConfig,
    numbering: str,
    offset: SourceOffset,
    state: Committed | None,
) -> Case:
    """How they contradict each other, given that they do.

    Opaque, a checkpoint that is one transaction ahead is not: another one has planned
    that txid anew since, and sinks take back what they have of it.
    """
    is_opaque = transactions.mode == "opaque"
    mark = offset.mark
    if mark is None:
        return _unnumbered(offset, state)
    if state is None:
        return Case.EMPTY if mark.id == transactions.id else Case.RENAMED
    if mark.numbering != numbering:
        return Case.ANOTHER if mark.id == transactions.id else Case.FOREIGN
    if mark.txid > state.txid + is_opaque:
        return Case.AHEAD
    return Case.BEHIND if mark.txid < state.carried else Case.APART


def ahead(sinks: Mapping[str, int], stored: int, done: int) -> Case:
    """Which of the two is right, by the sinks that are in the store's database.

    Args:
        sinks: The txid that each of them wrote last.
        stored: The txid that the store has committed. With it sinks have that one, or
            the next one, whose commit came too late.
        done: The last txid that the checkpoint is done with: sinks had it.
    """
    newest = max(sinks.values(), default=None)
    if newest is None:
        return Case.AHEAD
    if newest >= done:
        return Case.ALONE
    return Case.TOGETHER if newest <= stored + 1 else Case.SCATTERED


def _unnumbered(offset: SourceOffset, state: Committed | None) -> Case:
    stored = state.offsets if state else {}
    moved = {at - stored.get(p, -1) for p, at in offset.positions.items()}
    if max(moved, default=0) <= 0:
        return Case.BEHIND
    return Case.UNNUMBERED if min(moved) >= 0 else Case.APART


def who_decides(
    transactions: TransactionsConfig, case: Case
) -> Literal["error", "checkpoint", "store"]:
    """What ``tx.onDisagreement`` says, as far as that may be followed."""
    wish = transactions.on_disagreement
    return wish if _RIGHT.get(case, wish) == wish else "error"


def contradiction(
    transactions: TransactionsConfig,
    numbering: str,
    offset: SourceOffset,
    state: Committed | None,
    case: Case,
    query: QueryShape | None,
    sinks: Mapping[str, int],
    done: int,
) -> CheckpointDisagreesError:
    """The error that stops the query.

    Args:
        transactions: Of the query.
        numbering: Of the store.
        offset: Where the checkpoint is.
        state: What the store has committed.
        case: How they contradict each other.
        query: What else the query keeps, as stored.
        sinks: The last txids of those in the store's database.
        done: As of ``ahead``.
    """
    tx_id = transactions.id
    stored = "empty"
    if state is not None:
        stored = f"at txid {state.txid} ({numbering}) {nested(state.offsets)}"
    mark, logged = offset.mark, "no txid"
    if mark is not None:
        logged = f"txid {mark.txid} of '{mark.id}' ({mark.numbering})"
    if sinks:
        stored += f", with sinks beside it at txids {dict(sorted(sinks.items()))}"
    txid = state.txid if state else 0
    advice = _ADVICE[case].format(done=done, stored=txid, following=txid + 1)
    is_new = "start with a new checkpointLocation" in advice.replace(
        "Do not start with", ""
    )
    decides = "tx.onDisagreement" in _ADVICE[case]
    lost = _ALONE if decides else ""
    if mark is not None and case in _BY_CHECKPOINT:
        lost = _COUNTED_IN_STORE.format(logged=mark.txid) + lost
    lost += lost_with_checkpoint(query) if is_new else ""
    return CheckpointDisagreesError(
        f"the checkpoint of '{tx_id}' is at {logged} {nested(offset.positions)} and its"
        f" store is {stored}. {advice}{lost} `kafka-tx status` shows the store.",
        id=tx_id,
        case=case.value,
    )


def parted(
    tx_id: str,
    batches: Mapping[str, BatchMetadata],
    joint: JointBatch,
    query: QueryShape | None,
) -> CheckpointDisagreesError:
    """The error for a transaction that comes without what it was one batch with.

    Args:
        tx_id: Of the source that finds it.
        batches: Parts that are stored and not finished, by ``tx.id``.
        joint: The batch as it was handed out.
        query: What else the query kept then.
    """
    others = [f"'{name}'" for name in joint.parts if name != tx_id]
    beside = (
        f"one batch with {' and '.join(others)}" if others else "a batch of its own"
    )
    numbered = [name for name, (txid, _) in joint.parts.items() if txid]
    unknown = [name for name in numbered if name not in batches]
    each = f" Do the same for {' and '.join(unknown)}." if unknown else ""
    ends = [_set_to(id_, batch, batch.ends()) for id_, batch in batches.items()]
    starts = [_set_to(id_, batch, batch.starts()) for id_, batch in batches.items()]
    return CheckpointDisagreesError(
        f"transaction {batches[tx_id].txid} of '{tx_id}' is not finished and is"
        f" {beside}; with this checkpoint, or these sources, other records would come"
        " with it, and a sink that has it would leave them out. Nothing was written."
        " Start the query with the checkpointLocation and the sources that it had: that"
        " finishes the transaction, and only then start with a new checkpointLocation."
        " If that checkpoint is gone, look whether the sink has txid"
        f" {joint.number} of '{joint.numbers}'. If it has, its records are there:"
        f" {' and '.join(ends)}. If it has not: {' and '.join(starts)}.{each} Then"
        " start with a new checkpointLocation; the txid is not used again."
        f"{lost_with_checkpoint(query)}",
        id=tx_id,
        case=Case.PARTED.value,
    )


def _set_to(
    tx_id: str, batch: BatchMetadata, positions: Mapping[TopicPartition, int]
) -> str:
    """The command that lets an id go on there, with the ids of topics."""
    mark = {MARK: {"topic_ids": dict(sorted(batch.topic_ids.items()))}}
    return (
        f"`kafka-tx offsets set --id {tx_id} --store <tx.store>"
        " --bootstrap-servers <kafka.bootstrap.servers> --yes"
        f" --offsets '{json.dumps({**nested(positions), **mark})}'`"
    )
