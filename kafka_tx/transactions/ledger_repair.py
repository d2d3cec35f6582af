"""What is wrong with a ledger's records, and the smallest change that mends it.

The readable records decide, nothing is made up: the position comes from ``committed``,
else from the ranges around ``currtx``. Metadata that cannot be read goes, and all that
came after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_tx.errors import ConfigError, KafkaTxError, StateCorruptedError
from kafka_tx.model import BatchMetadata, TopicPartition
from kafka_tx.offsets.discovery import is_another
from kafka_tx.protocols import Store
from kafka_tx.transactions import records
from kafka_tx.transactions.ledger import LedgerState
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


def moved(
    state: LedgerState,
    given: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    now_ms: int,
    txid: int = 0,
    leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> Committed:
    """The position with these offsets instead; partitions not given keep theirs.

    Open txids, and those up to ``txid``, are given up and never used again. The offsets
    count for topics of these ids, or for whatever exists when they are used, and for
    logs as leaders of these epochs held them, where these are known. ``txid``:
    that a sink holds; 0: nobody has looked, and a number that a checkpoint has decided
    stays as doubtful as before.
    """
    former = state.committed or Committed(0, {})
    same = _same(former, topic_ids)
    topics = {partition.topic for partition in given}
    kept = {t: id_ for t, id_ in former.topic_ids.items() if t not in topics}
    return Committed(
        txid=max([txid, state.txid, *state.planned]),
        offsets={**same, **given},
        topic_ids={**kept, **topic_ids},
        completed_ms=now_ms,
        by_checkpoint=former.by_checkpoint and not txid,
        leader_epochs={
            **former.epochs_of(same.keys() - given),
            **(leader_epochs or {}),
        },
    )


def _same(former: Committed, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """Offsets of topics that have not become others."""
    ids = former.topic_ids
    return {
        p: at
        for p, at in former.offsets.items()
        if not is_another(ids.get(p.topic), topic_ids.get(p.topic))
    }


def forgotten(state: LedgerState, topic: str, now_ms: int) -> Committed:
    """The position as if the topic had never been read. Open txids are given up."""
    former = state.committed or Committed(0, {})
    offsets = {p: at for p, at in former.offsets.items() if p.topic != topic}
    return Committed(
        txid=max([state.txid, *state.planned]),
        offsets=offsets,
        topic_ids={t: id_ for t, id_ in former.topic_ids.items() if t != topic},
        completed_ms=now_ms,
        by_checkpoint=former.by_checkpoint,
        leader_epochs=former.epochs_of(offsets),
    )


@dataclass
class Chain:
    """The records of a topology, read as far as they can be.

    A topology goes on from the metadata of the txid before ``currtx``, with every txid
    from there on, without a hole. ``currtx`` says which one that is; where it cannot be
    read, the lowest metadata does: a commit leaves none below its own.

    Attributes:
        texts: Every record of the id, by path.
        store: Address of the store, without secrets.
        id: Whose they are.
        problems: Path and reason of each record that is wrong.
    """

    texts: Mapping[str, str]
    store: str
    id: str
    problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = [path for path in self.texts if path.startswith(METADATA)]
        readable = [path for path in paths if self._read(path, "metadata")]
        self._txids = sorted(map(_txid_of, readable))
        self._others = set(paths) - set(readable)
        names = (path.removeprefix(METADATA) for path in paths)
        self._lowest = min(map(int, filter(_is_txid, names)), default=0)
        self._current = self._stored_current()

    def current(self) -> int | None:
        """The lowest uncommitted txid; None where no readable record tells."""
        if self._current is None:
            self.problems.setdefault(CURRENT, "it is missing")
            return self._lowest + 1 if self._lowest in self._txids else None
        first = max(self._current - 1, 1)
        if self._current > 1 and first not in self._txids:
            self.problems[metadata_path(first)] = (
                f"it is missing, and '{CURRENT}' is {self._current}"
            )
            return None
        return self._current

    def gone(self, current: int) -> tuple[str, ...]:
        """Metadata that is no part of the chain: too old, after a hole, unreadable."""
        txid = max(current - 1, 1)
        kept = set()
        while txid in self._txids:
            kept.add(txid)
            txid += 1
        for txid in set(self._txids) - kept:
            what = "of a committed txid" if txid < current else "after one that is not"
            self.problems.setdefault(metadata_path(txid), f"it is {what} there")
        left = {metadata_path(txid) for txid in self._txids if txid not in kept}
        return tuple(sorted(left | self._others))

    def _stored_current(self) -> int | None:
        """What ``currtx`` says; 1: nothing was ever committed; None: unreadable."""
        if CURRENT not in self.texts:
            return 1 if self._lowest <= 1 else None
        payload = self._read(CURRENT, CURRENT)
        if payload and isinstance(payload[0], int) and payload[0] > 0:
            return payload[0]
        self.problems.setdefault(CURRENT, "its content makes no sense")
        return None

    def _read(self, path: str, kind: str) -> tuple[object] | None:
        """The payload, in a tuple as it may be null; None: unreadable."""
        if path.startswith(METADATA) and not _is_txid(path.removeprefix(METADATA)):
            self.problems[path] = "its name is no txid"
            return None
        where = {"path": path, "store": self.store, "id": self.id}
        try:
            return (records.decode(self.texts[path], kind, **where),)
        except StateCorruptedError as error:
            self.problems[path] = str(error.fields["reason"])
            return None


def _is_txid(name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name


def _txid_of(path: str) -> int:
    return int(path.removeprefix(METADATA))


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
            reported = error.message if isinstance(error, KafkaTxError) else error
            self.problems[path] = f"its content makes no sense ({reported})"
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
