"""Taking an id over in two steps: check the stored state, then become its owner.

A refused start must not fence the running owner. So a new owner works on a draft in
memory first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafka_tx.errors import StateConflictError
from kafka_tx.protocols import NOTHING, Store, Texts
from kafka_tx.transactions.layout.txid_layout import OWNER, next_step
from kafka_tx.transactions.ownership.guarded_writes import take_over
from kafka_tx.transactions.ownership.memory import MemorySnapshot, MemoryStore
from kafka_tx.transactions.ownership.refusals import at_work, conflict
from kafka_tx.transactions.ownership.store_base import StoreAround

_T = TypeVar("_T")

TAKEOVER_TRIES = 10
"""Tries to take over while a running owner changes the store."""


def taken_over(store: DraftingStore, open_parts: Callable[[], _T]) -> _T:
    """The result of ``open_parts`` on the draft, after the id is taken over unchanged.

    Raises:
        OwnerLivesError: The owner changed the store at each try; it was not fenced.
        Exception: Errors of ``open_parts``; nobody was fenced, nothing was written.
    """
    for _ in range(TAKEOVER_TRIES):
        store.draft()
        parts = open_parts()
        try:
            store.publish()
        except StateConflictError:
            continue
        return parts
    raise at_work(store)


class DraftingStore(StoreAround):
    """A Store over another one that can collect changes in a draft first.

    1. ``draft``: from now on calls read and write a draft, a copy of the store in
       memory. ``acquire`` returns the epoch that a new owner would get.
    2. ``publish``: if the store has not changed, its owner is fenced, and the draft is
       written to the store. From now on, and before 1, calls go to the store.
    """

    def __init__(self, inside: Store) -> None:
        super().__init__(inside)
        self._draft: MemoryStore | None = None
        self._found: Texts = NOTHING

    def draft(self) -> None:
        """Begin a draft, and drop an earlier one. Raises: as ``Store.epoch``."""
        epoch = self.inside.epoch()  # first: an old epoch only conflicts
        self._found = self.inside.read()
        now = MemorySnapshot(epoch, self._found)
        self._draft = MemoryStore.copy_of(self.url, self.id, now)

    def publish(self) -> None:
        """Take over, and store the draft.

        Raises:
            StateConflictError: The store has changed since ``draft``: draft
                again. No owner that changed it was fenced, nothing was written.
            FencedError: A newer owner came meanwhile.
            StateUnavailableError, StateError: As of ``Store.acquire``.
        """
        draft, found = self._draft, self._found
        assert draft is not None
        wanted, epoch = draft.read(), draft.epoch()
        word, expect = wanted[OWNER], next_step(found, self)
        if take_over(self.inside, epoch - 1, expect, word) != epoch:
            # The epoch rose although nothing else changed: another owner took over.
            raise conflict(self, OWNER)
        put = {p: text for p, text in wanted.items() if found.get(p) != text}
        gone = [p for p in found if p not in wanted]
        if gone or put.keys() != {OWNER}:
            self.inside.write(epoch, put, gone)
        self._draft = None

    def sinks(self, numbering: str) -> dict[str, int]:
        """As ``Store.sinks``."""
        return self.inside.sinks(numbering)

    def _call(self, call: Callable[[Store], _T]) -> _T:
        return call(self._draft or self.inside)
