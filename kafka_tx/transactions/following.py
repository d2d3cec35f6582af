"""Writes that follow what their owner knows: none lands on a store that went back.

A store may be older than its owner remembers, empty, or another one: a database failed
over to a standby that was behind, a file was put back or replaced. The epoch alone does
not tell. So an owner leaves a word of its own in the store, and each write expects the
position that the one before it has left.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from kafka_tx.errors import StateConflictError
from kafka_tx.protocols import Expected, Store, Texts
from kafka_tx.transactions import records
from kafka_tx.transactions.refusals import lost
from kafka_tx.transactions.txid_layout import CURRENT, OWNER


def take_over(
    store: Store, above: int = 0, expect: Expected = None, word: str = ""
) -> int:
    """Become the owner, leave a new word, and return the new epoch.

    Args:
        store: Of the id.
        above: The new epoch is greater.
        expect: As of ``Store.acquire``.
        word: What is left, as it is stored; by chance where it is not given.

    Raises:
        StateConflictError: A path of ``expect`` has another value; no owner was fenced.
        StateUnavailableError: The store does not answer.
        StateError: The store refuses.
    """
    word = word or records.encode(OWNER, secrets.token_hex(8))
    try:
        return store.acquire({OWNER: word}, above=above, expect=expect)
    except StateConflictError:
        if store.get(OWNER) != word:
            raise
        return store.epoch()  # a former try had landed


def write(
    store: Store, epoch: int, put: Texts, delete: Iterable[str], expect: Expected
) -> None:
    """Write what follows ``expect``. Doing it again after an unknown outcome is fine.

    Raises:
        FencedError: A newer owner came.
        StateLostError: The store is neither where it was left, nor where this write
            leads.
        StateUnavailableError: The store does not answer; unknown if it landed.
        StateError: The store refuses.
    """
    gone = list(delete)
    try:
        store.write(epoch, put, gone, expect=expect)
    except StateConflictError:
        landed = {**(expect or {}), **dict.fromkeys(gone), **put}
        try:
            store.write(epoch, {}, expect=landed)
        except StateConflictError:
            raise lost(store, **_reported(store, expect or {})) from None


def _reported(store: Store, expect: Mapping[str, str | None]) -> dict[str, str]:
    found = store.read()
    left, is_now = _committed(store, expect), _committed(store, found)
    if found.get(OWNER) != expect.get(OWNER) and left == is_now:
        is_now += ", of another owner"
    return {"left": left, "found": is_now}


def _committed(store: Store, texts: Mapping[str, str | None]) -> str:
    """The committed txid that these records tell."""
    text = texts.get(CURRENT)
    if text is None:
        return "before txid 1"
    where = {"path": CURRENT, "store": store.url, "id": store.id}
    return f"at txid {int(records.decode(text, CURRENT, **where)) - 1}"
