"""Taking an id over in two steps: judge what is stored, then become its owner.

A start that is refused must not have fenced the owner that is at work. So a new owner
acts on a draft first, in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafka_tx.errors import StateConflictError
from kafka_tx.protocols import NOTHING, Store, Texts
from kafka_tx.transactions.following import take_over
from kafka_tx.transactions.memory import Draft, MemorySnapshot
from kafka_tx.transactions.refusals import at_work, conflict
from kafka_tx.transactions.state_of_id import StoreAround
from kafka_tx.transactions.txid_layout import OWNER, next_step

_T = TypeVar("_T")

TRIES = 10
"""How often an owner that is at work may change the store while it is taken over."""


def taken_over(store: RehearsedStore, open_parts: Callable[[], _T]) -> _T:
    """What is opened on the draft, once the id is taken over as it was found.

    Raises:
        OwnerLivesError: It changed the store each time; it was not fenced.
        Exception: What ``open_parts`` raises; nobody was fenced, nothing was written.
    """
    for _ in range(TRIES):
        store.rehearse()
        parts = open_parts()
        try:
            store.perform()
        except StateConflictError:
            continue
        return parts
    raise at_work(store)


class RehearsedStore(StoreAround):
    """A Store over another one that can keep what happens to itself for a while.

    1. ``rehearse``: from here on a draft is read and written, a copy in memory of what
       is stored. ``acquire`` gives the epoch that a new owner would get.
    2. ``perform``: if the store is where it was, its owner is fenced, and the draft
       becomes what is stored. From here on, and before 1, calls go to the store.
    """

    def __init__(self, inside: Store) -> None:
        super().__init__(inside)
        self._draft: Draft | None = None
        self._found: Texts = NOTHING

    def rehearse(self) -> None:
        """Begin a draft, in place of one that was begun.

        Raises:
            StateUnavailableError: The store does not answer.
            StateError: The store refuses.
        """
        epoch = self.inside.epoch()  # first: one that is too old only conflicts
        self._found = self.inside.read()
        self._draft = Draft(self.inside, MemorySnapshot(epoch, self._found))

    def perform(self) -> None:
        """Take over, and store the draft.

        Raises:
            StateConflictError: The store has changed since ``rehearse``. No owner that
                changed it was fenced, nothing was written.
            FencedError: A newer owner came meanwhile.
            StateUnavailableError, StateError: As of ``rehearse``.
        """
        draft, found = self._draft, self._found
        assert draft is not None
        wanted, epoch = draft.read(), draft.epoch()
        word, expect = wanted[OWNER], next_step(found, self)
        if take_over(self.inside, epoch - 1, expect, word) != epoch:
            # somebody took over and left no word
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
