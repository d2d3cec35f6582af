"""Compares Spark's checkpoint with the store, and writes the error if they disagree.

The advice of each text is safe to follow: a txid that a sink has seen is never given to
other records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Literal

from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import CheckpointDisagreesError
from kafka_tx.model import BatchMetadata, QueryShape
from kafka_tx.offsets.discovery import is_another
from kafka_tx.planning.new_checkpoints import BEGIN_ANEW, lost_with_checkpoint
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark, nested
from kafka_tx.transactions.ledger.ledger import Committed, LedgerState

TopicIds = Callable[[], Mapping[str, str]]
"""Asks the brokers for the ids of topics, by name; unknown ones are left out."""


class Case(Enum):
    """How a checkpoint contradicts its store."""

    RENAMED = "renamed"
    """The checkpoint belongs to another ``tx.id``, and this id has no state."""

    FOREIGN = "foreign"
    """The checkpoint belongs to another ``tx.id``, and this id has its own state."""

    EMPTY = "empty"
    """The store is empty, the checkpoint is not."""

    ANOTHER = "another"
    """The store has begun anew since the checkpoint, or is another one."""

    UNNUMBERED = "unnumbered"
    """Some runs went on from the checkpoint without ``tx.id``."""

    AHEAD = "ahead"
    """The checkpoint has transactions that the store does not have."""

    TOGETHER = "together"
    """AHEAD, and the sinks in the store's database match the store."""

    ALONE = "alone"
    """AHEAD, and the sinks in the store's database have them."""

    SCATTERED = "scattered"
    """AHEAD, and these sinks match neither the checkpoint nor the store."""

    BEHIND = "behind"
    """The store has committed transactions that the checkpoint does not have."""

    APART = "apart"
    """Both went on from the same transaction, or a person has set the store."""

    IN_ANOTHER_MODE = "in another mode"
    """The unfinished transaction was planned in another ``tx.mode``."""

    PARTED = "parted"
    """An unfinished transaction has other records of the other sources."""

    UNDECIDED = "undecided"
    """The checkpoint decided for one source of a query with several."""


_ONLY_CHECKPOINT = frozenset({Case.RENAMED, Case.EMPTY, Case.UNNUMBERED})
"""Going on from the store would lose or repeat the checkpoint's records."""
_ONLY_STORE = frozenset({Case.BEHIND, Case.APART})
"""A new checkpoint goes on correctly from the store."""

_RIGHT = {
    Case.FOREIGN: "error",
    Case.SCATTERED: "error",
    Case.TOGETHER: "store",
    Case.ALONE: "checkpoint",
    **dict.fromkeys(_ONLY_CHECKPOINT, "checkpoint"),
}
"""The only choice without a loss; the other choice is refused."""

IS_OLDER = (
    "The store is older than the checkpoint: it was restored from a copy, its database"
    " lost its last writes, or tx.store names another store. If tx.store is wrong, set"
    " tx.store to the right one."
)
_IS_BEHIND = (
    "The checkpoint is older than the store: it was restored from a copy, the query ran"
    " with another checkpoint since, or with asyncProgressTrackingEnabled=true, which"
    " writes the checkpoint late: remove this option. To continue where the store is,"
    " start with a new checkpointLocation"
)
_IS_NEWER = "The checkpoint is newer than the store: the query ran without tx.id."
_TXIDS_AGAIN = (
    " Do not start with a new checkpointLocation: it would use txids again that sinks"
    " hold with other records."
)

_RENUMBERED = (
    "The checkpoint has another numbering than the store: the store was reset, or"
    " tx.store names another store. Compare both with the numbering in the sinks; a map"
    " or table has its numbering in kafka_tx_progress. If the sinks have {logged}, the"
    " numbering of the checkpoint, or none: set tx.store to the store of this"
    " checkpoint."
)

