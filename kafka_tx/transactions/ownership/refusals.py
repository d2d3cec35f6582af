"""The error texts of all stores: one text for each case."""

from __future__ import annotations

from typing import NoReturn

from kafka_tx.errors import (
    FencedError,
    OwnerLivesError,
    StateConflictError,
    StateError,
    StateLostError,
)
from kafka_tx.offsets.owners import LOST_BY
from kafka_tx.protocols import StateAtPlace, Store

PUT_BACK = (
    ": tx.store names another store, or the store was restored from a copy. Set"
    " tx.store to the right one, or restore both from copies that were made together,"
    " while no query runs. Do not start again before: the query would use txids that"
    " are stored here with other records"
)
"""Next step if a store has lost txids that its sinks still have."""

AFTER_A_LOSS = (
    "If you can restore the newest state of the store, do this before you start again."
    " Otherwise start a query again: it compares its checkpoint with the store, and"
    " says how to continue. Maps and tables in the same database went back with the"
    " store: a topology that writes nowhere else continues from there when you start it"
    " again. If a topology writes elsewhere, these sinks have later txids: restore"
    " these sinks to the same time first, or the store to its newest state"
)
"""Safe next steps once a store is not in the state that a job left."""
LEFT_BEHIND = (
    "If tx.store names another database now, this one still has a former store of the"
    " id: remove it with `kafka-tx offsets reset --id {id} --store {store} --yes`, and"
    " start again. Otherwise the database went back to an earlier state."
)
"""For a sink that is ahead of its id's store in the same database."""
AFTER_A_FILE = (
    "Before you start again, restore the newest state of the file, or restore the file"
    " and all sinks of the job from copies of the same time: txids that sinks hold must"
    " not be used again. If the file is a store and is lost, a query of one source"
    " continues with tx.onDisagreement=checkpoint for one run. A query of several"
    " sources says what to do when it starts. A topology starts anew with txid 1, so"
    " empty its sinks first"
)
"""Safe next steps once a file is gone or was replaced."""
AFTER_A_DATABASE = AFTER_A_FILE.replace("file", "database")
"""The same for tables that are gone."""


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
    """The error for a store that is ``found`` in another state than it was ``left``."""
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


def at_work(store: StateAtPlace) -> OwnerLivesError:
    """The error for a start that is refused because the id's owner is alive."""
    return OwnerLivesError(
        f"another run of id '{store.id}' is at work: it changed its records in the"
        f" store {store.url} while this one was starting. This one ends; it has fenced"
        " nobody, and no position was changed. If the other run does the same work, as"
        " a scheduled run does that takes longer than its interval, leave it: the next"
        " run goes on. If this one shall be in its place, stop the other and start"
        " again; a query with tx.ifOwned=fence need not wait for that. A query that"
        " joins a source with itself opens it twice: load each side with a tx.id of its"
        " own.",
        store=store.url,
        id=store.id,
    )


def unpicklable(what: object) -> NoReturn:
    """Refuse to be pickled: connections and locks cannot be sent; raises StateError."""
    raise StateError(
        f"{what!r} cannot be pickled: each process opens its own. Pass the URL and the"
        " id, and open it where it is used."
    )
