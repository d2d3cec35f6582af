"""Where a store keeps the txids of an id: the same for sources and topologies.

::

    currtx              the txid that is first in line (committed + 1)
    meta/<txid>         what a txid holds; those from currtx on are unfinished
    committed           sources: txid, offsets of all partitions, when it was
    owner               a word that only the present owner knows
    coordinator/currtx  topologies: a seal, see below

Version 0.1.0 kept what a topology has below ``coordinator/``. The first owner of this
version moves it in one atomic, fenced write and leaves the seal: a record of a version
that 0.1.0 refuses to read, since without one it would begin anew with txid 1. A new
topology is sealed before its first batch for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from kafka_tx.errors import StateError
from kafka_tx.protocols import Store
from kafka_tx.transactions import records

CURRENT = "currtx"
COMMITTED = "committed"
METADATA = "meta/"
OWNER = "owner"
FORMER = "coordinator/"
"""Below which version 0.1.0 kept the txids of a topology."""

_FORMER_CURRENT = f"{FORMER}{CURRENT}"
_SEAL = {_FORMER_CURRENT: '{"v":2,"kind":"currtx","crc":"","data":"see currtx, meta/"}'}


class Door(StrEnum):
    """What an id is the id of."""

    SOURCE = "source"
    TRANSACTIONAL = "transactional topology"
    AT_LEAST_ONCE = "at-least-once topology"


def is_sealed(texts: Mapping[str, str]) -> bool:
    """Whether these are the records of a topology, in the layout of today."""
    return _SEAL.items() <= texts.items()


def without_seal(texts: Mapping[str, str]) -> dict[str, str]:
    """The records that say something."""
    return {p: t for p, t in texts.items() if _SEAL.get(p) != t}


def is_numbered(path: str) -> bool:
    """Whether a record at this path says which txid there is or what it holds."""
    return path in {CURRENT, COMMITTED} or path.startswith(METADATA)


def position(texts: Mapping[str, str]) -> dict[str, str | None]:
    """The records that tell where an id is, and whose it is.

    Every step of an owner changes one of them, and none comes back to what it was: a
    store that holds all of them is where it was left.
    """
    newest = max(filter(_is_of_txid, texts), key=_txid_of, default=None)
    paths = [CURRENT, OWNER, *([newest] if newest else [])]
    return {path: texts.get(path) for path in paths}


def _is_of_txid(path: str) -> bool:
    return path.startswith(METADATA) and path.removeprefix(METADATA).isdecimal()


def _txid_of(path: str) -> int:
    return int(path.removeprefix(METADATA))


def door_of(texts: Mapping[str, str]) -> Door | None:
    """What the records of an id say that it is; None: they say nothing."""
    if is_sealed(texts):
        return Door.TRANSACTIONAL
    if any(map(is_numbered, texts)):
        return Door.SOURCE
    return Door.TRANSACTIONAL if any(_former(texts)) else None


def root_of_topology(texts: Mapping[str, str]) -> str:
    """What the paths of a topology's txids begin with: nothing, or ``FORMER``."""
    return FORMER if not is_sealed(texts) and any(_former(texts)) else ""


def up_to_date(store: Store, epoch: int) -> Mapping[str, str]:
    """The records of a topology's new owner, moved to the layout of today if need be.

    Doing it twice is harmless: after a write whose outcome is unknown, start again.

    Args:
        store: Of the id.
        epoch: Of the new owner; it is read after that was acquired.

    Raises:
        StateError: The id is a source's.
        StateCorruptedError: ``coordinator/currtx`` cannot be read.
        FencedError: A newer owner came; nothing was changed.
        StateUnavailableError: The store does not answer; unknown if the write landed.
    """
    texts = store.read()
    if is_sealed(texts):
        return texts
    if _FORMER_CURRENT in texts:  # else it is the seal of a version to come
        where = {"path": _FORMER_CURRENT, "store": store.url, "id": store.id}
        records.decode(texts[_FORMER_CURRENT], CURRENT, **where)
    if door_of(texts) is Door.SOURCE:
        raise another_door(store, Door.SOURCE)
    former = list(_former(texts))
    put = {path.removeprefix(FORMER): texts[path] for path in former} | _SEAL
    store.write(epoch, put, [path for path in former if path not in put])
    return {p: t for p, t in texts.items() if p not in former} | put


def another_door(store: Store, door: Door) -> StateError:
    """The error for an id that something of another kind uses."""
    return StateError(
        f"id '{store.id}' in {store.url} is that of a {door}, which counts txids of its"
        " own. Nothing was changed. Give this one an id that nothing else uses: it"
        " begins there with txid 1 and at its startingOffsets",
        store=store.url,
        id=store.id,
    )


def _former(texts: Iterable[str]) -> Iterable[str]:
    return (path for path in texts if path.startswith(FORMER))
