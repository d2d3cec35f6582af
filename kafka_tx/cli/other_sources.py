"""Other sources of the same query, which have parts of the same batches."""

from __future__ import annotations

from collections.abc import Callable

from kafka_tx.errors import StateError
from kafka_tx.model import BatchMetadata, QueryShape
from kafka_tx.transactions.ledger.ledger import LedgerState


def others_of(id_: str, query: QueryShape | None) -> str:
    """The other ids of the query; empty: none is known."""
    names = query.numbered if query else ()
    return " and ".join(f"'{name}'" for name in names if name != id_)


def unfinished_beside(
    id_: str, batch: BatchMetadata, state_of: Callable[[str], LedgerState]
) -> str:
    """The txids that other ids have of a batch and have not finished; empty: none.

    ``state_of`` reads an id of this store. An id that is in another one is named.

    Raises:
        StateError: Another id has committed its part, so the batch is processed.
    """
    found = []
    joint = batch.joint
    for name, part in sorted(joint.parts.items()) if joint else ():
        if not part.txid or name == id_:
            continue
        state = state_of(name)
        planned = state.planned.get(part.txid)
        is_it = joint is not None and planned and joint.is_same(planned.joint)
        if is_it and state.txid >= part.txid:
            raise StateError(
                f"txid {batch.txid} of '{id_}' is processed: '{name}' has committed"
                f" txid {part.txid} of the same batch. Nothing was skipped. Start the"
                f" query: this finishes txid {batch.txid}, too",
                id=id_,
                txid=batch.txid,
            )
        if is_it or not state.numbering:
            found.append(f"txid {part.txid} of '{name}'")
    return " and ".join(found)


def how_to_start(id_: str, query: QueryShape | None) -> str:
    """The next step after offsets were set and unfinished txids dropped."""
    if query is None or not query.has_several_sources:
        return "Start the job with a new checkpoint or tx.onDisagreement=store."
    others = others_of(id_, query)
    if not others:
        return "Start the query with a new checkpoint."
    return (
        f"Set {others} of the same query, too. Then start the query with a new"
        " checkpoint."
    )
