"""Writes that expect the owner's last state: none lands on a restored store.

A store may be older than its owner's last write, empty, or another one: a database
failed over to a standby that was behind, a file was restored or replaced. The epoch
alone does not show this. So an owner writes a random word to the store, and each write
expects the position that the write before has left.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from kafka_tx.errors import StateConflictError
from kafka_tx.protocols import Expected, Store, Texts
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.txid_layout import CURRENT, OWNER, current_of
from kafka_tx.transactions.ownership.refusals import lost


def take_over(
    store: Store, above: int = 0, expect: Expected = None, word: str = ""
) -> int:
    """Become the owner, write a new word, and return the new epoch.

    ``word`` is as stored; random if not given. Else as ``Store.acquire``, whose errors
    it raises.
    """
    word = word or records.encode(OWNER, secrets.token_hex(8))
    try:
        return store.acquire({OWNER: word}, above=above, expect=expect)
    except StateConflictError:
        if store.get(OWNER) != word:
            raise
        return store.epoch()  # an earlier try had landed


def write(
    store: Store, epoch: int, put: Texts, delete: Iterable[str], expect: Expected
) -> None:
    """Write if the store holds ``expect``. Repeat it if the outcome is unknown.

    Raises:
        StateLostError: The store holds neither ``expect`` nor the result of this write.
        FencedError, StateUnavailableError, StateError: As of ``Store.write``.
    """
    gone = list(delete)
    try:
        store.write(epoch, put, gone, expect=expect)
    except StateConflictError:
        landed = {**(expect or {}), **dict.fromkeys(gone), **put}
        try:
            store.write(epoch, {}, expect=landed)
        except StateConflictError:
            raise lost(store, **_difference(store, expect or {})) from None


def _difference(store: Store, expect: Mapping[str, str | None]) -> dict[str, str]:
    found = store.read()
    left, is_now = _committed(store, expect), _committed(store, found)
    if left == is_now:
        is_same = found.get(OWNER) == expect.get(OWNER)
        is_now += ", with other planned batches" if is_same else ", of another owner"
    return {"left": left, "found": is_now}


def _committed(store: Store, texts: Mapping[str, str | None]) -> str:
    txid = current_of(texts, store.url, store.id) - 1
    return "before txid 1" if texts.get(CURRENT) is None else f"at txid {txid}"
