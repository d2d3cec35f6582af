"""Other sources of the same query, which have parts of the same batches."""

from __future__ import annotations

from kafka_tx.model import JointBatch, QueryShape


def others_of(id_: str, query: QueryShape | None) -> str:
    """The other ids of the query; empty: none is known."""
    names = query.numbered if query else ()
    return " and ".join(f"'{name}'" for name in names if name != id_)


def parts_beside(id_: str, joint: JointBatch | None) -> str:
    """The txids that other ids have of a batch; empty: none."""
    parts = joint.parts if joint else {}
    return " and ".join(
        f"txid {part.txid} of '{name}'"
        for name, part in sorted(parts.items())
        if part.txid and name != id_
    )


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
