"""The paths of an id's txids in a store: the same for sources and topologies.

::

    numbering    name and door of the numbering; written with the first txid
    currtx       the next txid to commit (committed + 1)
    meta/<txid>  metadata of a txid; unfinished from currtx on. Of the Kafka
                 source and spouts a range for each partition, of other spouts JSON
    committed    sources: txid, offsets of all partitions, time of the commit
    held         numbers about the last committed txids, for people
    query        sources: the shape of the query that reads the id
    asked        sources: somebody has asked for the txid of a batch
    owner        a word that only the current owner knows
    alive        a word that the owner changes when it is called; missing: it let go
    call         a word of a start that asks whether the owner lives; its answer, a new
                 word in ``alive``, removes the call
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafka_tx.errors import StateCorruptedError, StateError
from kafka_tx.protocols import Store
from kafka_tx.transactions.layout import records

NUMBERING = "numbering"
CURRENT = "currtx"
COMMITTED = "committed"
METADATA = "meta/"
OWNER = "owner"
ALIVE = "alive"
CALL = "call"
QUERY = "query"
ASKED = "asked"

_OF_TXID = re.compile(METADATA + r"([1-9][0-9]{0,17})")


class Door(StrEnum):
    """The kind of part that an id belongs to."""

    SOURCE = "source"
    TRANSACTIONAL = "transactional topology"
    AT_LEAST_ONCE = "at-least-once topology"


@dataclass(frozen=True, slots=True)
class Numbering:
    """One sequence of txids, distinct from every other one that also begins with 1.

    The store holds the numbering, so a copy of the store has the same one, and a store
    that begins anew has another one. Sinks store it beside the txid.

    Attributes:
        name: 12 random hexadecimal digits.
        door: The door of the id.
        moved_to: Address of the store to which a tool has copied the id, without
            secrets; no job may begin here again. Empty: not copied.
    """

    name: str
    door: Door
    moved_to: str = ""

    @property
    def record(self) -> dict[str, str]:
        """The record of the numbering."""
        payload = {"name": self.name, "door": self.door.value}
        if self.moved_to:
            payload["moved_to"] = self.moved_to
        return {NUMBERING: records.encode(NUMBERING, payload)}


def new_name() -> str:
    """The name of a numbering that begins now."""
    return secrets.token_hex(6)


def numbering_of(
    texts: Mapping[str, str],
    store: str,
    id: str,  # noqa: A002 - the word of every store
) -> Numbering | None:
    """The numbering of these records; None: no txid yet; raises as ``decode_as``."""
    text = texts.get(NUMBERING)
    if text is None:
        return None
    at = records.Place(NUMBERING, store, id)
    return records.decode_as(NUMBERING, text, read_numbering, at)


def read_numbering(payload: Any) -> Numbering:  # noqa: ANN401 - any JSON
    """The numbering in a payload; KeyError or the like if it holds none."""
    moved_to = str(payload.get("moved_to", ""))
    return Numbering(str(payload["name"]), Door(payload["door"]), moved_to)


def current_of(
    texts: Mapping[str, str | None],
    store: str,
    id: str,  # noqa: A002 - the word of every store
) -> int:
    """The next txid to commit; raises StateCorruptedError if it cannot be read."""
    text = texts.get(CURRENT)
    at = records.Place(CURRENT, store, id)
    return 1 if text is None else int(records.decode(text, CURRENT, at))


def is_numbered(path: str) -> bool:
    """Whether a record at this path holds the current txid or a txid's data."""
    return path in {NUMBERING, CURRENT, COMMITTED} or path.startswith(METADATA)


def position(texts: Mapping[str, str]) -> dict[str, str | None]:
    """The records of an id's current txid, owner and newest metadata.

    Every step of an owner changes one of them, and no old value comes back. So a store
    that holds all of them has not changed.
    """
    newest = max(map(txid_of, texts), default=0)
    paths = [CURRENT, OWNER, *([metadata_path(newest)] if newest else [])]
    return {path: texts.get(path) for path in paths}


def next_step(texts: Mapping[str, str], store: Store) -> dict[str, str | None]:
    """``position``, ``alive``, and no metadata of the txid that the owner plans next.

    A take-over that expects these records notices each step of a living owner, and its
    answer to a call.
    """
    current = current_of(texts, store.url, store.id)
    following = max([current - 1, *map(txid_of, texts)]) + 1
    alive = {ALIVE: texts.get(ALIVE)}
    return {**position(texts), **alive, metadata_path(following): None}


def metadata_path(txid: int) -> str:
    """The path of a txid's metadata. Not padded: sort by number, not by text."""
    return f"{METADATA}{txid}"


def txid_of(path: str) -> int:
    """The txid whose metadata is at a path; 0: the path is not one of metadata."""
    found = _OF_TXID.fullmatch(path)
    return int(found[1]) if found else 0


def door_of(texts: Mapping[str, str]) -> Door | None:
    """The door in the records of an id; None: they name none."""
    try:
        numbering = numbering_of(texts, "", "")
    except StateCorruptedError:  # the reader of the record raises this
        return Door.SOURCE if COMMITTED in texts else Door.TRANSACTIONAL
    if numbering is not None:
        return numbering.door
    return Door.SOURCE if any(map(is_numbered, texts)) else None


def numbered(store: Store, epoch: int) -> Mapping[str, str]:
    """The records of a topology's new owner; a new id gets its numbering now.

    Safe to repeat: after a write whose outcome is unknown, start again. Records are
    read after ``epoch`` was acquired.

    Raises:
        StateError: The id belongs to a source, or was copied to another store.
        StateCorruptedError, FormatError: A record cannot be read.
        FencedError, StateUnavailableError: As ``Store.write``.
    """
    texts = store.read()
    records.check_formats(texts, store.url, store.id)
    if door_of(texts) is Door.SOURCE:
        raise another_door(store.url, store.id, Door.SOURCE)
    refuse_moved(store, texts)
    if numbering_of(texts, store.url, store.id) is not None:
        return texts
    put = Numbering(new_name(), Door.TRANSACTIONAL).record
    store.write(epoch, put)
    return {**texts, **put}


def refuse_moved(store: Store, texts: Mapping[str, str]) -> None:
    """Raise StateError if a tool has copied the id to another store."""
    numbering = numbering_of(texts, store.url, store.id)
    if numbering is not None and numbering.moved_to:
        raise goes_on_elsewhere(store, numbering.moved_to)


def goes_on_elsewhere(store: Store, there: str) -> StateError:
    """The error for an id that a tool has copied to another store."""
    return StateError(
        f"id '{store.id}' was copied from {store.url} to {there}, and goes on"
        f" there. Nothing was changed. Set tx.store, or --store of a command, to"
        f" {there}. To go on here instead, copy it back: `kafka-tx store copy --from"
        f" {there} --to {store.url} --id {store.id}`",
        store=store.url,
        id=store.id,
    )


def another_door(
    store: str,
    id: str,  # noqa: A002 - the word of every store
    door: Door,
) -> StateError:
    """The error for an id that another door uses."""
    return StateError(
        f"id '{id}' in {store} is that of a {door}, which counts txids of its"
        " own. Nothing was changed. Give this one an id that nothing else uses: it"
        " begins there with txid 1 and at its startingOffsets",
        store=store,
        id=id,
    )
