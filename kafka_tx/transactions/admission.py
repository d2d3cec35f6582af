"""Whether an attempt may write: the one rule of every sink that counts a txid once.

Sinks keep the attempt that wrote last: numbering, txid, epoch, and what stands for the
records of the batch. Maps, tables and Kafka's markers ask here before they write.
"""

from __future__ import annotations

from kafka_tx.errors import (
    AnotherNumberingError,
    ConfigError,
    FencedError,
    OutOfOrderError,
    ReplayDiffersError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.transactions.refusals import PUT_BACK


def is_written(
    given: TransactionAttempt,
    stored: TransactionAttempt,
    *,
    what: str,
    is_opaque: bool,
) -> bool:
    """Whether an earlier attempt of the txid has written, if this one may write now.

    The numbering is judged first, then the owner: what one that was overtaken believes
    about txids, also about later ones, does not count.

    Args:
        given: That wants to write.
        stored: That wrote last; with txid 0 where none did.
        what: The sink in words.
        is_opaque: Whether the sink takes back what an earlier attempt of the txid has
            written, so that a replay may hold other records.

    Raises:
        ConfigError: The attempt is opaque, and the sink is not.
        AnotherNumberingError: The sink counts the txids of another numbering.
        FencedError: A newer owner has written; opaque: or a later attempt of the txid.
        OutOfOrderError: A later txid has written.
        ReplayDiffersError: The txid was written from other records.
    """
    if not is_opaque:
        check_mode(given, what)
    check_numbering(given, stored, what)
    check_newest(given, stored, what, is_opaque=is_opaque)
    if given.txid != stored.txid:
        return False
    if not is_opaque:
        _check_plan(given, stored, what)
    return True


def check_mode(given: TransactionAttempt, what: str) -> None:
    """Refuse an opaque attempt where nothing can be taken back.

    Raises:
        ConfigError: It is one.
    """
    if given.mode == "opaque":
        raise ConfigError(
            f"{what} counts a txid once, and attempt {given} of '{given.source}' is"
            " opaque: a replay may hold other records, which would be left out. Nothing"
            " was written. Use what takes back an earlier attempt: OpaqueMap,"
            " append_once(…, opaque=True), or write_transaction(…, opaque=True), which"
            " refuses such a replay; or read with tx.mode=transactional",
            option="tx.mode",
            value=given.mode,
        )


def check_numbering(
    given: TransactionAttempt, stored: TransactionAttempt, what: str
) -> None:
    """Refuse a txid that is of another sequence than those that the sink has seen.

    Raises:
        AnotherNumberingError: Both numberings are known and differ; or, where one is
            not known, both sources are and differ.
    """
    is_told = "" not in (given.numbering, stored.numbering)
    known, new = stored.source, given.source
    if is_told:
        known, new = stored.numbering, given.numbering
    if known and new and known != new:
        raise AnotherNumberingError(
            f"{what} holds txid {stored.txid} of {_numbering(stored)}, and this is txid"
            f" {given.txid} of {_numbering(given)}. Nothing was written: equal txids of"
            " two numberings hold different records. If another query or topology"
            " writes here, give each a sink of its own. Else the store has begun anew,"
            " or tx.store names another one: set tx.store right. If the right one is"
            " lost and a checkpoint of the query is left, start with that and"
            " tx.onDisagreement=checkpoint for one run. If both are lost, look where in"
            " the topic that ends what is stored here, let the id go on there with"
            f" `kafka-tx offsets set --numbering {stored.numbering} --attempt"
            f" {stored}`, and start with a new checkpointLocation."
            f"{lost_with_checkpoint(None)} The id of a topology cannot be set: give its"
            " sinks new names",
            id=what,
            txid=given.txid,
            numbering=given.numbering,
            stored_numbering=stored.numbering,
        )


def _numbering(attempt: TransactionAttempt) -> str:
    return f"numbering {attempt.numbering or 'unknown'} ('{attempt.source}')"


def check_newest(
    given: TransactionAttempt,
    stored: TransactionAttempt,
    what: str,
    *,
    is_opaque: bool = False,
) -> None:
    """Refuse an attempt that comes after one that is newer.

    Raises:
        FencedError: Of a newer owner; opaque: or a later attempt of the same txid.
        OutOfOrderError: Of a later txid.
    """
    is_late = is_opaque and given.attempt_id < stored.attempt_id
    if given.epoch < stored.epoch or (given.txid == stored.txid and is_late):
        raise FencedError(
            f"attempt {given} is older than attempt {stored}, whose result {what} holds"
            f" (epochs {given.epoch} and {stored.epoch}). Nothing was changed. A newer"
            " owner of the same tx.id has written here: this one must stop. If there is"
            f" no other, the store of the tx.id is older than this state{PUT_BACK}",
            attempt=str(given),
            stored=str(stored),
        )
    if given.txid < stored.txid:
        raise OutOfOrderError(
            f"transaction {given.txid} comes after {stored.txid}, which {what} already"
            " holds. Nothing was changed. Transactions are committed in order: either"
            " another job writes here too (give each its own name), or the store of the"
            f" tx.id is older than this state{PUT_BACK}",
            txid=given.txid,
            stored_txid=stored.txid,
        )


def _check_plan(
    given: TransactionAttempt, stored: TransactionAttempt, what: str
) -> None:
    if "" in (given.plan, stored.plan) or given.plan == stored.plan:
        return
    raise ReplayDiffersError(
        f"{what} holds txid {given.txid} already, from a batch that ended elsewhere."
        " Nothing was changed. The store of the tx.id is older than this state"
        f"{PUT_BACK}. If there are no such copies, look where in the topic that ends"
        " what is stored here, name that position with `kafka-tx offsets set`, and"
        " start with a new checkpointLocation: the txid is not used again."
        f"{lost_with_checkpoint(None)}",
        id=what,
        txid=given.txid,
    )