_ADVICE = {
    Case.RENAMED: "The checkpoint belongs to another tx.id. Set tx.id back to the id of"
    " the checkpoint. To rename the id instead, set tx.onDisagreement=checkpoint for"
    " one run: offsets, txids and numbering continue under the new id, and sinks accept"
    " them. If the query uses with_dead_letters, first let it finish its batch under"
    " the former id: the sink of dead letters has the name of the tx.id. Do not start"
    " with a new checkpointLocation: the store has nothing under this tx.id, so the"
    " query would start at startingOffsets and with txid 1.",
    Case.FOREIGN: "The checkpoint belongs to another tx.id, and under this tx.id the"
    " store has batches of another query. Set tx.id back to the id of the checkpoint,"
    " without tx.onDisagreement. If this tx.id is right, the checkpoint is wrong: set"
    " checkpointLocation to the checkpoint of this tx.id.",
    Case.EMPTY: "The store has nothing under this tx.id. Set tx.store to the store that"
    " has it. If that store is lost, set tx.onDisagreement=checkpoint for one run:"
    " offsets and txids continue where the checkpoint is. Records that sinks lost with"
    " the store are not read again. Do not start with a new checkpointLocation: the"
    " query would start again with txid 1, which sinks hold already.",
    Case.ANOTHER: f"{_RENUMBERED} If that store is lost, set"
    " tx.onDisagreement=checkpoint for one run: offsets, txids and numbering continue"
    " where the checkpoint is. Do not start with a new checkpointLocation in these two"
    " cases. If the sinks have {numbering}, the numbering of the store, or are empty,"
    " they hold no record of this checkpoint,"
    " unless the query ran without tx.id: start with a new checkpointLocation, or with"
    " the checkpoint that the query had before.",
    Case.UNNUMBERED: f"{_IS_NEWER} Set tx.onDisagreement=checkpoint for one run:"
    " offsets continue where the checkpoint is, and txids where the store is. Do not"
    " start with a new checkpointLocation: the query would repeat the records that it"
    " read without tx.id.",
    Case.AHEAD: f"{IS_OLDER} If tx.store is right, compare with the last txid in the"
    " sinks. Txid {done} or later: set tx.onDisagreement=checkpoint for one run:"
    " offsets and txids continue where the checkpoint is. {stored}, because the sinks"
    " went back with the store: set tx.onDisagreement=store for one run: the query"
    " continues where the store is. A lower txid counts as the store's: not each batch"
    " writes that sink, so the txid does not show whether the sink went back, too."
    " Leave out sinks that the query no longer writes. Any other txid, or sinks that"
    " differ: restore store and sinks from copies that were made together."
    f"{_TXIDS_AGAIN}",
    Case.TOGETHER: "The store is older than the checkpoint, and so are the sinks in its"
    " database: the database lost its last writes, or was restored from a copy. Set"
    " tx.onDisagreement=store for one run: the query continues where the store is, and"
    " reads the records again that these sinks lost. If sinks elsewhere have later"
    " txids, first restore them to the same time, or restore the newest state of the"
    " database. Do not start with a new checkpointLocation: a later start with the"
    " present checkpoint would take it for the newer one.",
    Case.ALONE: "The store is older than the checkpoint, but the sinks in its database"
    " are not: only the records of the store were restored from a copy. Set"
    " tx.onDisagreement=checkpoint for one run: offsets and txids continue where the"
    f" checkpoint and the sinks are.{_TXIDS_AGAIN}",
    Case.SCATTERED: "The store is older than the checkpoint, and the sinks in its"
    " database match neither of them: they were restored from copies of several times."
    f" Restore the whole database from one copy, and then start again.{_TXIDS_AGAIN}",
    Case.BEHIND: f"{_IS_BEHIND} or set tx.onDisagreement=store for one run.",
    Case.APART: "The query ran with another checkpoint since, or somebody set the"
    " offsets by hand. To continue where the store is, start with a new"
    " checkpointLocation or set tx.onDisagreement=store for one run.",
}

_SEVERAL = {
    Case.RENAMED: "The checkpoint belongs to another tx.id. Set tx.id back to the id of"
    " the checkpoint.",
    Case.EMPTY: "The store has nothing under this tx.id. Set tx.store to the store that"
    " has it.",
    Case.ANOTHER: f"{_RENUMBERED} If the sinks have {{numbering}}, the numbering of the"
    " store, they hold no record of this checkpoint, unless the query ran without"
    " tx.id: start with"
    " a new checkpointLocation, or with the checkpoint that the query had before.",
    Case.UNNUMBERED: f"{_IS_NEWER} Restore both from copies that were made together.",
    **dict.fromkeys((Case.AHEAD, Case.TOGETHER, Case.ALONE, Case.SCATTERED), IS_OLDER),
    Case.BEHIND: f"{_IS_BEHIND}.",
    Case.APART: "The query ran with another checkpoint since, or somebody set the"
    " offsets by hand. To continue where the store is, start with a new"
    " checkpointLocation.",
}
"""The same for one source of several: one decision must apply to all sources."""

_NOBODY_DECIDES = (
    " If a query has several streaming sources, tx.onDisagreement decides nothing: each"
    " source would decide alone, but a batch has records of all of them."
)
_COUNTED_IN_STORE = (
    " Use tx.onDisagreement=checkpoint only if no sink holds a txid above {logged}. The"
    " checkpoint lacks batches without records of this source, so their txids would be"
    " used again. If a sink holds a later txid, restore store and sinks from copies"
    " that were made together."
)
_BY_CHECKPOINT = frozenset({Case.RENAMED, Case.EMPTY, Case.ANOTHER, Case.AHEAD})
"""The txids may go on from the checkpoint alone."""

_ALONE = (
    " Before you set tx.onDisagreement, make sure that no other run of this tx.id is"
    " alive: the option would undo what that run commits meanwhile."
)


