"""Whether an attempt may write: the one rule of every sink that counts a txid once.

A sink stores the attempt that wrote last: numbering, txid, epoch, and the digest of the
batch's plan. Before a write, the sink asks ``is_written``; ``tests/conformance`` has a
suite for sinks. A txid may be skipped: a batch need not reach every sink.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from kafka_tx.errors import (
    AnotherNumberingError,
    ConfigError,
    FencedError,
    OutOfOrderError,
    ReplayDiffersError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.planning.new_checkpoints import (
    BEGIN_ANEW,
    ONLY_WHOLE,
    lost_with_checkpoint,
)
from kafka_tx.transactions.ownership.refusals import PUT_BACK


def is_written(
    given: TransactionAttempt, stored: TransactionAttempt, *, what: str, is_opaque: bool
) -> bool:
    """Whether an earlier attempt has written the txid; else this one may write.

    The numbering is checked first, then the owner: the txids of a fenced owner, also
    later ones, do not count.

    Args:
        given: The attempt that wants to write.
        stored: The attempt that wrote last; txid 0 if none did.
        what: Name of the sink in error texts.
        is_opaque: Whether the sink undoes the writes of an earlier attempt of the txid,
            so that a replay may hold other records.

    Raises:
        ConfigError, AnotherNumberingError: As ``check_mode`` and ``check_numbering``.
        FencedError, OutOfOrderError: As ``check_newest``.
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


def attempt_to_store(
    given: TransactionAttempt, stored: TransactionAttempt
) -> TransactionAttempt:
    """The attempt to store; one made by hand keeps the stored names."""
    return replace(
        given,
        numbering=given.numbering or stored.numbering,
        source=given.source or stored.source,
    )


def check_mode(given: TransactionAttempt, what: str) -> None:
    """Raise ConfigError for an opaque attempt of a sink that cannot undo writes."""
    if given.mode == "opaque":
        raise ConfigError(
            f"{what} counts a txid once, and attempt {given} of '{given.source}' is"
            " opaque: a replay may hold other records, which would be left out. Nothing"
            " was written. Use what takes back an earlier attempt: OpaqueMap,"
            " append_once(…, opaque=True), append_files(…, opaque=True), or"
            " write_transaction(…, opaque=True), which refuses such a replay; or read"
            " with tx.mode=transactional",
            option="tx.mode",
            value=given.mode,
        )


def check_numbering(
    given: TransactionAttempt, stored: TransactionAttempt, what: str
) -> None:
    """Refuse a txid of another numbering than the sink's stored txid.

    Raises:
        AnotherNumberingError: Both numberings are known and differ. Or one is unknown,
            and both sources are known and differ.
    """
    are_known = "" not in (given.numbering, stored.numbering)
    known, new = stored.source, given.source
    if are_known:
        known, new = stored.numbering, given.numbering
    if known and new and known != new:
        raise AnotherNumberingError(
            f"{what} holds txid {stored.txid} of {_numbering(stored)}, and this is txid"
            f" {given.txid} of {_numbering(given)}. Nothing was written: equal txids of"
            " two numberings hold different records. If another query or topology"
            " writes here, give each a sink of its own. Else the id was renamed, the"
            " store has begun anew, or tx.store names another one: set tx.id to"
            f" '{stored.source}', and set tx.store right; `kafka-tx status` shows"
            f" numbering {stored.numbering} there. If that store is lost and a"
            " checkpoint with that numbering is left, start with the newest one and"
            " tx.onDisagreement=checkpoint for one run. If both are lost, look where in"
            " the topic that ends what is stored here, let the id go on there with"
            f" `kafka-tx offsets set --numbering {stored.numbering} --attempt"
            f" {stored}` (and the id of each other source of the query with"
            " `kafka-tx offsets set`), and start with a new checkpointLocation."
            f"{lost_with_checkpoint(None)}{ONLY_WHOLE} The id of a topology cannot be"
            " set: give its sinks new names",
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
    """Refuse an attempt if a newer one has written.

    Raises:
        FencedError: A newer owner has written, or (opaque) a later attempt of the txid.
        OutOfOrderError: A later txid has written.
    """
    is_late = is_opaque and given.attempt_id < stored.attempt_id
    if given.epoch < stored.epoch or (given.txid == stored.txid and is_late):
        raise FencedError(
            f"attempt {given} is older than attempt {stored}, whose result {what} holds"
            f" (epochs {given.epoch} and {stored.epoch}). Nothing was written over it."
            " A newer owner of the same tx.id has written here: this one must stop. If"
            " there is no other, the store of the tx.id is older than this state"
            f"{PUT_BACK}.{BEGIN_ANEW}",
            attempt=str(given),
            stored=str(stored),
        )
    if given.txid < stored.txid:
        raise OutOfOrderError(
            f"transaction {given.txid} comes after {stored.txid}, which {what} already"
            " holds. Nothing was written over it. Transactions are committed in order."
            " If another job writes here too, give each its own name. Else look at"
            f" `kafka-tx status`. If it shows txid {stored.txid} of '{given.source}',"
            " finished or not, a query goes on from an older checkpoint: start with a"
            f" new checkpointLocation.{lost_with_checkpoint(None)} If it does not, the"
            f" store of the tx.id is older than this state{PUT_BACK}.{BEGIN_ANEW}",
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
        f"{lost_with_checkpoint(None)}{ONLY_WHOLE}",
        id=what,
        txid=given.txid,
    )


# --- one write of each batch ---------------------------------------------------------

_written: dict[Hashable, TransactionAttempt] = {}
"""The last attempt that this program has written to each sink."""


@contextmanager
def only_write(
    sink: Hashable, attempt: TransactionAttempt, *, what: str, option: str, advice: str
) -> Iterator[None]:
    """Guard the only write of an attempt to a sink. A failed write may be tried again.

    The sink would take a second write for a replay of the first. Every try at a batch
    has its own attempt, so no replay is refused here. The first write is committed by
    then: a union of both would be dropped, so the advice is another sink. Equal keys
    ``sink`` mean the same sink, which ``option`` names.

    Raises:
        ConfigError: The attempt was written to the sink before.
    """
    written = _written.get(sink)
    # A new store gives the same numbers to other batches.
    if written == attempt and written.numbering == attempt.numbering:
        raise second_write(attempt, what=what, option=option, advice=advice)
    yield
    _written[sink] = attempt


def second_write(
    attempt: TransactionAttempt, *, what: str, option: str, advice: str
) -> ConfigError:
    """The error for a second write; ``advice`` says how to give it its own sink."""
    return ConfigError(
        f"{what} was written already in transaction {attempt}, and takes one write of"
        f" each. The first write of txid {attempt.txid} is committed; this second one,"
        " which would be taken for its replay, changed nothing. Leave the first write"
        f" as it is, and {advice}; then start again. Do not join the two: the replay of"
        f" txid {attempt.txid} would leave out what is joined to the first",
        option=option,
    )
