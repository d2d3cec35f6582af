"""What a query loses with its checkpoint: said wherever a new one is advised."""

from __future__ import annotations

from kafka_tx.model import QueryShape

_UNKNOWN = (
    " What a query keeps in its state (open windows, groups, duplicates seen) is lost"
    " with its checkpoint, and a source without tx.id begins again where its own"
    " options say."
)


def lost_with_checkpoint(query: QueryShape | None) -> str:
    """A sentence or two for the end of an advice; empty where nothing is lost.

    Args:
        query: As stored; None: no batch of it was numbered in a classic session, so
            that nobody knows.
    """
    if query is None:
        return _UNKNOWN
    told = ""
    if query.states:
        told += (
            f" This query keeps state ({', '.join(query.states)}), which a new"
            " checkpoint begins without: windows and groups that are open now are never"
            " emitted."
        )
    if query.others:
        told += (
            f" In a new checkpoint {' and '.join(query.others)}, without tx.id, begins"
            " where its own options say: records of it are left out or come again."
        )
    return told
