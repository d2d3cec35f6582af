"""Finds the faults in the records of an id, and the smallest change that repairs them.

Only readable records decide: the position comes from ``committed``, or else from the
metadata around ``currtx``. Unreadable metadata is deleted, with all later metadata. So
are records on which no position depends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_tx.errors import StateCorruptedError
from kafka_tx.model import BatchMetadata
from kafka_tx.protocols import Store
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import (
    Committed,
    after,
    position_records,
    read_batch,
    read_committed,
    read_txid,
)
from kafka_tx.transactions.layout.commit_stats import STATS
from kafka_tx.transactions.layout.stops import STOP
from kafka_tx.transactions.layout.txid_layout import (
    ALIVE,
    ASKED,
    CALL,
    COMMITTED,
    CURRENT,
    METADATA,
    NUMBERING,
    OWNER,
    QUERY,
    Door,
    Numbering,
    door_of,
    is_numbered,
    metadata_path,
    new_name,
    read_numbering,
    txid_of,
)

FOR_PEOPLE = frozenset({STATS, STOP})
"""Records by which nothing is decided: one that is damaged can be deleted."""
NOTES = FOR_PEOPLE | {ALIVE, CALL, OWNER, QUERY}
"""The same, once nobody owns the id any more: the next owner writes them anew."""
_BESIDE = NOTES | {ASKED}
"""Records on which no position depends. It only counts that ``asked`` is there."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One atomic write that makes the ledger readable.

    ``position`` is the committed one after it, taken from the record ``source``; None:
    it stays as it is. The ranges of ``given_up`` are deleted: these unfinished txids
    will be planned anew.
    """

    position: Committed | None
    source: str
    put: Mapping[str, str]
    delete: tuple[str, ...]
    given_up: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of reading every record of an id.

    Attributes:
        problems: Path and reason of each faulty record, by path.
        repair: None if nothing is wrong, or if the readable records do not show the
            committed position.
    """

    problems: Mapping[str, str]
    repair: Repair | None


def examine(store: Store) -> Examination:
    """Check every record of an id, a source's or a topology's. Writes nothing.

    Raises FormatError: Another version has written one, and nothing is to be repaired.
    """
    readable = _Readable(store)
    is_source = readable.door is not Door.TRANSACTIONAL
    position, source = readable.position() if is_source else readable.of_topology()
    gone = readable.unused(position.txid, all_before=is_source) if position else ()
    for path in gone:
        readable.problems.setdefault(
            path, "it is not next to one that is there and readable"
        )
    is_readable = readable.problems.keys() <= _BESIDE
    if position is None and CURRENT in readable.texts and is_readable:
        readable.problems[COMMITTED] = f"it is missing, and '{CURRENT}' exists"
    if readable.numbering is None and not is_source:
        readable.problems.setdefault(NUMBERING, "it is missing")
    notes = tuple(sorted(readable.problems.keys() & NOTES))
    asked = _asked_anew(readable.problems)
    if readable.problems and readable.problems.keys() <= _BESIDE:
        return Examination(readable.problems, Repair(None, "", asked, notes, ()))
    if position is None or readable.problems.keys() <= readable.others.keys():
        return Examination(readable.problems, None)
    given_up = tuple(sorted(n for n in map(txid_of, gone) if n > position.txid))
    put = position_records(position) | asked
    if not is_source:
        del put[COMMITTED]
    if readable.numbering is None:  # sinks refuse a new numbering until adopted
        put |= Numbering(new_name(), readable.door or Door.SOURCE).record
    repair = Repair(position, source, put, (*gone, *notes), given_up)
    return Examination(readable.problems, repair)


def _asked_anew(problems: Mapping[str, str]) -> dict[str, str]:
    """``asked``, if it is damaged or the query is: a described one was asked, too."""
    is_needed = problems.keys() & {ASKED, QUERY}
    return {ASKED: records.encode(ASKED, True)} if is_needed else {}


class _Readable:
    """Every record, as far as it can be read: ``texts`` of numbered batches, others."""

    def __init__(self, store: Store) -> None:
        self._where = store.url, store.id
        found = store.read()
        records.check_formats(found, *self._where)
        self.door = door_of(found)
        is_of_batches = self.door in {Door.SOURCE, Door.TRANSACTIONAL}
        ours = list(filter(is_numbered, found)) if is_of_batches else []
        self.texts = {path: found[path] for path in ours}
        self.others = {path: found[path] for path in found if path not in ours}
        self.problems: dict[str, str] = {}
        self.committed: Committed | None = self._read(COMMITTED, read_committed)
        self.current: int | None = self._read(CURRENT, read_txid)
        self.numbering: Numbering | None = self._read(NUMBERING, read_numbering)
        self.batches = self._batches()
        for path in self.others:
            self._read(path, lambda payload: payload)

    def position(self) -> tuple[Committed | None, str]:
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
        if COMMITTED not in self.texts and self.current > 1:
            self.problems[COMMITTED] = (
                f"it is missing, and '{CURRENT}' is {self.current}"
            )
        last = self.batches.get(self.current - 1)
        if last is not None:
            return self._read_until(last.txid), metadata_path(last.txid)
        first_open = self.batches.get(self.current)
        if first_open is not None:
            position = Committed(
                self.current - 1, first_open.starts(), first_open.topic_ids
            )
            return position, metadata_path(first_open.txid)
        return None, ""

    def _read_until(self, txid: int) -> Committed | None:
        """The position after a batch, from all that are stored without a gap before."""
        first = txid
        while first - 1 in self.batches:
            first -= 1
        found: Committed | None = None
        for each in range(first, txid + 1):
            found = after(found, self.batches[each], 0)
        return found

    def of_topology(self) -> tuple[Committed | None, str]:
        """The same for a topology, which goes on from the metadata before ``currtx``.

        If ``currtx`` cannot be read, the lowest metadata decides: a commit deletes all
        metadata below its own.
        """
        lowest = min(filter(None, map(txid_of, self.texts)), default=1)
        if self.current is None and (CURRENT in self.texts or lowest > 1):
            self.problems.setdefault(CURRENT, "it is missing")
            known = Committed(lowest, {}) if lowest in self.batches else None
            return known, metadata_path(lowest)
        txid = (self.current or 1) - 1
        if txid and txid not in self.batches:
            reason = f"it is missing, and '{CURRENT}' is {self.current}"
            self.problems.setdefault(metadata_path(txid), reason)
            return None, ""
        return Committed(txid, {}), CURRENT

    def unused(self, txid: int, *, all_before: bool) -> tuple[str, ...]:
        """Metadata of no use once ``txid`` is committed; ``all_before``: keep lower."""
        used = {n for n in self.batches if n == txid or (n < txid and all_before)}
        while (txid := txid + 1) in self.batches:
            used.add(txid)
        paths = (path for path in self.texts if path.startswith(METADATA))
        return tuple(sorted(p for p in paths if txid_of(p) not in used))

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
        at = records.Place(path, *self._where)
        try:
            return records.decode_as(kind, text, read, at)
        except StateCorruptedError as error:
            self.problems[path] = str(error.fields["reason"])
        return None


def _said_kind(text: str) -> str:
    try:
        return str(json.loads(text)["kind"])
    except (ValueError, TypeError, KeyError):
        return "any"