def numbering_of(offset: SourceOffset) -> str:
    """The numbering of a checkpoint's txids; empty: it has none."""
    return offset.mark.numbering if offset.mark else ""


def fits(numbering: str, batch: BatchMetadata, end: SourceOffset) -> bool:
    """Whether a stored batch is the batch that ends at a checkpoint's offset.

    Both have the same ends, and if the offset has a mark, the store's ``numbering``. An
    opaque batch that was named must have the mark's txid and epoch: another owner may
    have planned the txid anew, with other records. For a transactional batch, the mark
    may also have the txid and a later epoch than its plan, since later owners keep the
    plan. A mark with an earlier epoch is of a plan that the store has lost. A batch
    without new records fits no offset.
    """
    if batch.spark_batch or batch.logged_ends() != dict(end.positions):
        return False
    mark = end.mark
    if mark is None:
        return True
    is_its_plan = not batch.logged_as or batch.logged_as == logged_as(end)
    is_its_number = mark.txid == batch.txid and batch.mode == "transactional"
    is_known = is_its_number and mark.epoch >= _planner(batch)
    return mark.numbering == numbering and (is_its_plan or is_known)


def logged_as(end: SourceOffset) -> str:
    """The key of a batch's plan in Spark's log: its first txid and owner."""
    return f"{end.mark.txid}@{end.mark.epoch}" if end.mark else ""


def _planner(batch: BatchMetadata) -> int:
    """The epoch of the owner that planned the batch; 0: not known."""
    epoch = batch.logged_as.rpartition("@")[2]
    return int(epoch) if epoch.isdecimal() else 0


def agrees(store: LedgerState, start: SourceOffset) -> bool:
    """Whether checkpoint and store have the same next transaction."""
    state, last = store.committed, store.last
    if state is None:
        return False
    if last is not None and fits(store.numbering, last, start):
        return True
    mark, expected = start.mark, (store.numbering, state.carried)
    if mark is not None and (mark.numbering, mark.txid) != expected:
        return False
    if mark is None and state.txid and start.positions.keys() != state.offsets.keys():
        return False
    ids = start.topic_ids.items()
    if any(is_another(state.topic_ids.get(topic), known) for topic, known in ids):
        return False
    return all(state.offsets.get(p) == at for p, at in start.positions.items())


def case_of(
    transactions: TransactionsConfig,
    store: LedgerState,
    offset: SourceOffset,
    topics: TopicIds,
) -> Case:
    """How checkpoint and store disagree; call it only if they do.

    Opaque: one transaction ahead is not AHEAD: another checkpoint has planned this txid
    anew, and sinks undo their rows of it. With other sources, the new plan must be
    stored, or they had later batches without it. Not AHEAD either: the store was
    restored, and then went on with another checkpoint.
    """
    unread, state, mark = store.next, store.committed, offset.mark
    was_opaque = unread is not None and (unread.mode == "opaque" or unread.was_opaque)
    is_opaque = transactions.mode == "opaque" or was_opaque
    is_anew = is_opaque and (not store.has_several_sources or unread is not None)
    if mark is None:
        return _unnumbered(offset, store.position, topics)
    if state is None:
        return Case.EMPTY if mark.id == transactions.id else Case.RENAMED
    if mark.numbering != store.numbering:
        return Case.ANOTHER if mark.id == transactions.id else Case.FOREIGN
    if mark.txid > state.txid + is_anew:
        is_another = _is_from_another(offset, mark, unread, store.last)
        return Case.APART if is_another else Case.AHEAD
    return Case.BEHIND if mark.txid < state.carried else Case.APART


def follows_another(mark: TransactionMark, before: BatchMetadata | None) -> bool:
    """Whether a later owner has planned the batch before a checkpoint's txid.

    Txids are planned in order: the checkpoint's txid followed another batch, which the
    store had before it was restored.
    """
    return before is not None and _planner(before) > mark.epoch


def _is_from_another(
    offset: SourceOffset,
    mark: TransactionMark,
    unread: BatchMetadata | None,
    last: BatchMetadata | None,
) -> bool:
    """Whether a later txid of a checkpoint does not follow the store's batches.

    It was planned before these; or it is the next txid, with other records.
    """
    if follows_another(mark, last):
        return True
    if unread is None:
        return False
    if unread.txid != mark.txid:
        return unread.txid < mark.txid and follows_another(mark, unread)
    return unread.logged_ends() != dict(offset.positions)


