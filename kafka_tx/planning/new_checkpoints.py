"""Advice on a new checkpoint: the losses, and how to begin without one."""

from __future__ import annotations

from kafka_tx.model import QueryShape

_UNKNOWN = (
    " With its checkpoint, a query loses its state (open windows, groups, known"
    " duplicates), and a source without tx.id starts where its own options say."
)

REMEMBERED = (
    " A sink that remembers Spark's batch ids, as file sinks do, would drop the new"
    " batches: give it a new, empty output folder, too."
)
"""For a new checkpoint of a query whose sinks are not known."""

BEGIN_ANEW = (
    " If none of this is possible, restore checkpoint, store and sinks from copies that"
    " were made together. If you have no such copies, begin anew: give each source"
    " another tx.id, or the topology another id. Give the job new, empty sinks and a"
    " query a new checkpointLocation, and set startingOffsets=earliest. The job then"
    " reads all records that the topics still hold into the new sinks."
)
"""The next step that loses no record on brokers, if several sources disagree."""


HALF_WRITTEN = (
    " Neither is right where the sink has only a part of the batch (a Kafka sink writes"
    f" several parts), or where only some of several sinks have the txid.{BEGIN_ANEW}"
)
"""For a batch that cannot be read again: some of its records may be in a sink."""


ONLY_WHOLE = (
    " This is right only if the sinks hold all records of that txid: a Kafka sink that"
    " writes several parts may have only some of them, and of several sinks only some"
    f" may have the txid.{BEGIN_ANEW}"
)
"""For going on at a sink's last record: gaps below it are not read."""


def lost_with_checkpoint(query: QueryShape | None, *, names_sinks: bool = True) -> str:
    """Some sentences for the end of an advice; empty if nothing is lost.

    ``query`` is None (unknown) if no batch of the query was numbered in a classic
    session. ``names_sinks``: the advice has not yet named sinks that remember batch
    ids; a query that asks for txids has none.
    """
    if query is None:
        return _UNKNOWN + (REMEMBERED if names_sinks else "")
    losses = ""
    if query.states:
        losses += (
            f" This query keeps state ({', '.join(query.states)}), and a new checkpoint"
            " starts without it: windows and groups that are open now are never"
            " emitted."
        )
    if query.others:
        losses += (
            f" With a new checkpoint, {' and '.join(query.others)}, without tx.id,"
            " starts where its own options say: its records are left out or repeated."
        )
    return losses
