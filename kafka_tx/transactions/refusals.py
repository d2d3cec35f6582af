"""What every store says when it refuses: one text for each case."""

from __future__ import annotations

from typing import NoReturn

from kafka_tx.errors import FencedError, StateConflictError, StateError
from kafka_tx.protocols import Store


def fenced(store: Store, *, held: int, stored: int) -> FencedError:
    """The error for a writer whose epoch ``held`` is not the ``stored`` one."""
    if stored > held:
        reason = (
            f"another owner of id '{store.id}' took over (its epoch is {stored}, ours"
            f" {held}). Only one live query or topology may use an id: stop one of"
            " them, or give it an id of its own. A query that joins a source with"
            " itself opens it twice: load each side with a tx.id of its own"
        )
    else:
        reason = (
            f"id '{store.id}' has epoch {stored} in the store and we hold {held}: the"
            " store was emptied or put back to an older copy while we ran. Check it,"
            " then start again"
        )
    return FencedError(
        f"{reason}. Store: {store.url}. Nothing was written.",
        store=store.url,
        id=store.id,
        held=held,
        stored=stored,
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