def ahead(sinks: Mapping[str, int], stored: int, done: int) -> Case:
    """The kind of ``Case.AHEAD``, by the sinks in the store's database.

    ``sinks`` has the last txid that each sink wrote. Sinks that match the store have
    the txid ``stored``, or the next one, whose commit came too late. Lower ones prove
    nothing: such a sink is no longer written, or not by each batch. The checkpoint's
    last finished txid is ``done``: sinks had it.
    """
    newest = max(sinks.values(), default=-1)
    if newest < stored:
        return Case.AHEAD
    if newest >= done:
        return Case.ALONE
    return Case.TOGETHER if newest <= stored + 1 else Case.SCATTERED


def _unnumbered(offset: SourceOffset, state: Committed, topics: TopicIds) -> Case:
    """The newer side wins; of two topic ids, the existing topic's is newer.

    If the existing topic has a third id, neither side has read it.
    """
    former, ids = state.topic_ids, offset.topic_ids
    anew = {t for t, known in ids.items() if is_another(former.get(t), known)}
    now = topics() if anew else {}
    moved = {
        at - state.offsets.get(p, -1)
        for p, at in offset.positions.items()
        if p.topic not in anew
    }
    moved |= {(now.get(t) == ids[t]) - (now.get(t) == former[t]) for t in anew}
    if max(moved, default=0) <= 0:
        return Case.BEHIND
    return Case.UNNUMBERED if min(moved) >= 0 else Case.APART


def who_decides(
    transactions: TransactionsConfig, case: Case, query: QueryShape | None
) -> Literal["error", "checkpoint", "store"]:
    """The value of ``tx.onDisagreement``, if it may be followed.

    It may not in a query with several sources: each source would decide separately.
    """
    if query is not None and query.has_several_sources:
        return "error"
    wish = transactions.on_disagreement
    return wish if _RIGHT.get(case, wish) == wish else "error"


def contradiction(
    transactions: TransactionsConfig,
    store: LedgerState,
    offset: SourceOffset,
    case: Case,
    sinks: Mapping[str, int],
    done: int,
) -> CheckpointDisagreesError:
    """The error that stops the query; ``done`` as of ``ahead``."""
    tx_id, numbering, query = transactions.id, store.numbering, store.query
    txid, stored = store.txid, "empty"
    if store.committed is not None:
        at = nested(store.committed.offsets)
        stored = f"at txid {txid} (numbering {numbering}) {at}"
    mark, logged = offset.mark, "no txid"
    if mark is not None:
        logged = f"txid {mark.txid} of '{mark.id}' (numbering {mark.numbering})"
    if sinks:
        stored += f", with sinks in its database at txids {dict(sorted(sinks.items()))}"
    if query is not None and query.has_several_sources and case in _SEVERAL:
        advice = _for_several(case, query, numbering_of(offset), numbering)
    else:
        advice = _ADVICE[case].format(
            done=done,
            stored=f"Txid {txid}" + (f" or {txid + 1}" if txid + 1 < done else ""),
            logged=numbering_of(offset),
            numbering=numbering,
        )
        advice += _beside(case, mark, query)
    return CheckpointDisagreesError(
        f"the checkpoint of '{tx_id}' is at {logged} {nested(offset.positions)} and its"
        f" store is {stored}. {advice} `kafka-tx status` shows the store.",
        id=tx_id,
        case=case.value,
    )


def in_another_mode(
    transactions: TransactionsConfig, batch: BatchMetadata
) -> CheckpointDisagreesError:
    """The error for an unfinished transaction that was planned in another mode."""
    return CheckpointDisagreesError(
        f"transaction {batch.txid} of '{transactions.id}' was planned with"
        f" tx.mode={batch.mode} and is not finished. With tx.mode={transactions.mode}"
        " it may get other records, and a sink that holds the txid would leave them"
        f" out. Nothing was written. Set tx.mode to '{batch.mode}', run the query until"
        " `kafka-tx status` shows no unfinished transaction, and then change the mode.",
        id=transactions.id,
        case=Case.IN_ANOTHER_MODE.value,
    )


def _for_several(case: Case, query: QueryShape, logged: str, numbering: str) -> str:
    advice = _SEVERAL[case].format(logged=logged, numbering=numbering)
    if case in _ONLY_STORE or case is Case.ANOTHER:
        advice += lost_with_checkpoint(query)
    advice += _NOBODY_DECIDES
    return advice if case in _ONLY_STORE else advice + BEGIN_ANEW


def _beside(case: Case, mark: TransactionMark | None, query: QueryShape | None) -> str:
    """Warnings to read before following the advice for one source."""
    warnings = ""
    if mark is not None and case in _BY_CHECKPOINT:
        warnings += _COUNTED_IN_STORE.format(logged=mark.txid)
    if query is None and case in _BY_CHECKPOINT:
        warnings += _NOBODY_DECIDES + BEGIN_ANEW
    if "tx.onDisagreement=" in _ADVICE[case]:
        warnings += _ALONE
    is_new = case in _ONLY_STORE or case is Case.ANOTHER
    return warnings + (lost_with_checkpoint(query) if is_new else "")
