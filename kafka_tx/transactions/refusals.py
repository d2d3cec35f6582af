"""What every store says when it refuses: one text for each case."""

from __future__ import annotations

from typing import NoReturn

from kafka_tx.errors import (
    FencedError,
    StateConflictError,
    StateError,
    StateLostError,
)
from kafka_tx.offsets.owners import LOST_BY
from kafka_tx.protocols import Store

PUT_BACK = (
    ": tx.store names another one, or it was put back from a copy. Set tx.store right,"
    " or put both back from copies that were made together, while no query ran. Do not"
    " start again before: txids may come that are stored here with other records"
)
"""What to do where a store has forgotten what its sinks remember."""

AFTER_A_LOSS = (
    "If it shall be where it was, put it right before you start again. Maps and tables"
    " in the same database went back with it: where the job writes nothing else, start"
    " again; a topology goes on from there, and a query tells what to do about its"
    " checkpoint. What the job wrote elsewhere has later txids already: put that back"
    " to the same time first, or this store to where it was"
)
"""What is safe once a store is no longer where a job left it."""
AFTER_A_FILE = (
    "Before you start again, put the file back with all that was written, or, from"
    " copies of one time, it and all that the job writes: txids that sinks have seen"
    " must not come again. If it is a store and is lost, a query goes on with"
    " tx.onDisagreement=checkpoint for one run; a topology begins anew with txid 1, so"
    " empty what it writes first"
)
"""What is safe once a file is gone, or another one is in its place."""


def fenced(store: Store, *, held: int, stored: int) -> StateError:
    """The error for a writer whose epoch ``held`` is not the ``stored`` one."""
    if stored < held:
        return lost(store, left=f"under epoch {held}", found=f"under epoch {stored}")
    return FencedError(
        f"another owner of id '{store.id}' took over (its epoch is {stored}, ours"
        f" {held}). Only one live query or topology may use an id: stop one of them,"
        " or give it an id of its own. A query that joins a source with itself opens"
        " it twice: load each side with a tx.id of its own. Store:"
        f" {store.url}. Nothing was written.",
        store=store.url,
        id=store.id,
        held=held,
        stored=stored,
    )


def lost(store: Store, *, left: str, found: str) -> StateLostError:
    """The error for a store that is not where its owner left it.

    Args:
        store: Of the id.
        left: Where the owner left it; an end of a sentence.
        found: Where it is.
    """
    return StateLostError(
        f"id '{store.id}' in store {store.url} was left {left} and is {found} now: the"
        f" store {LOST_BY}. Nothing was written. {AFTER_A_LOSS}",
        store=store.url,
        id=store.id,
        left=left,
        found=found,
    )


def conflict(store: Store, path: str) -> StateConflictError:
    """The error for a write whose expectation about ``path`` no longer holds."""
    return StateConflictError(
        f"the record '{path}' of id '{store.id}' in store {store.url} changed between"
        " reading and writing. Nothing was written; read again.",
        store=store.url,
        id=store.id,
        path=path,
    )


def unpicklable(what: object) -> NoReturn:
    """Refuse to be pickled: connections and locks do not travel.

    Raises:
        StateError: Always.
    """
    raise StateError(
        f"{what!r} cannot be pickled: each process opens its own. Pass the URL and the"
        " id, and open it where it is used."
    )
