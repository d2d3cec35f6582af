"""What is wrong with a ledger's records, and the smallest change that mends it.

The readable records decide, nothing is made up: the position comes from ``committed``,
else from the ranges around ``currtx``. Metadata that cannot be read goes, and all that
came after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_tx.errors import ConfigError, KafkaTxError, StateCorruptedError
from kafka_tx.model import BatchMetadata
from kafka_tx.protocols import Store
from kafka_tx.transactions import records
from kafka_tx.transactions.chain_repair import Chain
from kafka_tx.transactions.ledger_records import (
    Committed,
    after,
    metadata_path,
    position_records,
    read_batch,
    read_committed,
)
from kafka_tx.transactions.txid_layout import (
    COMMITTED,
    CURRENT,
    METADATA,
    NUMBERING,
    Door,
    Numbering,
    door_of,
    is_numbered,
    new_name,
    read_numbering,
)

_NO_SENSE = (ValueError, TypeError, KeyError, AttributeError, ConfigError)


@dataclass(frozen=True, slots=True)
class Repair:
    """One atomic write that makes the ledger readable.

    Attributes:
        position: What is committed afterwards.
        source: The record that the position is taken from.
        put: Records to set.
        delete: Records to take away.
        given_up: Open txids whose ranges are taken away: they will be planned anew.
    """

    position: Committed
    source: str
    put: Mapping[str, str]
    delete: tuple[str, ...]
    given_up: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Examination:
    """What a look at every record of an id found.

    Attributes:
        problems: Path and reason of each record that is wrong, by path.
        repair: None where nothing is wrong, or where the readable records do not say
            what is committed.
    """

    problems: Mapping[str, str]
    repair: Repair | None


def examine(store: Store) -> Examination:
    """Look at every record of an id, a source's or a topology's. Writes nothing.

    Raises:
        StateUnavailableError: The store does not answer.
        StateError: The store refuses.
    """
    look = _Look(store)
    if look.door is Door.TRANSACTIONAL:
        return _examine_chain(look, store)
    position, source = look.position()
    kept = _kept(look, position)
    gone = tuple(p for p in look.texts if p.startswith(METADATA) and p not in kept)
    for path in gone:
        look.problems.setdefault(path, "it follows one that is missing or unreadable")
    if position is None and CURRENT in look.texts and not look.problems:
        look.problems[COMMITTED] = f"it is missing, and '{CURRENT}' exists"
    if position is None or look.problems.keys() <= look.others.keys():
        return Examination(look.problems, None)
    given_up = tuple(n for n in look.named_txids(gone) if n > position.txid)
    put = position_records(position)
    if look.numbering is None:  # sinks refuse the new one until it is adopted
        put |= Numbering(new_name(), Door.SOURCE).record
    return Examination(
        look.problems, Repair(position, source, put, gone, tuple(sorted(given_up)))
    )


def _examine_chain(look: _Look, store: Store) -> Examination:
    others = [path for path in look.others if is_numbered(path)]
    problems = {p: r for p, r in look.problems.items() if p not in others}
    chain = Chain(look.others, store.url, store.id)
    current = chain.current()
    gone = chain.gone(current) if current else ()
    if look.numbering is None:
        chain.problems[NUMBERING] = look.problems.get(NUMBERING, "it is missing")
    problems |= chain.problems
    if current is None or not chain.problems:
        return Examination(problems, None)
    put = {CURRENT: records.encode(CURRENT, current)}
    if look.numbering is None:  # sinks refuse the new one until it is adopted
        put |= Numbering(new_name(), Door.TRANSACTIONAL).record
    given_up = tuple(sorted(n for n in look.named_txids(gone) if n >= current))
    source = CURRENT if CURRENT not in chain.problems else metadata_path(current - 1)
    position = Committed(current - 1, {})
    return Examination(problems, Repair(position, source, put, gone, given_up))


class _Look:
    """Every record, read as far as it can be.

    Attributes:
        door: What the id is the id of.
        texts: Those of a source's ledger.
        others: All others.
    """

    def __init__(self, store: Store) -> None:
        self._where = {"store": store.url, "id": store.id}
        found = store.read()
        self.door = door_of(found)
        is_source = self.door is Door.SOURCE
        ours = list(filter(is_numbered, found)) if is_source else []
        self.texts = {path: found[path] for path in ours}
        self.others = {path: found[path] for path in found if path not in ours}
        self.problems: dict[str, str] = {}
        self.committed: Committed | None = self._read(COMMITTED, read_committed)
        self.current: int | None = self._read(CURRENT, int)
        self.numbering: Numbering | None = self._read(NUMBERING, read_numbering)
        self.batches = self._batches()
        for path in self.others:
            self._read(path, lambda payload: payload)

    def position(self) -> tuple[Committed | None, str]:
        """What is committed, and which record says so."""
        if self.committed is not None:
            first = self.committed.txid + 1
            if self.current is not None and self.current != first:
                self.problems[CURRENT] = (
                    f"it says {self.current}, '{COMMITTED}' {first}"
                )
            if self.current is None and CURRENT not in self.problems:
                self.problems[CURRENT] = "it is missing"
            return self.committed, COMMITTED
        if self.current is None:
            return None, ""
        last = self.batches.get(self.current - 1)
        if last is not None:
            return after(None, last, 0), metadata_path(last.txid)
        first_open = self.batches.get(self.current)
        if first_open is not None:
            position = Committed(
                self.current - 1, first_open.starts(), first_open.topic_ids
            )
            return position, metadata_path(first_open.txid)
        return None, ""

    def named_txids(self, paths: tuple[str, ...]) -> list[int]:
        """The txids that metadata paths are named after; other names are left out."""
        names = [path.removeprefix(METADATA) for path in paths]
        return [int(name) for name in names if name.isdecimal()]

    def _batches(self) -> dict[int, BatchMetadata]:
        found: dict[int, BatchMetadata] = {}
        for path in self.texts:
            if not path.startswith(METADATA):
                continue
            batch: BatchMetadata | None = self._read(path, read_batch)
            if batch is not None and metadata_path(batch.txid) == path:
                found[batch.txid] = batch
            elif batch is not None:
                self.problems[path] = f"it is the record of txid {batch.txid}"
        return found

    def _read(self, path: str, read: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        text = self.texts.get(path)
        kind = "batch" if path.startswith(METADATA) else path
        if path in self.others:
            text = self.others[path]
            kind = _said_kind(text)
        if text is None:
            return None
        try:
            return read(records.decode(text, kind, path=path, **self._where))
        except StateCorruptedError as error:
            self.problems[path] = str(error.fields["reason"])
        except _NO_SENSE as error:
            told = error.message if isinstance(error, KafkaTxError) else error
            self.problems[path] = f"its content makes no sense ({told})"
        return None


def _kept(look: _Look, position: Committed | None) -> set[str]:
    """Metadata of the committed txid, and of open ones up to the first hole."""
    if position is None:
        return {p for p in look.texts if p.startswith(METADATA)}
    kept = {metadata_path(n) for n in look.batches if n <= position.txid}
    txid = position.txid + 1
    while txid in look.batches:
        kept.add(metadata_path(txid))
        txid += 1
    return kept


def _said_kind(text: str) -> str:
    """The kind that a record says it is of."""
    try:
        return str(json.loads(text)["kind"])
    except (ValueError, TypeError, KeyError):
        return "any"
